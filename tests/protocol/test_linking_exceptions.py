"""An owner node where persons may be shared or left out: what it spends, masks and refuses."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.canonical import digest
from common.errors import IntegrityError, ProtocolError, TesseraError, UnusableDataError
from common.model.fragment import Addendum
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType, Schema
from common.planning.arguments import parse_arguments
from common.planning.planner import make_plan
from common.trust.identity import Party, PartyKind
from owner_node.config import PolicyConfig
from owner_node.state.session import SessionState
from tests.fakes.offering import DOMAIN, N_RECORDS, Offering

POLICY = PolicyConfig(max_overlap=3, allow_intersect=True)
COMMON = 40


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node whose policy allows what linking may find, and its aggregator."""
    made = Offering(tmp_path, POLICY)
    yield made
    made.records.db.close()


def linked(offering: Offering, layout: str = "horizontal", **bounds: Any) -> Plan:
    """Bring a release of owners a and b to its linking; in the vertical layout b has another attribute."""
    own = Schema.from_document(json.loads(offering.node.invitations.describe("r1", "cohort")))
    other = replace(own, attributes=(Attribute("ward", AttributeType.INTEGER, 0, 9),))
    groups: list[tuple[str, ...]] = [("a", "b")] if layout == "horizontal" else [("a",), ("b",)]
    request = parse_arguments(
        release="r1", dataset="cohort", layout=layout, groups=groups, k="5", **{"epsilon": "1"} | bounds
    )
    plan = make_plan(
        request, {"a": own, "b": own if layout == "horizontal" else other},
        aggregator=Party(PartyKind.AGGREGATOR, "hub", DOMAIN).uri, created="2026-01-01T00:00:00Z",
        version="0.1.0",
    )  # fmt: skip
    assert offering.node.invitations.consent("r1", plan.digest, offering.offer(plan)) is not None
    offering.node.production.link("r1", plan.digest)
    return plan


def shared(plan: Plan, **changes: Any) -> Addendum:
    """Return that a and b, with as many records, share persons."""
    told: dict[str, Any] = {"multiples": (2,), "released": 2 * N_RECORDS}
    records = dict.fromkeys(("a", "b"), N_RECORDS)
    return Addendum("r1", plan.digest, "overlapping", records, **told | changes)


def selection(n_selected: int = COMMON, n_records: int = N_RECORDS, seed: int = 1) -> bytes:
    """Return bits that select some of the records."""
    chosen = np.zeros(n_records, dtype=np.bool_)
    chosen[np.random.default_rng(seed).permutation(n_records)[:n_selected]] = True
    return np.packbits(chosen).tobytes()


def intersected(plan: Plan, chosen: bytes, common: int = COMMON, **changes: Any) -> Addendum:
    """Return that a and b have some persons in common."""
    told: dict[str, Any] = {
        "common": common, "selections": {"a": digest(chosen), "b": "ab" * 32}
    }  # fmt: skip
    records = dict.fromkeys(("a", "b"), common)
    return Addendum("r1", plan.digest, "intersected", records, **told | changes)


def nothing_spent(offering: Offering) -> None:
    """Check that nothing was spent, and that the session still waits for the true message."""
    assert offering.kinds() == ["reserve"]
    session = offering.records.sessions.get("hub", "r1")
    assert session is not None
    assert session.state is SessionState.LINKED
    assert not list((offering.config.owner.state_dir / "outbox").iterdir())


@pytest.mark.parametrize(
    ("multiple", "kinds"), [(2, ["reserve", "spend"]), (1, ["reserve", "return", "spend"])]
)
def test_the_multiple_is_spent_and_the_rest_returned(
    offering: Offering, multiple: int, kinds: list[str]
) -> None:
    """However often the message comes and whatever dies between, the multiple is spent once, exactly."""
    plan = linked(offering, max_overlap="2")
    ledger = offering.records.ledger
    assert [each.charge for each in ledger.entries()] == [2]
    kind = "overlapping" if multiple == 2 else "disjoint"
    addendum = replace(shared(plan), linking=kind, multiples=(multiple,))
    answers = set()
    for _ in range(3):
        sealed = offering.node.production.mask("r1", plan.digest, *offering.signed(addendum))
        answers.add(sealed.fragment_digest)
        offering.restart()
    assert len(answers) == 1
    assert offering.kinds() == kinds
    offering.node.close("r1", "published", "", "ab" * 32)
    ledger = offering.records.ledger
    balance = ledger.balance("cohort", Decimal(3))
    assert tuple(map(int, (balance.reserved, balance.spent, balance.remaining))) == (
        0,
        multiple,
        3 - multiple,
    )
    assert sum(each.epsilon for each in ledger.entries() if str(each.kind) == "spend") == multiple
    ledger.verify()
    ledger.verify_history()


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_an_end_returns_the_whole_reservation(offering: Offering, end: str) -> None:
    """A release that ends before anything is spent takes nothing, however much was reserved for it."""
    linked(offering, max_overlap="2")
    offering.node.close("r1", end, "", "")
    assert offering.kinds() == ["reserve", "return"]
    assert offering.records.ledger.balance("cohort", Decimal(3)).remaining == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"multiples": (3,)},
        {"multiples": (0,)},
        {"multiples": ()},
        {"multiples": (1,)},
        {"multiples": (2, 1)},
        {"linking": "disjoint"},
        {"linking": "equal"},
        {"released": None},
        {"released": 2 * N_RECORDS - 1},
        {"records": {"a": N_RECORDS, "b": 4}, "released": N_RECORDS + 4},
        {"records": {"a": N_RECORDS - 1, "b": N_RECORDS}, "released": 2 * N_RECORDS - 1},
        {"records": {"a": N_RECORDS}, "released": N_RECORDS},
        {"common": 10},
        {"selections": {"a": "ab" * 32, "b": "ab" * 32}},
    ],
)
def test_lies_about_shared_persons(offering: Offering, changes: dict[str, Any]) -> None:
    """A multiple beyond the plan, or counts that cannot be, are refused before anything is spent."""
    plan = linked(offering, max_overlap="2")
    with pytest.raises(ProtocolError, match="addendum does not fit"):
        offering.node.production.mask("r1", plan.digest, *offering.signed(replace(shared(plan), **changes)))
    nothing_spent(offering)
    offering.node.production.mask("r1", plan.digest, *offering.signed(shared(plan)))


def test_selected_records_alone_are_masked(offering: Offering) -> None:
    """The owner masks what is common; after a crash it has the same fragment for the same bits."""
    plan, chosen = linked(offering, "vertical", on_mismatch="intersect"), selection()
    assert plan.linking.min_common == 5
    message = offering.signed(intersected(plan, chosen))
    size = offering.node.production.selection_size("r1", plan.digest, message[0])
    assert size == len(chosen)
    sealed = offering.node.production.mask("r1", plan.digest, *message, b"", chosen)
    assert sealed.n_records == COMMON
    offering.restart()
    assert offering.node.production.selection_size("r1", plan.digest, message[0]) == 0
    assert offering.node.production.mask("r1", plan.digest, *message) == sealed
    assert offering.kinds() == ["reserve", "spend"]
    other = offering.signed(intersected(plan, selection(seed=2)))
    with pytest.raises(ProtocolError, match="has no fragment under this addendum"):
        offering.node.production.mask("r1", plan.digest, *other, b"", selection(seed=2))


def test_a_crash_between_spend_and_seal(offering: Offering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The selection is asked for once more, and must be the one that the charge was spent for."""
    plan, chosen = linked(offering, "vertical", on_mismatch="intersect"), selection()
    message = offering.signed(intersected(plan, chosen))
    with monkeypatch.context() as broken:
        broken.setattr("owner_node.engines.pinned.encode", _dies)
        with pytest.raises(KeyboardInterrupt):
            offering.node.production.mask("r1", plan.digest, *message, b"", chosen)
    offering.restart()
    assert offering.kinds() == ["reserve", "spend"]
    assert offering.node.production.selection_size("r1", plan.digest, message[0]) == len(chosen)
    with pytest.raises(TesseraError):
        offering.node.production.mask(
            "r1", plan.digest, *offering.signed(intersected(plan, selection(seed=2))), b"", selection(seed=2)
        )
    assert offering.node.production.mask("r1", plan.digest, *message, b"", chosen).n_records == COMMON
    assert offering.kinds() == ["reserve", "spend"]


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        selection(seed=2),
        selection() + b"\0",
        selection()[:-1],
        selection(COMMON - 1),
    ],
)
def test_another_selection_than_was_signed(offering: Offering, sent: bytes) -> None:
    """Bits of another release, or cut, or none, are not those of the addendum: nothing is spent for them."""
    plan, chosen = linked(offering, "vertical", on_mismatch="intersect"), selection()
    message = offering.signed(intersected(plan, chosen))
    with pytest.raises(IntegrityError, match="does not fit the addendum"):
        offering.node.production.mask("r1", plan.digest, *message, b"", sent)
    nothing_spent(offering)
    assert offering.node.production.mask("r1", plan.digest, *message, b"", chosen).n_records == COMMON


@pytest.mark.parametrize(
    ("chosen", "common"),
    [
        (selection(COMMON - 1), COMMON),
        (selection(COMMON, N_RECORDS + 8), COMMON),
        (selection(COMMON, N_RECORDS - 8), COMMON),
        (np.packbits(np.ones(64, dtype=np.bool_)).tobytes(), N_RECORDS),
    ],
)
def test_signed_selections_that_do_not_fit(offering: Offering, chosen: bytes, common: int) -> None:
    """What is signed still has to select as many of this owner's records as it says, and no others."""
    plan = linked(offering, "vertical", on_mismatch="intersect")
    message = offering.signed(intersected(plan, chosen, common))
    with pytest.raises(IntegrityError, match="does not fit the addendum"):
        offering.node.production.mask("r1", plan.digest, *message, b"", chosen)
    nothing_spent(offering)


@pytest.mark.parametrize(
    "changes",
    [
        {"common": 29},
        {"common": None},
        {"common": COMMON + 1},
        {"selections": {}},
        {"selections": {"a": "ab" * 32}},
        {"linking": "equal"},
        {"records": {"a": COMMON, "b": COMMON - 1}},
        {"records": {"a": N_RECORDS + 1, "b": N_RECORDS + 1}, "common": N_RECORDS + 1},
        {"multiples": (1, 1), "released": COMMON},
        {"released": COMMON},
    ],
)
def test_lies_about_common_persons(offering: Offering, changes: dict[str, Any]) -> None:
    """Fewer than agreed, or numbers that cannot be, are refused before anything is spent."""
    plan, chosen = linked(offering, "vertical", on_mismatch="intersect", min_common="30"), selection()
    addendum = replace(intersected(plan, chosen), **changes)
    with pytest.raises(ProtocolError, match="addendum does not fit"):
        offering.node.production.mask("r1", plan.digest, *offering.signed(addendum), b"", chosen)
    nothing_spent(offering)


def test_groups_that_turned_out_equal(offering: Offering) -> None:
    """A plan that would intersect needs no selection where nothing has to be left out."""
    plan = linked(offering, "vertical", on_mismatch="intersect")
    equal = Addendum("r1", plan.digest, "equal", {"a": N_RECORDS, "b": N_RECORDS})
    message = offering.signed(equal)
    assert offering.node.production.selection_size("r1", plan.digest, message[0]) == 0
    assert offering.node.production.mask("r1", plan.digest, *message).n_records == N_RECORDS


def test_fewer_selected_than_k(tmp_path: Path) -> None:
    """An owner masks no fewer records than its k, whoever says that so few are common."""
    offering = Offering(tmp_path, POLICY)
    plan, chosen = linked(offering, "vertical", on_mismatch="intersect", min_common="1"), selection(4)
    with pytest.raises((ProtocolError, UnusableDataError), match=r"fewer records than its k|k = 5"):
        offering.node.production.mask(
            "r1", plan.digest, *offering.signed(intersected(plan, chosen, 4)), b"", chosen
        )
    nothing_spent(offering)
    offering.records.db.close()
