"""Download of a published release into a folder that appears atomically, after verification."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from common.clock import utc_now
from common.errors import IntegrityError, NotConnectedError, UsageError
from common.files import check_out, explaining_disk, whole_folder
from common.progress import Progress
from owner_node.config import KnownAggregator, OwnerConfig
from owner_node.connection.client import explain
from owner_node.connection.command_client import connected_client
from owner_node.state.database import OwnerDatabase
from owner_node.state.sessions import Session, Sessions

if TYPE_CHECKING:
    from common.release.verification import Verified

_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""A name in the release folder itself, which any file system takes."""


async def download(
    config: OwnerConfig,
    release: str,
    out: Path,
    aggregator: str | None = None,
    progress: Progress | None = None,
) -> "Verified":
    """Download a release.

    Args:
        out: An empty or absent folder.
        aggregator: Name of the aggregator; optional if only one made a release of this id.

    Returns:
        The result of verifying it, identities included.

    Raises:
        UsageError: If this owner took no part in such a release, or the folder cannot be used.
        ConfigurationError: If the disk is full or failing.
        NotConnectedError: If the aggregator cannot be reached.
        IdentityError: If another aggregator answers.
        IntegrityError: If the release is invalid, or not the one that the aggregator announced.
    """
    from common.release.verification import verify_release
    from owner_node.release.own_fragment import check_announced

    check_out(out)
    progress = progress or Progress()
    section, session = _find(config, release, aggregator)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with explaining_disk(), whole_folder(out.absolute()) as folder:
        try:
            async with connected_client(config, section) as client:
                listed = await client.files(release)
                _check_listed(listed, folder)
                progress.begin("downloading", sum(listed.values()))
                for name, size in listed.items():
                    await client.download(release, name, folder / name, size, progress)
        except NotConnectedError as error:
            raise explain(section, config.tls, utc_now()) or error from None
        verified = verify_release(folder, config.tls.ca, workspace=config.workspace, progress=progress)
        check_announced(session, verified)
    return verified


def _check_listed(listed: Mapping[str, int], folder: Path) -> None:
    """Check names and sizes before anything is written."""
    if not all(_FILE_NAME.fullmatch(name) for name in listed):
        raise IntegrityError("the aggregator's list of release files has a name that no release file has")
    needed, free = sum(listed.values()), shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"the release needs {needed} bytes, and {free} are free",
            "name a folder on a disk with more free space",
            {"needed": needed, "free": free},
        )


def _find(config: OwnerConfig, release: str, aggregator: str | None) -> tuple[KnownAggregator, Session]:
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        known = Sessions(db, utc_now).of_release(release)
    sessions = [session for session in known if aggregator in (None, session.aggregator)]
    if not sessions:
        raise UsageError(
            f"{config.owner.id} took no part in a release {release!r}", "see owner-node history for releases"
        )
    if len(sessions) > 1:
        names = ", ".join(session.aggregator for session in sessions)
        raise UsageError(f"several aggregators made a release {release!r}", f"name one: --aggregator {names}")
    session = sessions[0]
    for section in config.aggregators:
        if section.name == session.aggregator:
            return section, session
    raise UsageError(
        f"{config.path} does not name aggregator {session.aggregator}", "add it as [[aggregator]]"
    )
