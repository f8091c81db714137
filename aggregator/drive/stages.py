"""The heavy steps of a release, run in threads: comparing token lists, joining, publishing.

numpy and pyarrow are imported here, when the first release needs them.
"""

import errno
import hashlib
import json
import logging
from base64 import b64decode
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.drive.messages import LARGEST_DOCUMENT
from aggregator.protocol.events import Addended, Planned
from aggregator.protocol.release import Release
from aggregator.release.conflicts import conflict_error, conflicts
from aggregator.store.intake import BlobKind, Intake
from common import __version__
from common.canonical import digest
from common.errors import IntegrityError, InternalError, UsageError
from common.files import write_atomic
from common.model.compatibility import check_features, common_protocol, features_of
from common.model.fragment import Addendum, Consent, KeyProof, n_records
from common.model.products import Product
from common.model.rounds import FIRST_COUNTED, RoundDocument
from common.model.schema import Schema
from common.planning.attributes import check_records
from common.planning.limits import check_limits
from common.planning.planner import make_plan
from common.progress import Progress
from common.release.evidence import Evidence, OwnerEvidence, Signed
from common.trust.signing import Domain, SignerSource
from common.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

    from aggregator.release.linking import LinkingResult
    from aggregator.release.product import AggregatorProduct
    from aggregator.release.publication import ReleaseFolder
    from common.model.plan import Plan
    from common.wire.decoding import FragmentCheck

_log = logging.getLogger(__name__)
_SMALLEST_CONSENT = 700
"""Bytes: signature and certificate. Those of all owners are one document."""
_SHARE_OF_LINKING = 2
"""The tokens that are compared at once take one part in so many of the memory."""


def product_of(plan: "Plan") -> "AggregatorProduct":
    """Return what makes the product of a plan; numpy and pyarrow are loaded with it."""
    match plan.product:
        case Product.MASKED:
            from aggregator.release.masked import MASKED

            return MASKED
        case Product.SYNTHETIC:
            from aggregator.release.synthetic import SYNTHETIC

            return SYNTHETIC


def signed_plan(release: Release, signer: SignerSource, at: int) -> Planned:
    """Make and sign the plan of a release whose owners have all described their data sets.

    Raises:
        ConflictError: With every conflict between their schemas.
        VersionError: Naming every owner whose version is too old for what the release uses.
        UsageError: As `common.planning.planner.make_plan`; or if the plan is too large.
        UnusableDataError: If an owner has fewer than k records.
        RefusedError: If the plan exceeds limits that owners state.
    """
    described = {
        owner: progress.described
        for owner, progress in release.progress.items()
        if progress.described is not None
    }
    schemas = {owner: Schema.from_document(json.loads(answer.schema)) for owner, answer in described.items()}
    differences = conflicts(release.request, schemas)
    if differences:
        raise conflict_error(differences)
    if len(schemas) > LARGEST_DOCUMENT // _SMALLEST_CONSENT:
        raise UsageError(
            f"the consents of the {len(schemas)} owners fit no document",
            f"make several releases of at most {LARGEST_DOCUMENT // _SMALLEST_CONSENT} owners each",
            {"owners": len(schemas)},
        )
    created = datetime.fromtimestamp(at, UTC).isoformat()
    key = signer.current_signer()
    software = {owner: answer.software for owner, answer in described.items()}
    parties = {f"owner {owner}": stated for owner, stated in software.items()}
    protocol = common_protocol("the aggregator", parties)
    plan = make_plan(release.request, schemas, aggregator=key.party.uri, created=created, version=__version__)
    all_read_it = all("description" in each.features for each in software.values())
    plan = replace(plan, protocol=protocol, described=all_read_it)
    check_features(features_of(plan), software)
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
    """Check that all owners used the same linkage key."""
    from aggregator.release.linking import KeyCheck, compare_key_checks

    if release.the_plan().linking.tokens:
        consents = {owner: progress.consented for owner, progress in release.progress.items()}
        compare_key_checks(
            {
                owner: KeyCheck(consent.key_check, consent.key_generation)
                for owner, consent in consents.items()
                if consent is not None
            }
        )


def signed_addendum(
    release: Release, intake: Intake, signer: SignerSource, at: int, workspace: Workspace, progress: Progress
) -> Addended:
    """Compare the token lists of all owners, who have all linked, and sign what that finds.

    Raises:
        ConflictError, UnusableDataError, ProtocolError: As `aggregator.release.linking.link_runs`.
        UsageError: If joining needs more memory, or more room on the disk, than there is.
    """
    import numpy as np

    from aggregator.release.linking import LINKING_BYTES, link_runs
    from aggregator.release.match_linking import check_memory, link_by_passes
    from common.arrays import random_order
    from common.runs import FileRun
    from common.wire.fragment_layout import TOKEN_BYTES

    compare_keys(release)
    plan = release.the_plan()
    answers = release.progress.items()
    records = {owner: answer.linked.records for owner, answer in answers if answer.linked}
    paths = {owner: intake.path(release.id, owner, BlobKind.TOKENS) for owner in plan.owners}
    tokens: dict[str, FileRun] = {}
    kind = np.dtype(f"S{TOKEN_BYTES}")
    with ExitStack() as open_files:
        if plan.passes:
            check_memory(plan, sum(records.values()), workspace.memory)
            # Mapped, not read: the system can drop its pages when memory is short.
            mapped = {owner: np.memmap(path, dtype=np.uint8, mode="r") for owner, path in paths.items()}
            progress.begin("comparing match keys", sum(records.values()) * len(plan.passes))
            linked = link_by_passes(plan, records, mapped, random_order, progress.advance)
        else:
            for owner, path in paths.items() if plan.linking.tokens else ():
                stream = open_files.enter_context(path.open("rb", buffering=0))
                tokens[owner] = FileRun(stream, 0, path.stat().st_size // kind.itemsize, kind)
            # They are checked and counted; where groups may differ, they are matched and selected, too, and
            # where owners count with partners, these are looked up.
            passes = 2 + 2 * plan.linking.intersects + plan.linking.unites + plan.has_partners
            progress.begin("comparing tokens", sum(records.values()) * passes)
            at_once = workspace.memory // _SHARE_OF_LINKING // LINKING_BYTES
            linked = link_runs(plan, records, tokens, at_once, progress.advance)
    _check_workspace(plan, linked, workspace)
    for owner, selection in linked.selections.items():
        # On disk before the addendum, which has its digest, is: owners ask for it until they have masked, or
        # answered the first round.
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
        linked.match_quality,
        tuple(KeyProof.from_bytes(one.linked.key_proof.encode()) for _, one in answers if one.linked)
        if plan.linking.key_proofs
        else (),
    )
    data = addendum.to_bytes()
    key = signer.current_signer()
    signature = key.sign(Domain.ADDENDUM, data).hex()
    return Addended(at=at, addendum=data.decode(), signature=signature, certificate=key.chain_pem)


def _check_workspace(plan: "Plan", linked: "LinkingResult", workspace: Workspace) -> None:
    """Check, before any owner spends, that the release can be joined on this machine.

    Raises:
        UsageError: If memory or scratch folder are too small; the release ends with nothing spent.
    """
    product = product_of(plan)
    needed = product.needed_memory(plan)
    if needed > workspace.memory:
        raise UsageError(
            f"joining takes {needed >> 20:,} MB of memory, [engine] memory_limit allows "
            f"{workspace.memory >> 20:,} MB",
            "raise it in aggregator.toml, or release fewer attributes; nothing was spent",
            {"needed": needed, "memory_limit": workspace.memory},
        )
    n_records = linked.released or sum(linked.records[owner] for owner in plan.owners_of(0))
    missing = _missing_room(workspace, product.needed_room(plan, linked.records, n_records, workspace))
    if missing:
        raise UsageError(
            f"{workspace.scratch} is too small: {missing}",
            "make room there, or name a folder on another disk: [engine] scratch in aggregator.toml; "
            "nothing was spent",
        )


class LostFragmentError(IntegrityError):
    """A fragment is gone, or is not the one that arrived: its release cannot be published any more."""


def fragment_check(release: Release, owner: str) -> "FragmentCheck":
    """Return what checks every byte of an owner's fragment as it arrives."""
    statement, plan = release.statement(owner), release.the_plan()
    if statement is None:
        raise InternalError(f"owner {owner} has not sealed")
    return product_of(plan).check(plan, plan.assignment_of(owner), statement.records, statement.size)


def publish_release(
    release: Release,
    intake: Intake,
    release_dir: Path,
    signer: SignerSource,
    ca: Path,
    now: datetime,
    workspace: Workspace,
    progress: Progress,
) -> str:
    """Join the fragments of a release and publish it; returns the manifest's digest.

    Args:
        release: A release whose fragments have all arrived.
        ca: PEM file of the CAs that all identities in the release must lead to.
        now: The moment that the release will be judged at, with a time zone.

    Raises:
        StepStoppedError: If `progress` says so; another attempt begins anew.
        LostFragmentError: If a fragment is not the one that its owner sealed.
        IntegrityError: If the fragments do not fit together, the release would not hold for those who verify
            it, or its folder holds something else.
        OSError: If the release folder or the scratch folder cannot be written.
    """
    from aggregator.release.product import Material

    plan, evidence = release.the_plan(), _evidence(release)
    product, counts = product_of(plan), evidence.addendum.records
    n_released = n_records(plan, evidence.addendum)

    def material() -> Material:
        fragments = {owner: partial(_fragment, release, owner, intake) for owner in plan.owners}
        sums = [b64decode(opened.attached) for opened in release.rounds[FIRST_COUNTED:]]
        return Material(plan, counts, n_released, fragments, sums)

    def join_pieces() -> "Generator[pa.Table]":
        missing = _missing_room(workspace, product.needed_room(plan, counts, n_released, workspace))
        if missing:
            raise OSError(errno.ENOSPC, missing, str(workspace.scratch))
        # Every record of a fragment is read, and every record of the release is written; then it is verified.
        progress.begin("publishing", sum(counts.values()) + n_released)
        yield from product.join(material(), workspace, progress.advance)

    # After a crash the folder may be there, and the fragments may be gone: then nothing is joined.
    with closing(join_pieces()) as pieces:
        return folder_of(release, release_dir).publish(
            evidence, pieces, signer.current_signer(), now, release.request.formats, ca,
            counts=lambda: product.noisy_counts(material()), workspace=workspace, progress=progress,
        )  # fmt: skip


def folder_of(release: Release, release_dir: Path) -> "ReleaseFolder":
    """Return the folder where a release appears."""
    from aggregator.release.publication import ReleaseFolder

    return ReleaseFolder(release_dir / release.id, release.plan_digest)


def _missing_room(workspace: Workspace, needed: int) -> str:
    """Say that the scratch folder has not the room that a release needs; empty if it has."""
    free = workspace.free() if needed else 0
    if needed <= free:
        return ""
    return f"joining writes {needed >> 20:,} MB there, {free >> 20:,} MB are free"


def _fragment(release: Release, owner: str, intake: Intake) -> Path:
    """Return the file of a fragment that was checked when it arrived; it is still the one that was sealed.

    Raises:
        LostFragmentError: If it is not.
    """
    statement = release.statement(owner)
    if statement is None:
        raise InternalError(f"owner {owner} has not sealed")
    path = intake.path(release.id, owner, BlobKind.FRAGMENT)
    try:
        with path.open("rb") as stream:
            arrived = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        arrived = "none"
    if arrived != statement.fragment_digest:
        raise LostFragmentError(
            f"the fragment of {owner} is not on the aggregator's disk as it arrived",
            "check that disk, and who may write to its state directory",
            {"owner": owner, "sealed": statement.fragment_digest, "found": arrived},
        )
    return path


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
            Consent.accepting(plan, owner, consented.key_check, consented.key_generation),
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
        tuple(
            (
                RoundDocument.from_bytes(opened.document.encode()),
                Signed(bytes.fromhex(opened.signature), opened.certificate),
            )
            for opened in release.rounds
        ),
    )
