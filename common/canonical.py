"""Canonical JSON: the one byte string that a document is digested and signed as.

UTF-8, keys sorted, no spaces, numbers as strings (DESIGN §7). Numbers as strings keep a decimal exact
through any JSON reader; `None` and booleans stay what they are.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

OMITTED = {"omitted": True}
"""Metadata of a field that a document leaves out while it has its default value."""
Positive = Annotated[Decimal, "positive"]
"""A decimal above 0, such as an epsilon."""
_DECIMAL = re.compile(r"[0-9]{1,40}(?:\.[0-9]{1,40})?")


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


class Document:
    """A dataclass that is a document: its fields under their names, nested documents included.

    A field with the metadata `OMITTED` is left out while it has its default; `{"name": …}` as metadata gives
    a field another name. A class with properties in its document, or checks of its own, overrides
    `to_document` or `from_document`; documents that contain it follow.
    """

    __slots__ = ()

    def to_document(self) -> dict[str, Any]:
        """Return the document."""
        return _writer(type(self))(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read it from its document, in which numbers are texts, or what `to_document` returned.

        Raises:
            ValueError: If it is none; KeyError, TypeError or AttributeError if it has another form.
        """
        found: Self = _reader(cls)(document, cls)
        return found

    def to_bytes(self) -> bytes:
        """Return the canonical bytes, which are what is signed."""
        return canonical(self.to_document())

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return digest(self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read it, and refuse every byte string that is not exactly its canonical form.

        So two byte strings never mean the same, and a field that is not known is refused.

        Raises:
            ValueError: If it is not; the message holds nothing of the data.
        """
        kind = cls.__name__
        try:
            found = cls.from_document(json.loads(data))
        except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError, RecursionError) as problem:
            raise ValueError(f"not a valid {kind} ({type(problem).__name__})") from None
        if found.to_bytes() != data:
            raise ValueError(f"not the canonical form of a {kind}")
        return found


_converter = Converter(detailed_validation=False, unstruct_collection_overrides={tuple: list})


def _make_writer(kind: Any) -> Callable[[Any], dict[str, Any]]:
    return make_dict_unstructure_fn(kind, _converter, **_overrides(kind))


def _make_reader(kind: Any) -> Callable[[Any, Any], Any]:
    return make_dict_structure_fn(kind, _converter, **_overrides(kind))


_writer: Callable[[Any], Callable[[Any], dict[str, Any]]] = cache(_make_writer)
_reader: Callable[[Any], Callable[[Any, Any], Any]] = cache(_make_reader)


def _overrides(kind: Any) -> dict[str, Any]:
    return {each.name: _override(each) for each in fields(kind) if each.init and each.metadata}


def _override(field: Field[Any]) -> Any:
    return override(omit_if_default=field.metadata.get("omitted"), rename=field.metadata.get("name"))


def _is_document(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Document)


def _read_text(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text was expected")
    return value


def _read_choice(value: Any, kind: type[StrEnum]) -> StrEnum:
    return kind(_read_text(value, str))


def _is_literal(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _read_literal(value: Any, kind: Any) -> str:
    if value not in get_args(kind):
        raise ValueError("one of a few texts was expected")
    return _read_text(value, str)


def _read_whole(value: Any, _: Any) -> int:
    return value if type(value) is int else int(_read_text(value, str))


def _read_flag(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false was expected")
    return value


def read_decimal(value: Any, _: Any = None) -> Decimal:
    """Read a decimal of a document: plain digits only, an exponent is short to write and long to write out.

    Raises:
        ValueError: If it is none.
    """
    if isinstance(value, Decimal):
        return value
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise ValueError("a decimal number was expected")
    return Decimal(value)


def _read_positive(value: Any, _: Any) -> Decimal:
    found = read_decimal(value)
    if found <= 0:
        raise ValueError("a number above 0 was expected")
    return found


for _kind, _read in ((str, _read_text), (int, _read_whole), (bool, _read_flag), (Decimal, read_decimal)):
    _converter.register_structure_hook(_kind, _read)
# cattrs reads a subclass of `str` as a `str` unless the subclass has a hook of its own.
_converter.register_structure_hook(StrEnum, _read_choice)
_converter.register_structure_hook_func(_is_literal, _read_literal)
_converter.register_structure_hook_func(lambda kind: kind == Positive, _read_positive)
_converter.register_structure_hook_func(_is_document, lambda value, kind: kind.from_document(value))
_converter.register_unstructure_hook_func(_is_document, lambda each: each.to_document())
