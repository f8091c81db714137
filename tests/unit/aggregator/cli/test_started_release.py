"""What is said when a release has been started."""

from types import SimpleNamespace
from typing import Any

import pytest

from aggregator.cli import plan_text, release
from common.errors import UsageError
from common.wire.v1.control_pb2 import OwnerProgress, ReleaseView, StartRequest
from tests.fakes.published import NAMES
from tests.fakes.releases import make_plan
from tests.unit.common.planning.test_synthetic_plan import with_together


@pytest.mark.parametrize(
    ("connected", "deadline", "said"),
    [
        ((True, True), 60, ""),
        ((True, False), 60, "not connected: b; release r1 waits for them until 1970-01-01 00:01:00 UTC"),
        ((False, False), 0, "not connected: a, b; release r1 waits for them"),
    ],
)
def test_owners_that_are_away_are_named_at_once(capsys, connected, deadline, said):
    """Not only when the deadline of the invitation has passed."""
    owners = [OwnerProgress(id=name, connected=each) for name, each in zip("ab", connected, strict=True)]
    view = ReleaseView(release="r1", state="inviting", deadline=deadline, owners=owners)
    calls: Any = SimpleNamespace(Start=lambda *_, **__: view)
    assert release._start(calls, StartRequest()) is view
    assert capsys.readouterr().err.strip().endswith(said)
    assert ("not connected" in said) is (not all(connected))


@pytest.mark.parametrize(
    ("model", "attributes", "together"),
    [
        ("", "", ""),
        ("ill ~ age + ward", "ill,age,ward", ""),
        ("ill ~ age + age:ward", "ill,age,ward", "age:ward"),
        ("Surv(months, died) ~ age*sex", "months,died,age,sex", "months:died,age:sex"),
        ("Surv(months, died) ~ age", "months,died,age", "months:died"),
        ("Surv(a;b, died) ~ age", '"a;b",died,age', '"a;b":died'),
    ],
)  # fmt: skip
def test_a_release_for_a_model_has_its_attributes(model, attributes, together):
    """A formula stands for the attributes, and counts as one what is a relation of three with another."""
    found = release.for_model(model, {"attributes": "", "together": "", "epsilon": "1"})
    assert found == {"attributes": attributes, "together": together, "epsilon": "1"}


@pytest.mark.parametrize(
    ("model", "attributes", "said"),
    [("ill age", "", "is not a formula"), ("ill ~ age", "age", "--for names the attributes")],
)
def test_a_release_for_no_model_is_refused(model, attributes, said):
    """Nothing is sent that means two things."""
    with pytest.raises(UsageError, match=said):
        release.for_model(model, {"attributes": attributes, "together": ""})


def test_a_plan_for_a_model_says_how_wide_its_intervals_will_be(capsys):
    """On the page and in `--json`; masked releases have no forecast, nor has a plan without a model."""
    plan, model = with_together("a1:died"), "Surv(a1, died) ~ a0 + a0:a2"
    plan_text.show_plan(plan, details=False, model=model)
    said = capsys.readouterr().out
    assert f"expected 95 % intervals of {model}" in said
    assert "forecast for independent attributes" in " ".join(said.split())
    answered, crossed = plan_text.forecast_document(plan, model)
    assert answered["regressor"] == "a0"
    assert f"{float(str(answered['width'])):.2g}" in said
    plan_text.show_plan(plan, details=False, model="a0 ~ a1*died")
    assert "died (at the mean of a1; answers are at 0)" in capsys.readouterr().out
    assert (crossed["width"], "no interval: not counted together" in said) == (None, True)
    plan_text.show_plan(plan, details=False)
    assert "forecast" not in capsys.readouterr().out
    assert not plan_text.forecast_document(make_plan(((NAMES, ("a", "b")),)), model)
