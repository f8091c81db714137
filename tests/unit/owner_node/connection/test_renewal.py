"""What an owner takes from an aggregator that renews its certificate, and what it does not."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.ca.authority import Authority
from common.errors import NotConnectedError, UsageError
from common.settings import TlsSection
from common.trust.credentials import Credentials
from common.trust.enrolment import CertificateRequest, read_request
from common.trust.identity import Party, PartyKind, fingerprint
from deploy.development_ca import CLIENT_AUTH, DevelopmentCa
from owner_node.connection.credentials import Renewal

if TYPE_CHECKING:
    from owner_node.connection.client import AggregatorClient

DOMAIN = "example.org"
NORTH, SOUTH = (Party(PartyKind.OWNER, name, DOMAIN) for name in ("north", "south"))
Answer = Callable[[CertificateRequest], bytes]


class Aggregator:
    """The far side of a renewal: answers what a test tells it to."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, 0

    async def renew(self, request: bytes) -> bytes:
        """Answer one request."""
        self.asked += 1
        return self.answer(read_request(request))


class Owner:
    """An owner whose certificate ends in ten days."""

    def __init__(self, folder: Path) -> None:
        self.now, self.ca, self.folder = datetime.now(UTC), DevelopmentCa(DOMAIN), folder
        self.authority = Authority(self.ca.certificate, self.ca.issued.key)
        (folder / "ca.pem").write_bytes(self.ca.issued.certificate_pem)
        ends = self.now + timedelta(days=10)
        self.first = self.ca.owner("north", not_before=ends - timedelta(days=90), not_after=ends)
        cert, key = self.first.write(folder, "own")
        tls = TlsSection(folder / "ca.pem", cert, key)
        self.credentials = Credentials(tls, NORTH, lambda: self.now)
        self.renewal = Renewal(self.credentials, tls, NORTH, lambda: self.now)

    async def renew(self, aggregator: Aggregator, name: str = "hub") -> None:
        """Renew if it is time to."""
        await self.renewal.renew(cast("AggregatorClient", aggregator), name)

    def issue(self, asked: CertificateRequest, party: Party = NORTH, **changes: Any) -> bytes:
        """Answer as the CA would, or with something changed."""
        names = [x509.UniformResourceIdentifier(party.uri), *changes.get("names", ())]
        begins, ends = changes.get("period", (self.now - timedelta(hours=1), self.now + timedelta(days=90)))
        usages = changes.get("usages", [CLIENT_AUTH])
        return self.authority.build(asked.key, names, usages, begins, ends).public_bytes(Encoding.PEM)

    def unchanged(self) -> bool:
        """Whether the first pair is in use and in the files, and nothing else lies about."""
        names = sorted(path.name for path in self.folder.iterdir())
        key = self.credentials.current_signer().fingerprint
        return names == ["ca.pem", "own.key", "own.pem"] and key == fingerprint(self.first.key.public_key())


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    """An owner."""
    return Owner(tmp_path)


async def test_a_good_answer_is_taken_up(owner: Owner) -> None:
    """The new pair is in the files and in use at once; nothing is asked again."""
    hub = Aggregator(owner.issue)
    await owner.renew(hub)
    assert not owner.unchanged()
    assert owner.credentials.current.chain_pem == (owner.folder / "own.pem").read_bytes()
    await owner.renew(hub)
    assert hub.asked == 1


def of_a_stranger(asked: CertificateRequest, now: datetime) -> bytes:
    """Return what a CA issues that is called as the real one."""
    ca = DevelopmentCa(DOMAIN)
    return Authority(ca.certificate, ca.issued.key).issue(asked.key, NORTH, now).public_bytes(Encoding.PEM)


BAD: dict[str, Callable[[Owner], Answer]] = {
    "another key": lambda owner: lambda asked: owner.ca.owner("north").certificate_pem,
    "names spiffe://example.org/owner/south": lambda owner: lambda asked: owner.issue(asked, SOUTH),
    "also names hosts": lambda owner: lambda asked: owner.issue(asked, names=[x509.DNSName("hub.example")]),
    "not for a client": lambda owner: lambda asked: owner.issue(asked, usages=[]),
    "expired": lambda owner: (
        lambda asked: owner.issue(
            asked, period=(owner.now - timedelta(days=9), owner.now - timedelta(days=1))
        )
    ),
    "does not end later": lambda owner: (
        lambda asked: owner.issue(
            asked, period=(owner.now - timedelta(hours=1), owner.now + timedelta(seconds=30))
        )
    ),
    "not issued under the given CA": lambda owner: lambda asked: of_a_stranger(asked, owner.now),
    "no certificate can be read": lambda owner: lambda asked: b"garbage",
    "of this length": lambda owner: lambda asked: owner.issue(asked) * 1000,
}


@pytest.mark.parametrize("told", BAD)
async def test_a_bad_answer_changes_nothing(
    owner: Owner, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An aggregator can neither rename an owner, nor cut it off, nor make it pose as an aggregator."""
    with caplog.at_level(logging.WARNING):
        await owner.renew(Aggregator(BAD[told](owner)))
    assert owner.unchanged()
    (record,) = caplog.records
    assert record.getMessage() == "certificate not renewed"
    assert told in vars(record)["reason"]


async def test_another_trusted_ca_cannot_take_over(owner: Owner) -> None:
    """One aggregator's CA, trusted beside another's, cannot replace what the other accepts."""
    second = DevelopmentCa(DOMAIN)
    both = owner.ca.issued.certificate_pem + second.issued.certificate_pem
    (owner.folder / "ca.pem").write_bytes(both)
    await owner.credentials.refresh()
    authority = Authority(second.certificate, second.issued.key)
    hub = Aggregator(lambda asked: authority.issue(asked.key, NORTH, owner.now).public_bytes(Encoding.PEM))
    await owner.renew(hub, "second")
    assert owner.unchanged()
    await owner.renew(Aggregator(owner.issue))
    assert not owner.unchanged()


async def test_asked_again_after_a_while(owner: Owner) -> None:
    """After a refusal or a lost connection it asks again in an hour; another aggregator is asked at once."""

    def refuse(asked: CertificateRequest) -> bytes:
        raise UsageError("this aggregator does not renew certificates")

    def lost(asked: CertificateRequest) -> bytes:
        raise NotConnectedError("the connection was closed")

    hub, other = Aggregator(refuse), Aggregator(lost)
    for _ in range(3):
        await owner.renew(hub)
        await owner.renew(other, "other")
    assert (hub.asked, other.asked) == (1, 1)
    owner.now += timedelta(hours=1)
    await owner.renew(hub)
    other.answer = owner.issue
    await owner.renew(other, "other")
    assert (hub.asked, other.asked) == (2, 2)
    assert not owner.unchanged()


async def test_not_before_its_time(owner: Owner) -> None:
    """A certificate with more than thirty days left is left alone."""
    owner.ca.owner("north").write(owner.folder, "own")
    assert await owner.credentials.refresh()
    hub = Aggregator(owner.issue)
    await owner.renew(hub)
    assert hub.asked == 0
