"""The checks of `doctor` one by one: each passes, warns or fails on what it is there for, and says so."""

import os
import shutil
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from common.cli import doctor
from common.cli.doctor import CheckOutcome, Finding
from common.cli.doctor_network import name, shown_names, skew
from common.daemon.audit import AuditSection
from common.daemon.notify import NotifySection, SmtpSection, WebhookSection
from common.errors import ConfigurationError, DataError, ExitCode, IdentityError, IntegrityError
from common.files import read_private
from common.settings import TlsSection
from common.trust.handshake import Seen
from common.trust.identity import Party, PartyKind
from deploy.development_ca import DevelopmentCa
from tests.other_user import as_user, closed

# Later than any certificate that a test makes, however long after its import that is.
NOW = datetime.now(UTC) + timedelta(minutes=40)
DOMAIN = "doctor.test"
OWNER = Party(PartyKind.OWNER, "north", DOMAIN)


def outcomes(findings: Iterable[Finding]) -> list[str]:
    """Return how checks ended."""
    return [str(each.outcome) for each in findings]


def test_one_check_that_breaks_stops_no_other():
    """An error of the catalogue, and one of the system, become failures with their own words and codes."""

    def broken() -> Iterable[Finding]:
        yield doctor.passed("a", "so far")
        raise IntegrityError("it does not hold", "look closer")

    def locked() -> Iterable[Finding]:
        raise PermissionError(13, "Permission denied")

    found = list(doctor.examine([("a", broken), ("b", locked), ("c", lambda: [doctor.passed("c", "fine")])]))
    assert outcomes(found) == ["pass", "fail", "fail", "pass"]
    assert (found[1].text, found[1].hint, found[1].exit_code) == (
        "it does not hold", "look closer", ExitCode.INTEGRITY,
    )  # fmt: skip
    assert found[2].text == "Permission denied"


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ((), ExitCode.DONE),
        ((CheckOutcome.WARN, CheckOutcome.SKIP, CheckOutcome.PASS), ExitCode.DONE),
        ((CheckOutcome.PASS, CheckOutcome.FAIL), ExitCode.NOT_CONNECTED),
    ],
)
def test_the_exit_code_is_that_of_the_first_failure(capsys, kinds, code):
    """Warnings fail no command; a failure does, in a document, too."""
    given = [
        Finding("x", kind, "t", "h", ExitCode.NOT_CONNECTED if kind is CheckOutcome.FAIL else ExitCode.DONE)
        for kind in kinds
    ]
    assert doctor.report(given, as_json=False) is code
    assert f"{len([k for k in kinds if k is CheckOutcome.FAIL])} fail" in capsys.readouterr().out
    assert doctor.report(given, as_json=True) is code
    assert '"healthy": ' + str(code is ExitCode.DONE).lower() in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mode", "outcome"), [(0o600, "pass"), (0o400, "pass"), (0o640, "fail"), (0o604, "fail")]
)
def test_secrets_are_for_their_owner(tmp_path, mode, outcome):
    """A key that others may read fails, with the command that closes it."""
    path = tmp_path / "key"
    path.write_text("a key")
    path.chmod(mode)
    (found, *_) = doctor.private_file("key", path)
    assert str(found.outcome) == outcome
    assert (found.hint == f"chmod 600 {path}") is (outcome == "fail")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("mode", [0o400, 0o440, 0o640, 0o444, 0o460, 0o450])
@pytest.mark.parametrize("owner", [0, 1, 2])
def test_secrets_that_root_gives_to_a_group(mode, owner):
    """An orchestrator mounts a secret as root's, for the group of the process; nothing else is excepted."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "key"
        path.write_text("a key")
        os.chown(path, owner, 1)
        path.chmod(mode)
        with as_user(1, group=1):
            outcomes = [str(each.outcome) for each in doctor.private_file("key", path)]
            if (owner, mode) in {(0, 0o440), (0, 0o640), (1, 0o400)}:
                assert outcomes == ["pass"]
                assert read_private(path) == b"a key"
            else:
                assert "fail" in outcomes
                with pytest.raises(ConfigurationError, match=f"{path} "):
                    read_private(path)


def test_a_file_without_a_secret_fails(tmp_path):
    """A file that was made and never filled signs and opens nothing."""
    path = tmp_path / "key"
    path.touch(0o600)
    assert outcomes(doctor.private_file("key", path)) == ["pass", "fail"]


def test_files_and_folders_that_are_not_there(tmp_path):
    """A folder is made when it is needed; a file that was named is missed."""
    assert outcomes(doctor.private_folder("state", tmp_path / "state")) == ["skip"]
    assert outcomes(doctor.private_file("key", tmp_path / "key")) == ["fail"]
    assert outcomes(doctor.database("database", tmp_path / "owner.db")) == ["skip"]
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    assert outcomes(doctor.private_folder("state", open_to_all)) == ["fail"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def of_sinks(
    audit: AuditSection | None = None,
    smtp: SmtpSection | None = None,
    webhook: WebhookSection | None = None,
) -> list[Finding]:
    """Return what is found about who is told."""
    return list(doctor.examine(doctor.recipients(audit or AuditSection(), NotifySection(smtp, webhook))))


def test_secrets_of_messages(tmp_path):
    """The file of a secret is there and private, or no message would ever go out."""
    secret = tmp_path / "secret"
    mail = SmtpSection(host="mx", sender="a@b.example", to=("c@d.example",), user="a", password_file=secret)
    webhook = WebhookSection(url="https://x.example/", secret_file=secret)
    assert [(each.check, each.outcome) for each in of_sinks(None, mail, webhook)] == [
        ("mail", "fail"),
        ("webhook", "fail"),
    ]
    secret.write_text("s\n")
    secret.chmod(0o644)
    for found in of_sinks(None, mail, webhook):
        assert (found.outcome, found.hint) == ("fail", f"chmod 600 {secret}")
    secret.chmod(0o600)
    assert outcomes(of_sinks(None, mail, webhook)) == ["pass", "pass"]
    assert of_sinks() == []


@pytest.mark.parametrize(
    ("sender", "to"), [("a", "c@d.example"), ("a@b.example", "@d"), ("a@", "c@d.example")]
)
def test_addresses_of_mail(sender, to):
    """What has no mailbox or no host is named."""
    (found,) = of_sinks(smtp=SmtpSection(host="mx", sender=sender, to=(to,)))
    assert (found.outcome, "like name@example.org" in found.hint) == ("fail", True)
    (found,) = of_sinks(smtp=SmtpSection(host="mx", sender="Tessera <a@b.example>", to=("c@d.example",)))
    assert found.outcome == "pass"


def test_the_folder_of_the_audit_file(tmp_path, monkeypatch):
    """It is there, and can be written; nothing is made."""
    file = tmp_path / "new" / "audit.jsonl"
    (found,) = of_sinks(AuditSection(file=file))
    assert (found.outcome, found.text) == ("fail", f"{file.parent} is not there")
    assert not file.parent.exists()
    file.parent.mkdir()
    assert outcomes(of_sinks(AuditSection(file=file))) == ["pass"]
    (found,) = of_sinks(AuditSection(file=file.parent))
    assert "not a regular file" in found.text
    monkeypatch.setattr(os, "access", lambda *_: False)
    for path in (file.parent, file):
        (found,) = of_sinks(AuditSection(file=file))
        assert (found.outcome, found.text) == ("fail", f"{path} cannot be written by this user")
        file.touch()


def test_a_scratch_folder_that_is_named(tmp_path, monkeypatch):
    """It is there and private, or can be made; a folder around it that is absent may be a disk."""
    folder = tmp_path / "disk" / "scratch"
    (found,) = doctor.scratch_folder("scratch", folder)
    assert (found.outcome, "mount the disk" in found.hint) == ("warn", True)
    folder.parent.mkdir()
    assert outcomes(doctor.scratch_folder("scratch", folder)) == ["skip"]
    monkeypatch.setattr(os, "access", lambda *_: False)
    (found,) = doctor.scratch_folder("scratch", folder)
    assert (found.outcome, "this user cannot make it" in found.text) == ("fail", True)
    monkeypatch.undo()
    folder.mkdir(mode=0o755)
    assert outcomes(doctor.scratch_folder("scratch", folder)) == ["fail"]


def test_a_file_of_another_user_is_told(tmp_path):
    """Whoever runs doctor as another user than the daemon learns that it may see other things."""
    path = tmp_path / "key"
    path.touch(0o600)
    os.chown(path, 65534, 65534)
    (found, *_) = doctor.private_file("key", path)
    assert str(found.outcome) == "warn"
    assert "belongs to" in found.text


@pytest.mark.parametrize(("free", "outcome"), [(2**34, "pass"), (2**28, "warn"), (2**20, "fail")])
def test_a_disk_that_fills_up(tmp_path, monkeypatch, free, outcome):
    """Room is looked at where the folder will be, before it is there."""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=free))
    assert outcomes(doctor.free_disk("disk", tmp_path / "a" / "b")) == [outcome]


def test_a_damaged_database_is_found_without_changing_it(tmp_path):
    """A page that was overwritten fails the check; a sound database passes and stays as it is."""
    path = tmp_path / "owner.db"
    path.touch(0o600)
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (x)")
        connection.executemany("insert into t values (?)", [(f"{n:050}",) for n in range(2000)])
    connection.close()
    before = path.read_bytes()
    assert outcomes(doctor.database("database", path)) == ["pass", "pass"]
    assert path.read_bytes() == before
    path.write_bytes(before[:8192] + b"\xff" * 4096 + before[12288:])
    (_, found) = doctor.database("database", path)
    assert found.exit_code is ExitCode.INTEGRITY
    path.write_bytes(b"nothing of the kind" * 100)
    assert outcomes(doctor.database("database", path)) == ["pass", "fail"]


class TestIdentity:
    """The files of [tls], from before enrolment to after their end."""

    @pytest.fixture
    def tls(self, tmp_path: Path) -> TlsSection:
        """Where they are."""
        return TlsSection(tmp_path / "ca.pem", tmp_path / "north.pem", tmp_path / "north.key")

    def check(self, tls: TlsSection, now: datetime = NOW) -> list[Finding]:
        """Look at them as an owner."""
        found, own = doctor.identity("identity", tls, OWNER, "client", now)
        assert (own is None) is (found[-1].outcome is CheckOutcome.FAIL or not tls.cert.exists())
        return found

    def test_before_enrolment(self, tls):
        """No certificate yet is no failure: what to do next is told."""
        (found,) = self.check(tls)
        assert str(found.outcome) == "warn"
        assert "owner-node enroll request" in found.hint

    def test_from_enrolment_to_the_end(self, tls):
        """Valid, due for renewal, expired: with the day, and the key's whole fingerprint."""
        ca = DevelopmentCa(DOMAIN)
        ca.issued.write(tls.ca.parent, "ca")
        ca.owner("north", not_after=NOW + timedelta(days=90)).write(tls.ca.parent, "north")
        found = self.check(tls)
        assert outcomes(found) == ["pass", "pass"]
        assert OWNER.uri in found[1].text
        assert f"{NOW + timedelta(days=90):%Y-%m-%d}" in found[1].text
        assert outcomes(self.check(tls, NOW + timedelta(days=80))) == ["pass", "warn"]
        late = self.check(tls, NOW + timedelta(days=91))
        assert outcomes(late) == ["pass", "fail"]
        assert "expired" in late[1].text

    def test_a_folder_that_this_user_may_not_enter(self, tls):
        """It is a finding, which says what to do, and no end of the command."""
        DevelopmentCa(DOMAIN).owner("north").write(tls.ca.parent, "north")
        with closed(tls.ca.parent):
            (found,) = self.check(tls)
        assert (found.outcome, found.exit_code) == (CheckOutcome.FAIL, ExitCode.USAGE)
        assert found.text == f"{tls.cert} cannot be used: Permission denied"
        assert "sudo -u" in found.hint

    @pytest.mark.parametrize("wrong", ["name", "ca", "key", "mode"])
    def test_files_that_do_not_fit(self, tls, wrong):
        """Another party's certificate, another CA, another key, a key open to all."""
        ca = DevelopmentCa(DOMAIN)
        ca.issued.write(tls.ca.parent, "ca")
        ca.owner("south" if wrong == "name" else "north").write(tls.ca.parent, "north")
        if wrong == "ca":
            DevelopmentCa(DOMAIN).issued.write(tls.ca.parent, "ca")
        if wrong == "key":
            ca.owner("north").write(tls.ca.parent, "other")
            (tls.ca.parent / "other.key").replace(tls.key)
        if wrong == "mode":
            tls.key.chmod(0o644)
        assert "fail" in outcomes(self.check(tls))


@pytest.mark.parametrize(
    ("theirs", "outcome"),
    [
        (None, "skip"),
        (1000, "pass"),
        (1015, "pass"),
        (960, "warn"),
        (1100, "warn"),
        (600, "fail"),
        (1400, "fail"),
    ],
)
def test_clocks_are_compared_to_the_second(theirs, outcome):
    """Seconds do no harm, a minute is worth a warning, and five break certificates."""
    assert str(skew("clock", theirs, 1000.0, 1001.0).outcome) == outcome


def test_names_are_looked_up():
    """An address needs no name service, a known name passes, one that cannot exist fails."""
    assert outcomes(name("name", "::1")) == ["pass"]
    assert outcomes(name("name", "localhost")) == ["pass"]
    (found,) = name("name", "nowhere.invalid")
    assert found.exit_code is ExitCode.NOT_CONNECTED


def test_the_systems_clock_is_judged_somehow():
    """Asking the system whether a time service keeps its clock works here, whatever the answer."""
    (found,) = doctor.kept_clock()
    assert found.outcome in (CheckOutcome.PASS, CheckOutcome.WARN, CheckOutcome.SKIP)


def test_errors_keep_their_own_code():
    """A configuration that cannot be read ends the command as it ends any other."""
    assert doctor.failed_with("x", ConfigurationError("no")).exit_code is ExitCode.USAGE


def test_names_of_a_certificate_are_compared_with_the_host_that_is_dialled():
    """A name that is not in the certificate fails with both names; a wildcard stands for one label."""
    ca, hub = DevelopmentCa(DOMAIN), Party(PartyKind.AGGREGATOR, "hub", DOMAIN)
    certificate = ca.aggregator("hub", ["*.hub.example", "127.0.0.1"]).certificate
    seen = Seen("TLSv1.3", speaks_grpc=True, certificate=certificate)
    dialled = {"a.HUB.example": "pass", "127.0.0.1": "pass", "hub.example": "fail", "a.b.hub.example": "fail"}
    for host, outcome in dialled.items():
        (found,) = shown_names("names", host, seen, hub, NOW)
        assert str(found.outcome) == outcome
        assert f"for {host}; seen {hub.uri} for *.hub.example, 127.0.0.1" in found.text
    with pytest.raises(IdentityError, match="expired"):
        list(shown_names("names", "127.0.0.1", seen, hub, NOW + timedelta(days=4000)))


def test_a_database_of_another_user_is_named_with_what_to_do(tmp_path):
    """The system's own log would say nothing about it."""
    path = tmp_path / "owner.db"
    path.touch(mode=0o600)
    with closed(tmp_path):
        (found,) = doctor.examine([("database", lambda: doctor.database("database", path))])
    assert (found.text, found.exit_code) == (f"{path} cannot be used: Permission denied", ExitCode.USAGE)
    assert "sudo -u" in found.hint


def test_errors_of_several_lines_are_one_line(capsys):
    """What the error lists follows in the same sentence; no line end is shown as a text."""

    def check() -> Iterable[Finding]:
        raise DataError("it cannot be used: /x.csv\n  there is no such file", "look there\n  or there")

    doctor.report(doctor.examine([("data", check)]), as_json=False)
    shown = capsys.readouterr().out
    assert "data: it cannot be used: /x.csv: there is no such file\n      look there; or there\n" in shown
