"""Files of SPSS, Stata and SAS: value labels become texts, and user-missing values are missing.

The package pyreadstat reads them (the extra `labelled`). A value with a label becomes the label. Any other
stays the number or text that it is. Labels of variables are descriptions.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from owner_node.sources.files import StoredFile
from owner_node.sources.findings import Findings
from owner_node.sources.options import CsvOptions
from owner_node.sources.source import Reader
from owner_node.sources.texts import as_text, unreadable

BATCH_RECORDS = 2**17
"""Records that are read at a time; the library reads a file of SPSS from its beginning each time."""


@dataclass(frozen=True, slots=True)
class _Program:
    """A format of a statistical program."""

    begins: re.Pattern[bytes]
    """The first bytes of its files."""
    name: str
    function: str
    """Function of pyreadstat."""


_PROGRAMS = (
    _Program(re.compile(rb"\$FL[23]@"), "an SPSS file", "read_sav"),
    _Program(re.compile(rb"<stata_dta>|[\x69\x6c\x6e-\x73][\x01\x02]\x01\x00"), "a Stata file", "read_dta"),
    _Program(re.compile(rb"\x00{12}\xc2\xea\x81\x60\xb3\x14\x11\xcf"), "a SAS file", "read_sas7bdat"),
    _Program(re.compile(rb"HEADER RECORD\*{7}LIB"), "a SAS transport file", "read_xport"),
)
_SUFFIXES = frozenset({".sav", ".zsav", ".dta", ".sas7bdat", ".xpt"})
_DAMAGED = "the file is damaged or uses a feature that is not supported; write it again, or export it as CSV"


def is_labelled(path: StoredFile, head: bytes) -> bool:
    """Return whether a file is of SPSS, Stata or SAS, by its first bytes or its name."""
    return path.suffix.lower() in _SUFFIXES or any(each.begins.match(head) for each in _PROGRAMS)


class LabelledReader(Reader):
    """A file of a statistical program.

    Args:
        read: Reads it, with the arguments of `pyreadstat.read_sav`, as lists by column.
        about: What the library says about the file.
    """

    def __init__(self, read: Callable[..., Any], about: Any) -> None:
        self._read, self.names = read, tuple(about.column_names)
        self._n_records = about.number_rows
        self._labels = {
            name: _labels(labels, about.missing_ranges.get(name, ()))
            for name, labels in about.variable_value_labels.items()
        }
        self.descriptions = {name: text for name, text in about.column_names_to_labels.items() if text}
        self.labels = {name: tuple(labels.values()) for name, labels in self._labels.items()}

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read columns, with labels instead of their values (see `Reader`)."""
        for name in columns:
            texts = self.labels.get(name, ())
            twice = len(texts) - len(set(texts))
            hint = "give every value a label of its own in the program that made the file"
            findings.add(name, "several values with one label", twice, hint, "labels")
        first = 0
        # Without a column the library reads all of them; the number of records is needed in any case.
        asked = list(dict.fromkeys(columns)) or [self.names[0]]
        while not findings:
            try:
                table, _ = self._read(usecols=asked, row_offset=first, row_limit=BATCH_RECORDS)
            except Exception:  # noqa: BLE001 - errors of the library can be of any class, and quote a value
                findings.fail("the records cannot be read", _DAMAGED)
                return
            n_records = len(table[asked[0]])
            if n_records:
                yield [self._column(name, table[name]) for name in columns]
            if n_records < BATCH_RECORDS:
                return
            first += n_records

    def _column(self, name: str, values: list[Any]) -> Any:
        try:
            array = pa.array(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return unreadable(len(values), "mixed values")
        if pa.types.is_string(array.type):
            # These programs have no missing text but the empty one.
            array = pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)
        labels = self._labels.get(name)
        if not labels or pa.types.is_null(array.type):
            return array
        place = pc.index_in(as_text(array), value_set=as_text(pa.array(list(labels))), skip_nulls=True)
        return pc.coalesce(pa.array(list(labels.values())).take(place), as_text(array))

    def expected(self) -> int | None:
        """Return the number that the file states (see `Reader`)."""
        return self._n_records if self._n_records and self._n_records > 0 else None


def _labels(labels: Mapping[Any, str], missing: Sequence[Mapping[str, Any]]) -> dict[Any, str]:
    """Return the labels of values that are not missing, in the order of the values."""
    # A letter at a number is the label of a missing value of Stata or SAS.
    kind = str if all(isinstance(value, str) for value in labels) else (int, float)
    present = (
        value
        for value in labels
        if isinstance(value, kind) and not any(each["lo"] <= value <= each["hi"] for each in missing)
    )
    return {value: labels[value].strip() for value in sorted(present)}


def open_labelled(path: StoredFile, head: bytes, _form: CsvOptions, findings: Findings) -> Reader | None:
    """Open a file, and read its names and labels."""
    program = next((each for each in _PROGRAMS if each.begins.match(head)), None)
    if program is None:
        hint = f"{_DAMAGED}; a file of another kind has another suffix"
        findings.fail(f"the name ends with {path.suffix}, and the file does not begin like one", hint)
        return None
    if not isinstance(path, Path):
        hint = "copy it to this machine, or store it as Parquet"
        findings.fail(f"this is {program.name}, which is not read from an object store", hint)
        return None
    try:
        import pyreadstat
    except ModuleNotFoundError:
        hint = "install the extra: pip install 'tessera-release[labelled]'; or export it as CSV or Parquet"
        findings.fail(f"this is {program.name}, and the package pyreadstat is not installed", hint)
        return None
    function = getattr(pyreadstat, program.function)

    def read(**how: Any) -> Any:
        return function(str(path), output_format="dict", **how)

    try:
        # With missing values that users declared, which stay values only here.
        how = {} if program.function == "read_xport" else {"user_missing": True}
        _, about = read(metadataonly=True, **how)
    except Exception:  # noqa: BLE001 - as above
        findings.fail(f"this is {program.name} that cannot be read", _DAMAGED)
        return None
    if not about.column_names:
        findings.fail(f"this is {program.name} without columns", "export the data again")
        return None
    return LabelledReader(read, about)
