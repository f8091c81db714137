"""How releases end otherwise than published: the right event, code and words."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from aggregator.api.views import below_min_k, without_bound
from aggregator.drive.endings import ended_by, expired, failed_at_owner, operator_error, spent_by
from aggregator.drive.stages import signed_plan
from aggregator.protocol.events import Conflicted, Described, Expired, Failed, Planned, Refused
from aggregator.protocol.release import apply
from aggregator.protocol.states import State
from aggregator.protocol.work import work_for
from common.canonical import canonical
from common.errors import ConflictError, IntegrityError, UnusableDataError
from common.model.schema import CategoryOrder
from common.planning.planner import make_plan
from common.trust.signing import Signer
from deploy.development_ca import DevelopmentCa
from tests.fakes.protocol_peers import aggregator_step, answer, answer_to, category, new_release, schema


@pytest.mark.parametrize(
    ("code", "kind", "kept"),
    [
        ("refused", Refused, "refused"),
        ("balance", Refused, "balance"),
        ("unusable_data", Failed, "unusable_data"),
        ("bad_data", Failed, "bad_data"),
        ("made up", Failed, "internal"),
    ],
)
def test_an_owners_failure(code, kind, kept):
    """An owner's refusal is a refusal, anything else a failure, and an unknown code an internal one."""
    event = failed_at_owner(5, "a", code, "x" * 10_000)
    assert type(event) is kind
    assert (event.code, event.owner) == (kept, "a")
    assert len(event.message) < 600


def test_an_owners_words_are_one_line():
    """What an owner says of its failure cannot pass for lines of the aggregator before its operator."""
    event = failed_at_owner(5, "a", "refused", "no\nhint: publish it\x1b[8m")
    assert event.message == "owner a: no\\nhint: publish it\\x1b[8m"


def test_absent_owners_are_named_as_not_connected():
    """At the invitation, an owner that is away is "not connected"; one that is there missed a deadline."""
    release = apply(new_release("a", "b", "c"), answer(new_release("a", "b", "c"), "a", "describe"))
    away = expired(9, release, lambda owner: owner != "c")
    assert (type(away), away.code, away.details["owners"]) == (Failed, "not_connected", ["c"])
    slow = expired(9, release, lambda _: True)
    assert (type(slow), slow.code, slow.details["owners"]) == (Expired, "deadline", ["b", "c"])


@pytest.mark.parametrize("state", ["planned", "consenting", "linking", "masking", "collecting"])
def test_later_deadlines_name_who_did_not_answer(state):
    """Past the invitation every deadline is exit 8, whoever is connected."""
    release = replace(new_release("a", "b"), state=State(state))
    event = expired(9, release, lambda _: False)
    assert (type(event), event.code) == (Expired, "deadline")
    assert state == "planned" or event.details["owners"] == ["a", "b"]


def test_conflicts_where_the_table_has_them():
    """A conflict found while inviting or linking is a conflict; where there is none it is a failure."""
    assert type(ended_by(1, ConflictError("m"), "", State.LINKING)) is Conflicted
    assert type(ended_by(1, ConflictError("m"), "", State.JOINING)) is Failed
    assert type(ended_by(1, IntegrityError("m"), "", State.LINKING)) is Failed


def test_the_operators_error():
    """What the command line shows is the stored error with its class, release, state and owner."""
    release = new_release("a", "b")
    assert operator_error(release) is None
    ended = apply(release, failed_at_owner(5, "a", "balance", "too little"))
    error = operator_error(ended)
    assert error is not None
    assert (error.code, int(error.exit_code)) == ("balance", 5)
    assert error.details == {"release": "r1", "state": "refused", "owner": "a"}


def test_what_was_spent_for_nothing():
    """Before masking nothing was; from then on owners that sealed have spent, and the others may have."""
    release = new_release("a", "b")
    while release.state is not State.MASKING:
        event = aggregator_step(release)
        release = apply(release, event) if event else _answered(release)
        if release.state is not State.MASKING:
            assert spent_by(release) == "nothing was spent"
    assert spent_by(release) == "a, b were asked to and may have spent"
    release = apply(release, answer(release, "a", "mask"))
    assert spent_by(release) == "spent at a; b was asked to and may have spent"
    assert spent_by(apply(release, answer(release, "b", "mask"))) == "spent at a, b"


def _answered(release):
    """Have every owner answer what it is asked for."""
    for owner in release.request.owners:
        work = work_for(release, owner)
        release = apply(release, answer_to(release, owner, work)) if work else release
    return release


def test_a_k_that_an_owner_refuses_is_said_with_the_plan():
    """The operator reads before confirming that an owner, whose schema tells its smallest k, will refuse."""
    release = new_release("a", "b")
    for owner, least in (("a", 3), ("b", 10)):
        document = replace(schema("age"), min_k=least).to_document()
        release = apply(release, Described(at=2, owner=owner, schema=canonical(document).decode()))
    event = aggregator_step(release)
    assert event is not None
    told = below_min_k(apply(release, event))
    assert told == "will be refused: b masks with no k below 10 (the plan has 5)"
    assert below_min_k(release) == ""


def test_an_owner_with_too_few_records_ends_a_release_at_its_plan(tmp_path):
    """No plan is signed, and nothing asked of anybody, where an owner cannot have as many records as k."""
    issued = DevelopmentCa("d").aggregator("hub", ["localhost"])
    issued.write(tmp_path, "hub")
    signer = Signer.load(tmp_path / "hub.key", tmp_path / "hub.pem")
    release = new_release("a", "b")
    for owner, records in (("a", 1000), ("b", 4)):
        text = canonical(schema("age", records=records).to_document()).decode()
        release = apply(release, Described(at=2, owner=owner, schema=text))
    with pytest.raises(UnusableDataError, match=r"fewer than k records at b \(k = 5\)"):
        signed_plan(release, SimpleNamespace(current_signer=lambda: signer), 3)


@pytest.mark.parametrize(("mechanism", "told"), [("idp-joint", "for c ("), ("dp-hist", "")])
def test_what_has_no_bound_is_said_with_the_plan(mechanism, told):
    """Categories by frequency are refused by default; the operator reads it before confirming."""
    release = new_release("a", "b", mechanism=mechanism, k=None)
    held = schema(attributes=(category("x", "y", order=CategoryOrder.FREQUENCY),))
    for owner in ("a", "b"):
        text = canonical(held.to_document()).decode()
        release = apply(release, Described(at=2, owner=owner, schema=text))
    plan = make_plan(
        release.request, {"a": held, "b": held}, aggregator="spiffe://d/aggregator/a",
        created="2026-01-01T00:00:00+00:00", version="1",
    )  # fmt: skip
    event = Planned(at=2, plan=plan.to_bytes().decode(), signature="00", certificate="PEM")
    assert told in without_bound(apply(release, event))
    assert bool(without_bound(apply(release, event))) is bool(told)
