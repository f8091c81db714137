"""Lists of names as people write them: a,b. A name with a separator stands in double quotes: "a, b",c.

Every option and field that takes names reads them here. As in CSV (RFC 4180), a quote in quotes is doubled;
a quote elsewhere is a part of the name.
"""

import re
from collections.abc import Iterable

from common.errors import UsageError

_QUOTED = re.compile(r'"((?:[^"]|"")+)"')
_SPECIAL = re.compile(r'[,;:="]|^\s|\s$')


def split(text: str, separator: str) -> list[str]:
    """Split a text at a separator outside quotes; quotes stay, blanks at the ends of parts do not."""
    quoted = r'(?:^|(?<=[,;:]))\s*"(?:[^"]|"")*"'
    part = rf"(?:^|{separator})((?:{quoted}|[^{separator}])*)"
    return [found[1].strip() for found in re.finditer(part, text)]


def unquoted(text: str) -> str:
    """Return the name that a part of a list stands for."""
    found = _QUOTED.fullmatch(text.strip())
    return found[1].replace('""', '"') if found else text.strip()


def split_names(text: str | None) -> list[str]:
    """Split a list at its commas; an option that is not given has no names.

    Returns:
        Names without quotes. What else has a quoted name, such as "a, b"=2, stays as it is.

    Raises:
        UsageError: If the text is not empty and names nothing.
    """
    found = [unquoted(part) for part in split(text or "", ",") if part]
    if text and not found:
        raise UsageError(f"{text!r} names nothing", "separate names by commas: a,b")
    return found


def join_names(names: Iterable[str]) -> str:
    """Return the list that `split_names` splits into these names."""
    return ",".join(
        '"{}"'.format(name.replace('"', '""')) if _SPECIAL.search(name) else name for name in names
    )
