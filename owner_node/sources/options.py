"""The keys of `[[dataset]]` that say how its source is read, whatever kind of source it is.

A query is one complete SELECT. It becomes the inner part of `SELECT columns FROM (query)`, so it must not end
early. The check here finds mistakes when the file is read; a read-only transaction ensures that nothing is
changed.
"""

import codecs
import re
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import AfterValidator

from common.daemon.settings import Duration
from common.settings import Contradictions, FilePath, Listed, Section, matching
from owner_node.values.date_formats import check_format

_DELIMITER = re.compile(r'[^"\r\n]')
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ONE_VARIABLE = 'the name of an environment variable, such as "DATABASE_PASSWORD"'
DecimalMark = Literal[".", ","]
Thousands = Literal["", ".", ",", " ", "'"]


def _encoding(value: str) -> str:
    try:
        "".encode(value)
        return codecs.lookup(value).name
    except (LookupError, UnicodeError, ValueError):
        raise ValueError('expected the name of an encoding, such as "utf-8" or "latin-1"') from None


@dataclass(frozen=True, slots=True)
class CsvOptions(Section):
    """The table `[dataset.csv]`: how a CSV file is written."""

    delimiter: Annotated[str, matching(_DELIMITER, 'one character, such as "," or ";"')] = ","
    """The character between two values."""
    decimal: DecimalMark = "."
    """Decimal mark."""
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    """Encoding of the text."""
    date_format: Annotated[str, AfterValidator(check_format)] = "%Y-%m-%d"
    """How dates are written, in directives of `strptime` that determine one day."""
    na_values: Listed[str] = ("",)
    """Texts that mean a missing value."""
    thousands: Thousands = ""
    """Separator between groups of three digits; empty for none."""

    def __post_init__(self) -> None:
        if self.delimiter == self.decimal:
            raise Contradictions([("decimal", f'"{self.decimal}" is the delimiter too')])
        if self.thousands == self.decimal:
            raise Contradictions([("thousands", f'"{self.thousands}" is the decimal mark too')])


DATABASE_KEYS = dict.fromkeys(
    ("query", "query_timeout", "password_env", "password_file"),
    "goes with the URL of a database as source, not with a file",
)
"""Keys that only databases have, each with the reason why other kinds refuse it."""
OBJECT_KEYS = {"credentials_file": "goes with s3:// and abfss:// as source"}
"""Keys that only objects in a store have, with the reason."""
_HIDDEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$",
    re.DOTALL,
)
_FIRST = re.compile(r"[\s(]*(?P<word>\w*)")
_DEPTH = {"(": 1, ")": -1}


def one_select(query: str) -> str:
    """Return a query without a final semicolon.

    Raises:
        ValueError: If it is not one SELECT.
    """
    # Comments and quoted texts become blanks of the same length, so that positions do not change.
    bare = _HIDDEN.sub(lambda match: " " * len(match[0]), query)
    last = len(bare.rstrip()) - 1
    if bare[last:].startswith(";"):
        bare, query = bare[:last], query[:last] + query[last + 1 :]
    first = _FIRST.match(bare)
    word = first["word"] if first is not None else ""
    if word.lower() not in ("select", "with", "values", "table"):
        raise ValueError(f"expected one SELECT, not {word.upper() or 'an empty text'}")
    if ";" in bare:
        raise ValueError("expected one SELECT, not several statements")
    if re.search(r"['\"`]|/\*", bare):
        raise ValueError("a quote or comment in it is never closed")
    depths = list(accumulate(_DEPTH.get(character, 0) for character in bare))
    if min(depths) < 0 or depths[-1] != 0:
        raise ValueError("its parentheses do not match")
    return query


@dataclass(frozen=True, kw_only=True)
class SourceOptions(Section):
    """How a source is read."""

    query: Annotated[str, AfterValidator(one_select)] | None = None
    """One SELECT; for databases only."""
    query_timeout: Duration = timedelta(minutes=10)
    """Time-out of a database statement."""
    password_env: Annotated[str, matching(_VARIABLE, _ONE_VARIABLE)] | None = None
    """Name of the environment variable with the database's password."""
    password_file: FilePath | None = None
    """File with the database's password."""
    credentials_file: FilePath | None = None
    """File with the credentials of an object store."""
    csv: CsvOptions = field(default_factory=CsvOptions)
    """How a CSV source is written."""
