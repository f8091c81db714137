"""A plan that waits is attacked on the data it asks for, once, and every view shows what is stored."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cli.sections import show as show_sections
from common.clock import utc_now
from common.log import JsonFormatter
from common.model.schema import Attribute, AttributeType, Schema, TaxonomyMethod
from common.planning.arguments import parse_arguments
from common.planning.planner import make_plan
from common.trust.identity import Party, PartyKind
from owner_node.cli.requests import show_request
from owner_node.config import PolicyConfig
from owner_node.config.engine import EngineKind, OwnerEngineSection
from owner_node.masking.arrays import SystemBits
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.foreseen import Forecast, as_share
from owner_node.masking.tasks import AttributeTask
from owner_node.release.decisions import Decisions, this_person
from owner_node.risk import appraisal as risk
from owner_node.risk.attacks import LINKING
from owner_node.risk.trials import Randomness
from owner_node.state.sessions import Session
from owner_node.values.taxonomy import Taxonomy
from owner_node.views.appraisal import appraise
from owner_node.views.details import attack_sections
from owner_node.views.earlier import released_plans, released_tasks
from owner_node.views.plan import plan_document
from tests.fakes.offering import DOMAIN, N_RECORDS, Offering


def asked_for(tmp_path: Path, k: str = "5") -> Offering:
    """Return an owner node that asks a person about every plan, and has been asked for one."""
    made = Offering(tmp_path, PolicyConfig(approval="manual"))
    plan = made.plan(made.node.invitations.describe("r1", "cohort"), "r1", k=k)
    assert made.node.invitations.consent("r1", plan.digest, made.offer(plan)) is None
    return made


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner node that asks a person about every plan, and has been asked for one."""
    made = asked_for(tmp_path)
    yield made
    made.records.db.close()


def session(offering: Offering) -> Session:
    """The session that waits."""
    found = offering.records.sessions.get("hub", "r1")
    assert found is not None
    return found


def appraised(offering: Offering) -> dict[str, Any]:
    """Let a person look; return what is stored of the attacks."""
    assert appraise(session(offering), offering.config) == ""
    found = offering.records.sessions.attacks(session(offering))
    assert found is not None
    return found


def show(found: dict[str, Any]) -> None:
    """Print attacks and distortions as a person reads them."""
    show_sections(attack_sections({"attacks": found}))


def lines(offering: Offering) -> tuple[int, int]:
    """How much is in ledger and history."""
    return len(list(offering.records.ledger.entries())), len(list(offering.records.history.entries()))


def test_a_plan_that_waits_is_tried(offering, capsys):
    """Error and attacks are there, beside their baselines; ledger and history stay as they were."""
    before = lines(offering)
    found = appraised(offering)
    attacks = {each["attack"] for each in found["risks"]}
    assert {"unchanged-values", "likelihood", "interval"} <= attacks
    assert lines(offering) == before
    show(found)
    printed = capsys.readouterr().out
    assert "without the release" in printed
    assert "How masking changes single attributes" in printed
    assert "re-identified by one who knows all attributes" in printed
    assert "attributes of this owner" not in printed
    assert found["risks_with_earlier"] == []


def test_what_loading_left_out_is_shown_before_and_after_the_decision(tmp_path, capsys):
    """Counts by column and reason, for the person who decides and in the history; other data change them."""
    made = Offering(tmp_path, PolicyConfig(approval="manual"))
    made.config = replace(made.config, datasets=(replace(made.config.datasets[0], missing="drop"),))
    made.restart()
    plan = made.plan(made.node.invitations.describe("r1", "cohort"), "r1")
    assert made.node.invitations.consent("r1", plan.digest, made.offer(plan)) is None
    decisions, whole = Decisions(made.records.db, utc_now), made.source.read_text()

    def shown() -> tuple[str, str]:
        document = plan_document(session(made), made.config, decisions)
        for details in (False, True):
            show_request(document, details=details)
        page, everything = capsys.readouterr().out.split("release r1 of aggregator")
        return page, everything

    made.source.write_text(whole + "p98,\n")
    assert appraise(session(made), made.config) == ""
    assert all("dropped: 1 record with a missing value" in text for text in shown())
    made.source.write_text(whole + "p98,\n,4\np99,\n")
    assert appraise(session(made), made.config) == ""
    page, everything = shown()
    assert "missing values by column: 'age': 2 empty, 'person': 1 empty" in page
    assert "dropped: 3 records with a missing value" in everything
    assert made.records.history.entries(event="linked") == ()
    digest, source = session(made).plan_digest, session(made).source_digest
    decisions.approve("r1", digest, this_person(), timedelta(hours=1), source, anyway=True)
    made.node.invitations.consent("r1", plan.digest, made.offer(plan))
    made.node.production.link("r1", plan.digest)
    (linked,) = made.records.history.entries(event="linked")
    by = {"age": {"empty": "2"}, "person": {"empty": "1"}}
    assert linked.details["left_out"] == {"dropped": "3", "dropped_by": by}
    assert "dropped: 3 records with a missing value" in shown()[1]
    made.records.db.close()


def test_a_plan_is_attacked_once(offering, monkeypatch):
    """The same data keep every figure, however often somebody looks; the expected intruder has one figure."""
    found = appraised(offering)
    forecast = Forecast.from_text(session(offering).forecast)
    monkeypatch.setattr("owner_node.views.appraisal.attack", None)
    monkeypatch.setattr("owner_node.views.appraisal.foresee", None)
    assert appraised(offering) == found
    assert Forecast.from_text(session(offering).forecast) == forecast
    (expected,) = [
        each for each in found["risks"] if each["attack"] in LINKING and each["knows"] == found["expected"]
    ]
    assert as_share(expected["rate"]["mean"]) == forecast.reidentified
    offering.write_source(seed=2)
    with pytest.raises(TypeError):
        appraise(session(offering), offering.config)


def test_with_what_was_released_before(offering, capsys):
    """Fragments that were sealed before are counted in, by their plans; what ended without one is not."""
    now = session(offering)
    with offering.records.db.transaction() as tx:
        for release, digest in (("r2", ""), ("r3", "ab"), ("r4", "cd")):
            opened = offering.records.sessions.open(tx, "hub", release, "cohort")
            offering.records.sessions.update(tx, opened, plan_digest=now.plan_digest, fragment_digest=digest)
    found = appraised(offering)
    (earlier,) = found["risks_with_earlier"]
    assert earlier["knows"] == "all, with 2 earlier releases"
    assert earlier["rate"]["mean"] > earlier["baseline"]
    show(found)
    assert "with 2 earlier releases" in " ".join(capsys.readouterr().out.split())
    dataset = offering.config.dataset("cohort")
    plans = released_plans(offering.config, "cohort")
    declared = {each.name: each for each in plans[0].attributes}
    assert [plan.digest for plan in plans] == 2 * [now.plan_digest]
    (first, second) = released_tasks(plans, offering.config, dataset, declared)
    assert [task.attribute.name for task in first] == list(declared)
    assert released_tasks(plans, offering.config, dataset, {}) == ()
    assert first == second


def test_of_a_vertical_plan_it_is_this_owners_part(tmp_path, capsys):
    """What other owners' attributes add for an intruder cannot be tried here, and that is said."""
    made = Offering(tmp_path, PolicyConfig(approval="manual"))
    own = Schema.from_document(json.loads(made.node.invitations.describe("r1", "cohort")))
    other = replace(own, attributes=tuple(integers(3)))
    request = parse_arguments(
        release="r1", dataset="cohort", layout="vertical", groups=[("a",), ("b",)], epsilon="1", k="5",
        mechanism="idp-joint",
    )  # fmt: skip
    aggregator = Party(PartyKind.AGGREGATOR, "hub", DOMAIN).uri
    plan = make_plan(
        request,
        {"a": own, "b": other},
        aggregator=aggregator,
        created="2026-01-01T00:00:00Z",
        version="0.1.0",
    )
    assert made.node.invitations.consent("r1", plan.digest, made.offer(plan)) is None
    found = appraised(made)
    made.records.db.close()
    assert found["others_attributes"] == 3
    show(found)
    printed = capsys.readouterr().out
    assert "attributes of this owner" in " ".join(printed.split())
    assert "3 more attributes" in printed


def test_only_what_waits_is_attacked(offering):
    """No data are loaded for a release that has ended."""
    offering.node.close("r1", "cancelled", "", "")
    assert appraise(session(offering), offering.config) == ""
    assert offering.records.sessions.attacks(session(offering)) is None


def test_what_cannot_be_tried_is_shown_all_the_same(offering, capsys, monkeypatch):
    """Too many values, and data that cannot be loaded, are said in a line; the plan is still shown."""
    monkeypatch.setattr("owner_node.risk.appraisal.MOST_EFFORT", 1)
    found = appraised(offering)
    assert "owner-node explore" in found["problem"]
    show(found)
    assert "was not attacked" in capsys.readouterr().out
    Path(offering.config.dataset("cohort").source).unlink()
    assert appraise(session(offering), offering.config) != ""
    assert offering.records.sessions.attacks(session(offering)) == found


def test_clusters_nearly_as_large_as_the_table(tmp_path):
    """As many people are left out for the attacks as leave enough for one cluster."""
    made = asked_for(tmp_path, k=str(N_RECORDS - 2))
    found = appraised(made)
    made.records.db.close()
    assert {"unchanged-values", "likelihood"} <= {each["attack"] for each in found["risks"]}


def test_no_fault_of_the_trial_hides_the_plan(offering, monkeypatch, caplog):
    """A fault of the program is told by its kind and place: its text could quote a value."""

    def fail(*_):
        raise ValueError("Zq7Qz")

    monkeypatch.setattr(risk, "sorted_records", fail)
    with caplog.at_level(logging.WARNING):
        found = appraised(offering)
    assert session(offering).forecast
    assert "ValueError at" in found["problem"]
    assert "Zq7Qz" not in found["problem"]
    assert [record.getMessage() for record in caplog.records] == ["plan not attacked"]
    assert "Zq7Qz" not in JsonFormatter().format(caplog.records[0])


def integers(n_attributes: int, n_values: int = 100) -> list[Attribute]:
    """Return attributes of integers."""
    return [Attribute(f"a{each}", AttributeType.INTEGER, 0, n_values - 1) for each in range(n_attributes)]


@pytest.mark.parametrize(
    ("n_attributes", "mechanism", "n_values", "most"),
    [
        (10, "idp-joint", 100, 29_000),
        (10, "idp-joint", 10**6, 29_000),
        (150, "idp-joint", 100, 1_000),
        (1_000, "idp-joint", 100, 0),
        (10, "dp-hist", 10**4, 19_000),
        (10, "dp-hist", 10**6, 0),
    ],
)
def test_as_many_records_are_tried_as_take_some_seconds(n_attributes, mechanism, n_values, most):
    """Fewer of a wide table, and of one whose values are counted."""
    masked = [(each, mechanism) for each in integers(n_attributes, n_values)]
    assert risk.most_records(masked) == most


def test_distances_of_a_taxonomy_are_no_small_effort():
    """A table of categories with a large taxonomy is not tried."""
    labels = tuple(f"c{each}" for each in range(5_000))
    plain = Attribute("code", AttributeType.CATEGORY, 0, len(labels) - 1, categories=labels)
    tree = Taxonomy(tuple(("*", label) for label in labels))
    in_tree = replace(plain, taxonomy=tree.digest, method=TaxonomyMethod.RANK)
    assert risk.most_records([(plain, "idp-joint")]) > risk.FEWEST_TRIED
    assert risk.most_records([(in_tree, "idp-joint")]) == 0


@pytest.mark.parametrize("share", ["0.5", "0"])
def test_rank_noise_is_shown_against_none(capsys, share):
    """With rank noise every attack is tried without it, too; a plan without has no such column."""
    tasks = [
        AttributeTask(each, Decimal(100), 3, "idp-joint", rank_noise=Decimal(share)) for each in integers(3)
    ]
    draw = np.random.default_rng(2)
    columns = {each.attribute.name: draw.permutation(100) for each in tasks}
    found = risk.attack(MemoryEngine(columns), tasks, Randomness(SystemBits(), draw))
    show({**found, "others_attributes": 0, "sampled": ""})
    printed = capsys.readouterr().out
    if share == "0":
        assert found["risks_without_rank_noise"] is None
        assert "without rank noise" not in printed
        return
    with_it, without = (
        {each["attack"]: each["rate"]["mean"] for each in found[name] if each["knows"] in ("", "all")}
        for name in ("risks", "risks_without_rank_noise")
    )
    assert {(each["attack"], each["attribute"]) for each in found["risks"]} == {
        (each["attack"], each["attribute"]) for each in found["risks_without_rank_noise"]
    }
    assert with_it["linkage"] < 0.5
    assert without["linkage"] > 0.9
    start = "re-identified by one who knows all attributes  "
    (line,) = [each for each in printed.splitlines() if each.startswith(start)]
    best = max(without[each] for each in ("linkage", "likelihood", "structure"))
    assert f"{100 * best:.3g} %" in line
    assert "without rank noise" in printed


def test_of_many_attributes_some_are_inferred(capsys):
    """Each is inferred from all others, so that all of many would take long; how many is said."""
    attributes = integers(12)
    tasks = [AttributeTask(each, Decimal(1), 5, "idp-joint") for each in attributes]
    draw = np.random.default_rng(1)
    columns = {each.name: draw.integers(0, 100, 200) for each in attributes}
    found = risk.attack(MemoryEngine(columns), tasks, Randomness(SystemBits(), draw))
    inferred = [each["attribute"] for each in found["risks"] if each["attack"] == "inference"]
    assert len(set(inferred)) == len(inferred) == risk.MOST_INFERRED
    show({**found, "others_attributes": 0, "sampled": ""})
    assert f"{risk.MOST_INFERRED} of 12 attributes" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [EngineKind.MEMORY, EngineKind.DISK])
def test_a_sample_is_said(tmp_path, capsys, monkeypatch, kind):
    """Of a long table so many records are tried, with earlier releases too, and their number is said."""
    made = Offering(tmp_path, PolicyConfig(approval="manual"))
    section = OwnerEngineSection(memory_limit=256 * 10**6, threads=2, kind=kind)
    made.config = replace(made.config, engine=section)
    made.restart()
    plan = made.plan(made.node.invitations.describe("r1", "cohort"), "r1", k=str(N_RECORDS // 3))
    assert made.node.invitations.consent("r1", plan.digest, made.offer(plan)) is None
    now, tried = session(made), N_RECORDS // 2
    with made.records.db.transaction() as tx:
        opened = made.records.sessions.open(tx, "hub", "r2", "cohort")
        made.records.sessions.update(tx, opened, plan_digest=now.plan_digest, fragment_digest="ab")
    monkeypatch.setattr("owner_node.views.appraisal.most_records", lambda _: tried)
    monkeypatch.setattr("owner_node.views.appraisal.FEWEST_TRIED", tried)
    attacked = []

    def watched(records: MemoryEngine, *arguments: Any) -> Any:
        attacked.append((records, arguments[3]))
        return risk.attack(records, *arguments)

    monkeypatch.setattr("owner_node.views.appraisal.attack", watched)
    found = appraised(made)
    made.records.db.close()
    assert found["sampled"].startswith(f"{tried:,} of {N_RECORDS:,} records were tried")
    assert [each["knows"] for each in found["risks_with_earlier"]] == ["all, with 1 earlier release"]
    ((records, earlier),) = attacked
    assert (records.n_records, earlier.records.n_records) == (tried, tried)
    assert {task.k for release in earlier.releases for task in release} == {round(N_RECORDS // 3 * 0.5)}
    show(found)
    assert found["sampled"] in " ".join(capsys.readouterr().out.split())
    assert not list(made.config.workspace.scratch.glob("*"))
