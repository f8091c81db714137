"""What is said when a release has been started."""

from types import SimpleNamespace
from typing import Any

import pytest

from aggregator.cli import release
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
