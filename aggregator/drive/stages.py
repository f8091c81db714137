"""The heavy steps of a release, run in threads: comparing token lists, joining, publishing.

numpy and pyarrow are imported here, when the first release needs them.
"""

import hashlib
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.drive.messages import LARGEST_DOCUMENT
from aggregator.protocol.events import Addended, Planned
from aggregator.protocol.release import Release
from aggregator.release.conflicts import conflict_error, conflicts
from aggregator.store.intake import BlobKind, Intake
from common import __version__
from common.canonical import digest
from common.errors import IntegrityError, InternalError, TesseraError, UsageError
from common.files import free_memory, write_atomic
from common.model.fragment import Addendum, Consent
from common.model.schema import Schema
from common.model.task import Assignment
from common.planning.attributes import check_records
from common.planning.limits import check_limits
from common.planning.planner import make_plan
from common.release.evidence import Evidence, OwnerEvidence, Signed
from common.trust.signing import Domain, SignerSource

if TYPE_CHECKING:
    import pyarrow as pa

    from common.wire.decoding import FragmentCheck

_log = logging.getLogger(__name__)
_SMALLEST_CONSENT = 700
"""Bytes: signature and certificate. Those of all owners are one document."""
_TOKEN_BYTES = 16
_LINKING_MEMORY = 6
"""Bytes of memory that linking takes per byte of tokens, at most."""


def signed_plan(release: Release, signer: SignerSource, at: int) -> Planned:
    """Make and sign the plan of a release whose owners have all described their data sets.

    Raises:
        ConflictError: With every conflict between their schemas.
        UsageError: As `common.planning.planner.make_plan`; or if the plan is too large.
        UnusableDataError: If an owner has fewer than k records.
        RefusedError: If the plan exceeds limits that owners state.
    """
    schemas = {
        owner: Schema.from_document(json.loads(progress.described.schema))
        for owner, progress in release.progress.items()
        if progress.described is not None
    }
    found = conflicts(release.request, schemas)
    if found:
        raise conflict_error(found)
    if len(schemas) > LARGEST_DOCUMENT // _SMALLEST_CONSENT:
        raise UsageError(
            f"the consents of the {len(schemas)} owners fit no document",
            f"make several releases of at most {LARGEST_DOCUMENT // _SMALLEST_CONSENT} owners each",
            {"owners": len(schemas)},
        )
    created = datetime.fromtimestamp(at, UTC).isoformat()
    key = signer.current_signer()
    plan = make_plan(release.request, schemas, aggregator=key.party.uri, created=created, version=__version__)
    check_records(plan.tasks, schemas)
    check_limits(plan, schemas)
    data = plan.to_bytes()
    if len(data) > LARGEST_DOCUMENT:
        raise UsageError(
            f"the plan has {len(data)} bytes, and a document holds {LARGEST_DOCUMENT}",
            "release fewer attributes (--attributes), or have long lists of categories shortened",
            {"size": len(data), "largest": LARGEST_DOCUMENT},
        )
    signature = key.sign(Domain.PLAN, data).hex()
    return Planned(at=at, plan=data.decode(), signature=signature, certificate=key.chain_pem)


def compare_keys(release: Release) -> None:
    """Check that all owners used the same linkage key.

    Raises:
        ConflictError: Naming the owners whose key differs.
    """
    from aggregator.release.linking import KeyCheck, compare_key_checks

    if release.the_plan().linking.tokens:
        consents = {owner: each.consented for owner, each in release.progress.items()}
        compare_key_checks(
            {
                owner: KeyCheck(each.key_check, each.key_generation)
                for owner, each in consents.items()
                if each is not None
            }
        )


def signed_addendum(release: Release, intake: Intake, signer: SignerSource, at: int) -> Addended:
    """Compare the token lists of all owners, and sign what that finds.

    Args:
        release: A release whose owners have all linked.
        intake: Where their token lists are.
        signer: The aggregator's key.
        at: Unix time.

    Raises:
        ConflictError, UnusableDataError, ProtocolError: As `aggregator.release.linking.link`.
    """
    import numpy as np

    from aggregator.release.linking import link

    compare_keys(release)
    plan = release.the_plan()
    records = {owner: each.linked.records for owner, each in release.progress.items() if each.linked}
    tokens = {}
    if plan.linking.tokens:
        _check_memory(sum(records.values()))
        for owner in plan.owners:
            # Mapped, not read: the system can drop its pages when memory is short.
            path = intake.path(release.id, owner, BlobKind.TOKENS)
            tokens[owner] = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _TOKEN_BYTES)
    linked = link(plan, records, tokens)
    for owner, selection in linked.selections.items():
        # On disk before the addendum, which has its digest, is: owners ask for it until they have masked.
        write_atomic(intake.path(release.id, owner, BlobKind.SELECTION), selection)
    addendum = Addendum(
        release.id,
        plan.digest,
        linked.kind,
        dict(linked.records),
        linked.matches,
        linked.multiples,
        linked.released,
        linked.common,
        {owner: digest(selection) for owner, selection in linked.selections.items()},
    )
    data = addendum.to_bytes()
    key = signer.current_signer()
    signature = key.sign(Domain.ADDENDUM, data).hex()
    return Addended(at=at, addendum=data.decode(), signature=signature, certificate=key.chain_pem)


def _check_memory(n_records: int) -> None:
    """Check, before any memory is taken, that comparing so many tokens fits into what is free.

    Raises:
        UsageError: If it does not; the release ends with nothing spent.
    """
    needed, free = _LINKING_MEMORY * _TOKEN_BYTES * n_records, free_memory()
    if free is not None and needed > free:
        raise UsageError(
            f"comparing the tokens of {n_records:,} records needs {needed >> 20:,} MB of memory, "
            f"{free >> 20:,} MB are free",
            "link on a machine with more memory, or release fewer owners at a time; nothing was spent",
            {"needed": needed, "free": free},
        )


class LostFragmentError(IntegrityError):
    """A fragment is gone, or is not the one that arrived: its release cannot be published any more."""


def fragment_check(release: Release, owner: str) -> "FragmentCheck":
    """Return what checks every byte of an owner's fragment as it arrives.

    Raises:
        IntegrityError: If no fragment of this owner has the size that it stated.
    """
    from common.wire.decoding import FragmentCheck

    statement, plan = release.statement(owner), release.the_plan()
    if statement is None:
        raise InternalError(f"owner {owner} has not sealed")
    return FragmentCheck(plan, plan.assignment_of(owner), statement.records, statement.size)


def publish_release(
    release: Release, intake: Intake, release_dir: Path, signer: SignerSource, ca: Path, now: datetime
) -> str:
    """Join the fragments of a release and publish it.

    Args:
        release: A release whose fragments have all arrived.
        intake: Where they are.
        release_dir: Where the release folder appears.
        signer: Signs the manifest.
        ca: PEM file of the CAs that all identities in the release must lead to.
        now: The moment that the release will be judged at, with a time zone.

    Returns:
        The manifest's digest.

    Raises:
        LostFragmentError: If a fragment is not the one that its owner sealed.
        IntegrityError: If the fragments do not fit together, the release would not hold for those who verify
            it, or its folder holds something else.
        OSError: If the folder cannot be written.
    """
    from aggregator.release.joining import join
    from aggregator.release.publication import publish, published_digest
    from common.arrays import random_order
    from common.release.summary import n_records

    plan, evidence = release.the_plan(), _evidence(release)
    # After a crash the folder may be there, and the fragments may be gone.
    kept = published_digest(release_dir, plan.digest, release.id)
    if kept is not None:
        return kept
    parts = {owner: _fragment(release, own, intake) for owner, own in plan.assignments.items()}
    table = join(plan, parts, random_order(n_records(plan, evidence.addendum)))
    # The fragments are not needed any more, and publishing needs memory of its own.
    parts.clear()
    key = signer.current_signer()
    return publish(release_dir, evidence, table, key, now, release.request.formats, ca)


def _fragment(release: Release, assignment: Assignment, intake: Intake) -> "pa.Table":
    """Read a fragment that was checked when it arrived, if it is still the one that its owner sealed."""
    from common.wire.decoding import decode

    statement, owner = release.statement(assignment.owner), assignment.owner
    if statement is None:
        raise InternalError(f"owner {owner} has not sealed")
    path = intake.path(release.id, owner, BlobKind.FRAGMENT)
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        found = "none"
    if found != statement.fragment_digest:
        raise LostFragmentError(
            f"the fragment of {owner} is not on the aggregator's disk as it arrived",
            "check that disk, and who may write to its state directory",
            {"owner": owner, "sealed": statement.fragment_digest, "found": found},
        )
    return decode(path, release.the_plan(), assignment, statement.records)


def has_appeared(release: Release, folder: Path) -> bool:
    """Whether a folder may be that of a release: one that holds another release is not."""
    from common.release.verification import MANIFEST_FILE

    if not folder.exists():
        return False
    try:
        found = json.loads((folder / MANIFEST_FILE).read_bytes())["plan"]["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return True
    return bool(found == release.plan_digest)


def note_of(folder: Path, out: str) -> str:
    """Put the copy of a published release where the operator wanted it, if anywhere.

    Returns:
        What did not go well with report and copy; empty if nothing.
    """
    from aggregator.release.publication import missing_report

    notes = [missing_report(folder), copy_out(folder, Path(out)) if out else ""]
    return "; ".join(filter(None, notes))


def copy_out(folder: Path, out: Path) -> str:
    """Put the finished copy where the operator wanted it; a release is published without it too.

    Returns:
        Why there is no copy; empty if there is one.
    """
    from aggregator.release.publication import copy_release, is_copy

    try:
        # There already if this is another attempt to write down that the release is published.
        if not is_copy(folder, out):
            copy_release(folder, out)
    except TesseraError as error:
        reason = error.message
    except OSError as error:
        reason = error.strerror or type(error).__name__
    else:
        return ""
    _log.error("the copy of the release could not be made", extra={"reason": reason})
    return f"there is no copy at {out}: {reason}"


def _evidence(release: Release) -> Evidence:
    plan, planned, addended = release.the_plan(), release.planned, release.addended
    if planned is None or addended is None or release.addendum is None:
        raise InternalError(f"release {release.id} lacks signed documents")
    owners = {}
    for owner, progress in release.progress.items():
        consented, sealed, statement = progress.consented, progress.sealed, progress.statement
        if consented is None or sealed is None or statement is None:
            raise InternalError(f"owner {owner} has not consented and sealed")
        owners[owner] = OwnerEvidence(
            Consent(release.id, owner, plan.digest, consented.key_check, "accept", consented.key_generation),
            Signed(bytes.fromhex(consented.signature), consented.certificate),
            statement,
            Signed(bytes.fromhex(sealed.signature), sealed.certificate),
        )
    return Evidence(
        plan,
        Signed(bytes.fromhex(planned.signature), planned.certificate),
        release.addendum,
        Signed(bytes.fromhex(addended.signature), addended.certificate),
        owners,
    )
