"""Canonical JSON: the one byte string that a document is digested and signed as.

UTF-8, keys sorted, no spaces, numbers as strings (DESIGN §7). Numbers as strings keep a decimal exact
through any JSON reader; `None` and booleans stay what they are.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no canonical form")


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a document.

    Raises:
        TypeError: If it holds something without a canonical form, a binary float included.
    """
    return json.dumps(_plain(document), ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes as lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def document_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document's canonical bytes."""
    return digest(canonical(document))
