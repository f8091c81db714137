"""What an aggregator's operators are told: ends of releases and certificates, deadlines, a halt."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from aggregator.protocol.release import Release
from aggregator.protocol.states import State
from aggregator.store.notices import NoticeList
from common.daemon.notify import Notices
from common.trust.enrolment import expiry_warning

NEAR = timedelta(hours=24)
"""A deadline that is nearer than this is near, unless there was no more time from the beginning."""
_SHOW = "See aggregator show {release}."
NOTICES = Notices(
    {
        "published": "Release {release} was published.",
        "ended": "Release {release} ended without being published. " + _SHOW,
        "publication-halted": "Release {release} cannot be published yet, and waits for an operator. "
        + _SHOW,
        "deadline-near": "Release {release} waits for owners, and its deadline is near. " + _SHOW,
        "owner-certificate-ends": "The certificate of owner {owner} ends soon. See aggregator enroll list.",
        "certificate-ends": "The certificate of this aggregator ends soon. See aggregator doctor.",
    }
)


def note_due(
    notices: NoticeList,
    releases: Iterable[Release],
    halted: Callable[[str], object | None],
    certificates: Mapping[str, datetime],
    now: datetime,
) -> None:
    """Record every notice to operators, once each.

    Args:
        halted: Returns what halted the publication of a release, by its id; None if nothing did.
        certificates: When certificates end, by owner; the aggregator's own under an empty text.
    """
    seconds = int(now.timestamp())
    for release in releases:
        entered = str(release.entered)
        if release.state is State.PUBLISHED or release.ending is not None:
            if release.ended and release.entered >= notices.begun:
                event = "published" if release.state is State.PUBLISHED else "ended"
                notices.note(event, seconds, entered, release.id)
        elif halted(release.id) is not None:
            notices.note("publication-halted", seconds, entered, release.id)
        elif release.state is State.CONSENTING and release.deadline is not None:
            left = timedelta(seconds=release.deadline - seconds)
            asked = timedelta(seconds=release.deadline - release.entered)
            if timedelta(0) < left < NEAR < asked:
                notices.note("deadline-near", seconds, entered, release.id)
    for owner, ends in certificates.items():
        if expiry_warning(owner or "this aggregator", ends, now):
            notices.note(
                "owner-certificate-ends" if owner else "certificate-ends",
                seconds,
                ends.isoformat(),
                owner=owner,
            )
