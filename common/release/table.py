"""The table of a release: its columns and its CSV form.

The columns are `record` (int64 from 1), the owner of the record where the plan says so (dictionary<string>),
then the attributes in plan order as int64, double, date32, dictionary<string> or bool
(`common.release.values`). Every column carries its description as field metadata.

CSV is UTF-8 and RFC 4180, with every value exactly as the release means it. Arrow's own CSV writer ends lines
with a single line feed and writes small decimals with an exponent. Therefore the lines are assembled here,
one batch at a time and without a loop over records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.canonical import canonical, digest
from common.model.events import EVENT_COLUMN, EventTable
from common.model.plan import Plan
from common.model.schema import Attribute
from common.model.task import PlannedAttribute
from common.release.values import columns_of, release_type, units_of_doubles, unscaled

DRAWN = "made of noisy counts"
RECORD_COLUMN = "record"
"""Number of the released record, from 1, in random order."""


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


def release_table(plan: Plan, units: Mapping[str, Int64Array], n_records: int, first: int = 1) -> pa.Table:
    """Return records as a table of a release, numbered from `first`; the rest is as of `columns_of`."""
    numbers = pa.array(np.arange(first, first + n_records, dtype=np.int64))
    columns = columns_of(plan.columns, units)
    return pa.table([numbers, *columns], schema=release_schema(plan))


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
        return _decimal_text(pc.cast(unscaled(column), pa.int64()), kind.scale)
    if pa.types.is_floating(kind):
        decimals = int(field.metadata[b"decimals"])
        units = units_of_doubles(pa.chunked_array([column]), decimals)
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
