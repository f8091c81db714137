"""What operators are told about owners."""

import pytest

from aggregator.api.views import owner_view
from aggregator.drive.presence import OwnerPresence
from aggregator.store.journal import KnownOwner


@pytest.mark.parametrize("held", [True, False])
def test_a_revoked_owner_is_not_connected(held: bool) -> None:
    """From the revocation on: a poll that is still held, and the grace after one, do not count."""
    presence = OwnerPresence(lambda: 100.0, lambda: 5.0)
    known = KnownOwner("a", 1, 2, "0.1.0", ("d",), "f", 3)
    with presence.polling("a"):
        if held:
            assert owner_view(known, presence, revoked=False).connected
            assert not owner_view(known, presence, revoked=True).connected
    assert owner_view(known, presence, revoked=False).connected
    assert not owner_view(known, presence, revoked=True).connected
