"""The register of certificates: who is approved, replaced, renewed and revoked."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from aggregator.ca.authority import Authority
from aggregator.ca.enrolment import Enrolment, open_register, parse_serial
from aggregator.store.journal import Journal
from common.errors import ConflictError, IdentityError, ProtocolError, UsageError
from common.trust.enrolment import CertificateRequest, make_request, new_key, read_request
from common.trust.identity import Party, PartyKind, fingerprint, host_names, party_of_certificate
from deploy.development_ca import CLIENT_AUTH, DevelopmentCa

NORTH, SOUTH = (Party(PartyKind.OWNER, name, "example.org") for name in ("north", "south"))


class Registry:
    """A register, its CA and a clock that tests set."""

    def __init__(self, folder: Path) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.folder = folder
        ca = DevelopmentCa("example.org")
        self.authority = Authority(ca.certificate, ca.issued.key)
        self.journal = Journal(folder / "aggregator.db")
        self.register = Enrolment(self.journal.db, self.journal.operators, lambda: self.now)

    def approve(self, request: CertificateRequest, party: Party = NORTH, *, replace: bool = False):
        """Approve a request as an operator called op."""
        return self.register.approve(self.authority, request, party, "op", replace=replace)

    def acts(self) -> list[tuple[str, str, str]]:
        """Return who did what to whom."""
        return [(entry.actor, entry.action, entry.owner) for entry in self.register.log()]


def asking(party: Party = NORTH) -> CertificateRequest:
    """Return a request for a new key."""
    return read_request(make_request(new_key(), party))


@pytest.fixture
def registry(tmp_path):
    """A register."""
    made = Registry(tmp_path / "state")
    yield made
    made.journal.close()


def test_what_is_issued(registry):
    """The certificate has the approved name, clientAuth, no host, the request's key, and ninety days."""
    request = asking(SOUTH)
    issued = registry.approve(request, NORTH)
    assert party_of_certificate(issued) == NORTH
    assert host_names(issued) == ()
    assert fingerprint(issued.public_key()) == fingerprint(request.key)
    assert issued.not_valid_after_utc == registry.now + timedelta(days=90)
    usage = issued.extensions.get_extension_for_oid(CLIENT_AUTH.__class__("2.5.29.37")).value
    assert list(usage) == [CLIENT_AUTH]
    registry.register.check(issued)
    assert registry.acts() == [("op", "approve", "north")]


def test_an_id_held_by_another_key(registry):
    """A second key for an owner needs --replace, and then the first one is worth nothing any more."""
    first = registry.approve(asking())
    with pytest.raises(ConflictError, match="north holds another key") as caught:
        registry.approve(asking())
    assert caught.value.details["fingerprint"] == fingerprint(first.public_key())
    second = registry.approve(asking(), replace=True)
    registry.register.check(second)
    with pytest.raises(IdentityError, match="revoked"):
        registry.register.check(first)
    assert registry.acts() == [
        ("op", "approve", "north"),
        ("op", "replace", "north"),
        ("op", "approve", "north"),
    ]


def test_an_expired_key_holds_nothing(registry):
    """After a long absence an owner enrols anew without being replaced."""
    registry.approve(asking())
    registry.now += timedelta(days=91)
    registry.approve(asking())


def test_a_key_belongs_to_one_owner(registry):
    """Nobody gets a certificate over the key of another owner, and no revoked key ever again."""
    request = asking()
    registry.approve(request)
    with pytest.raises(ConflictError, match="that of owner north"):
        registry.approve(request, SOUTH)
    registry.approve(request)
    registry.register.revoke("op", owner="north")
    with pytest.raises(ConflictError, match="is revoked"):
        registry.approve(request, replace=True)


def test_revoking_an_owner(registry):
    """All its certificates are refused, those included that were never seen; a new approval lifts that."""
    known, unseen = registry.approve(asking()), registry.authority.issue(asking().key, NORTH, registry.now)
    other = registry.approve(asking(SOUTH), SOUTH)
    assert [each.owner for each in registry.register.revoke("op", owner="north")] == ["north"]
    for certificate in (known, unseen):
        with pytest.raises(IdentityError, match="owner north is revoked"):
            registry.register.check(certificate)
    registry.register.check(other)
    assert registry.register.revoke("op", owner="north") == []
    again = registry.approve(asking())
    registry.register.check(again)
    with pytest.raises(IdentityError):
        registry.register.check(unseen)


def test_revoking_one_serial_number(registry):
    """One certificate goes with its key; what it was renewed from, and another owner's, stays."""
    first, south = registry.approve(asking()), registry.approve(asking(SOUTH), SOUTH)
    registry.now += timedelta(days=70)
    renewed = registry.register.renew(registry.authority, first, asking())
    registry.register.revoke("op", serial=parse_serial(f"{renewed.serial_number:X}"))
    with pytest.raises(IdentityError):
        registry.register.check(renewed)
    registry.register.check(first)
    registry.register.check(south)
    with pytest.raises(UsageError, match="serial number abc is known"):
        registry.register.revoke("op", serial=parse_serial("0A:BC"))
    with pytest.raises(UsageError, match="owner west is known"):
        registry.register.revoke("op", owner="west")
    with pytest.raises(UsageError, match="hexadecimal"):
        parse_serial("xyz")


def test_what_was_renewed_from_a_stolen_key_is_revoked_with_it(registry):
    """A thief who renewed in time holds a key that nobody approved; it does not outlive the one it stole."""
    request = asking()
    stolen, again = registry.approve(request), registry.approve(request)
    registry.now += timedelta(days=70)
    family = [stolen, again, registry.register.renew(registry.authority, again, asking())]
    registry.now += timedelta(days=70)
    family.append(registry.register.renew(registry.authority, family[-1], asking()))
    revoked = registry.register.revoke("op", serial=f"{stolen.serial_number:x}")
    assert {each.serial for each in revoked} == {f"{each.serial_number:x}" for each in family}
    for each in family:
        with pytest.raises(IdentityError, match="revoked"):
            registry.register.check(each)
    assert registry.acts()[-4:] == [("op", "revoke", "north")] * 4


def test_a_certificate_of_another_ca_is_known_once_seen(registry):
    """An organisation's own CA issues what it likes; here it can be revoked as any other."""
    seen = DevelopmentCa("example.org").owner("north").certificate
    registry.register.note_seen(seen)
    registry.register.note_seen(seen)
    assert [each.origin for each in registry.register.certificates()] == ["seen"]
    registry.register.revoke("op", serial=f"{seen.serial_number:x}")
    with pytest.raises(IdentityError):
        registry.register.check(seen)


def test_what_was_seen_is_forgotten_in_time(registry):
    """An authority that issues every hour does not fill the register; what is revoked stays revoked."""
    elsewhere, brief = DevelopmentCa("example.org"), timedelta(hours=1)
    seen = [elsewhere.owner("north", not_after=registry.now + brief).certificate for _ in range(2)]
    for certificate in seen:
        registry.register.note_seen(certificate)
    registry.register.revoke("op", serial=f"{seen[0].serial_number:x}")
    approved = registry.approve(asking(SOUTH), SOUTH)
    registry.now += timedelta(days=100)
    newer = elsewhere.owner("north", not_after=registry.now + brief).certificate
    registry.register.note_seen(newer)
    kept = {each.serial for each in registry.register.certificates()}
    assert kept == {f"{each.serial_number:x}" for each in (seen[0], approved, newer)}
    with pytest.raises(IdentityError):
        registry.register.check(seen[0])


def test_renewal(registry):
    """From thirty days before the end a new key gets a certificate of the same name, whatever it asks for."""
    first = registry.approve(asking())
    with pytest.raises(UsageError, match="renewed from") as caught:
        registry.register.renew(registry.authority, first, asking())
    assert "enroll request --new-key" in caught.value.hint
    registry.now = first.not_valid_after_utc - timedelta(days=30)
    renewed = registry.register.renew(registry.authority, first, asking(SOUTH))
    assert party_of_certificate(renewed) == NORTH
    assert renewed.not_valid_after_utc == registry.now + timedelta(days=90)
    assert registry.acts()[-1] == ("owner/north", "renew", "north")


def test_who_is_not_renewed(registry):
    """Neither a revoked certificate, nor another CA's, nor a key that was used before."""
    request = asking()
    first = registry.approve(request)
    registry.now += timedelta(days=70)
    with pytest.raises(ProtocolError, match="never used"):
        registry.register.renew(registry.authority, first, request)
    stranger = DevelopmentCa("example.org")
    with pytest.raises(IdentityError, match="another CA"):
        registry.register.renew(Authority(stranger.certificate, stranger.issued.key), first, asking())
    registry.register.revoke("op", owner="north")
    with pytest.raises(IdentityError, match="revoked"):
        registry.register.renew(registry.authority, first, asking())


def test_renewals_are_counted(registry):
    """An owner gone wrong does not fill the register."""
    first = registry.approve(asking())
    registry.now += timedelta(days=70)
    for _ in range(10):
        registry.register.renew(registry.authority, first, asking())
    with pytest.raises(ProtocolError, match="too many"):
        registry.register.renew(registry.authority, first, asking())
    registry.now += timedelta(days=2)
    registry.register.renew(registry.authority, first, asking())


def test_another_process_revokes(registry):
    """What an operator's command revokes, the running daemon refuses at the next look."""
    issued = registry.approve(asking())
    registry.register.check(issued)
    program = (
        "import sys; from datetime import datetime, UTC; from pathlib import Path\n"
        "from aggregator.ca.enrolment import open_register\n"
        "with open_register(Path(sys.argv[1]), lambda: datetime.now(UTC)) as register:\n"
        "    register.revoke('op', owner='north')"
    )
    subprocess.run([sys.executable, "-c", program, str(registry.folder)], check=True, timeout=60)
    with pytest.raises(IdentityError, match="revoked"):
        registry.register.check(issued)


def test_the_operators_log_has_everything_once(registry):
    """Approvals, replacements and revocations are there in their order, whose and when, and are announced."""
    announced = []
    registry.journal.operators.listen(lambda: announced.append(True))
    first = registry.approve(asking())
    second = registry.approve(asking(), replace=True)
    registry.register.revoke("bob", owner="north")
    found = [action for _, action in registry.journal.operators.actions()]
    assert [(each.user, each.name, each.arguments["serial"]) for each in found] == [
        ("op", "enroll approve", f"{first.serial_number:x}"),
        ("op", "enroll replace", f"{first.serial_number:x}"),
        ("op", "enroll approve", f"{second.serial_number:x}"),
        ("bob", "enroll revoke", f"{second.serial_number:x}"),
    ]
    assert {(each.at, each.arguments["owner"]) for each in found} == {
        (int(registry.now.timestamp()), "north")
    }
    assert found[0].arguments["fingerprint"] == fingerprint(first.public_key())
    assert len(announced) == 3


def test_a_refused_approval_leaves_nothing(registry):
    """What is not done is in neither the register nor the log."""
    registry.approve(asking())
    with pytest.raises(ConflictError):
        registry.approve(asking())
    assert len(registry.register.certificates()) == len(registry.acts()) == 1


def test_the_register_can_be_opened_before_the_daemon_ever_ran(tmp_path):
    """A command creates the state directory and the database, and the daemon finds what it did."""
    ca = DevelopmentCa("example.org")
    authority = Authority(ca.certificate, ca.issued.key)
    with open_register(tmp_path / "new", lambda: datetime.now(UTC)) as register:
        register.approve(authority, asking(), NORTH, "op", replace=False)
    journal = Journal(tmp_path / "new" / "aggregator.db")
    assert [action.name for _, action in journal.operators.actions()] == ["enroll approve"]
    journal.close()
