"""Make and verify one release of a compose demonstration, and copy it to a folder of the host's user.

    python -m deploy.compose_release --dataset patients --layout horizontal --owners north,harbour --epsilon 1

It accepts the arguments of `aggregator release`. It runs beside the aggregator, on its volume, and uses its
socket. The copy gets the owner of the folder on the host, which only the container's root can set. That is
why this one container runs as root, without a network and with no other privilege.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from aggregator.release.publication import copy_release
from common.cli import console
from common.errors import ExitCode, NotConnectedError, TesseraError, from_document

CONNECTED_SECONDS = 120.0
"""Time-out for owners to connect after everything was started."""
_POLL_SECONDS = 1.0


def wait_connected(place: Path, owners: Sequence[str], seconds: float = CONNECTED_SECONDS) -> None:
    """Wait until the aggregator runs and all owners are connected to it.

    Raises:
        NotConnectedError: On time-out.
    """
    until = time.monotonic() + seconds
    while missing := sorted(set(owners) - _connected_owners(place)):
        if time.monotonic() > until:
            raise NotConnectedError(
                f"not connected within {seconds:.0f} s: {', '.join(missing)}",
                "look at their logs: docker compose -f FILE logs SERVICE",
            )
        time.sleep(_POLL_SECONDS)


def _connected_owners(place: Path) -> set[str]:
    """Return the owners that are connected; none while the aggregator does not run."""
    asked = subprocess.run(
        ["aggregator", "owners", "--json"], cwd=place, capture_output=True, text=True, check=False
    )
    if asked.returncode == ExitCode.NOT_CONNECTED:
        return set()
    answer = json.loads(asked.stdout)
    if asked.returncode:
        raise from_document(answer)
    return {owner["id"] for owner in answer["owners"] if owner["connected"]}


def hand_over(release: Path, out: Path) -> Path:
    """Copy a release folder; the copy gets the owner of the folder that it is copied into.

    Args:
        out: Folder of the copies; an existing copy of this name is replaced.
    """
    copy, owner = out / release.name, out.stat()
    shutil.rmtree(copy, ignore_errors=True)
    copy_release(release, copy)
    for path in (*copy.iterdir(), copy):
        os.chown(path, owner.st_uid, owner.st_gid)
    return copy


def make_release(place: Path, owners: Sequence[str], arguments: Sequence[str], release: str) -> int:
    """Make and verify a release, with the output of the commands; returns the exit code."""
    wait_connected(place, owners)
    wanted = ["aggregator", "release", *arguments, "--id", release, "--yes"]
    code = subprocess.run(wanted, cwd=place, check=False).returncode
    made = place / "releases" / release
    if code or not made.is_dir():
        return code
    verify = ["aggregator", "verify", str(made), "--ca", str(place / "tls" / "ca.pem")]
    return subprocess.run(verify, cwd=place, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the release; returns the exit code."""
    parser = argparse.ArgumentParser(prog="release", add_help=False, allow_abbrev=False)
    parser.add_argument("--id", default="")
    parser.add_argument("--owners", default="")
    parser.add_argument("--place", type=Path, default=Path("/var/lib/tessera"))
    parser.add_argument("--out", type=Path, default=Path("/releases"))
    options, others = parser.parse_known_args(arguments)
    release = options.id or f"release-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    owners = [name.strip() for name in options.owners.split(",") if name.strip()]
    try:
        code = make_release(options.place, owners, [*others, "--owners", options.owners], release)
        made = options.place / "releases" / release
        if code == 0 and made.is_dir():
            hand_over(made, options.out)
            on_host = os.environ.get("RELEASES_ON_HOST", str(options.out))
            console.print_line(f"on this host: {on_host}/{release}")
    except TesseraError as error:
        return console.report(error, as_json=False)
    return code


if __name__ == "__main__":
    sys.exit(main())
