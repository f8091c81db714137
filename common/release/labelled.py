"""A verified release as a file of SPSS or Stata, with labels, dates and missing values of these programs.

The package pyreadstat writes it (the extra `labelled`). Categories are numbers from 1 with their labels,
booleans 0 and 1. The file is derived and not signed.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from common.errors import ConfigurationError, UsageError
from common.model.schema import MISSING_CATEGORY, Attribute, AttributeType
from common.release.table import RECORD_COLUMN
from common.release.values import to_units


@dataclass(frozen=True, slots=True)
class _Format:
    """A format of a statistical program."""

    function: str
    """Function of pyreadstat."""
    description_bytes: int
    """Longest description of a column."""
    label_bytes: int
    """Longest label of a value."""
    first: date
    """The first day that it has."""
    zero: date
    """The day with number 0."""
    day: int
    """Units of a day."""
    date: str
    """Format of dates."""
    number: str
    """Format of numbers."""


_SPSS = _Format(
    "write_sav", 252, 120, date(1582, 10, 15), date(1582, 10, 14), 86_400, "DATE11", "F{width}.{decimals}"
)
_FORMATS: Mapping[str, _Format] = {
    ".sav": _SPSS,
    ".zsav": _SPSS,
    ".dta": _Format("write_dta", 80, 32_000, date.min, date(1960, 1, 1), 1, "%td", "%{width}.{decimals}f"),
}
_LONGEST_NAME = 32
_RESERVED = re.compile(
    "all|and|by|eq|ge|gt|le|lt|ne|not|or|to|with|byte|double|float|if|in|int|long|using|strl|str[0-9]+"
)
_LARGEST_EXACT = 2**53
_EPOCH = date(1970, 1, 1)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return names that both programs take, by those of the release; names that they take stay."""
    plain = {}
    for name in names:
        text = re.sub(r"[^A-Za-z0-9_]", "_", name)
        taken = text[:1].isalpha() and not _RESERVED.fullmatch(text.lower())
        plain[name] = (text if taken else f"v_{text}")[:_LONGEST_NAME]
    chosen: dict[str, str] = {}
    used: set[str] = set()
    for name in sorted(plain, key=lambda name: plain[name] != name):
        text, number = plain[name], 1
        while text.lower() in used:
            number += 1
            text = f"{plain[name][: _LONGEST_NAME - len(str(number)) - 1]}_{number}"
        chosen[name] = text
        used.add(text.lower())
    return {name: chosen[name] for name in plain}


def format_of(path: Path) -> _Format:
    """Return the format in which a new file is written; raise as `write_labelled` if it cannot be."""
    form = _FORMATS.get(path.suffix.lower())
    if form is None:
        raise UsageError(f"{path} ends with none of {', '.join(_FORMATS)}", "for example --out release.sav")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists", "name a new file")
    return form


def write_labelled(path: Path, table: pa.Table, attributes: Iterable[Attribute]) -> dict[str, str]:
    """Write a release; nothing is left of a file that cannot be written.

    Args:
        path: A new file that ends with .sav, .zsav or .dta.
        table: The release (`common.release.table.release_table`).
        attributes: Its columns but for the number of the record.

    Returns:
        The names in the file, by those of the release.

    Raises:
        UsageError: If the file is there, has another suffix, or its format cannot hold the release.
        ConfigurationError: If pyreadstat is not installed.
    """
    form = format_of(path)
    try:
        import pandas as pd
        import pyreadstat
    except ModuleNotFoundError:
        hint = "install the extra: pip install 'tessera-release[labelled]'"
        raise ConfigurationError("the package pyreadstat is not installed", hint) from None
    columns: dict[str, Any] = {RECORD_COLUMN: table.column(RECORD_COLUMN).to_numpy()}
    formats, labels = {RECORD_COLUMN: form.number.format(width=12, decimals=0)}, {}
    for each in attributes:
        columns[each.name], formats[each.name], labels[each.name] = _column(form, each, table, path.suffix)
    names = short_names(columns)
    descriptions = {}
    for name, short in names.items():
        described = table.schema.field(name).metadata[b"description"].decode()
        text = described if name == short else f"{name}: {described}"
        descriptions[short] = text.encode()[: form.description_bytes].decode(errors="ignore")
    frame = pd.DataFrame({names[name]: values for name, values in columns.items()})
    try:
        with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
            written = Path(folder, path.name)
            getattr(pyreadstat, form.function)(
                frame, written, column_labels=descriptions,
                variable_value_labels={names[name]: each for name, each in labels.items() if each},
                variable_format={names[name]: text for name, text in formats.items()},
                **({"compress": True} if path.suffix.lower() == ".zsav" else {}),
            )  # fmt: skip
            os.link(written, path)
    except OSError as fault:
        raise UsageError(
            f"{path} cannot be written: {fault.strerror}", "name a new file in a folder that can be written"
        ) from None
    return names


def _column(form: _Format, attribute: Attribute, table: pa.Table, suffix: str) -> tuple[Any, str, Any]:
    """Return the numbers of a column, their format, and labels by number."""
    import pandas as pd

    units = to_units(attribute, table.column(attribute.name)).to_numpy()
    missing = units > attribute.upper
    refusal, labels = "", {}
    if attribute.type is AttributeType.BOOLEAN:
        labels = {0: "false", 1: "true"}
    elif attribute.categories:
        units, labels = units + 1, dict(enumerate(attribute.categories, 1))
        if attribute.categories[-1] == MISSING_CATEGORY:
            missing = units == len(labels)
            del labels[len(labels)]
        if any(len(text.encode()) > form.label_bytes for text in labels.values()):
            refusal = f"has labels of more than {form.label_bytes} bytes"
    elif attribute.type is AttributeType.DATE:
        if date.fromordinal(_EPOCH.toordinal() + attribute.lower) < form.first:
            refusal = f"has dates before {form.first}"
        units = (units + (_EPOCH - form.zero).days) * form.day
    elif max(abs(attribute.lower), abs(attribute.upper)) * attribute.step > _LARGEST_EXACT:
        refusal = "has numbers with more digits than these programs keep"
    else:
        units = units * attribute.step
    if refusal:
        hint = "use data.csv or data.parquet, or release it in a narrower domain or other format"
        raise UsageError(f"a file {suffix} cannot hold {attribute.name!r}: it {refusal}", hint)
    width = len(str(int(np.abs(units).max(initial=1)))) + attribute.decimals + 2
    shown = form.number.format(width=width, decimals=attribute.decimals)
    if attribute.type is AttributeType.DATE:
        shown = form.date
    if attribute.decimals:
        return np.where(missing, np.nan, units / 10.0**attribute.decimals), shown, labels
    if missing.all() or np.abs(units).max(initial=0) >= 2**31 - 128:
        return np.where(missing, np.nan, units), shown, labels
    return pd.Series(units).mask(missing).astype("Int32"), shown, labels
