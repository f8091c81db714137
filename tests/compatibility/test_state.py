"""State directories that the version before wrote, opened by this one: nothing is lost, and work goes on."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aggregator.store.database import FILE_NAME as AGGREGATOR_DB
from aggregator.store.database import AggregatorDatabase
from common.database import FIRST_VERSION, SqliteDatabase, copies_before
from common.errors import ConfigurationError, ExitCode
from deploy.local_cluster import LocalCluster
from owner_node.state.database import FILE_NAME as OWNER_DB
from owner_node.state.database import OwnerDatabase
from tests.compatibility.test_releases import OWNERS, make_owners
from tests.system.small_owners import answer_of, ask, ledger, spends, start_release, state_dir

CONVERTED = "CREATE TABLE of_the_next_version (text TEXT NOT NULL)"


@pytest.fixture(scope="module")
def written(before: Path, tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    """What version 0.1.0 left: a published release, one refused, and one that waits for a person at a."""
    cluster = make_owners(tmp_path_factory.mktemp("state"), approval="manual")
    daemons = (cluster.aggregator, *cluster.owners.values())
    with cluster:
        for daemon in daemons:
            daemon.programs = before
        cluster.start()
        command = waiting(cluster, "done")
        approve(cluster, "done", *OWNERS)
        assert answer_of(command)[0] == 0
        command = waiting(cluster, "declined")
        refused = cluster.cli("owner-node", "refuse", "declined", "--reason", "not now", owner="a")
        assert refused.returncode == 0, refused.stderr
        assert answer_of(command)[0] == ExitCode.REFUSED
        waiting(cluster, "open")
        approve(cluster, "open", "b")
        cluster.owner("b").wait_for("done", release="open", step="consent")
    for daemon in daemons:
        daemon.programs = None
    return cluster


def waiting(cluster: LocalCluster, release: str, **options: str):
    """Start a release and return its command when both owners ask a person."""
    command = start_release(cluster, release, **options)
    for owner in OWNERS:
        cluster.owner(owner).wait_for("waiting for a person", release=release)
    return command


def approve(cluster: LocalCluster, release: str, *owners: str) -> None:
    """Agree at owners to the plan that waits."""
    for owner in owners:
        # The version before has no such option.
        anyway = [] if cluster.owner(owner).programs else ["--anyway"]
        done = cluster.cli("owner-node", "approve", release, "--yes", *anyway, owner=owner)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def cluster(written: LocalCluster, tmp_path: Path) -> Iterator[LocalCluster]:
    """A copy of it, run by this version."""
    shutil.copytree(written.folder, tmp_path / "copy")
    with LocalCluster(tmp_path / "copy") as copied:
        yield copied


def aggregator_db(cluster: LocalCluster) -> Path:
    """Return the aggregator's database."""
    return cluster.folder / "aggregator" / "state" / AGGREGATOR_DB


def owner_db(cluster: LocalCluster) -> Path:
    """Return the database of owner a."""
    return state_dir(cluster, "a") / OWNER_DB


def test_commands_before_the_daemon(cluster):
    """What commands show of the old state, without a daemon."""
    for owner in OWNERS:
        code, shown = ask(cluster, "owner-node", "ledger", "--verify", owner=owner)
        assert code == 0, shown
        lines = ask(cluster, "owner-node", "history", owner=owner)[1]["history"]
        assert {"done", "declined", "open"} <= {each["release"] for each in lines}
    waits = ask(cluster, "owner-node", "requests", owner="a")[1]["requests"]
    assert [each["release"] for each in waits] == ["open"]
    code, shown = ask(
        cluster, "aggregator", "verify", cluster.folder / "releases" / "done",
        "--ca", cluster.folder / "tls" / "ca.pem",
    )  # fmt: skip
    assert (code, shown["holds"]) == (0, True)


def test_work_goes_on(cluster):
    """The open release, whose plan asks for no proof of the linkage key, is refused before anything is spent.

    The finished ones are as they were, and another one succeeds.
    """
    cluster.start()
    code, shown = answer_of(start_release(cluster, "open"))
    assert code == ExitCode.REFUSED, shown
    assert "this plan asks for no proof" in json.dumps(
        ask(cluster, "owner-node", "show", "open", owner="a")[1]
    )
    listed = ask(cluster, "aggregator", "releases")[1]["releases"]
    states = {each["release"]: each["state"] for each in listed}
    assert states == {"done": "published", "declined": "refused", "open": "refused"}
    command = waiting(cluster, "next", dataset="halves", layout="vertical")
    approve(cluster, "next", *OWNERS)
    assert answer_of(command)[0] == 0
    for owner in OWNERS:
        assert not spends(cluster, owner, "open")
        for release in ("done", "next"):
            assert len(spends(cluster, owner, release)) == 1
            place = cluster.folder / "releases" / release
            assert ask(cluster, "owner-node", "verify", place, owner=owner)[1]["holds"]


def test_conversion_of_real_databases(cluster, monkeypatch):
    """Databases of version 0.1.0 are converted with all that they hold; their copies are what they were."""
    owner, aggregator = owner_db(cluster), aggregator_db(cluster)
    contents = {path: (dump(path), rows_of(path)) for path in (owner, aggregator)}
    with ledger(cluster, "a") as book:
        head = book.head()
    for kind in (OwnerDatabase, AggregatorDatabase):
        monkeypatch.setattr(kind, "schema", (*kind.schema, CONVERTED))
        monkeypatch.setattr(kind, "migrations", (*kind.migrations, (CONVERTED,)))
    with ledger(cluster, "a") as book:
        assert book.head() == head
    AggregatorDatabase(aggregator).close()
    for path, (before, rows) in contents.items():
        assert dump(copies_before(path)[0]) == before
        converted = rows_of(path, columns_of(copies_before(path)[0]))
        assert {table: converted[table] for table in rows} == rows
    monkeypatch.undo()
    with pytest.raises(ConfigurationError, match="newer version"):
        AggregatorDatabase(aggregator)
    findings = cluster.cli("aggregator", "doctor").stdout
    assert f"{AGGREGATOR_DB} was converted" in " ".join(findings.split())


def columns_of(path: Path) -> dict[str, str]:
    """Return the columns of every table, as SELECT takes them."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            table: ", ".join(column for _, column, *_ in connection.execute(f"PRAGMA table_info({table})"))
            for (table,) in tables
        }


def rows_of(path: Path, columns: dict[str, str] | None = None) -> dict[str, list[tuple]]:
    """Return the rows of every table, in these columns or in all."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: sorted(connection.execute(f"SELECT {names} FROM {table}").fetchall(), key=repr)
            for table, names in (columns or columns_of(path)).items()
        }


def dump(path: Path) -> list[str]:
    """Return a database as the statements that make it, sorted."""
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.iterdump())


@pytest.mark.parametrize(("kind", "place"), [(OwnerDatabase, owner_db), (AggregatorDatabase, aggregator_db)])
def test_migrations_lead_to_the_schema(kind: type[SqliteDatabase], place, written):
    """A database of version 0.1.0 that was converted has the tables and triggers of a new one."""
    with closing(sqlite3.connect(place(written))) as old, closing(sqlite3.connect(":memory:")) as new:
        assert old.execute("PRAGMA user_version").fetchone() == (FIRST_VERSION,)
        old.backup(new)
        for statements in kind.migrations:
            for statement in statements:
                new.execute(statement)
        converted = objects(new)
    with closing(sqlite3.connect(":memory:")) as fresh:
        for statement in kind.schema:
            fresh.execute(statement)
        assert converted == objects(fresh)


def objects(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return names and definitions of all tables, indices and triggers, without their line breaks."""
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {(name, " ".join(sql.split())) for name, sql in found}
