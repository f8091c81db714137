"""Nothing that a plan says of numbers of records is a question to the data, unless the answer is counted."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.errors import DataError, RefusedError, TesseraError
from common.model.plan import Plan
from common.model.schema import Schema, most_records
from common.planning.arguments import parse_arguments
from common.planning.planner import make_plan
from owner_node.config import PolicyConfig
from owner_node.release import invitations, product
from owner_node.state.answers import Failure, RefusedBeforeError
from owner_node.state.session import SessionState
from tests.fakes.offered_plans import consent, offered, session, under
from tests.fakes.offering import N_RECORDS, Offering

UNUSABLE = Failure.of("unusable_data")
POLICY = Failure.of("refused")
PER_CENTROID = PolicyConfig(accounting="per-centroid")


@contextmanager
def owner(folder: Path, n_records: int, policy: PolicyConfig | None = None) -> Iterator[Offering]:
    """An owner node with so many records."""
    folder.mkdir()
    made = Offering(folder, policy or PolicyConfig())
    write(made, n_records)
    try:
        yield made
    finally:
        made.records.db.close()


def write(offering: Offering, n_records: int, value: str = "") -> None:
    """Write the owner's file anew; in every record the value that is given, if one is."""
    lines = (f"p{i},{value or i % 90}\n" for i in range(n_records))
    offering.source.write_text("person,age\n" + "".join(lines))


def answer(offering: Offering, plan: Plan) -> str:
    """Offer a plan; return all that the aggregator hears."""
    try:
        return "accepted" if consent(offering, plan) else "waiting"
    except TesseraError as error:
        failure = offering.node.fail(plan.release, error)
        return f"{failure.code}: {failure.message}"


def linked(offering: Offering, plan: Plan) -> str:
    """Offer a plan, which is accepted, and link it; return what the aggregator hears of the linking."""
    assert consent(offering, plan)
    try:
        offering.node.production.link(plan.release, plan.digest)
    except TesseraError as error:
        failure = offering.node.fail(plan.release, error)
        return f"{failure.code}: {failure.message}"
    return "linked"


def used(offering: Offering) -> int:
    """Return how many linkings count."""
    return offering.records.attempts.allowances(offering.config)[0].used


def stating(offering: Offering, release: str, number: int, *, throughout: bool, **arguments: str) -> Plan:
    """Return a plan that states another number of records; `throughout`: and all that is computed from it."""
    schema = offering.node.invitations.describe(release, "cohort")
    if throughout:
        document = json.loads(schema) | {"records_rounded": str(number)}
        return offering.plan(json.dumps(document).encode(), release=release, **arguments)
    plan = offering.plan(schema, release=release, **arguments)
    return replace(plan, tasks=tuple(replace(task, records_rounded=number) for task in plan.tasks))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often the source was loaded or counted, since it was cleared."""
    found: list[str] = []
    for module, name in ((product, "pin"), (invitations, "count_records")):
        real = getattr(module, name)

        def noted(*arguments: Any, real: Callable[..., Any] = real, name: str = name, **others: Any) -> Any:
            found.append(name)
            return real(*arguments, **others)

        monkeypatch.setattr(module, name, noted)
    return found


STATED = sorted({3, 99, 100, 136, 137, 138, 139, 150, 151, 199, 201, 237, 238, 239, 250, 299, 300, 2000})


def _transcript(offering: Offering, looks: list[str], mechanism: str) -> list[str]:
    """Ask with every number, each in a release of its own, then look for the one from which on it differs."""
    heard: list[str] = []
    for throughout in (False, True):
        for number in STATED:
            plan = stating(
                offering, f"r{len(heard)}", number, throughout=throughout, k="3", mechanism=mechanism
            )
            looks.clear()
            heard.append(f"{number}: {answer(offering, plan)}")
            assert looks == []
    low, high = 100, 200
    while high - low > 1:
        middle = (low + high) // 2
        release = f"r{len(heard)}"
        plan = stating(offering, release, middle, throughout=False, k="3", mechanism=mechanism)
        said = answer(offering, plan)
        heard.append(f"{middle}: {said}")
        changed = said != heard[0].partition(": ")[2]
        low, high = (low, middle) if changed else (middle, high)
    heard.append(f"found: {low}")
    plan = stating(offering, "honest", 200, throughout=False, epsilon="0.01", k="3", mechanism=mechanism)
    return [*heard, answer(offering, plan)]


@pytest.mark.parametrize("mechanism", ["idp-joint", "idp-cbls"])
def test_the_number_in_a_plan_is_no_threshold(tmp_path: Path, looks: list[str], mechanism: str) -> None:
    """Owners whose numbers of records have the same leading digit give the same answers, whatever number the
    plans state, without a look at the data and so without a count; no search finds anything.
    """
    transcripts = []
    for n_records in (237, 238, 250):
        with owner(tmp_path / str(n_records), n_records, PER_CENTROID) as offering:
            transcripts.append(_transcript(offering, looks, mechanism))
            assert offering.kinds() == ["reserve"]
    assert transcripts[0] == transcripts[1] == transcripts[2]
    assert transcripts[0][-1] == "accepted"
    said = {line.partition(": ")[2] for line in transcripts[0][:-2]}
    assert said == {f"{POLICY.code}: {POLICY.message}"}


def test_what_was_sent_is_what_counts(tmp_path: Path, looks: list[str]) -> None:
    """A description is made once per release, so asking again is no second question; a plan is judged by it,
    whatever has become of the data since, also after a restart.
    """
    with owner(tmp_path / "a", 237) as offering:
        first = offering.node.invitations.describe("r1", "cohort")
        plan = offering.plan(first, epsilon="0.1")
        write(offering, 400)
        looks.clear()
        assert offering.node.invitations.describe("r1", "cohort") == first
        offering.restart()
        assert offering.node.invitations.describe("r1", "cohort") == first
        assert looks == []
        other = offering.node.invitations.describe("r2", "cohort")
        assert Schema.from_document(json.loads(other)).records_rounded == 400
        others = offering.plan(other, release="r1")
        assert answer(offering, others).startswith("refused")
        assert session(offering).state is SessionState.REFUSED
        # Of a bound that does not count clusters more records are no matter.
        plan = replace(plan, release="r3")
        write(offering, 237)
        offering.node.invitations.describe("r3", "cohort")
        write(offering, 400)
        assert answer(offering, plan) == "accepted"


def test_a_description_that_failed_is_not_made_again(tmp_path: Path, looks: list[str]) -> None:
    """A refused release stays refused: it is no handle for asking whether the data were mended."""
    with owner(tmp_path / "a", 60) as offering:
        offering.source.write_text("person,age\np1,\n")
        with pytest.raises(DataError) as caught:
            offering.node.invitations.describe("r1", "cohort")
        offering.node.fail("r1", caught.value)
        write(offering, 60)
        looks.clear()
        with pytest.raises(RefusedBeforeError):
            offering.node.invitations.describe("r1", "cohort")
        assert looks == []


def test_a_session_of_an_older_version_is_described_once_more(tmp_path: Path) -> None:
    """A session that keeps no schema is judged by one that is made, and kept, when its plan comes."""
    with owner(tmp_path / "a", 60) as offering:
        plan = offered(offering, epsilon="0.1")
        with offering.records.db.transaction() as tx:
            tx.execute("UPDATE sessions SET schema = NULL")
        offering.restart()
        assert consent(offering, plan)
        assert session(offering).schema is not None


# --- missing = "drop": records for some attributes, and for all ---------------------------------------------


@contextmanager
def leaving_out(folder: Path, n_ages: int, n_pays: int, n_complete: int) -> Iterator[Offering]:
    """An owner node that leaves out records without a value: so many have an age, a pay, and both."""
    with owner(folder, 1, PER_CENTROID) as made:
        (cohort,) = made.config.datasets
        (age,) = cohort.attributes
        both = (age, replace(age, name="pay"))
        cohort = replace(cohort, attributes=both, missing="drop", total_epsilon=Decimal(30))
        made.config = replace(made.config, datasets=(cohort,))
        made.restart()
        rows = [f"{i % 90},{i % 70}" for i in range(n_complete)]
        rows += [f"{i % 90}," for i in range(n_complete, n_ages)]
        rows += [f",{i % 70}" for i in range(n_complete, n_pays)]
        made.source.write_text("person,age,pay\n" + "".join(f"p{i},{row}\n" for i, row in enumerate(rows)))
        yield made


def of_attributes(offering: Offering, release: str, names: str, **changes: str) -> Plan:
    """Return an honest plan for a choice of attributes."""
    schema = Schema.from_document(json.loads(offering.node.invitations.describe(release, "cohort")))
    arguments: dict[str, Any] = {"epsilon": "0.1", "mechanism": "idp-joint"} | changes
    request = parse_arguments(
        release=release, dataset="cohort", layout="horizontal", groups=[("a", "b")],
        attributes=names.split(","), **arguments,
    )  # fmt: skip
    uri, created = offering.hub.party.uri, "2026-01-01T00:00:00Z"
    return make_plan(request, {"a": schema, "b": schema}, aggregator=uri, created=created, version="0.1.0")


CHOICES = ("age", "pay", "age,pay")
COMPLETE = ((48, 45, 41), (49, 80, 44), (120, 300, 49))
"""Ages, pays and complete records of three owners that say "40" of themselves."""


@pytest.mark.parametrize("mechanism", ["idp-joint", "dp-ir", "dp", "dp-hist"])
def test_every_choice_of_attributes_is_accepted(tmp_path: Path, mechanism: str) -> None:
    """Honest plans of any attributes are accepted, and disclose no number of records that have a value."""
    arguments = {"mechanism": mechanism} | ({"k": "40"} if mechanism in ("idp-joint", "dp-ir") else {})
    heard = []
    for number, counts in enumerate(COMPLETE):
        with leaving_out(tmp_path / str(number), *counts) as offering:
            plans = [of_attributes(offering, f"r{i}", names, **arguments) for i, names in enumerate(CHOICES)]
            heard.append([answer(offering, plan) for plan in plans])
            offering.node.close("r0", "cancelled", "", "")
            n_linked = [
                offering.node.production.link(plan.release, plan.digest).n_records for plan in plans[1:]
            ]
            assert n_linked == list(counts[1:])
    assert heard == [["accepted"] * 3] * 3


def test_bounds_that_count_clusters_are_a_question_that_counts(tmp_path: Path) -> None:
    """Where a joint bound holds for so many records only, having more of them for a choice of attributes is
    refused at linking like other unusable data; linking says as much as a refusal, and either counts once.
    """
    for number, counts in enumerate(COMPLETE):
        with leaving_out(tmp_path / str(number), *counts) as offering:
            for index, names in enumerate(CHOICES):
                release = f"r{index}"
                said = linked(offering, of_attributes(offering, release, names, mechanism="idp-cbls", k="3"))
                fits = counts[index] <= most_records(40)
                assert said == ("linked" if fits else f"{UNUSABLE.code}: {UNUSABLE.message}")
                offering.node.close(release, "cancelled", "", "")
                assert used(offering) == index + 1


# --- answers that depend on the data: as many as may be ----------------------------------------------------


def _bad_values(offering: Offering, release: str) -> Plan:
    plan = offered(offering, release, epsilon="0.01")
    write(offering, N_RECORDS, "500")
    return plan


def _fewer_than_k(offering: Offering, release: str) -> Plan:
    return offered(offering, release, epsilon="0.01", k="65")


def _shrunk(offering: Offering, release: str) -> Plan:
    write(offering, N_RECORDS)
    plan = offered(offering, release, epsilon="0.01", k="60")
    write(offering, 59)
    return plan


def _grown(offering: Offering, release: str) -> Plan:
    write(offering, N_RECORDS)
    plan = offered(offering, release, epsilon="0.01", mechanism="idp-cbls")
    write(offering, 70)
    return plan


FOUND = {"bad values": _bad_values, "fewer than k": _fewer_than_k, "shrunk": _shrunk, "grown": _grown}


@pytest.mark.parametrize("what", FOUND)
def test_what_loading_finds_is_one_answer_and_counts(tmp_path: Path, looks: list[str], what: str) -> None:
    """Whatever loading finds, consent is given and linking says one sentence, no more often than answers are
    given; afterwards nothing is loaded.
    """
    with owner(tmp_path / "a", N_RECORDS, PER_CENTROID) as offering:
        for index in range(offering.config.policy.max_attempts):
            plan = FOUND[what](offering, f"r{index}")
            assert linked(offering, plan) == f"{UNUSABLE.code}: {UNUSABLE.message}"
            assert used(offering) == index + 1
            write(offering, N_RECORDS)
        plan = FOUND[what](offering, "last")
        looks.clear()
        assert linked(offering, plan) == f"{POLICY.code}: {POLICY.message}"
        assert looks == []
        assert offering.kinds() == ["reserve", "return"] * (offering.config.policy.max_attempts + 1)


def test_data_that_were_charged_to_another_budget_are_an_answer_that_counts(tmp_path: Path) -> None:
    """That two data sets are copies of each other is seen in their values."""
    with owner(tmp_path / "a", N_RECORDS) as offering:
        offering.write_source(seed=1)
        plan = offered(offering, epsilon="0.1")
        assert consent(offering, plan)
        offering.node.production.link("r1", plan.digest)
        offering.node.production.mask("r1", plan.digest, *offering.addendum(plan))
        (cohort,) = offering.config.datasets
        copied = offering.folder / "copy.csv"
        copied.write_bytes(offering.source.read_bytes())
        other = replace(cohort, name="copy", budget="copy", source=str(copied))
        offering.config = replace(offering.config, datasets=(cohort, other))
        offering.restart()
        schema = offering.node.invitations.describe("r2", "copy")
        said = linked(offering, offering.plan(schema, "r2", dataset="copy"))
        assert said == f"{POLICY.code}: {POLICY.message}"
        assert [each.used for each in offering.records.attempts.allowances(offering.config)] == [0, 1]


def test_a_policy_that_names_attributes_of_other_data_sets(tmp_path: Path) -> None:
    """`policy.attributes` is one list for all data sets; one that admits nothing here refuses."""
    with owner(tmp_path / "a", 100, PolicyConfig(attributes=("age", "height"))) as offering:
        schema = json.loads(offering.node.invitations.describe("r1", "cohort"))
        assert [each["name"] for each in schema["attributes"]] == ["age"]
        under(offering, attributes=("height",))
        with pytest.raises(RefusedError, match="names no attribute of data set 'cohort'"):
            offering.node.invitations.describe("r2", "cohort")
