"""The owner's data: foreseen for a person who looks, loaded once, and pinned when they are linked."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import DataChangedError, RefusedError
from owner_node.config import PolicyConfig
from owner_node.loading import load
from owner_node.masking.foreseen import Forecast
from owner_node.release.original_data import MOST_KEPT
from owner_node.state.answers import Failure
from owner_node.state.session import SessionState
from tests.fakes.offered_plans import approve, consent, looked_at, offered, session, under
from tests.fakes.offering import N_RECORDS, Offering

POLICY = Failure.of("refused")


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node and its aggregator."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def test_the_owner_is_told_what_to_expect(offering: Offering) -> None:
    """The forecast is in the session and in the history before anything is spent, and reads back."""
    under(offering, approval="manual")
    plan = offered(offering)
    assert not consent(offering, plan)
    approve(offering)
    assert consent(offering, plan)
    found = Forecast.from_text(session(offering).forecast)
    assert [each.name for each in found.attributes] == ["age"]
    (line,) = offering.records.history.entries(event="accepted")
    assert line.details["forecast"]["unchanged_values"] == format(found.unchanged_values, "f")
    assert line.details["records"] == str(N_RECORDS) == str(session(offering).n_records)
    assert offering.kinds() == ["reserve"]


def test_data_that_changed_since_consent(offering: Offering) -> None:
    """What a person agreed to is what is linked: other data after a restart stop the release, unspent."""
    under(offering, approval="manual")
    plan = offered(offering)
    consent(offering, plan)
    approve(offering)
    assert consent(offering, plan)
    offering.restart()
    offering.write_source(seed=2)
    with pytest.raises(DataChangedError) as caught:
        offering.node.production.link("r1", plan.digest)
    assert offering.node.fail("r1", caught.value).code == "data_changed"
    assert offering.kinds() == ["reserve", "return"]


def test_nothing_that_is_kept_confirms_a_guess_of_the_data(offering: Offering) -> None:
    """Who guesses the data can compute their digest, but finds it in no session and no line of history."""
    plan = offered(offering)
    consent(offering, plan)
    offering.node.production.link("r1", plan.digest)
    digest = load(offering.config.datasets[0], ["age"]).digest
    lines = offering.records.history.entries()
    assert session(offering).source_digest not in ("", digest)
    assert [line.details["source"] for line in lines if "source" in line.details] == [
        session(offering).source_digest
    ]
    assert digest not in str(lines)


def test_a_release_of_one_column_is_charged_for_all(offering: Offering) -> None:
    """What is charged are the persons: all declared columns are known afterwards, and a copy with another one
    under another budget is not consented to, nor linked if it was before.
    """
    lines = [f"p{i},{i % 90},{(i * i * 37) % 1000}" for i in range(N_RECORDS)]
    copied = offering.folder / "copy.csv"
    for path in (offering.source, copied):
        path.write_text("\n".join(["person,age,pay", *lines, ""]))
    (cohort,) = offering.config.datasets
    (age,) = cohort.attributes
    pay = replace(age, name="pay", upper=1000)
    two = replace(cohort, attributes=(age, pay))
    other = replace(cohort, attributes=(pay,), name="copy", budget="copy", source=str(copied))
    offering.config = replace(
        offering.config, datasets=(two, other), policy=PolicyConfig(attributes=("age",))
    )
    offering.restart()
    plan = offered(offering)
    consent(offering, plan)
    offering.node.production.link("r1", plan.digest)
    offering.config = replace(offering.config, policy=PolicyConfig())
    offering.restart()
    copies = [
        offering.plan(offering.node.invitations.describe(release, "copy"), release=release, dataset="copy")
        for release in ("r2", "r3")
    ]
    consent(offering, copies[0])
    offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
    assert set(offering.records.ledger.lines()[-1].note["columns"]) == {"age", "pay", "person"}
    with pytest.raises(RefusedError, match="charged to budget 'cohort'"):
        offering.node.production.link("r2", copies[0].digest)
    assert consent(offering, copies[1])
    with pytest.raises(RefusedError, match="charged to budget 'cohort'"):
        offering.node.production.link("r3", copies[1].digest)
    assert offering.kinds() == ["reserve", "reserve", "spend", "reserve"]


def test_memory_holds_the_data_of_few_releases(offering: Offering) -> None:
    """However many releases are accepted and not yet masked, few tables stay; the others are loaded again."""
    plans = [offered(offering, f"r{index}", epsilon="0.1") for index in range(MOST_KEPT + 3)]
    for plan in plans:
        consent(offering, plan)
    assert not offering.node._original_data._kept
    for plan in plans:
        offering.node.production.link(plan.release, plan.digest)
    assert len(offering.node._original_data._kept) == MOST_KEPT
    assert offering.node.production.link("r0", plans[0].digest).n_records == N_RECORDS


def test_consent_loads_nothing_and_who_looks_stores_the_forecast(offering: Offering) -> None:
    """While a person is waited for no data are loaded, however often the plan comes; who looks stores what
    the data are in for, and the same data keep the same forecast, also if they cannot be read for a time.
    """
    under(offering, approval="manual")
    plan = offered(offering)
    content = offering.source.read_text()
    offering.source.unlink()
    assert not consent(offering, plan)
    assert session(offering).forecast == ""
    offering.source.write_text(content)
    assert looked_at(offering) == ""
    forecast = session(offering).forecast
    assert Forecast.from_text(forecast).attributes
    assert not offering.node._original_data._kept
    offering.source.write_text(content.replace("p1,", "p1,9999", 1))
    assert "9999" not in looked_at(offering) != ""
    assert not consent(offering, plan)
    offering.source.write_text(content)
    assert looked_at(offering) == ""
    approve(offering)
    offering.restart()
    assert consent(offering, plan)
    assert session(offering).forecast == forecast
    assert offering.kinds() == ["reserve"]


@pytest.mark.parametrize("usable", [True, False])
def test_data_that_changed_while_a_person_decided(offering: Offering, *, usable: bool) -> None:
    """An approval is of the data that its person saw: once somebody has seen others they are approved anew,
    also where those before could not be used.
    """
    under(offering, approval="manual")
    plan = offered(offering)
    if not usable:
        offering.source.unlink()
    consent(offering, plan)
    approve(offering)
    before = session(offering)
    assert bool(before.source_digest) == usable
    offering.write_source(seed=2)
    assert looked_at(offering) == ""
    assert not consent(offering, plan)
    after = session(offering)
    assert (after.state, offering.kinds()) == (SessionState.AWAITING_APPROVAL, [])
    assert after.source_digest != before.source_digest
    assert after.forecast != before.forecast
    approve(offering)
    assert consent(offering, plan)
    assert offering.node.production.link("r1", plan.digest).n_records == N_RECORDS


def test_data_that_changed_unseen_are_not_linked(offering: Offering) -> None:
    """Consent does not look at the data; linking finds that they are not those that were approved."""
    under(offering, approval="manual")
    plan = offered(offering)
    consent(offering, plan)
    approve(offering)
    offering.write_source(seed=2)
    assert consent(offering, plan)
    with pytest.raises(DataChangedError) as caught:
        offering.node.production.link("r1", plan.digest)
    assert offering.node.fail("r1", caught.value).code == "data_changed"
    assert offering.kinds() == ["reserve", "return"]
