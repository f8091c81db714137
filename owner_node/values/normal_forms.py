"""Normalises identifiers, so that the same identifier is equal at every owner (docs/linking.md).

A data set declares the steps by name, in the order they are applied, for all columns or for one. Names and
version are part of the schema comparison, so different normalisations are detected before anything is linked.
The meaning of a name never changes under `common.model.schema.NORMALISATION_VERSION`. Nothing here quotes an
identifier.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

ISO_DATE = "%Y-%m-%d"
"""The default format of dates."""


@dataclass(frozen=True, slots=True)
class NormalForm:
    """The normalisation of one identifier column."""

    steps: tuple[str, ...] = ()
    """Names of steps, in the order they are applied."""
    date_format: str = ISO_DATE
    """Format of this source's dates for the step "date", as in `strptime`; owners may differ."""


def _nfkc(column: Any) -> Any:
    """Unicode NFKC: full-width digits, ligatures and composed accents become one form."""
    import pyarrow.compute as pc

    return pc.utf8_normalize(column, form="NFKC")


def _trim(column: Any) -> Any:
    """Remove white space, as Unicode defines it, at both ends."""
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(column)


def _casefold(column: Any) -> Any:
    """Unicode case folding, which Arrow lacks: ASCII becomes lower case, others fold per distinct value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_other = pc.fill_null(pc.invert(pc.string_is_ascii(column)), False)
    folded = pc.ascii_lower(column)
    if not pc.any(is_other).as_py():
        return folded
    others = pc.filter(column, is_other).dictionary_encode()
    labels = pa.array(map(str.casefold, others.dictionary.to_pylist()), column.type)
    return pc.replace_with_mask(folded, is_other, labels.take(others.indices))


def _digits_only(column: Any) -> Any:
    """Keep the digits 0-9; digits of other scripts need the step "nfkc" before."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(column, "[^0-9]", "")


def _strip_leading_zeros(column: Any) -> Any:
    """Remove leading zeros; text of zeros alone becomes one zero."""
    import pyarrow.compute as pc

    stripped = pc.utf8_ltrim(column, characters="0")
    only_zeros = pc.and_(pc.equal(stripped, ""), pc.not_equal(column, ""))
    return pc.if_else(only_zeros, "0", stripped)


def _date(column: Any, date_format: str = ISO_DATE) -> Any:
    """Convert calendar dates to YYYY-MM-DD, whatever their format in this source; empty stays empty.

    Both forms of ISO 8601 are read, 2024-01-31 and 20240131; other formats must be declared.
    """
    import pyarrow.compute as pc

    written, is_date = parse_dates(column, date_format)
    is_empty = pc.fill_null(pc.equal(column, ""), True)
    if wrong := len(column) - (pc.sum(pc.or_(is_date, is_empty)).as_py() or 0):
        form = "ISO dates" if date_format == ISO_DATE else f"dates written {date_format}"
        raise DataError(
            f"{wrong} of {len(column)} identifiers are no {form}",
            'write them as YYYY-MM-DD, or as csv.date_format says, or take "date" out of normalise at every '
            "owner",
            {"count": wrong},
        )
    return pc.if_else(is_empty, column, written)


def parse_dates(column: Any, date_format: str = ISO_DATE) -> tuple[Any, Any]:
    """Parse dates in a declared format.

    Args:
        column: Texts, shape (n_texts,).
        date_format: As in `strptime`; for ISO dates, both forms are read.

    Returns:
        Texts YYYY-MM-DD, and whether each text was a date of the calendar; only then its first is meant.
    """
    return _iso_dates(column) if date_format == ISO_DATE else _declared_dates(column, date_format)


def _iso_dates(column: Any) -> tuple[Any, Any]:
    import pyarrow.compute as pc

    dashed = pc.replace_substring_regex(column, r"^([0-9]{4})([0-9]{2})([0-9]{2})$", r"\1-\2-\3")
    moments = pc.strptime(dashed, format=ISO_DATE, unit="s", error_is_null=True)
    # strptime turns 30 February into 1 March and accepts one-digit months: only a text that does not change
    # was a date of the calendar.
    written = pc.strftime(moments, format=ISO_DATE).cast(column.type)
    return dashed, pc.fill_null(pc.equal(written, dashed), False)


def _declared_dates(column: Any, date_format: str) -> tuple[Any, Any]:
    """Parse dates exactly as the values of attributes are parsed."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from owner_node.values.dates import days

    units, known = days(pc.fill_null(column, ""), date_format)
    return pa.array(units.astype(np.int32), pa.date32()).cast(column.type), pa.array(known)


STEPS: Mapping[str, Callable[[Any], Any]] = {
    "nfkc": _nfkc,
    "trim": _trim,
    "casefold": _casefold,
    "digits-only": _digits_only,
    "strip-leading-zeros": _strip_leading_zeros,
    "date": _date,
}
"""The steps by name; their meaning is fixed by the version."""


def normalise(columns: Sequence["pa.Array"], forms: Sequence[NormalForm]) -> list["pa.Array"]:
    """Normalise identifier columns.

    Args:
        columns: Text columns, each of shape (n_records,); null means missing.

    Returns:
        The columns in normal form, as large strings. Empty results are null: an identifier without a
        character identifies nobody.

    Raises:
        ConfigurationError: If a step is unknown.
        DataError: If the step "date" finds other texts, with the count.
    """
    import pyarrow as pa

    if unknown := [step for form in forms for step in form.steps if step not in STEPS]:
        raise ConfigurationError(
            f"unknown normalisation steps: {', '.join(map(repr, unknown))}",
            hint=f"known are {', '.join(STEPS)}",
        )
    return [
        _normal_form(column.cast(pa.large_string()), form)
        for column, form in zip(columns, forms, strict=True)
    ]


def _normal_form(column: Any, form: NormalForm) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    for step in form.steps:
        column = _date(column, form.date_format) if step == "date" else STEPS[step](column)
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)


def missing(columns: Sequence["pa.Array"]) -> "NDArray[np.bool_]":
    """Return which records lack an identifier: any of its columns is null.

    Args:
        columns: At least one column in normal form, each of shape (n_records,).

    Returns:
        Shape (n_records,).
    """
    import numpy as np

    masks = [column.is_null().to_numpy(zero_copy_only=False) for column in columns]
    lacking: NDArray[np.bool_] = np.logical_or.reduce(masks)
    return lacking
