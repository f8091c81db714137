"""A plan that waits for a person is tried on the data it asks for, and that changes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from owner_node.cli.request_preview import preview_of, show_preview
from owner_node.config import PolicyConfig
from owner_node.explore import preview as trial
from owner_node.state.sessions import Session
from tests.fakes.offering import Offering


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """An owner node that asks a person about every plan, and has been asked for one."""
    made = Offering(tmp_path, PolicyConfig(approval="manual"))
    plan = made.plan(made.node.invitations.describe("r1", "cohort"), "r1")
    assert made.node.invitations.consent("r1", plan.digest, made.offer(plan)) is None
    yield made
    made.records.db.close()


def session(offering: Offering) -> Session:
    """The session that waits."""
    found = offering.records.sessions.get("hub", "r1")
    assert found is not None
    return found


def lines(offering: Offering) -> tuple[int, int]:
    """How much is in ledger and history."""
    return len(list(offering.records.ledger.entries())), len(list(offering.records.history.entries()))


def test_a_plan_that_waits_is_tried(offering, capsys):
    """Error and attacks are there, beside their baselines; ledger and history stay as they were."""
    before = lines(offering)
    found = preview_of(session(offering), offering.config)
    assert found is not None
    json.dumps(found, allow_nan=False)
    assert found["mean_sse"]["mean"] > 0
    attacks = {each["attack"] for each in found["risks"]}
    assert {"unchanged-values", "linkage", "structure", "interval"} <= attacks
    assert lines(offering) == before
    show_preview(found)
    printed = capsys.readouterr().out
    assert "without the release" in printed
    assert "mean SSE" in printed


def test_only_what_waits_is_tried(offering):
    """A release that has ended is shown without."""
    offering.node.conclude("r1", "cancelled", "", "")
    assert preview_of(session(offering), offering.config) is None


def test_what_cannot_be_tried_is_shown_all_the_same(offering, capsys, monkeypatch):
    """Too many records, and data that cannot be loaded, are said in a line; the plan is still shown."""
    monkeypatch.setattr(trial, "MOST_VALUES", 1)
    found = preview_of(session(offering), offering.config)
    assert found is not None
    assert "owner-node explore" in found["problem"]
    monkeypatch.undo()
    Path(offering.config.dataset("cohort").source).unlink()
    found = preview_of(session(offering), offering.config)
    assert found is not None
    assert found["problem"]
    show_preview(found)
    assert "was not tried" in capsys.readouterr().out
