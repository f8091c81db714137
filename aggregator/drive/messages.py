"""The work of a release as messages for owners: domain types to protobuf, in one place."""

from collections.abc import Iterable

from aggregator.protocol.release import Release
from aggregator.protocol.work import Work, conclusion
from common.errors import InternalError, UsageError
from common.wire.v1 import owner_pb2 as wire

_MOST_BYTES = 3 << 20
"""Most bytes of work in one message. `drive.stages` bounds plans, `check_consents` bounds consents."""


def bounded(messages: Iterable[wire.Work]) -> list[wire.Work]:
    """Return as much work as fits into one message; the rest is sent with the next poll."""
    taken: list[wire.Work] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if taken and size > _MOST_BYTES:
            break
        taken.append(message)
    return taken


def work_message(release: Release, owner: str, work: Work) -> wire.Work:
    """Return the message of a piece of work for an owner.

    Args:
        release: The release.
        owner: Its id.
        work: From `protocol.work.work_for`.
    """
    message = wire.Work(release=release.id, plan_digest=release.plan_digest)
    if work.step == "describe":
        message.describe.dataset = release.request.dataset
    elif work.step == "consent":
        message.consent.CopyFrom(_consent(release))
    elif work.step == "link":
        message.link.CopyFrom(_link(release, owner))
    elif work.step == "mask":
        message.mask.CopyFrom(_mask(release))
    elif work.step == "collect":
        message.collect.SetInParent()
    else:
        state, reason, digest = conclusion(release)
        message.conclude.CopyFrom(wire.Conclude(state=state, reason=reason, manifest_digest=digest))
    return message


def check_consents(release: Release) -> None:
    """Check that what all owners have consented to fits one message, before any owner receives it.

    Raises:
        UsageError: If there are too many owners for that.
    """
    size = _link(release, "").ByteSize()
    if size > _MOST_BYTES:
        raise UsageError(
            f"the consents of the {len(release.progress)} owners have {size} bytes, and a message holds "
            f"{_MOST_BYTES}",
            "make several releases of fewer owners; each consent brings its whole certificate chain, so "
            "certificates without intermediate ones allow more",
            {"size": size, "largest": _MOST_BYTES},
        )


def _consent(release: Release) -> wire.Consent:
    planned = release.planned
    if planned is None:
        raise InternalError(f"release {release.id} has no plan")
    return wire.Consent(
        plan=planned.plan.encode(),
        signature=bytes.fromhex(planned.signature),
        certificate=planned.certificate.encode(),
        deadline=release.deadline or 0,
    )


def _link(release: Release, owner: str) -> wire.Link:
    """Show an owner what every other owner has consented to."""
    consents = {each: progress.consented for each, progress in release.progress.items() if each != owner}
    return wire.Link(
        co_owners=[
            wire.CoOwner(
                id=each,
                key_check=consent.key_check,
                signature=bytes.fromhex(consent.signature),
                certificate=consent.certificate.encode(),
                key_generation=consent.key_generation,
            )
            for each, consent in consents.items()
            if consent is not None
        ]
    )


def _mask(release: Release) -> wire.Mask:
    addended = release.addended
    if addended is None:
        raise InternalError(f"release {release.id} has no addendum")
    return wire.Mask(
        addendum=addended.addendum.encode(),
        signature=bytes.fromhex(addended.signature),
        certificate=addended.certificate.encode(),
    )
