"""Linking by match keys at the aggregator: layouts, numbers of persons, quality; conflicts of passes."""

import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from aggregator.release.conflicts import missing_identifiers
from aggregator.release.match_linking import check_memory, link_by_passes
from common.arrays import random_order
from common.canonical import digest
from common.errors import ConflictError, IntegrityError, ProtocolError, UsageError
from common.matching.lists import encode_lists
from common.model.fragment import Addendum, contradictions
from common.model.plan import Synthesis
from common.model.schema import IdentifierRules, MatchPass
from common.model.task import Modelled
from common.progress import Progress, StepStoppedError
from owner_node.engines.matched import read_persons
from owner_node.linking.match_tokens import all_passes
from owner_node.values.match_keys import KeyColumns
from tests.fakes.releases import make_plan

PASSES = (MatchPass("name", ("name:fold", "year:fold")), MatchPass("sound", ("name:soundex", "year:fold")))
RULES = IdentifierRules(0, passes=PASSES)
LEFT_OUT = 2**32 - 1


def blob(names, key=bytes(32), passes=PASSES):
    """What an owner sends of people with names and years, "Meyer 1950", each under its place."""
    words = [each.split() for each in names]
    columns = KeyColumns({"name": pa.array([a for a, _ in words]), "year": pa.array([b for _, b in words])})
    tokens = all_passes(columns, passes, key, np.arange(len(names)))
    return np.frombuffer(encode_lists([each.sent for each in tokens]), np.uint8)


def plan_of(groups, **linking):
    """A plan of groups of owners, each of one attribute, linked by match keys."""
    names = ["age", "income", "admitted"]
    plan = make_plan([([names[g]], owners) for g, owners in enumerate(groups)])
    return replace(plan, identifier=RULES, linking=replace(plan.linking, **linking))


def linked(plan, people, advance=lambda _: None, **changes):
    """Link owners' people; `changes` replace the blobs of some owners."""
    blobs = {owner: blob(names) for owner, names in people.items()} | changes
    records = {owner: len(names) for owner, names in people.items()}
    return link_by_passes(plan, records, blobs, random_order, advance)


VERTICAL = {
    "a": ["Meyer 1950", "Berg 1960", "Lund 1970", "Novak 1980", "Only 1999"],
    "b": ["Novack 1980", "Maier 1950", "Berg 1960", "Else 1998", "Lund 1970"],
}


def test_linking_is_advanced_and_can_be_stopped():
    """A release that ended meanwhile does not wait for the passes that are left."""
    plan = plan_of([["a"], ["b"]], on_mismatch="intersect", min_common=3)
    progress = Progress()
    progress.begin("comparing match keys", len(plan.passes) * 10)
    linked(plan, VERTICAL, progress.advance)
    assert progress.done == progress.total
    stopped = Progress(is_due=lambda: False)
    with pytest.raises(StepStoppedError):
        linked(plan, VERTICAL, stopped.advance)


def test_vertical_owners_get_the_same_number_for_the_same_person():
    """Misspelt names included; the others are left out, and the addendum follows from the plan."""
    plan = plan_of([["a"], ["b"]], on_mismatch="intersect", min_common=3)
    found = linked(plan, VERTICAL)
    numbers = {owner: np.frombuffer(sent, ">u4") for owner, sent in found.selections.items()}
    assert list(numbers["a"][:4]) == [numbers["b"][place] for place in (1, 2, 4, 0)]
    assert numbers["a"][4] == numbers["b"][3] == LEFT_OUT
    assert sorted(numbers["a"][:4]) == [0, 1, 2, 3]
    assert (found.kind, found.common, dict(found.records)) == ("intersected", 4, {"a": 4, "b": 4})
    digests = {owner: digest(sent) for owner, sent in found.selections.items()}
    addendum = Addendum(
        "demo-1", plan.digest, found.kind, dict(found.records), found.matches, found.multiples,
        found.released, found.common, digests, found.match_quality,
    )  # fmt: skip
    assert list(contradictions(plan, addendum)) == []
    assert Addendum.from_bytes(addendum.to_bytes()) == addendum
    for changed, complaint in (
        (replace(addendum, match_quality=None), "match keys"),
        (replace(addendum, selections={}), "selected"),
    ):
        assert any(complaint in each for each in contradictions(plan, changed))


def test_partners_of_a_synthetic_release_follow_in_the_order_of_numbers():
    """Owners sort their persons by number; another order would give each person's partner to another one."""
    plan = plan_of([["a"], ["b", "c"]], on_mismatch="intersect", min_common=3)
    tasks = [replace(each, attributes=(), modelled=Modelled(each.names, plan.epsilon)) for each in plan.tasks]
    shares = (Decimal("0.4"), Decimal("0.6"))
    plan = replace(plan, tasks=tuple(tasks), synthesis=Synthesis(1, shares))
    people = {"a": VERTICAL["a"], "b": VERTICAL["b"][:3], "c": VERTICAL["b"][3:]}
    sent = linked(plan, people).selections
    numbers = {owner: np.frombuffer(sent[owner][: 4 * len(each)], ">u4") for owner, each in people.items()}
    partners = np.frombuffer(sent["a"][20:], np.uint8).reshape(4, 2)
    at_b = set(numbers["b"].tolist())
    assert partners.tolist() == [[0, 0 if number in at_b else 1] for number in range(4)]
    assert [len(sent[owner]) for owner in "bc"] == [4 * 3 + 2 * 3, 4 * 2 + 2 * 1]


def test_horizontal_and_mixed_layouts_count_shared_persons():
    """A person at two owners of a group stops the release, or is within what the plan allows."""
    horizontal = plan_of([["a", "b"]])
    with pytest.raises(ConflictError, match="share 4 persons"):
        linked(horizontal, VERTICAL)
    allowed = linked(plan_of([["a", "b"]], max_overlap=2), VERTICAL)
    assert (allowed.kind, allowed.multiples, allowed.selections) == ("overlapping", (2,), {})
    mixed = plan_of([["a", "b"], ["c"]], max_overlap=2, on_mismatch="intersect", min_common=3)
    found = linked(mixed, VERTICAL | {"c": ["Mayer 1950", "Berg 1960", "Novack 1980", "Lund 1970"]})
    assert (found.common, found.multiples, dict(found.records)) == (4, (2, 1), {"a": 4, "b": 4, "c": 4})


def test_links_that_are_not_good_enough_end_the_release():
    """Owners whose own persons look alike have many chance links; the agreed quality is a bound."""
    years = [str(year) for year in range(1900, 1960)]
    alike = {owner: [f"Berg {year}" for year in years] * 2 + ["Lund 1"] for owner in "ab"}
    few = {owner: names + [f"Eva{owner} {year}" for year in years] for owner, names in alike.items()}
    plan = plan_of([["a", "b"]], max_overlap=2, min_match_quality=Decimal("0.99"))
    with pytest.raises(ConflictError, match="not good enough") as caught:
        linked(plan, few)
    assert caught.value.details["min_match_quality"] == "0.99"
    # The journal stores them.
    assert json.loads(json.dumps(caught.value.details)) == caught.value.details


@pytest.mark.parametrize(
    "sent", [blob(["Meyer 1950"] * 9), blob(VERTICAL["b"])[:-1], blob(VERTICAL["b"], passes=PASSES[:1])]
)
def test_a_hostile_owner_is_named(sent):
    """Lists of more persons than declared, cut off, or of fewer passes."""
    with pytest.raises(ProtocolError, match="of b"):
        linked(plan_of([["a", "b"]]), VERTICAL, b=sent)


def test_tokens_of_another_pass_link_nobody():
    """An owner that sends its tokens of one pass as those of another shares nobody by them."""
    swapped = blob(VERTICAL["b"], passes=(PASSES[1], PASSES[0]))
    found = linked(plan_of([["a", "b"]], max_overlap=2), VERTICAL, b=swapped)
    assert found.match_quality is not None
    assert found.match_quality.linked == 0


@pytest.mark.parametrize("numbers", [[0, 0, 1], [0, 1, 2], [0, LEFT_OUT]])
def test_an_owner_checks_the_numbers_of_its_persons(numbers):
    """A hostile aggregator cannot give two persons one number, or select more or others than it signed."""
    data = np.array(numbers, ">u4").tobytes()
    with pytest.raises(IntegrityError):
        read_persons(data, 3, 2, digest(data))
    good = np.array([1, LEFT_OUT, 0], ">u4").tobytes()
    assert list(read_persons(good, 3, 2, digest(good))) == [1, LEFT_OUT, 0]
    with pytest.raises(IntegrityError):
        read_persons(good, 3, 2, digest(b""))


def test_linking_that_does_not_fit_into_memory_is_refused_before():
    """The limit of [engine] counts."""
    plan = plan_of([["a", "b"]])
    check_memory(plan, 1000, 2**20)
    with pytest.raises(UsageError, match="memory_limit"):
        check_memory(plan, 10**6, 2**20)


@pytest.mark.parametrize(
    ("rules", "complaints"),
    [
        (RULES, []),
        (IdentifierRules(0, passes=PASSES[:1]), ["pass 'sound' of match keys is not declared"]),
        (IdentifierRules(0, passes=PASSES[::-1]), ["in another order"]),
        (
            IdentifierRules(0, passes=(PASSES[0], MatchPass("sound", ("name:nysiis",)))),
            ["compares name:nysiis"],
        ),
        (IdentifierRules(0, version=2, passes=PASSES), ["match keys have version 2"]),
        (IdentifierRules(1), ["1 columns with no normalisation"]),
        (None, ["no identifier is declared"]),
    ],
)
def test_conflicts_of_passes_are_told_in_words(rules, complaints):
    """Each difference with the owner and a fix."""
    found = list(missing_identifiers({"a": RULES, "b": rules}, needed=True))
    assert len(found) == len(complaints)
    for (owner, what, fix), complaint in zip(found, complaints, strict=True):
        assert owner == "b"
        assert complaint in what
        assert fix
