"""Canonical JSON: the one byte string that a document is digested and signed as.

UTF-8, keys sorted, no spaces, numbers as strings. Numbers as strings keep a decimal exact through any JSON
reader; `None` and booleans stay what they are.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

OMITTED = {"omitted": True}
"""Metadata of a field that a document leaves out while it has its default value."""
Positive = Annotated[Decimal, "positive"]
"""A decimal above 0, such as an epsilon."""
_DECIMAL = re.compile(r"[0-9]{1,40}(?:\.[0-9]{1,40})?")
_LATER_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What a field of a later version may be called."""


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
    """Return the canonical bytes of a document; a TypeError if it has none, as a binary float."""
    return json.dumps(_plain(document), ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def parse_json(data: bytes) -> Any:
    """Return what JSON from elsewhere says; a ValueError if it is none, or is nested more than 200 times.

    The reader of `json` ends where the stack does: what is finalised there by chance fails too.
    """
    from pydantic_core import from_json

    return from_json(data)


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

    __slots__ = ("_received",)
    _received: bytes
    """The bytes that it was read from, where they have fields that this version does not know."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Names in its document that are no fields of the class."""

    def to_document(self) -> dict[str, Any]:
        """Return the document, without fields that this version does not know."""
        return _writer(type(self))(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read it from its document, in which numbers are texts, or what `to_document` returned.

        Raises:
            ValueError: If it is none; KeyError, TypeError or AttributeError if it has another form.
        """
        read: Self = _reader(cls)(document, cls)
        return read

    def to_bytes(self) -> bytes:
        """Return the canonical bytes, which are what is signed: those received, or those of `to_document`."""
        received: bytes | None = getattr(self, "_received", None)
        return canonical(self.to_document()) if received is None else received

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return digest(self.to_bytes())

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of the fields that it was read with and that this version does not know."""
        received: bytes | None = getattr(self, "_received", None)
        if received is None:
            return ()
        return tuple(sorted(_later_names(json.loads(canonical(self.to_document())), json.loads(received))))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read it; refuse bytes that are not canonical, or state a known field otherwise than this version.

        Fields that a later version added are ignored, and stay in the bytes that are digested and verified.
        Such a field has a name that no document in this one has; what must not be ignored is a feature of
        the plan (`common.model.compatibility`).

        Raises:
            ValueError: If it is none; the message holds nothing of the data.
            VersionError: If it needs a later version.
        """
        kind = cls.__name__
        try:
            received = parse_json(data)
            read = cls.from_document(received)
            own = read.to_bytes()
            same = own == data
            later = (
                not same and canonical(received) == data and adds_to(json.loads(own), received, _names(cls))
            )
        except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as problem:
            raise ValueError(f"not a valid {kind} ({type(problem).__name__})") from None
        if later:
            object.__setattr__(read, "_received", data)
        elif not same:
            raise ValueError(f"not the canonical form of a {kind}")
        return read


def adds_to(own: Any, received: Any, known: frozenset[str]) -> bool:
    """Whether a received document states the same as its own form here, but for fields not in `known`."""
    if isinstance(own, dict) and isinstance(received, dict):
        return all(
            key in received and adds_to(value, received[key], known) for key, value in own.items()
        ) and all(key not in known and _LATER_NAME.fullmatch(key) for key in received.keys() - own.keys())
    if isinstance(own, list) and isinstance(received, list):
        return len(own) == len(received) and all(
            adds_to(item, other, known) for item, other in zip(own, received, strict=True)
        )
    return bool(own == received)


def _later_names(own: Any, received: Any) -> set[str]:
    """Return the names of fields that a received document has beyond the own form of it, at any depth."""
    if isinstance(own, dict):
        inside = (_later_names(value, received[key]) for key, value in own.items())
        return set(received.keys() - own.keys()).union(*inside)
    if isinstance(own, list):
        return set().union(*map(_later_names, own, received))
    return set()


def _collect_names(kind: Any) -> frozenset[str]:
    """Return the names of all fields in the documents of a class, nested ones included."""
    own = frozenset({*kind.derived, *(str(field.metadata.get("name", field.name)) for field in fields(kind))})
    return own.union(*map(_names, _document_types(tuple(get_type_hints(kind).values()))))


_names: Callable[[Any], frozenset[str]] = cache(_collect_names)


def _document_types(kinds: tuple[Any, ...]) -> set[type[Document]]:
    own = {kind for kind in kinds if _is_document(kind)}
    return own.union(*(_document_types(get_args(kind)) for kind in kinds))


_converter = Converter(detailed_validation=False, unstruct_collection_overrides={tuple: list})


_writer: Callable[[Any], Callable[[Any], dict[str, Any]]] = cache(
    lambda kind: make_dict_unstructure_fn(kind, _converter, **_overrides(kind))
)
_reader: Callable[[Any], Callable[[Any, Any], Any]] = cache(
    lambda kind: make_dict_structure_fn(kind, _converter, **_overrides(kind))
)


def _overrides(kind: Any) -> dict[str, Any]:
    return {
        field.name: override(omit_if_default=field.metadata.get("omitted"), rename=field.metadata.get("name"))
        for field in fields(kind)
        if field.init and field.metadata
    }


def _is_document(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Document)


def _read_text(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text was expected")
    return value


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
    """Read a decimal: plain digits only, as an exponent is short to write and long to write out."""
    if isinstance(value, Decimal):
        return value
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise ValueError("a decimal number was expected")
    return Decimal(value)


def _read_positive(value: Any, _: Any) -> Decimal:
    number = read_decimal(value)
    if number <= 0:
        raise ValueError("a number above 0 was expected")
    return number


for _kind, _read in ((str, _read_text), (int, _read_whole), (bool, _read_flag), (Decimal, read_decimal)):
    _converter.register_structure_hook(_kind, _read)
# cattrs reads a subclass of `str` as a `str` unless the subclass has a hook of its own.
_converter.register_structure_hook(StrEnum, lambda value, kind: kind(_read_text(value, str)))
_converter.register_structure_hook_func(_is_literal, _read_literal)
_converter.register_structure_hook_func(lambda kind: kind == Positive, _read_positive)
_converter.register_structure_hook_func(_is_document, lambda value, kind: kind.from_document(value))
_converter.register_unstructure_hook_func(_is_document, lambda document: document.to_document())
