"""What a `query` has to look like before a database is asked: one SELECT, whole in itself.

It becomes the inner part of `SELECT columns FROM (query)`, so it may not end early. This finds mistakes while
the file is read; that nothing is changed is made sure by a transaction that only reads.
"""

import re
from itertools import accumulate

_HIDDEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$",
    re.DOTALL,
)
_FIRST = re.compile(r"[\s(]*(?P<word>\w*)")
_DEPTH = {"(": 1, ")": -1}


def one_select(query: str) -> str:
    """Return a query without the semicolon that may end it.

    Raises:
        ValueError: If it is not one SELECT.
    """
    # Comments and quoted texts become blanks of the same length, so that positions stay.
    bare = _HIDDEN.sub(lambda found: " " * len(found[0]), query)
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
    depths = list(accumulate(_DEPTH.get(each, 0) for each in bare))
    if min(depths) < 0 or depths[-1] != 0:
        raise ValueError("its parentheses do not match")
    return query
