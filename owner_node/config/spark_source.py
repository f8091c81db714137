"""What Spark reads as `source`: Parquet files, a table of a catalogue, or any other format that it knows.

    spark:parquet:PATH              a file or folder, or the address of one, such as s3a://bucket/folder
    spark:table:CATALOG.DB.TABLE    a table of a catalogue that `[engine] conf` declares
    spark:FORMAT?option=value&...   what `spark.read.format(FORMAT)` takes, options escaped as in a URL

Passwords and tokens are no part of a source, so that it can be shown: set them in `[engine] conf`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from owner_node.config.database import SECRET

SPARK = "spark:"
"""What such a source begins with."""
PARQUET, TABLE = "parquet", "table"
_SIGNED_IN = re.compile(r"//[^/@]*:[^/@]*@|:[^/:@]+/[^/:@]+@")
"""User and password before the host of an address, as "//user:password@" or Oracle's ":user/password@"."""
_FORMAT = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_TABLE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,3}")
_EXPECTED = (
    'expected "spark:parquet:PATH", "spark:table:CATALOG.DB.TABLE" or "spark:FORMAT?option=value", such as '
    '"spark:orc?path=/data/cohort"'
)


@dataclass(frozen=True, slots=True)
class SparkSource:
    """A parsed source."""

    form: str
    """`PARQUET`, `TABLE`, or a format of `spark.read`."""
    name: str = ""
    """The path or address of Parquet files, or the name of a table; empty for other formats."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of another format."""

    @property
    def place(self) -> str:
        """The source in one form, for showing and comparing."""
        if self.form in (PARQUET, TABLE):
            return f"{SPARK}{self.form}:{self.name}"
        written = urlencode(sorted(self.options.items()), safe="/:,*")
        return f"{SPARK}{self.form}?{written}" if written else f"{SPARK}{self.form}"


def parse_spark_source(text: str, full: Callable[[str], Path] = Path) -> SparkSource:
    """Parse a source that begins with `SPARK`.

    Args:
        full: Makes the path of Parquet files absolute.

    Raises:
        ValueError: If it is malformed, or has a secret among its options; the text quotes nothing of it.
    """
    rest = text.removeprefix(SPARK)
    form, _, name = rest.partition(":")
    if form == PARQUET and name:
        if "://" in name and _SIGNED_IN.search(name):
            raise ValueError("its address has a password; set it in [engine] conf")
        return SparkSource(PARQUET, name if "://" in name else str(full(name)))
    if form == TABLE and _TABLE.fullmatch(name):
        return SparkSource(TABLE, name)
    form, _, written = rest.partition("?")
    if form in (PARQUET, TABLE) or not _FORMAT.fullmatch(form):
        raise ValueError(_EXPECTED)
    options = dict(parse_qsl(written, keep_blank_values=True))
    if any(map(SECRET.search, options)) or any(
        "password=" in option.lower() or _SIGNED_IN.search(option) for option in options.values()
    ):
        raise ValueError("one of its options is a secret; set it in [engine] conf")
    return SparkSource(form, "", options)
