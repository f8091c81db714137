"""Create the files of every party of a compose demonstration, once, before anything else starts.

    python -m deploy.compose_init hospitals|departments [--parties /parties] [--seed 1]
    python -m deploy.compose_init identities --owner clinic --owner registry

PARTIES/aggregator and PARTIES/owners/ID are volumes, each mounted here and in its own party's container only.
A party gets its own certificate and key beside the CA's certificate, its configuration, its data and its
linkage key. The CA's private key is never written, so no party can be added later. `identities` creates only
certificates and keys, for parties that bring their own configuration.

Complete volumes are left as they are, since they hold ledgers and releases.
"""

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.cli import console
from common.errors import TesseraError, UsageError
from common.files import private_directory, write_atomic
from deploy.demo_data import departments, hospitals
from deploy.development_ca import DevelopmentCa, Issued
from deploy.local_setup import AGGREGATOR, section, share_linkage_key

TRUST_DOMAIN = "demo.example"
HOST, PORT = "aggregator", 8443
"""Name and port that owners dial: the name of the aggregator's service on their networks."""
COMPLETE = ".complete"
"""Marker of a volume that holds everything; written last."""
_SCENARIOS = {"hospitals": hospitals, "departments": departments}
_TLS = {"ca": "tls/ca.pem", "cert": "tls/own.pem", "key": "tls/own.key"}


@dataclass(frozen=True, slots=True)
class OwnerFiles:
    """Files of an owner's volume beside its identity."""

    settings: str
    """Policy and data sets of its owner.toml; empty if it has its own configuration."""
    data: Mapping[str, bytes]
    """Content of each file beside owner.toml."""


def scenario(name: str, seed: int) -> dict[str, OwnerFiles]:
    """Return the owners of a demonstration with their made-up data."""
    return {
        owner.owner: OwnerFiles(owner.settings, {f"{owner.dataset}.csv": owner.csv})
        for owner in _SCENARIOS[name](seed)
    }


def make_parties(parties: Path, owners: Mapping[str, OwnerFiles]) -> bool:
    """Fill the volumes of all parties, unless they are complete; returns whether that was needed.

    Raises:
        UsageError: If a volume is absent, or only some are complete, which would mix two sets of keys.
        TesseraError: If a linkage key cannot be passed on.
    """
    places = [parties / "aggregator", *(parties / "owners" / owner for owner in owners)]
    if absent := [str(place) for place in places if not place.is_dir()]:
        raise UsageError(f"there is no {', '.join(absent)}", "mount a volume there for each party")
    complete = [place for place in places if (place / COMPLETE).exists()]
    if len(complete) == len(places):
        return False
    if complete:
        raise UsageError(
            f"{len(places) - len(complete)} of {len(places)} volumes are new, the others are in use",
            "remove all of them with `down -v` (their ledgers and releases are lost), then `up` again",
        )
    for place in places:
        _clear(place)
    authority = DevelopmentCa(TRUST_DOMAIN)
    _write_aggregator(places[0], authority)
    for owner, files in owners.items():
        _write_owner(parties / "owners" / owner, owner, files, authority)
    share_linkage_key(parties, list(owners))
    for owner, files in owners.items():
        if not files.settings:
            (parties / "owners" / owner / "owner.toml").unlink()
    for place in places:
        write_atomic(place / COMPLETE, b"")
    return True


def _clear(place: Path) -> None:
    """Remove the files of an interrupted attempt."""
    for path in place.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_identity(place: Path, authority: DevelopmentCa, own: Issued) -> None:
    tls = private_directory(place / "tls")
    write_atomic(tls / "ca.pem", authority.issued.certificate_pem, mode=0o644)
    own.write(tls, "own")


def _write_aggregator(place: Path, authority: DevelopmentCa) -> None:
    _write_identity(place, authority, authority.aggregator(AGGREGATOR, [HOST]))
    about = {"name": AGGREGATOR, "trust_domain": TRUST_DOMAIN, "listen": f"0.0.0.0:{PORT}"}
    about |= {"state_dir": "state", "release_dir": "releases"}
    text = [section("[aggregator]", about), section("[tls]", _TLS)]
    # Time to restart a container that stopped; the default of 30 s suits daemons that keep running.
    text += [section("[deadlines]", {"invite": "5m"})]
    write_atomic(place / "aggregator.toml", "\n".join(text).encode())


def _write_owner(place: Path, owner: str, files: OwnerFiles, authority: DevelopmentCa) -> None:
    _write_identity(place, authority, authority.owner(owner))
    text = [
        section("[owner]", {"id": owner, "trust_domain": TRUST_DOMAIN, "state_dir": "state"}),
        section("[[aggregator]]", {"name": AGGREGATOR, "address": f"{HOST}:{PORT}"}),
        section("[tls]", _TLS),
        files.settings,
    ]
    write_atomic(place / "owner.toml", "\n".join(text).encode())
    for name, content in files.data.items():
        write_atomic(place / name, content)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the files; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.compose_init", description=__doc__.splitlines()[0]
    )
    parser.add_argument("what", choices=[*_SCENARIOS, "identities"], help="which demonstration")
    parser.add_argument("--owner", action="append", default=[], help="for identities: an owner; repeatable")
    parser.add_argument("--parties", type=Path, default=Path("/parties"), help="folder of the volumes")
    parser.add_argument("--seed", type=int, default=1, help="seed of the made-up data (default: 1)")
    options = parser.parse_args(arguments)
    named = {owner: OwnerFiles("", {}) for owner in options.owner}
    owners = named if options.what == "identities" else scenario(options.what, options.seed)
    try:
        made = make_parties(options.parties, owners)
    except TesseraError as error:
        return console.report(error, as_json=False)
    done = "made" if made else "found, and left as they are,"
    console.note(f"{done} the keys, configuration and data of the aggregator and of {', '.join(owners)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
