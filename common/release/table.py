"""The table of a release: its columns, its values in resolution units and in release types, and its CSV form.

The columns are `record` (int64 from 1), the owner of the record where the plan says so (dictionary<string>),
then the attributes in plan order as int64, double, date32, dictionary<string> or bool. A number is the double
nearest to it, from which its decimal digits follow exactly; where its domain has more than 15 digits they
would not, and it is a decimal128. Every column carries its description as field metadata.

CSV is UTF-8 and RFC 4180, with every value exactly as the release means it. Arrow's own CSV writer ends lines
with a single line feed and writes small decimals with an exponent. Therefore the lines are assembled here,
one batch at a time and without a loop over records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.canonical import canonical, digest
from common.model.events import EVENT_COLUMN, EventTable
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType
from common.model.task import PlannedAttribute

if TYPE_CHECKING:
    import pandas as pd

DRAWN = "made of noisy counts"
RECORD_COLUMN = "record"
"""Number of the released record, from 1, in random order."""
_MOST_DIGITS = 15
"""Decimal numbers of up to this many digits survive the conversion to a double and back."""


class _Form:
    """How the values of a type stand in a release: in Arrow, and in a DataFrame. This one is of integers.

    Its units are those of 10^-decimals.
    """

    def type(self, _attribute: Attribute) -> pa.DataType:
        """Return the Arrow type."""
        return pa.int64()

    def from_units(self, attribute: Attribute, units: Int64Array) -> pa.Array:
        """Turn units, none of which is missing, into values."""
        return pc.cast(pa.array(units, pa.int64()), self.type(attribute))

    def to_units(self, _attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Turn values, or their texts, none of which is missing, into int64."""
        return pc.cast(column, pa.int64())

    def to_series(self, attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
        """Return a released column as pandas has it."""
        import pandas as pd

        if not attribute.keeps_missing:
            return pd.Series(column.to_numpy())
        units = to_units(attribute, column).to_numpy()
        return pd.Series(units * attribute.step, dtype="Int64").mask(units > attribute.upper)


class _Number(_Form):
    def type(self, attribute: Attribute) -> pa.DataType:
        digits = len(str(max(abs(attribute.lower), abs(attribute.upper)) * attribute.step))
        exact = pa.decimal128(max(digits, attribute.decimals + 1), attribute.decimals)
        return pa.float64() if digits <= _MOST_DIGITS else exact

    def from_units(self, attribute: Attribute, units: Int64Array) -> pa.Array:
        kind = self.type(attribute)
        if pa.types.is_floating(kind):
            return pa.array(units / np.float64(10**attribute.decimals))
        # A decimal128 is its units as a 128-bit integer: the same bytes under another scale.
        wide = pc.cast(pa.array(units, pa.int64()), pa.decimal128(38, 0))
        return pa.Array.from_buffers(kind, len(units), wide.buffers())

    def to_units(self, attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_floating(column.type):
            return _units_of_doubles(column, attribute.decimals)
        exact = pc.cast(column, pa.decimal128(38, attribute.decimals))
        return pc.cast(pa.chunked_array(map(_unscale, exact.chunks), pa.decimal128(38, 0)), pa.int64())

    def to_series(self, _attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
        import pandas as pd

        if pa.types.is_decimal(column.type):
            return pd.Series(pd.array(column.combine_chunks(), dtype=pd.ArrowDtype(column.type)))
        return pd.Series(column.to_numpy())


class _Date(_Form):
    def type(self, _attribute: Attribute) -> pa.DataType:
        return pa.date32()

    def from_units(self, _attribute: Attribute, units: Int64Array) -> pa.Array:
        return pc.cast(pc.cast(pa.array(units, pa.int64()), pa.int32()), pa.date32())

    def to_units(self, _attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.cast(pc.cast(pc.cast(column, pa.date32()), pa.int32()), pa.int64())

    def to_series(self, attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
        import pandas as pd

        days = to_units(attribute, column).to_numpy()
        dates = pd.Series(days.astype("datetime64[D]").astype("datetime64[s]"))
        return dates.mask(days > attribute.upper) if attribute.keeps_missing else dates


class _Category(_Form):
    def type(self, attribute: Attribute) -> pa.DataType:
        return pa.dictionary(pa.int32(), pa.string(), ordered=attribute.ordered)

    def from_units(self, attribute: Attribute, units: Int64Array) -> pa.Array:
        labels, indices = pa.array(attribute.categories, pa.string()), pa.array(units, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, labels, ordered=attribute.ordered)

    def to_units(self, attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        labels = pa.array(attribute.categories, pa.string())
        return pc.cast(pc.index_in(pc.cast(column, pa.string()), value_set=labels), pa.int64())

    def to_series(self, attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
        import pandas as pd

        labels = pd.CategoricalDtype(list(attribute.categories), ordered=attribute.ordered)
        return pd.Series(pd.Categorical.from_codes(self.to_units(attribute, column).to_numpy(), dtype=labels))


class _Boolean(_Form):
    def type(self, _attribute: Attribute) -> pa.DataType:
        return pa.bool_()

    def to_units(self, _attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.cast(pc.cast(column, pa.bool_()), pa.int64())


_FORMS: Mapping[AttributeType, _Form] = {
    AttributeType.INTEGER: _Form(),
    AttributeType.NUMBER: _Number(),
    AttributeType.DATE: _Date(),
    AttributeType.CATEGORY: _Category(),
    AttributeType.BOOLEAN: _Boolean(),
}


def release_type(attribute: Attribute) -> pa.DataType:
    """Return the Arrow type of a released attribute."""
    return _FORMS[attribute.type].type(attribute)


def to_series(attribute: Attribute, column: pa.ChunkedArray) -> "pd.Series":
    """Return a released column as pandas has it (`common.analysis.reading.to_frame`)."""
    return _FORMS[attribute.type].to_series(attribute, column)


def release_schema(plan: Plan) -> pa.Schema:
    """Return the schema of a release, with the description of every attribute as metadata of its field."""
    record = {"description": "number of the released record, from 1, in random order"}
    owner = {"description": "owner that the record came from"}
    ways: dict[str, list[PlannedAttribute]] = {each.name: [] for each in plan.attributes}
    for task in plan.tasks:
        for planned in task.attributes:
            ways[planned.name].append(planned)
    return pa.schema(
        [
            pa.field(RECORD_COLUMN, pa.int64(), nullable=False, metadata=record),
            *(
                pa.field(column.name, release_type(column), nullable=False, metadata=owner)
                for column in plan.owner_columns.values()
            ),
            *(_field(each, ways.get(each.name, ())) for each in plan.released),
        ]
    )


def events_schema(events: EventTable) -> pa.Schema:
    """Return the schema of a table of events."""
    record = {"description": "number of the person's record in the data file"}
    event = {"description": f"number of the event of this person, from 1 to {events.at_most}, in order"}
    return pa.schema(
        [
            pa.field(RECORD_COLUMN, pa.int64(), nullable=False, metadata=record),
            pa.field(EVENT_COLUMN, pa.int64(), nullable=False, metadata=event),
            *(describe_field(each, DRAWN) for each in events.columns),
        ]
    )


def _field(attribute: Attribute, ways: Sequence[PlannedAttribute]) -> pa.Field:
    """Return the field of an attribute, from how each of its owners masks it."""
    if not ways:
        return describe_field(attribute, attribute.origin or DRAWN)
    masking = describe_masking(ways)
    words = ", ".join(f"{name} {value}" for name, value in masking.items())
    return describe_field(attribute, f"masked with {words}", masking)


def describe_field(attribute: Attribute, made: str, details: Mapping[str, str] | None = None) -> pa.Field:
    """Return the field of an attribute, with its description as metadata."""
    domain = describe_domain(attribute)
    metadata = {"description": f"{', '.join(domain.values())}; {made}", **domain, **(details or {})}
    if "decimals" in attribute.type.needs:
        metadata["decimals"] = str(attribute.decimals)
    nullable = attribute.keeps_missing
    return pa.field(attribute.name, release_type(attribute), nullable=nullable, metadata=metadata)


def describe_domain(attribute: Attribute) -> dict[str, str]:
    """Return `type`, `domain` and `resolution` of an attribute in words; labels have no resolution."""
    words = {"type": str(attribute.type), "domain": attribute.domain, "resolution": attribute.resolution}
    return {name: text for name, text in words.items() if text}


def describe_masking(ways: Sequence[PlannedAttribute]) -> dict[str, str]:
    """Return how owners mask an attribute: as one value, or as "least to most" where owners differ."""
    settings: dict[str, list[Decimal | int]] = {
        "epsilon": [way.epsilon for way in ways],
        "k": [way.k for way in ways if way.k is not None],
        "rank_noise": [way.rank_noise for way in ways if way.rank_noise],
    }
    return {
        "mechanism": ", ".join(sorted({way.mechanism for way in ways})),
        **{name: span(values) for name, values in settings.items() if values},
    }


def span(values: Iterable[Decimal | int]) -> str:
    """Return values as one, or as "least to most" where they differ."""
    texts = [f"{value:f}" if isinstance(value, Decimal) else str(value) for value in sorted(set(values))]
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def file_metadata(plan: Plan, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return what a Parquet file says about the release that it belongs to.

    Returns:
        `release`, `plan_digest`, and `manifest_digest`: the SHA-256 of the manifest in canonical form,
        without its list of files, since this list has the digest of the Parquet file.
    """
    stated = {key: value for key, value in manifest.items() if key != "files"}
    return {
        "release": plan.release,
        "plan_digest": plan.digest,
        "manifest_digest": digest(canonical(stated)),
    }


def from_units(attribute: Attribute, units: Int64Array) -> pa.Array:
    """Turn values into their release type.

    Args:
        units: Values in resolution units within the attribute's domain, shape (n_records,).

    Returns:
        An array of `release_type(attribute)`, with nulls for missing values.
    """
    form = _FORMS[attribute.type]
    if attribute.keeps_missing:
        missing = units > attribute.upper
        present = form.from_units(attribute, np.where(missing, attribute.lower, units) * attribute.step)
        return pc.if_else(pa.array(missing), pa.scalar(None, present.type), present)
    return form.from_units(attribute, units * attribute.step if attribute.step > 1 else units)


def with_derived_units(
    released: Sequence[Attribute], units: Mapping[str, Int64Array]
) -> dict[str, Int64Array]:
    """Return the values of all released attributes by name, `(n_records,)` each, the derived ones included.

    Args:
        released: These attributes.
        units: Values of those that are masked or drawn, or more, in resolution units.
    """
    bases, derived = {each.name: each for each in released}, {}
    for each in filter(lambda each: each.base, released):
        table = np.array(each.derived_units(bases[each.base]), np.int64)
        derived[each.name] = table[units[each.base] - bases[each.base].lower]
    return {**units, **derived}


def columns_of(released: Sequence[Attribute], units: Mapping[str, Int64Array]) -> list[pa.Array]:
    """Return records as columns of release types, with those that are derived from others.

    Args:
        released: The columns to return, and all that they derive from.
        units: Values in resolution units, shape (n_records,) each, by name of the column.
    """
    known = with_derived_units(released, units)
    return [from_units(each, known[each.name]) for each in released]


def release_table(plan: Plan, units: Mapping[str, Int64Array], n_records: int, first: int = 1) -> pa.Table:
    """Return records as a table of a release, numbered from `first`; the rest is as of `columns_of`."""
    numbers = pa.array(np.arange(first, first + n_records, dtype=np.int64))
    columns = columns_of(plan.columns, units)
    return pa.table([numbers, *columns], schema=release_schema(plan))


def to_units(attribute: Attribute, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn a released column, or its text in a CSV file, back into resolution units.

    Args:
        column: A column of a release.

    Returns:
        The values as int64; null for a category that is not declared.

    Raises:
        pyarrow.ArrowException: If a value is none of the attribute's type.
    """
    form = _FORMS[attribute.type]
    if not attribute.keeps_missing:
        return _in_steps(attribute, form.to_units(attribute, column))
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    units = np.full(len(column), attribute.highest, dtype=np.int64)
    present = _in_steps(attribute, form.to_units(attribute, column.drop_null())).to_numpy()
    if present.size and present.max() > attribute.upper:
        raise pa.ArrowInvalid("a value is beyond the domain, where missing values have their number")
    units[column.is_valid().to_numpy()] = present
    return pa.chunked_array([units])


def _in_steps(attribute: Attribute, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if attribute.step == 1:
        return values
    units, rest = np.divmod(values.to_numpy(), attribute.step)
    if rest.any():
        raise pa.ArrowInvalid("a number is between two steps of the attribute")
    return pa.chunked_array([units])


def _units_of_doubles(column: pa.ChunkedArray, decimals: int) -> pa.ChunkedArray:
    values, scale = column.to_numpy(), np.float64(10**decimals)
    with np.errstate(over="ignore", invalid="ignore"):
        units = np.rint(values * scale)
    # Not a number, infinity and a missing value are no numbers of a domain either.
    if not ((np.abs(units) < 10**_MOST_DIGITS) & (units / scale == values)).all():
        raise pa.ArrowInvalid("a double is not the one nearest to a number of the attribute")
    return pa.chunked_array([units.astype(np.int64)])


def _unscale(decimals: pa.Array) -> pa.Array:
    kind = pa.decimal128(38, 0)
    return pa.Array.from_buffers(kind, len(decimals), decimals.buffers(), offset=decimals.offset)


def in_pieces(tables: Iterable[pa.Table], n_records: int) -> Iterator[pa.Table]:
    """Cut a sequence of tables anew, without copying.

    Args:
        tables: With one schema; empty ones are left out.
        n_records: Records of a piece; the last one can have fewer.
    """
    held: list[pa.Table] = []
    for table in tables:
        rest = table
        while rest.num_rows:
            taken = rest.slice(0, n_records - sum(piece.num_rows for piece in held))
            rest = rest.slice(taken.num_rows)
            held.append(taken)
            if sum(piece.num_rows for piece in held) == n_records:
                yield pa.concat_tables(held)
                held = []
    if held:
        yield pa.concat_tables(held)


_BATCH_RECORDS = 65_536
_NEEDS_QUOTES = '[",\r\n]'


def write_csv_header(stream: BinaryIO, schema: pa.Schema) -> None:
    """Write the header line."""
    header = _quote(pa.array(schema.names, pa.string())).to_pylist()
    stream.write((",".join(header) + "\r\n").encode())


def write_csv_records(stream: BinaryIO, table: pa.Table) -> None:
    """Write the lines of some records of a release.

    Args:
        table: The records; a missing value becomes an empty field. The metadata of a field of doubles says
            how many decimal places its values have (`release_schema`).
    """
    for batch in table.to_batches(max_chunksize=_BATCH_RECORDS):
        columns = [_cells(*pair) for pair in zip(batch.columns, table.schema, strict=True)]
        columns[-1] = pc.binary_join_element_wise(columns[-1], "\r\n", "")
        lines = pc.binary_join_element_wise(*columns, ",")
        stream.write(_content(lines))


def _content(texts: pa.Array) -> memoryview:
    """Return the bytes of all elements of a string array, one after another, without copying them."""
    offsets = texts.buffers()[1]
    ends = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, offsets], offset=texts.offset)
    first, last = ends[0].as_py(), ends[len(texts)].as_py()
    return memoryview(texts.buffers()[2])[first:last]


def _cells(column: pa.Array, field: pa.Field) -> pa.Array:
    if not column.null_count:
        return _text(column, field)
    # Only numbers and dates can be missing; their texts are made of present values alone.
    present = _text(column.drop_null(), field)
    return pc.replace_with_mask(pa.array([""] * len(column), pa.string()), column.is_valid(), present)


def _text(column: pa.Array, field: pa.Field) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        labels = _quote(column.dictionary)
        return labels.take(column.indices)
    if pa.types.is_decimal(kind):
        return _decimal_text(pc.cast(_unscale(column), pa.int64()), kind.scale)
    if pa.types.is_floating(kind):
        decimals = int(field.metadata[b"decimals"])
        units = _units_of_doubles(pa.chunked_array([column]), decimals)
        return _decimal_text(units.combine_chunks(), decimals)
    return pc.cast(column, pa.string())


def _quote(texts: pa.Array) -> pa.Array:
    """Quote what RFC 4180 says must be quoted."""
    doubled = pc.replace_substring(texts, pattern='"', replacement='""')
    wrapped = pc.binary_join_element_wise('"', doubled, '"', "")
    return pc.if_else(pc.match_substring_regex(texts, pattern=_NEEDS_QUOTES), wrapped, texts)


def _decimal_text(units: pa.Array, decimals: int) -> pa.Array:
    """Write numbers, given as int64 in resolution units, with all their places and never with an exponent."""
    # Not the absolute value as text: the lowest 64-bit integer has none.
    digits = pc.utf8_ltrim(pc.cast(units, pa.string()), characters="-")
    if decimals:
        padded = pc.utf8_lpad(digits, width=decimals + 1, padding="0")
        before = pc.utf8_slice_codeunits(padded, start=0, stop=-decimals)
        after = pc.utf8_slice_codeunits(padded, start=-decimals)
        digits = pc.binary_join_element_wise(before, after, ".")
    sign = pc.if_else(pc.less(units, 0), "-", "")
    return pc.binary_join_element_wise(sign, digits, "")
