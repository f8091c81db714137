"""Certificates that are renewed, revoked, or come to their end, at real daemons over real TLS."""

import asyncio
import json
import logging
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.api.owner_service import OwnerService
from aggregator.ca.authority import Authority
from aggregator.ca.enrolment import open_register
from aggregator.daemon import AggregatorDaemon
from common.cli import console
from common.errors import IdentityError, NotConnectedError, UsageError
from common.release.verification import verify_release
from common.trust.bundle import Bundle
from common.trust.enrolment import read_request
from common.trust.identity import fingerprint
from common.wire.status import from_rpc_error
from common.wire.v1 import control_pb2 as control
from common.wire.v1.control_pb2_grpc import ControlServiceStub
from deploy.development_ca import DevelopmentCa
from owner_node.cli import application
from owner_node.connection.credentials import own_credentials, own_party
from owner_node.connection.enrolment import install, renew
from tests.fakes.parties import TRUST_DOMAIN, Heard, Parties, valid_for
from tests.fakes.releases import random_tokens
from tests.fakes.scripted_owner import ScriptedOwner
from tests.wire.test_owner_daemon import connection, owner, running

_LOGGERS = ("aggregator", "common", "owner_node")


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    """What both sides log."""
    handler = Heard()
    handler.listen()
    before = [(logging.getLogger(name), logging.getLogger(name).level) for name in _LOGGERS]
    for logger, _ in before:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler
    for logger, level in before:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at often, so that no test waits for it."""
    monkeypatch.setattr("common.trust.credentials.CHECK_SECONDS", 0.05)
    monkeypatch.setattr("aggregator.ca.renewal._CHECK_SECONDS", 0.05)


@asynccontextmanager
async def serving(parties: Parties, place: Path, *, holds_ca_key: bool) -> AsyncIterator[AggregatorDaemon]:
    """Run the aggregator."""
    daemon = AggregatorDaemon(parties.aggregator(place, holds_ca_key=holds_ca_key))
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.stop()


def in_file(path: Path) -> x509.Certificate:
    """Return the certificate that a file holds now."""
    return x509.load_pem_x509_certificates(path.read_bytes())[0]


def renewed_for(heard: Heard, days: int) -> bool:
    """Whether an identity has come into use that lasts longer than so many days."""
    ends = [vars(each)["until"] for each in heard.records if each.msg == "identity renewed"]
    return any(datetime.fromisoformat(each) > datetime.now(UTC) + timedelta(days=days) for each in ends)


async def shown(daemon: AggregatorDaemon) -> x509.Certificate:
    """Return the certificate that the aggregator shows to whoever connects now."""
    host, _, port = daemon.address.rpartition(":")
    pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
    return x509.load_pem_x509_certificate(pem.encode())


async def test_an_owner_is_renewed_without_a_restart(tmp_path: Path, heard: Heard) -> None:
    """Ten days before its end, a certificate is renewed with a new key, and the daemon goes on with it."""
    parties = Parties(tmp_path / "tls", a=valid_for(10))
    before = in_file(parties.files("owner-a").cert)
    async with serving(parties, tmp_path, holds_ca_key=True) as daemon:
        config = owner(tmp_path / "a", "a", daemon.address, parties.folder)
        async with running(config):
            await heard.wait_for("identity renewed")
            await heard.wait_for("connected", times=2)
            assert connection(config).connected
            socket = f"unix:{tmp_path / 'c' / 's'}"
            async with grpc.aio.insecure_channel(socket) as channel:
                (known,) = (await ControlServiceStub(channel).ListOwners(control.ListOwnersRequest())).owners
    after = in_file(config.tls.cert)
    assert fingerprint(after.public_key()) != fingerprint(before.public_key())
    assert after.not_valid_after_utc > datetime.now(UTC) + timedelta(days=89)
    assert known.fingerprint == fingerprint(after.public_key())
    assert stat.S_IMODE(config.tls.key.stat().st_mode) == 0o600
    with open_register(tmp_path / "state", lambda: datetime.now(UTC)) as register:
        assert [
            each.origin for each in register.certificates() if each.serial == f"{after.serial_number:x}"
        ] == ["renewed"]


async def test_a_person_renews_before_the_end_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command renews over the connection in time; later it makes the request that the CA can approve.

    Too early is a mistake of the person, not a broken protocol: exit code 2.
    """
    parties = Parties(tmp_path / "tls", a=valid_for(10), b=valid_for(-1))
    async with serving(parties, tmp_path, holds_ca_key=True) as daemon:
        config = owner(tmp_path / "a", "a", daemon.address, parties.folder)
        renewed = await renew(config)
        assert renewed == in_file(config.tls.cert)
        assert renewed is not None
        assert renewed.not_valid_after_utc > datetime.now(UTC) + timedelta(days=89)
        with pytest.raises(UsageError, match="the certificate is renewed from"):
            await renew(config)
    expired = owner(tmp_path / "b", "b", daemon.address, parties.folder)
    with pytest.raises(IdentityError, match="expired on") as caught:
        own_credentials(expired, lambda: datetime.now(UTC))
    assert caught.value.hint == "the owner renews it: owner-node enroll renew"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("owner_node.config.load", lambda _: expired)
    program = application()
    assert (
        await asyncio.to_thread(lambda: console.run(program, "owner-node", ["enroll", "renew", "--json"]))
        == 0
    )
    asked = read_request((tmp_path / "b.csr").read_bytes())
    with open_register(tmp_path / "state", lambda: datetime.now(UTC)) as register:
        authority = Authority(parties.ca.certificate, parties.ca.issued.key)
        issued = register.approve(authority, asked, own_party(expired), "op", replace=False)
    bundle = Bundle(
        own_party(expired),
        *(each.public_bytes(Encoding.PEM).decode() for each in (issued, parties.ca.certificate)),
    )
    heard_ca = fingerprint(parties.ca.certificate.public_key())
    install(expired, bundle.to_bytes(), heard_ca, datetime.now(UTC), add_ca=False)
    own_credentials(expired, lambda: datetime.now(UTC))


async def test_renewal_at_an_aggregator_that_does_not_know_the_ca(tmp_path: Path) -> None:
    """The connection fails without a reason; the error names the aggregator and who finds the reason."""
    parties = Parties(tmp_path / "tls", a=valid_for(10))
    async with serving(parties, tmp_path, holds_ca_key=True) as daemon:
        config = owner(tmp_path / "a", "a", daemon.address, parties.folder)
        other = DevelopmentCa(TRUST_DOMAIN)
        other.owner("a").write(parties.folder, "other-a")
        tls = replace(config.tls, cert=parties.folder / "other-a.pem", key=parties.folder / "other-a.key")
        own_ca = tmp_path / "both.pem"
        own_ca.write_bytes(config.tls.ca.read_bytes() + other.issued.certificate_pem)
        with pytest.raises(NotConnectedError, match="aggregator 'hub': the other side") as caught:
            await renew(replace(config, tls=replace(tls, ca=own_ca)))
    assert caught.value.hint == "owner-node doctor checks the route to it step by step"


async def test_an_aggregator_without_the_ca_says_so(tmp_path: Path, heard: Heard) -> None:
    """Where the CA is elsewhere, nothing is renewed here, the log says why, and work goes on."""
    parties = Parties(tmp_path / "tls", a=valid_for(10))
    async with serving(parties, tmp_path, holds_ca_key=False) as daemon:
        config = owner(tmp_path / "a", "a", daemon.address, parties.folder)
        async with running(config):
            await heard.wait_for("certificate not renewed", aggregator="hub")
            await heard.wait_for("certificate expires soon", days=9)
            assert connection(config).connected
    reasons = [vars(each)["reason"] for each in heard.records if each.msg == "certificate not renewed"]
    assert reasons == ["this aggregator does not renew certificates"]


async def test_files_renewed_from_outside_are_taken(tmp_path: Path, heard: Heard) -> None:
    """Another CA's new pair is used by both sides without a restart; connections that stand go on."""
    parties = Parties(tmp_path / "tls", a={})
    async with serving(parties, tmp_path, holds_ca_key=False) as daemon:
        config = owner(tmp_path / "a", "a", daemon.address, parties.folder)
        async with running(config):
            await heard.wait_for("connected")
            hub = parties.renew("hub")
            await heard.wait_for("identity renewed")
            assert (await shown(daemon)).serial_number == hub.certificate.serial_number
            assert heard.count("not connected") == 0
            parties.renew("owner-a")
            await heard.wait_for("connected", times=2)
            assert heard.count("not connected") == 0


async def test_an_aggregator_with_the_ca_renews_itself(tmp_path: Path, heard: Heard) -> None:
    """Its own certificate is renewed in time, and even at a start after its end; its names stay."""
    parties = Parties(tmp_path / "tls", hub=valid_for(-3))
    async with serving(parties, tmp_path, holds_ca_key=True) as daemon:
        first = await shown(daemon)
        assert first.not_valid_after_utc > datetime.now(UTC) + timedelta(days=89)
        files = parties.files("hub")
        parties.ca.aggregator("hub", ["127.0.0.1", "hub.test"], **valid_for(5)).write(parties.folder, "hub")
        # Whether the pair of five days is ever in use depends on who looks at the files first.
        await heard.wait_until(lambda: renewed_for(heard, 89))
        second = in_file(files.cert)
        assert second.not_valid_after_utc > datetime.now(UTC) + timedelta(days=89)
        names = second.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["hub.test"]
        assert (await shown(daemon)).serial_number == second.serial_number


async def test_a_revoked_owner_gets_nothing_more(tmp_path: Path, heard: Heard) -> None:
    """A revocation by another process counts for the poll that is held, and for every call after it."""
    parties = Parties(tmp_path / "tls", a={}, b={})
    async with serving(parties, tmp_path, holds_ca_key=True) as daemon, AsyncExitStack() as stack:
        configs = [owner(tmp_path / name, name, daemon.address, parties.folder) for name in "ab"]
        for config in configs:
            await stack.enter_async_context(running(config))
        await heard.wait_for("connected", times=2)
        with open_register(tmp_path / "state", lambda: datetime.now(UTC)) as register:
            register.revoke("op", owner="a")
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{tmp_path / 'c' / 's'}"))
        groups = [control.OwnerGroup(owners=["a", "b"])]
        await ControlServiceStub(channel).Start(
            control.StartRequest(
                release="r1",
                dataset="cohort",
                layout="horizontal",
                groups=groups,
                epsilon="1",
                confirmed=True,
                anyway=True,
            )
        )
        await heard.wait_for("not connected")
        assert "owner a is revoked" in connection(configs[0]).reason
        assert connection(configs[1]).connected
        assert heard.count("done", release="r1", step="describe") <= 1


async def test_a_revoked_key_uses_up_its_own_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thief calls on after the key was revoked; the owner, enrolled anew, is answered all the same."""
    monkeypatch.setattr("aggregator.api.owner_service.elapsed", lambda: 0.0)
    monkeypatch.setattr("aggregator.api.rates._BURST", 5)
    monkeypatch.setattr("aggregator.api.rates._LONGEST_SECONDS", 0.0)
    parties = Parties(tmp_path / "tls", a={})
    tokens = random_tokens(np.random.default_rng(3), 60)
    async with serving(parties, tmp_path, holds_ca_key=True) as daemon, AsyncExitStack() as stack:
        thief = ScriptedOwner("a", daemon.address, parties.folder, ["age"], tokens)
        stack.push_async_callback(thief.close)
        await thief.connect()
        with open_register(tmp_path / "state", lambda: datetime.now(UTC)) as register:
            register.revoke("op", serial=register.certificates()[0].serial)
        codes = []
        for _ in range(7):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await thief.connect()
            codes.append(from_rpc_error(caught.value).code)
        assert codes == ["identity"] * 5 + ["not_connected"] * 2
        parties.renew("owner-a")
        again = ScriptedOwner("a", daemon.address, parties.folder, ["age"], tokens)
        stack.push_async_callback(again.close)
        await again.connect()


async def test_a_certificate_ends_during_a_connection(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection does not outlive the certificate it was made with by more than one call."""
    monkeypatch.setattr("aggregator.api.owner_service.POLL_SECONDS", 0.2)
    days = 0
    monkeypatch.setattr(OwnerService, "_now", lambda _: datetime.now(UTC) + timedelta(days=days))
    parties = Parties(tmp_path / "tls", a={})
    async with serving(parties, tmp_path, holds_ca_key=False) as daemon:
        config = owner(tmp_path / "a", "a", daemon.address, parties.folder)
        async with running(config):
            await heard.wait_for("connected")
            days = 91
            await heard.wait_for("not connected")
            assert "expired on" in connection(config).reason
            # Somebody helps with a longer one, and the daemon is back by itself.
            longer = datetime.now(UTC) + timedelta(days=200)
            parties.ca.owner("a", not_after=longer).write(parties.folder, "owner-a")
            await heard.wait_for("connected", times=2)


def serials(chains: list[str]) -> list[int]:
    """Return the serial number of each chain's first certificate."""
    return [x509.load_pem_x509_certificates(chain.encode())[0].serial_number for chain in chains]


async def test_keys_that_change_in_the_middle_of_a_release(tmp_path: Path, heard: Heard) -> None:
    """Both sides renewed after the consents, and again after sealing: the release is published and holds."""
    parties = Parties(tmp_path / "tls", a={}, b={})
    hubs, owners = [in_file(parties.files("hub").cert)], [in_file(parties.files("owner-a").cert)]

    async def renew_both() -> None:
        before = heard.count("identity renewed"), heard.count("connected")
        hubs.append(parties.renew("hub").certificate)
        owners.append(parties.renew("owner-a").certificate)
        await heard.wait_for("identity renewed", times=before[0] + 2)
        await heard.wait_for("connected", times=before[1] + 1)

    async with serving(parties, tmp_path, holds_ca_key=False) as daemon, AsyncExitStack() as stack:
        config = owner(tmp_path / "a", "a", daemon.address, parties.folder)
        cohort = replace(config.datasets[0], identifier=(), normalise=())
        config = replace(config, datasets=(cohort,))
        await stack.enter_async_context(running(config))
        tokens = random_tokens(np.random.default_rng(1), 40)
        other = ScriptedOwner("b", daemon.address, parties.folder, ["age"], tokens, identifier=False)
        stack.push_async_callback(other.close)
        await other.connect()
        await heard.wait_for("connected")
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{tmp_path / 'c' / 's'}"))
        groups = [control.OwnerGroup(owners=["a", "b"])]
        await ControlServiceStub(channel).Start(
            control.StartRequest(
                release="r1", dataset="cohort", layout="horizontal", groups=groups, epsilon="1", k="5",
                confirmed=True,
                anyway=True,
            )
        )  # fmt: skip
        work = await other.until("link")
        await renew_both()
        await other.answer(work)
        work = await other.until("mask")
        await heard.wait_for("done", release="r1", step="mask")
        await renew_both()
        await other.answer(work)
        concluded = await other.run()
    assert concluded.state == "published"
    verified = verify_release(tmp_path / "releases" / "r1", tmp_path / "tls" / "ca.pem")
    assert verified.identities_checked
    manifest = json.loads((tmp_path / "releases" / "r1" / "manifest.json").read_bytes())
    mine = manifest["owners"][0]
    by_hub = [manifest["plan"]["certificates"], manifest["addendum"]["certificates"]]
    by_hub.append(manifest["aggregator"]["certificates"])
    by_owner = [mine["consent"]["certificates"], mine["fragment"]["certificates"]]
    assert serials(by_hub) == [each.serial_number for each in hubs]
    assert serials(by_owner) == [each.serial_number for each in owners[:2]]
    assert len({each.serial_number for each in (*hubs, *owners)}) == 6
