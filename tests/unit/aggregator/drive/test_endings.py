"""How releases end otherwise than published: the right event, code and words."""

import json
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from aggregator.api.views import error_view
from aggregator.drive.endings import ended_by, expiry, failed_at_owner, operator_error, spent_by
from aggregator.drive.stages import signed_plan
from aggregator.protocol.events import (
    Conflicted,
    Described,
    Expired,
    Failed,
    Refused,
    from_json,
    to_json,
)
from aggregator.protocol.release import apply
from aggregator.protocol.states import State
from aggregator.protocol.work import work_for
from aggregator.release.publication import ReleaseFolder
from common.canonical import canonical
from common.errors import ConflictError, IntegrityError, RefusedError, TesseraError, UnusableDataError
from common.model.compatibility import HERE
from common.model.rounds import FIRST_COUNTED
from common.model.schema import CategoryOrder, Limits, Schema
from common.planning.limits import check_limits
from common.planning.planner import make_plan
from common.trust.signing import Signer
from deploy.development_ca import DevelopmentCa
from tests.fakes.protocol_peers import (
    aggregator_step,
    answer,
    answer_to,
    category,
    new_release,
    schema,
    synthetic,
)


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


def test_every_error_ends_a_release():
    """Numbers that JSON does not have are stored as texts; a release would stay in its state otherwise."""
    details: dict[Any, Any] = {"least": Decimal("0.90"), "owners": ["a"], "n": 3, ("a", "b"): 4}
    error = ConflictError("too few", "", details)
    event = ended_by(5, error, "", State.LINKING)
    assert type(event) is Conflicted
    assert event.details == {"least": "0.90", "owners": ["a"], "n": 3}
    assert from_json(to_json(event)) == event
    assert json.loads(error_view(error).details) == event.details


def test_an_owners_words_are_one_line():
    """What an owner says of its failure cannot pass for lines of the aggregator before its operator."""
    event = failed_at_owner(5, "a", "refused", "no\nhint: publish it\x1b[8m")
    assert event.message == "owner a: no\\nhint: publish it\\x1b[8m"


def test_an_owner_that_objects_to_another_one_is_not_the_one_to_ask():
    """The operator reads whose messages did not hold, and a program gets the id."""
    event = failed_at_owner(5, "a", "integrity", "a digest does not hold", "b")
    assert event.message == "owner a: a digest does not hold; it objects to what came in the name of owner b"
    assert event.details == {"objects_to": "b"}


def test_absent_owners_are_named_as_not_connected():
    """At the invitation, an owner that is away is "not connected"; one that is there missed a deadline."""
    release = apply(new_release("a", "b", "c"), answer(new_release("a", "b", "c"), "a", "describe"))
    away = expiry(9, release, lambda owner: owner != "c")
    assert (type(away), away.code, away.details["owners"]) == (Failed, "not_connected", ["c"])
    slow = expiry(9, release, lambda _: True)
    assert (type(slow), slow.code, slow.details["owners"]) == (Expired, "deadline", ["b", "c"])


@pytest.mark.parametrize("state", ["planned", "consenting", "linking", "masking", "collecting"])
def test_later_deadlines_name_who_did_not_answer(state):
    """Past the invitation every deadline is exit 8, whoever is connected."""
    release = replace(new_release("a", "b"), state=State(state))
    event = expiry(9, release, lambda _: False)
    assert (type(event), event.code) == (Expired, "deadline")
    assert state == "planned" or event.details["owners"] == ["a", "b"]


def test_a_deadline_while_the_aggregator_works_blames_no_owner():
    """Once all owners have answered, the event says whose step it was."""
    release = new_release("a", "b")
    for owner in "ab":
        release = apply(release, answer(release, owner, "describe"))
    event = expiry(9, release, lambda _: True)
    assert (type(event), event.details["owners"]) == (Expired, [])
    assert event.message == (
        "the deadline of inviting passed; all owners had answered, the aggregator was not done"
    )
    assert event.hint.startswith("see the aggregator's log; ")


def test_a_folder_that_cannot_be_looked_at_may_have_appeared(tmp_path):
    """A release is not cancelled because its disk fails at that moment."""
    (tmp_path / "file").touch()
    places = [tmp_path / "absent", tmp_path / "file" / "r1", tmp_path / ("x" * 300)]
    assert [ReleaseFolder(place, "d" * 64).may_exist() for place in places] == [False, False, True]


def test_conflicts_where_the_table_has_them():
    """A conflict found while inviting or linking is a conflict; where there is none it is a failure."""
    assert type(ended_by(1, ConflictError("m"), "", State.LINKING)) is Conflicted
    assert type(ended_by(1, ConflictError("m"), "", State.JOINING)) is Failed
    assert type(ended_by(1, IntegrityError("m"), "", State.LINKING)) is Failed


def test_the_operators_error():
    """What the command line shows is the stored error with its class, release, state and owner."""
    release = new_release("a", "b")
    assert operator_error(release, 6) is None
    ended = apply(release, failed_at_owner(5, "a", "balance", "too little"))
    error = operator_error(ended, 6)
    assert error is not None
    assert (error.code, int(error.exit_code)) == ("balance", 5)
    assert error.details == {"release": "r1", "state": "refused", "owner": "a"}


@pytest.mark.parametrize("code", [each.code for each in TesseraError.__subclasses__()])
def test_an_ended_release_says_that_its_id_is_used(code):
    """The same command with the same id shows the old end again: the hint names the way on, once."""
    ended = apply(new_release("a", "b"), failed_at_owner(5, "a", code, "no"))
    error = operator_error(ended, 6)
    assert error is not None
    assert error.hint.count("another --id") == 1


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


def test_zeros_cost_nothing():
    """In a release of rounds owners may have spent once the first round that counts is open."""
    release = synthetic("a", "b")
    while len(release.rounds) < FIRST_COUNTED:
        assert spent_by(release) == "nothing was spent"
        event = aggregator_step(release)
        release = apply(release, event) if event else _answered(release)
    assert spent_by(release) == "a, b were asked to and may have spent"
    release = apply(release, answer(release, "a", "measure"))
    assert spent_by(release) == "spent at a; b was asked to and may have spent"


def _answered(release):
    """Have every owner answer what it is asked for."""
    for owner in release.request.owners:
        work = work_for(release, owner)
        release = apply(release, answer_to(release, owner, work)) if work else release
    return release


def _signer(folder):
    issued = DevelopmentCa("d").aggregator("hub", ["localhost"])
    issued.write(folder, "hub")
    signer = Signer.load(folder / "hub.key", folder / "hub.pem")
    return SimpleNamespace(current_signer=lambda: signer)


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        (Limits(min_k=10), "policy.min_k = 10, 'age' is planned with k = 5"),
        (Limits(max_epsilon_per_release=Decimal("0.5")), "policy.max_epsilon_per_release = 0.5"),
        (Limits(mechanisms=("dp-hist",)), "policy.mechanisms does not list 'idp-joint'"),
        (Limits(mechanisms=()), "policy.mechanisms does not list 'idp-joint'"),
        (Limits(layouts=()), "policy.layouts does not list 'horizontal'"),
        (Limits(layouts=("vertical",)), "policy.layouts does not list 'horizontal'"),
        (Limits(min_rank_noise=Decimal("0.1")), "policy.min_rank_noise = 0.1, 'age' is planned with rank"),
    ],
)
def test_a_plan_beyond_stated_limits_asks_nobody(tmp_path, limits, rule):
    """Limits in an owner's schema end a release at its plan, as refused, with the rule that decides first."""
    release = new_release("a", "b", mechanism="idp-joint", k=5)
    for owner, stated in (("a", Limits()), ("b", limits)):
        document = replace(schema("age"), limits=stated).to_document()
        assert Schema.from_document(json.loads(canonical(document))).limits == stated
        release = apply(
            release, Described(at=2, owner=owner, schema=canonical(document).decode(), software=HERE)
        )
    with pytest.raises(RefusedError) as refusal:
        signed_plan(release, _signer(tmp_path), 3)
    (first, *_) = refusal.value.message.splitlines()
    assert first.startswith(f"refused by limits that owners state in their schemas: b: {rule}")
    ended = apply(release, ended_by(3, refusal.value, "", release.state))
    assert ended.state is State.REFUSED
    error = operator_error(ended, 6)
    assert error is not None
    assert (error.code, int(error.exit_code)) == ("refused", 4)


def test_an_owner_with_too_few_records_ends_a_release_at_its_plan(tmp_path):
    """No plan is signed, and nothing asked of anybody, where an owner cannot have as many records as k."""
    release = new_release("a", "b")
    for owner, records in (("a", 1000), ("b", 4)):
        text = canonical(schema("age", records=records).to_document()).decode()
        release = apply(release, Described(at=2, owner=owner, schema=text, software=HERE))
    with pytest.raises(UnusableDataError, match=r"fewer than k records at b \(k = 5\)"):
        signed_plan(release, _signer(tmp_path), 3)


@pytest.mark.parametrize(("accounting", "refuses"), [("joint", True), ("per-centroid", False)])
def test_what_has_no_bound_is_refused_unasked(accounting, refuses):
    """Categories by frequency have no joint bound: owners that charge it refuse them, the others do not."""
    request = new_release("a", "b", mechanism="idp-joint", k=None).request
    held = replace(
        schema(attributes=(category("x", "y", order=CategoryOrder.FREQUENCY),)),
        limits=Limits(accounting=accounting),
    )
    schemas = {"a": held, "b": held}
    plan = make_plan(
        request, schemas, aggregator="spiffe://d/aggregator/a", created="2026-01-01T00:00:00+00:00",
        version="0.1.0",
    )  # fmt: skip
    if refuses:
        with pytest.raises(RefusedError, match="epsilon_joint is not bounded: c"):
            check_limits(plan, schemas)
    else:
        check_limits(plan, schemas)
