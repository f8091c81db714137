"""Files of an identity that change while a daemon runs."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from common.errors import ConfigurationError, IdentityError
from common.settings import TlsSection
from common.trust.credentials import Credentials
from common.trust.identity import Party, PartyKind, renewal_begins
from deploy.development_ca import DevelopmentCa

DAY = timedelta(days=1)
NORTH = Party(PartyKind.OWNER, "north", "example.org")


class Files:
    """An owner's files, its CA and a clock that tests set."""

    def __init__(self, folder) -> None:
        self.ca, self.folder = DevelopmentCa("example.org"), folder
        self.now = datetime.now(UTC)
        (folder / "ca.pem").write_bytes(self.ca.issued.certificate_pem)
        self.first = self.ca.owner("north")
        cert, key = self.first.write(folder, "own")
        self.tls = TlsSection(folder / "ca.pem", cert, key)
        self.credentials = Credentials(self.tls, NORTH, lambda: self.now)

    def serial(self) -> int:
        """Return the serial number in use."""
        return self.credentials.current_signer().certificate.serial_number


@pytest.fixture
def files(tmp_path) -> Files:
    """Files in use."""
    return Files(tmp_path)


async def test_a_renewed_pair_is_taken(files):
    """A new key and certificate are used without a restart, and whoever waits for them wakes."""
    identity = files.credentials.current
    waiting = asyncio.create_task(files.credentials.wait_for_other(identity))
    assert not await files.credentials.refresh()
    renewed = files.ca.owner("north")
    renewed.write(files.folder, "own")
    assert await files.credentials.refresh()
    await asyncio.wait_for(waiting, 5)
    assert files.serial() == renewed.certificate.serial_number
    assert files.credentials.current.key_pem == renewed.key_pem


async def test_half_a_pair_is_not(files, caplog):
    """A key without its certificate is not taken, told once, and taken when the other half is there."""
    renewed = files.ca.owner("north")
    files.tls.key.write_bytes(renewed.key_pem)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not await files.credentials.refresh()
    assert [record.getMessage() for record in caplog.records] == ["changed files not taken"]
    assert files.serial() == files.first.certificate.serial_number
    files.tls.cert.write_bytes(renewed.certificate_pem[:300])
    assert not await files.credentials.refresh()
    files.tls.cert.write_bytes(renewed.certificate_pem)
    assert await files.credentials.refresh()
    assert files.serial() == renewed.certificate.serial_number


@pytest.mark.parametrize("what", ["other owner", "expired", "not yet", "open to others", "gone"])
async def test_what_is_never_taken(files, what):
    """Nothing that the daemon would refuse at its start is taken while it runs."""
    now = files.now
    made = {
        "other owner": files.ca.owner("south"),
        "expired": files.ca.owner("north", not_before=now - 9 * DAY, not_after=now - DAY),
        "not yet": files.ca.owner("north", not_before=now + DAY),
    }.get(what, files.ca.owner("north"))
    made.write(files.folder, "own")
    if what == "open to others":
        files.tls.key.chmod(0o644)
    if what == "gone":
        files.tls.key.unlink()
    assert not await files.credentials.refresh()
    assert files.serial() == files.first.certificate.serial_number


async def test_other_authorities_are_taken(files):
    """A CA that is added to the file is trusted from then on."""
    other = DevelopmentCa("example.org")
    both = files.ca.issued.certificate_pem + other.issued.certificate_pem
    files.tls.ca.write_bytes(both)
    assert await files.credentials.refresh()
    assert files.credentials.authorities() == (files.ca.certificate, other.certificate)


async def test_a_touch_is_no_change(files):
    """Files that are written again as they were end no connection."""
    identity = files.credentials.current
    for path in (files.tls.ca, files.tls.cert, files.tls.key):
        path.write_bytes(path.read_bytes())
    assert not await files.credentials.refresh()
    assert files.credentials.current is identity


async def test_symbolic_links_are_followed(tmp_path):
    """Agents that swing a link to a new folder (Kubernetes, SPIRE) are heard too."""
    ca = DevelopmentCa("example.org")
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        ca.owner("north").write(folder, "own")
        (folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
    current = tmp_path / "current"
    current.symlink_to("one")
    tls = TlsSection(current / "ca.pem", current / "own.pem", current / "own.key")
    credentials = Credentials(tls, NORTH, lambda: datetime.now(UTC))
    swung = tmp_path / "swung"
    swung.symlink_to("two")
    swung.replace(current)
    assert await credentials.refresh()
    assert credentials.current.chain_pem == (tmp_path / "two" / "own.pem").read_bytes()


def test_a_start_is_refused_in_words(files):
    """A daemon that cannot prove who it is does not start."""
    south = Party(PartyKind.OWNER, "south", "example.org")
    with pytest.raises(ConfigurationError, match=r"is the certificate of .*/owner/north"):
        Credentials(files.tls, south, lambda: files.now)
    with pytest.raises(IdentityError, match="expired on"):
        Credentials(files.tls, NORTH, lambda: files.now + 91 * DAY)


async def test_the_end_is_told_in_time(files, caplog):
    """From thirty days before its end the log warns, once a day, and says so when it has ended."""
    warnings = []
    start = files.now
    for day in (50, 60.1, 60.2, 61.2, 91):
        files.now = start + day * DAY
        with caplog.at_level(logging.WARNING):
            files.credentials._warn()
        warnings.append([record.getMessage() for record in caplog.records])
        caplog.clear()
    assert warnings == [
        [], ["certificate expires soon"], [], ["certificate expires soon"], ["certificate has expired"],
    ]  # fmt: skip


def test_when_renewal_begins(files):
    """Thirty days before the end, and in the last third of a certificate that lives shorter."""
    usual = files.first.certificate
    assert usual.not_valid_after_utc - renewal_begins(usual) == timedelta(days=30)
    brief = files.ca.owner(
        "north", not_before=files.now, not_after=files.now + timedelta(hours=3)
    ).certificate
    assert brief.not_valid_after_utc - renewal_begins(brief) == timedelta(hours=1)


def test_a_key_is_in_no_text(files):
    """Whatever prints an identity prints no private key."""
    text = repr(files.credentials.current)
    assert files.first.key_pem.decode().splitlines()[1] not in text
    assert "PRIVATE" not in text
