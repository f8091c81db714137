"""An owner node that asks PostgreSQL: its data are pinned by what the records are, not by their order."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import DataChangedError, SourceUnreachableError
from common.model.plan import Plan
from tests.fakes.offering import N_RECORDS, Offering
from tests.postgres_server import PASSWORD, PostgresServer, postgres_server

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with postgres_server() as running:
        yield running


@pytest.fixture
def offering(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Offering]:
    """An owner node that asks the server."""
    monkeypatch.setenv("COHORT_PASSWORD", PASSWORD)
    server.run("drop table if exists cohort")
    server.run(
        "create table cohort as select 'p' || n as person, n * 7 % 100 as age "
        f"from generate_series(1, {N_RECORDS}) n"
    )
    made = Offering(tmp_path)
    cohort = replace(
        made.config.datasets[0],
        source=server.url(),
        query="select * from cohort",
        password_env="COHORT_PASSWORD",
    )
    made.config = replace(made.config, datasets=(cohort,))
    made.restart()
    yield made
    made.records.db.close()


def linked(offering: Offering) -> Plan:
    """Bring a release to where the source is pinned, and let the process die."""
    plan = offering.plan(offering.node.invitations.describe("r1", "cohort"))
    offering.node.invitations.consent("r1", plan.digest, offering.offer(plan))
    assert offering.node.production.link("r1", plan.digest).n_records == N_RECORDS
    offering.restart()
    return plan


def test_records_that_only_moved_are_the_pinned_ones(server: PostgresServer, offering: Offering) -> None:
    """An update that rewrites records in place of others does not end a release that was resumed."""
    plan = linked(offering)
    server.run("update cohort set person = person where age < 50")
    done = offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert done.n_records == N_RECORDS
    assert offering.kinds() == ["reserve", "spend"]


def test_a_value_that_changed_stops_the_release_before_anything_is_spent(
    server: PostgresServer, offering: Offering
) -> None:
    """A database that goes on living between linking and masking is found out, at no cost."""
    plan = linked(offering)
    server.run("update cohort set age = 100 - age where person = 'p3'")
    with pytest.raises(DataChangedError):
        offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert offering.kinds() == ["reserve"]


def test_a_database_that_is_away_changes_nothing_and_can_be_asked_again(
    server: PostgresServer, offering: Offering
) -> None:
    """Every step that loads can be told again once the database is back."""
    plan = linked(offering)
    server.stop()
    try:
        with pytest.raises(SourceUnreachableError):
            offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
        with pytest.raises(SourceUnreachableError):
            offering.node.invitations.describe("r2", "cohort")
    finally:
        server.start()
    assert offering.kinds() == ["reserve"]
    offering.node.invitations.describe("r2", "cohort")
    offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert offering.kinds() == ["reserve", "spend"]
