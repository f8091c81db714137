"""The work of a release as messages for owners: domain types to protobuf, in one place.

What grows with the number of owners is not in the messages: plan, consents and addendum are documents, which
are serialised and compressed once, named by their digests, and fetched by the owners that need them.
"""

import zlib
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from aggregator.protocol.events import Passed
from aggregator.protocol.release import Release
from aggregator.protocol.states import State
from aggregator.protocol.work import Work, conclusion
from common.canonical import digest
from common.errors import InternalError, UsageError
from common.model.rounds import RoundDocument
from common.wire.limits import SENTENCES
from common.wire.v1 import owner_pb2 as wire

LARGEST_DOCUMENT = 3 << 20
"""Most bytes of a document."""
_MOST_BYTES = 3 << 20
"""Most bytes of work in one message."""


@dataclass(frozen=True, slots=True)
class SharedDocument:
    """What all owners of a release need in one of its states."""

    digest: str
    """SHA-256 of the document."""
    compressed: bytes
    """The document, compressed with zlib."""


def document_of(release: Release) -> SharedDocument | None:
    """Return the document that the work of a release's state names; None if it names none."""
    if release.state is State.CONSENTING and release.planned is not None:
        data = release.planned.plan.encode()
    elif release.state is State.LINKING:
        data = _consents(release).SerializeToString(deterministic=True)
        if len(data) > LARGEST_DOCUMENT:
            raise _too_many_owners(release, len(data))
    elif release.state is State.MASKING and release.addended is not None:
        data = release.addended.addendum.encode()
    elif release.state is State.MEASURING and release.round:
        opened = release.rounds[-1]
        document = RoundDocument.from_bytes(opened.document.encode())
        data = document.with_attached(b64decode(opened.attached))
    else:
        return None
    return SharedDocument(digest(data), zlib.compress(data))


def _too_many_owners(release: Release, size: int) -> UsageError:
    return UsageError(
        f"the consents of the {len(release.progress)} owners have {size} bytes, and a document holds "
        f"{LARGEST_DOCUMENT}",
        "make several releases of fewer owners; each consent brings its whole certificate chain, so "
        "certificates without intermediate ones allow more",
        {"size": size, "largest": LARGEST_DOCUMENT},
    )


def fit_into_message(messages: Iterable[wire.Work]) -> list[wire.Work]:
    """Return as much work as fits into one message; the rest is sent with the next poll."""
    taken: list[wire.Work] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if taken and size > _MOST_BYTES:
            break
        taken.append(message)
    return taken


def work_message(release: Release, work: Work, document: SharedDocument | None) -> wire.Work:
    """Return the message of a piece of work, which is the same for all owners."""
    message = wire.Work(release=release.id, plan_digest=release.plan_digest)
    if work.step == "describe":
        message.describe.dataset = release.request.dataset
    elif work.step == "consent":
        message.consent.CopyFrom(_consent(release))
    elif work.step == "link":
        message.link.consents_digest = "" if document is None else document.digest
    elif work.step == "mask":
        message.mask.CopyFrom(_mask(release, document))
    elif work.step == "collect":
        message.collect.SetInParent()
    elif work.step == "measure":
        message.measure.CopyFrom(wire.Measure(**_opening(release, document)))
        passed = (progress.passed_sums for progress in release.progress.values())
        message.measure.parcels.extend(_parcels(passed))
    elif work.step == "encrypt":
        message.encrypt.CopyFrom(wire.Pass(**_opening(release, document)))
    elif work.step == "add":
        message.add.CopyFrom(wire.Pass(**_opening(release, document)))
        message.add.parcels.extend(_parcels(progress.passed_rows for progress in release.progress.values()))
    else:
        state, reason, manifest = conclusion(release)
        # A conflict lists whatever owners declare differently.
        message.conclude.CopyFrom(
            wire.Conclude(state=state, reason=reason[:SENTENCES], manifest_digest=manifest)
        )
    return message


def _consent(release: Release) -> wire.Consent:
    planned = release.planned
    if planned is None:
        raise InternalError(f"release {release.id} has no plan")
    return wire.Consent(
        signature=bytes.fromhex(planned.signature),
        certificate=planned.certificate.encode(),
        deadline=release.deadline or 0,
    )


def _consents(release: Release) -> wire.Consents:
    """Return what every owner has consented to."""
    return wire.Consents(
        co_owners=[
            wire.CoOwner(
                id=owner,
                key_check=progress.consented.key_check,
                signature=bytes.fromhex(progress.consented.signature),
                certificate=progress.consented.certificate.encode(),
                key_generation=progress.consented.key_generation,
            )
            for owner, progress in release.progress.items()
            if progress.consented is not None
        ]
    )


def _mask(release: Release, document: SharedDocument | None) -> wire.Mask:
    addended = release.addended
    if addended is None or document is None:
        raise InternalError(f"release {release.id} has no addendum")
    return wire.Mask(
        addendum_digest=document.digest,
        signature=bytes.fromhex(addended.signature),
        certificate=addended.certificate.encode(),
    )


def _opening(release: Release, document: SharedDocument | None) -> dict[str, Any]:
    """Return what opened the round: the common fields of the messages that ask for something in it."""
    if not release.round or document is None:
        raise InternalError(f"release {release.id} has no open round")
    opened = release.rounds[-1]
    return {
        "round": release.round,
        "opening_digest": document.digest,
        "signature": bytes.fromhex(opened.signature),
        "certificate": opened.certificate.encode(),
    }


def _parcels(passed: Iterable[Passed | None]) -> Iterator[wire.Parcel]:
    for statement in passed:
        if statement is not None:
            yield wire.Parcel(
                statement=statement.statement.encode(),
                signature=bytes.fromhex(statement.signature),
                certificate=statement.certificate.encode(),
            )
