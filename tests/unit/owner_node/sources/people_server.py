"""A PostgreSQL server with people in it, and what tests ask it."""

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

from common.errors import DataError, TesseraError
from common.model.schema import Attribute
from owner_node.config import DatasetConfig
from owner_node.loading import load
from tests.postgres_server import PASSWORD, PostgresServer, postgres_server

VARIABLE = "TESSERA_TEST_PASSWORD"
"""Environment variable with the password."""


@contextmanager
def people_server() -> Iterator[PostgresServer]:
    """Run a server with two tables."""
    with postgres_server() as running:
        running.run("create table people (id text, age int, secret text)")
        running.run(
            "insert into people select 'p' || n, n % 90, 'Zq7Qz' || n from generate_series(1, 40000) n"
        )
        running.run("create sequence numbers")
        running.run("grant usage on sequence numbers to reader")
        yield running


def asking(server: PostgresServer, patch: pytest.MonkeyPatch) -> Any:
    """Return a maker of data sets: `ask(query, attribute, ..., **settings)`."""
    patch.setenv(VARIABLE, PASSWORD)

    def made(query: str, *attributes: Attribute, **settings: Any) -> DatasetConfig:
        known: dict[str, Any] = {"name": "people", "budget": "people", "total_epsilon": Decimal(1)}
        known |= {"source": server.url(), "query": query, "password_env": VARIABLE, "attributes": attributes}
        return DatasetConfig(**(known | settings))

    return made


def values(settings: DatasetConfig) -> list[int]:
    """Return the values of the only attribute."""
    (column,) = load(settings).columns.values()
    return column.tolist()


def failure(settings: DatasetConfig, kind: type[TesseraError] = DataError) -> TesseraError:
    """Load and return the error, after checking that it gives away no value and no password."""
    with pytest.raises(kind) as caught:
        load(settings)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert error.hint
    told = "".join(traceback.format_exception(error)) + json.dumps(error.to_document())
    assert "Zq7Qz" not in told
    assert settings.source not in told
    return error
