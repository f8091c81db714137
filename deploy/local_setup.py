"""Folders of configurations, certificates and linkage keys for `deploy.local_cluster`, never for real data.

FOLDER/tls/                             every certificate and key
FOLDER/aggregator/aggregator.toml       and its state
FOLDER/owners/ID/owner.toml             and its state; the data files lie beside it
FOLDER/releases/                        where releases appear
"""

import hashlib
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.canonical import canonical
from common.files import private_directory, write_atomic
from common.settings import toml
from common.trust.credentials import read_identity
from deploy.development_ca import DevelopmentCa
from owner_node.config import load
from owner_node.linking import key_exchange, linkage_key

AGGREGATOR = "central"
"""Name of the aggregator of every such folder."""
HOST = "127.0.0.1"
_LONGEST_SOCKET_PATH = 100
# Below the ports that systems hand to outgoing connections, which could take one between two starts.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError("no free port was found on the loopback interface")


def section(heading: str, values: Mapping[str, object]) -> str:
    """Return a TOML table, for example `section("[policy]", {"min_k": 3})`."""
    lines = [heading, *(f"{name} = {toml(value)}" for name, value in values.items())]
    return "\n".join(lines) + "\n"


def dataset(values: Mapping[str, object], attributes: Mapping[str, Mapping[str, object]]) -> str:
    """Return a `[[dataset]]` of owner.toml with its attributes."""
    declared = [section(f"[dataset.attributes.{toml(name)}]", values) for name, values in attributes.items()]
    return "\n".join([section("[[dataset]]", values), *declared])


def make_setup(
    folder: Path,
    owners: Mapping[str, str],
    *,
    trust_domain: str = "demo.example",
    port: int = 0,
    deadlines: Mapping[str, str] | None = None,
) -> None:
    """Write certificates and configurations of an aggregator and its owners.

    Args:
        owners: Policy and data set sections of owner.toml, by owner id.
        port: Port of the aggregator; 0 chooses a free one.
        deadlines: `[deadlines]` of aggregator.toml, for example `{"consent": "60s"}`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    address = f"{HOST}:{port or free_port()}"
    authority, tls = DevelopmentCa(trust_domain), private_directory(folder / "tls")
    authority.issued.write(tls, "ca")
    authority.aggregator(AGGREGATOR, ["localhost", HOST]).write(tls, "aggregator")
    for owner in owners:
        authority.owner(owner).write(tls, f"owner-{owner}")
    place = folder / "aggregator"
    place.mkdir(exist_ok=True)
    about: dict[str, object] = {"name": AGGREGATOR, "trust_domain": trust_domain, "listen": address}
    about |= {"state_dir": "state", "release_dir": "../releases"}
    about |= {"control_socket": str(control_socket(place))}
    text = [section("[aggregator]", about), _tls("../tls", "aggregator")]
    text += [section("[deadlines]", deadlines)] if deadlines else []
    (place / "aggregator.toml").write_text("\n".join(text), encoding="utf-8")
    for owner, says in owners.items():
        place = folder / "owners" / owner
        place.mkdir(parents=True, exist_ok=True)
        text = [section("[owner]", {"id": owner, "trust_domain": trust_domain, "state_dir": "state"})]
        text += [section("[[aggregator]]", {"name": AGGREGATOR, "address": address})]
        text += [_tls("../../tls", f"owner-{owner}"), says]
        (place / "owner.toml").write_text("\n".join(text), encoding="utf-8")


def _tls(folder: str, name: str) -> str:
    files = {"ca": f"{folder}/ca.pem", "cert": f"{folder}/{name}.pem", "key": f"{folder}/{name}.key"}
    return section("[tls]", files)


def control_socket(place: Path) -> Path:
    """Return the path of the aggregator's socket: in its state, or in a short folder if that is too long."""
    usual = place.resolve() / "state" / "control" / "aggregator.sock"
    if len(os.fsencode(usual)) <= _LONGEST_SOCKET_PATH:
        return usual
    name = hashlib.sha256(os.fsencode(usual)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"tessera-{os.getuid()}-{name}" / "s"


def remove_control_folder(place: Path) -> None:
    """Remove the short folder of a stopped aggregator's socket, if it has one."""
    short = control_socket(place).parent
    if place.resolve() not in short.parents:
        shutil.rmtree(short, ignore_errors=True)


def share_linkage_key(folder: Path, owners: Sequence[str]) -> None:
    """Make a linkage key at the first owner and pass it to the others, sealed, as the owners' commands do.

    This program compares the fingerprints of sender and recipients, which people do by telephone.

    Raises:
        TesseraError: If a configuration or a certificate cannot be used.
    """
    sender, *recipients = (load(folder / "owners" / owner / "owner.toml") for owner in owners)
    signer = read_identity(sender.tls).signer
    linkage_key.new(sender.owner.state_dir)
    for recipient in recipients:
        place = recipient.path.parent
        to, sealed = place / "recipient.json", place / "linkage-key.sealed"
        document, heard = key_exchange.recipient(recipient.owner.state_dir)
        write_atomic(to, canonical(document))
        write_atomic(sealed, canonical(key_exchange.export(sender.owner.state_dir, signer, to, heard)))
        key_exchange.import_export(recipient.owner.state_dir, sealed, signer.fingerprint)
