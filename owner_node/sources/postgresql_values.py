"""How psycopg converts values that Python's types would round, or would fail on with the whole query."""

from typing import Any

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.string import TextLoader

_UNREADABLE = ("time", "timetz", "interval")


class _Timestamp(Loader):
    """Loads an infinity, or a year that Python does not have, as the text that it is."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        usual = psycopg.adapters.get_loader(oid, Format.TEXT)
        if usual is None:
            raise TypeError(f"psycopg loads no values of type {oid}")
        self._usual = usual(oid, context)

    def load(self, data: Buffer) -> Any:
        try:
            return self._usual.load(data)
        except psycopg.DataError:
            return bytes(data).decode()


class _Unreadable(Loader):
    """Loads nothing of a type that no attribute can have; Python's types do not have all of its values."""

    def load(self, data: Buffer) -> object:
        return self


def keep_every_value(driver: psycopg.Connection[Any]) -> None:
    """Register what loads the values of a connection."""
    loaders: dict[str, type[Loader]] = {"date": TextLoader}
    loaders |= dict.fromkeys(("timestamp", "timestamptz"), _Timestamp)
    loaders |= dict.fromkeys(_UNREADABLE, _Unreadable)
    for kind, loader in loaders.items():
        driver.adapters.register_loader(kind, loader)
