"""Certificates that near their end, in words for whoever looks at a status."""

from datetime import datetime, timedelta

WARNED_BEFORE = timedelta(days=30)
"""How long before its end a certificate is warned of."""


def expiry_warning(
    whose: str, ends: datetime, now: datetime, warned_before: timedelta = WARNED_BEFORE
) -> str:
    """Say that a certificate has ended or ends soon.

    Args:
        whose: Whose certificate it is, in a few words.
        ends: The end of its validity, with a time zone.
        now: The present moment.
        warned_before: How long before its end it should have been renewed.

    Returns:
        One sentence; empty if there is time.
    """
    if now > ends:
        return f"the certificate of {whose} expired on {ends:%Y-%m-%d}: renew it, or enrol anew"
    left = ends - now
    if left >= warned_before:
        return ""
    days = "today" if left.days < 1 else "tomorrow" if left.days < 2 else f"in {left.days} days"
    return f"the certificate of {whose} ends {days}, on {ends:%Y-%m-%d}, and was not renewed yet"
