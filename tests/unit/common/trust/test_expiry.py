"""When and how people are told that a certificate ends."""

from datetime import UTC, datetime, timedelta

import pytest

from common.trust.enrolment import expiry_warning

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("days", "told"),
    [
        (31, ""),
        (29, "the certificate of north ends in 29 days, on 2026-05-30, and was not renewed yet"),
        (1.5, "the certificate of north ends tomorrow, on 2026-05-02, and was not renewed yet"),
        (0.5, "the certificate of north ends today, on 2026-05-01, and was not renewed yet"),
        (-1, "the certificate of north expired on 2026-04-30: renew it"),
    ],
)
def test_what_is_told(days: float, told: str) -> None:
    """Nothing for two months, then the day, then that it is over."""
    assert expiry_warning("north", NOW + timedelta(days=days), NOW) == told
