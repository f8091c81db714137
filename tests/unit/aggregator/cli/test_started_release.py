"""What is said when a release has been started."""

from types import SimpleNamespace
from typing import Any

import pytest

from aggregator.cli import release
from common.errors import UsageError
from common.wire.v1.control_pb2 import OwnerProgress, ReleaseView, StartRequest


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
        ("ill ~ age + age:ward", "ill,age,ward", ""),
        ("Surv(months, died) ~ age", "months,died,age", "months:died"),
        ("Surv(a;b, died) ~ age", '"a;b",died,age', '"a;b":died'),
    ],
)  # fmt: skip
def test_a_release_for_a_model_has_its_attributes(model, attributes, together):
    """A formula stands for the attributes, and of survival for time and event as one."""
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
