"""Reaching a real PostgreSQL server: passwords, refusals, and one that is away."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from common.errors import ConfigurationError, ExitCode, SourceUnreachableError
from common.progress import Progress
from owner_node.loading import load
from owner_node.sources.findings import Findings
from tests.postgres_server import PASSWORD, PostgresServer
from tests.unit.owner_node.sources.conftest import AGE
from tests.unit.owner_node.sources.people_server import VARIABLE, asking, failure, people_server, values

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server with two tables."""
    with people_server() as running:
        yield running


@pytest.fixture
def ask(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a maker of data sets: `ask(query, attribute, ..., **settings)`."""
    return asking(server, monkeypatch)


def test_passwords_come_from_a_file_or_the_environment(server, ask, tmp_path, monkeypatch):
    """A file, a variable, and PostgreSQL's own password file; over TCP and over the Unix socket."""
    secret = tmp_path / "password"
    secret.touch(0o600)
    secret.write_text(f"{PASSWORD}\n")
    settings = ask("select 7 as age", AGE, password_env=None, password_file=secret)
    assert values(settings) == values(replace(settings, source=server.socket_url())) == [7]
    assert values(replace(settings, source=server.url().replace("+psycopg", ""))) == [7]
    own = tmp_path / "pgpass"
    own.touch(0o600)
    own.write_text("*:*:*:*:" + PASSWORD.replace(":", "\\:"))
    monkeypatch.setenv("PGPASSFILE", str(own))
    assert values(replace(settings, password_file=None)) == [7]
    monkeypatch.delenv("PGPASSFILE")
    assert (
        "it asks for a password" in failure(replace(settings, password_file=None), ConfigurationError).message
    )
    secret.chmod(0o644)
    assert "open to other users" in failure(settings, ConfigurationError).message
    assert VARIABLE in failure(replace(settings, password_file=None, password_env=f"{VARIABLE}_2"),
                               ConfigurationError).message  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("//reader@", "//nobody@", "does not let the owner node in"),
        ("/postgres?", "/nowhere?", "does not let the owner node in"),
        ("sslmode=prefer", "sslmode=require", "does not let the owner node in"),
        ("sslmode=prefer", "colour=red", "correct the options"),
        ("+psycopg:", "+psycopg9:", "not known"),
        ("+psycopg:", "+psycopg2:", "psycopg2 is not installed"),
    ],
)
def test_a_database_that_refuses_is_a_matter_of_configuration(server, ask, old, new, told):
    """Nobody waits for a server that is there but does not let us in."""
    source = server.url(options="?sslmode=prefer").replace(old, new)
    error = failure(ask("select 7 as age", AGE, source=source), ConfigurationError)
    assert told in f"{error.message} {error.hint}"
    assert error.exit_code is ExitCode.USAGE


def test_a_server_without_a_free_connection_is_waited_for(server, ask):
    """Others will leave: that is no refusal of this owner node."""
    settings = ask("select 7 as age", AGE)
    with ExitStack() as others:
        with suppress(psycopg.OperationalError):
            while True:
                others.enter_context(psycopg.connect(server.url().replace("+psycopg", ""), password=PASSWORD))
        assert "no connection left" in failure(settings, SourceUnreachableError).message
    server.run("alter role reader connection limit 0")
    try:
        assert "no connection left" in failure(settings, SourceUnreachableError).message
    finally:
        server.run("alter role reader connection limit -1")
    assert values(settings) == [7]


def test_a_database_that_is_away_is_waited_for(server, ask, caplog):
    """A stopped server, an unknown host and a connection that breaks are passing; none of it is logged."""
    settings = ask("select * from people", AGE)
    findings = Findings()
    with caplog.at_level(logging.DEBUG):
        source = settings.origin.open(findings, Progress())
        assert source is not None
        batches = source.batches(["age"], findings)
        next(batches)
        server.stop()
        with pytest.raises(SourceUnreachableError):
            list(batches)
        source.close()
        try:
            error = failure(settings, SourceUnreachableError)
        finally:
            server.start()
        away = settings.source.replace("127.0.0.1", "nowhere.invalid")
        failure(replace(settings, source=away), SourceUnreachableError)
    assert error.exit_code is ExitCode.NOT_CONNECTED
    assert f"127.0.0.1:{server.port}" in error.message
    assert caplog.text == ""
    assert not findings
    assert load(settings).n_records == 40_000
