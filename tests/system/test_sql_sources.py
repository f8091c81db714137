"""A release of three owners that keep their records in PostgreSQL, SQLite and Parquet, with real daemons."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.release.verification import verify_release
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.postgres_server import PASSWORD, PostgresServer, postgres_server
from tests.system.small_owners import (
    answer_of,
    ask,
    declared,
    identifiers,
    logs,
    people,
    released,
    spends,
    start_release,
    stored,
)

pytestmark = pytest.mark.needs("postgres")

OWNERS = ("a", "b", "c")
PEOPLE = {name: identifiers(100 * place, 80) for place, name in enumerate(OWNERS)}
NAMES = "person, age, income, admitted, ward, severity, emergency"


def _typed(table: pd.DataFrame) -> pa.Table:
    texts = pa.Table.from_pandas(table, preserve_index=False)
    types = {"income": pa.decimal128(10, 2), "admitted": pa.date32(), "emergency": pa.bool_()}
    for name, kind in types.items():
        place = texts.column_names.index(name)
        texts = texts.set_column(place, name, texts[name].cast(pa.string()).cast(kind))
    return texts


def _fill(server: PostgresServer, folder: Path) -> dict[str, dict[str, Any]]:
    """Put every owner's records where it keeps them; returns what owner.toml says about that."""
    tables = {name: people(PEOPLE[name], seed) for seed, name in enumerate(OWNERS)}
    for name in OWNERS:
        (folder / "owners" / name).mkdir(parents=True)
    in_server = stored(server, folder, "a", "people", tables["a"])
    with sqlite3.connect(folder / "owners" / "b" / "people.db") as connection:
        tables["b"].to_sql("people", connection, index=False)
    connection.close()
    pq.write_table(_typed(tables["c"]), folder / "owners" / "c" / "people.parquet")
    in_file = {"source": "sqlite:///people.db", "query": f"select {NAMES} from people;"}
    return {"a": in_server, "b": in_file, "c": {"source": "people.parquet"}}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, server: PostgresServer) -> Iterator[LocalCluster]:
    """Three owners and the aggregator, connected."""
    folder = tmp_path_factory.mktemp("sql")
    says = {name: declared("patients", **source) for name, source in _fill(server, folder).items()}
    make_setup(folder, says, deadlines={"invite": "60s"})
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


def test_check_describes_all_three_alike(cluster: LocalCluster) -> None:
    """Owners that keep the same attributes in different places say the same about them, and hide who asks."""
    found = {}
    for owner in OWNERS:
        code, document = ask(cluster, "owner-node", "check", owner=owner)
        assert code == 0
        (found[owner],) = document["datasets"]
    assert found["a"]["schema"] == found["b"]["schema"] == found["c"]["schema"]
    assert [each["records"] for each in found.values()] == [80] * 3
    assert found["a"]["source"].startswith("postgresql://127.0.0.1:")
    assert PASSWORD not in json.dumps(found)
    assert "reader" not in found["a"]["source"]


def test_one_release_of_three_kinds_of_source(cluster: LocalCluster) -> None:
    """It is published, verifies, and every owner finds its own masked values in it."""
    code, document = released(cluster, "mixed", owners="a,b,c")
    assert code == 0, document
    folder = Path(document["directory"])
    assert verify_release(folder).n_records == 240
    for owner in OWNERS:
        assert ask(cluster, "owner-node", "verify", folder, owner=owner)[0] == 0
        assert len(spends(cluster, owner, "mixed")) == 1


def test_a_release_waits_for_a_database_that_is_away(cluster: LocalCluster, server: PostgresServer) -> None:
    """The owner says why it waits, without a password, and goes on when the database is back."""
    seen = len(cluster.owner("a").entries)
    server.stop()
    try:
        command = start_release(cluster, "waiting", owners="a,b,c")
        entry = cluster.owner("a").wait_for("cannot work now", after=seen, release="waiting", step="describe")
        code, document = ask(cluster, "owner-node", "check", owner="a")
    finally:
        server.start()
    assert f"127.0.0.1:{server.port}" in entry["reason"]
    assert (code, document["error"]["code"]) == (6, "source_unreachable")
    code, document = answer_of(command)
    assert code == 0, document


def test_a_query_that_fails_ends_the_release_and_says_why_at_home_only(
    cluster: LocalCluster, server: PostgresServer
) -> None:
    """The owner's log names the fault; the aggregator hears that the data cannot be used, and no more."""
    server.run("alter table people rename to persons")
    try:
        code, document = released(cluster, "renamed", owners="a,b,c")
    finally:
        server.run("alter table persons rename to people")
    assert (code, document["error"]["code"]) == (4, "bad_data")
    assert "UndefinedTable" not in json.dumps(document)
    refusal = cluster.owner("a").wait_for("refused", release="renamed")
    assert "UndefinedTable (42P01), at 'people'" in refusal["reason"]
    assert spends(cluster, "b", "renamed") == []


def test_no_log_tells_a_password_or_a_person(cluster: LocalCluster) -> None:
    """Nothing of what any daemon wrote lets somebody in, or names anybody."""
    written = logs(cluster)
    assert PASSWORD not in written
    assert not any(person in written for names in PEOPLE.values() for person in names)
