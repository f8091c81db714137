"""Renewal by real processes: nobody restarts anything, and a release in the middle goes on."""

import shutil
import ssl
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_connection

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.ca.authority import Authority, general_name
from common.trust.credentials import switch_pair
from common.trust.enrolment import key_pem, new_key
from common.trust.identity import Party, PartyKind, fingerprint
from common.trust.signing import Signer, load_chain
from deploy.development_ca import CLIENT_AUTH, SERVER_AUTH
from deploy.local_cluster import LocalCluster
from deploy.local_setup import AGGREGATOR, HOST, make_setup, section
from tests.system.small_owners import (
    ATTRIBUTES,
    answer_of,
    ask,
    declared,
    identifiers,
    people,
    policy,
    start_release,
    write,
)

TRUST_DOMAIN = "demo.example"
SMALL = {"age": ATTRIBUTES["age"]}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Two owners and an aggregator that holds the CA's key."""
    made = Path(tempfile.mkdtemp(prefix="renew-"))
    says = policy() + "\n" + declared("patients", attributes=SMALL, identifier=[], normalise=[])
    make_setup(made, dict.fromkeys("ab", says), trust_domain=TRUST_DOMAIN)
    for number, owner in enumerate("ab"):
        write(made, owner, "patients", people(identifiers(1000 * number, 200), number))
    with (made / "aggregator" / "aggregator.toml").open("a", encoding="utf-8") as config:
        config.write("\n" + section("[enrolment]", {"ca_key": "../tls/ca.key"}))
    yield made
    shutil.rmtree(made)


def shorten(tls: Path, name: str, party: Party, hosts: tuple[str, ...] = ()) -> None:
    """Give a party a certificate that ends in ten days."""
    authority = Authority.load(load_chain(tls / "ca.pem"), tls / "ca.key")
    ends, key = datetime.now(UTC) + timedelta(days=10), new_key()
    names = [x509.UniformResourceIdentifier(party.uri), *map(general_name, hosts)]
    usage = SERVER_AUTH if hosts else CLIENT_AUTH
    issued = authority.build(key.public_key(), names, [usage], ends - timedelta(days=90), ends)
    switch_pair(tls / f"{name}.pem", tls / f"{name}.key", issued.public_bytes(Encoding.PEM), key_pem(key))


def test_both_sides_are_renewed_while_they_work(folder: Path) -> None:
    """An owner near its end is renewed on connecting; files that change in a release are taken; all holds."""
    tls = folder / "tls"
    shorten(tls, "owner-a", Party(PartyKind.OWNER, "a", TRUST_DOMAIN))
    short_lived = Signer.load(tls / "owner-a.key", tls / "owner-a.pem").fingerprint
    with LocalCluster(folder) as cluster:
        cluster.start()
        owner = cluster.owner("a")
        renewed = owner.wait_for("identity renewed")
        owner.wait_for("connected", after=owner.entries.index(renewed))
        code, known = ask(cluster, "aggregator", "owners")
        (key,) = [each["fingerprint"] for each in known["owners"] if each["id"] == "a"]
        assert (code, key) == (0, renewed["fingerprint"])
        assert key != short_lived
        assert fingerprint(load_chain(tls / "owner-a.pem")[0].public_key()) == key
        # The aggregator comes near its end while it serves: the short-lived pair is taken, then renewed.
        command = start_release(cluster, "r1")
        shorten(tls, "aggregator", Party(PartyKind.AGGREGATOR, AGGREGATOR, TRUST_DOMAIN), (HOST,))
        cluster.aggregator.wait_for("identity renewed")
        code, release = answer_of(command)
        assert (code, release["state"]) == (0, "published")
        code, status = ask(cluster, "aggregator", "status")
        assert datetime.fromisoformat(status["certificate_expires"]) < datetime.now(UTC) + timedelta(days=11)
        # A restart renews at once what is near its end.
        heard = {each: len(each.entries) for each in cluster.owners.values()}
        cluster.restart(cluster.aggregator)
        code, status = ask(cluster, "aggregator", "status")
        assert datetime.fromisoformat(status["certificate_expires"]) > datetime.now(UTC) + timedelta(days=89)
        for each, before in heard.items():
            each.wait_for("connected", after=before)
        code, _ = answer_of(start_release(cluster, "r2"))
        assert code == 0
        for number in (1, 2):
            place = folder / "releases" / f"r{number}"
            code, verified = ask(cluster, "owner-node", "verify", place, owner="a")
            assert (code, verified["identities_checked"]) == (0, True)


def test_handshakes_of_many_at_once_end_no_aggregator(folder: Path) -> None:
    """Whoever reaches the port makes gRPC ask for the certificate, also while it changes."""
    tls = folder / "tls"
    context = ssl.create_default_context(cafile=tls / "ca.pem")
    context.load_cert_chain(tls / "owner-a.pem", tls / "owner-a.key")
    context.set_alpn_protocols(["h2"])
    with LocalCluster(folder) as cluster, ThreadPoolExecutor(12) as threads:
        cluster.aggregator.start()
        address = cluster.aggregator.wait_for("ready")["address"]

        def shown(_: int) -> str:
            host, _, port = address.rpartition(":")
            with (
                create_connection((host, int(port)), timeout=30) as plain,
                context.wrap_socket(plain, server_hostname=HOST) as connection,
            ):
                certificate = connection.getpeercert()
                assert certificate is not None
                return str(certificate["serialNumber"])

        before = set(threads.map(shown, range(2000)))
        meanwhile = threads.map(shown, range(2000))
        shorten(tls, "aggregator", Party(PartyKind.AGGREGATOR, AGGREGATOR, TRUST_DOMAIN), (HOST,))
        cluster.aggregator.wait_for("identity renewed")
        after = set(threads.map(shown, range(300)))
        assert len(before) == len(after) == 1
        assert before <= set(meanwhile) <= before | after
        code, _ = ask(cluster, "aggregator", "status")
    assert (code, before & after) == (0, set())
