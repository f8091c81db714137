"""Verification, by an owner, that a release contains its own masked values unchanged.

Only the owner has its fragment. The fragment's digest and signature in the manifest show that the aggregator
received these bytes. Its records in the data, with the same multiplicity, show that they were released. This
does not verify which values of other owners stand beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import IntegrityError, UsageError
from common.files import file_digest
from common.progress import Progress
from common.release.data_files import DATA_FILES, unit_batches
from common.release.verification import Verified
from common.workspace import Workspace
from owner_node.release.work import product_of
from owner_node.state.rounds import AnsweredRound
from owner_node.state.sessions import Session

_HINT = "ask the aggregator's operator; keep the fragment, the release folder and owner.db as they are"


@dataclass(frozen=True, slots=True)
class OwnVerified:
    """Result of verifying an owner's own share."""

    n_records: int
    """Number of its records, all found in the release."""
    attributes: tuple[str, ...]
    """Names of its attributes, in plan order."""


def check_announced(session: Session, verified: Verified) -> None:
    """Check that a release has the plan that this owner accepted and the manifest that was announced to it.

    Raises:
        IntegrityError: If the plan is not the accepted one, or the manifest not the announced one.
    """
    if session.plan_digest != verified.plan_digest:
        raise IntegrityError(
            "the release has another plan than the one that this owner accepted",
            "ask the aggregator's operator",
            {"accepted": session.plan_digest, "manifest": verified.plan_digest},
        )
    if session.manifest_digest not in ("", verified.manifest_digest):
        raise IntegrityError(
            "the aggregator announced another manifest to this owner",
            "ask the aggregator's operator why there are two",
            {"reported": session.manifest_digest, "manifest": verified.manifest_digest},
        )


def verify_own(
    folder: Path,
    verified: Verified,
    owner: str,
    fragment: Path,
    fragment_digest: str,
    signature: bytes,
    workspace: Workspace,
    kept_digest: str = "",
    progress: Progress | None = None,
) -> OwnVerified:
    """Check that an owner's sealed fragment is in a release.

    Args:
        fragment: The sealed fragment.
        fragment_digest: The digest that was sealed, from the owner's own records.
        kept_digest: The digest of the fragment without tokens, from the owner's own records; empty if it has
            them still, or never had any.

    Returns:
        The verified records and attributes.

    Raises:
        IntegrityError: Naming the first check that fails.
        UsageError: If the fragment no longer exists.
    """
    _check_stated(verified, owner, fragment_digest, signature)
    stated = verified.owners[owner]
    assignment = verified.plan.assignment_of(owner)
    names = [attribute.name for attribute in assignment.attributes]
    _check_digest(fragment, kept_digest or fragment_digest)
    for name in DATA_FILES:
        if name not in verified.files:
            continue
        released = unit_batches(folder / name, verified.plan, names, verified.n_records)
        progress = progress or Progress()
        progress.begin(f"comparing with {name}", stated.statement.records + verified.n_records)
        absent = product_of(verified.plan).count_absent(
            fragment, released, verified.plan, assignment, stated.statement.records, workspace, progress,
            tokens=not kept_digest,
        )  # fmt: skip
        if absent:
            raise IntegrityError(
                f"{absent:,} of this owner's {stated.statement.records:,} masked records are not in {name}",
                _HINT,
                {"absent": absent, "records": stated.statement.records},
            )
    return OwnVerified(stated.statement.records, tuple(names))


def verify_answered(
    verified: Verified,
    owner: str,
    rounds: Sequence[AnsweredRound],
    fragment_digest: str,
    signature: bytes,
) -> OwnVerified:
    """Check that a synthetic release was made of the answers that an owner gave to its rounds.

    Its records follow from noisy counts (`verify_release`), and these are what the rounds of the manifest
    name. So it is left to check that the owner answered these very rounds, and with what it signed.

    Args:
        rounds: What it stored of the rounds.
        fragment_digest: Digest of all its answers, from its own records.

    Raises:
        IntegrityError: Naming the first check that fails.
    """
    _check_stated(verified, owner, fragment_digest, signature)
    if [opened.document for opened in rounds] != [opened.to_bytes() for opened in verified.rounds]:
        raise IntegrityError("the manifest has other rounds than this owner answered", _HINT)
    names = verified.plan.assignment_of(owner).names
    return OwnVerified(verified.owners[owner].statement.records, names)


def _check_stated(verified: Verified, owner: str, fragment_digest: str, signature: bytes) -> None:
    stated = verified.owners[owner]
    if stated.statement.fragment_digest != fragment_digest or stated.statement_signed.signature != signature:
        raise IntegrityError(
            "the manifest names another fragment than the one that this owner sealed",
            _HINT,
            {"sealed": fragment_digest, "manifest": stated.statement.fragment_digest},
        )


def _check_digest(fragment: Path, expected: str) -> None:
    try:
        actual = file_digest(fragment)
    except FileNotFoundError:
        raise UsageError(
            "the sealed fragment is no longer in the outbox, so its values cannot be compared",
            "its digest and signature in the manifest are this owner's; to check the folder without it, run "
            "aggregator verify",
        ) from None
    if actual != expected:
        raise IntegrityError("the sealed fragment in the outbox was changed", _HINT)
