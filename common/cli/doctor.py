"""The checks that `doctor` runs on a machine: each passes, warns or fails with an explanation.

A check is a function that yields findings. One that meets an error of the catalogue has failed with its
words; what depends on it is skipped, everything else continues. Nothing here changes anything.
"""

import ctypes
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from common import __version__
from common.cli import console
from common.daemon.audit import AuditSection
from common.daemon.notify import NotifySection, SmtpSection
from common.database import copies_before
from common.errors import ExitCode, TesseraError, on_one_line
from common.files import forbidden, is_open, user_name
from common.processor import sorting
from common.settings import TlsSection
from common.trust.credentials import Identity, read_identity
from common.trust.identity import Party, Purpose, renewal_begins, verify_chain
from common.trust.signing import load_chain
from common.words.numbers import size_text

_SCARCE_BYTES, _LEAST_BYTES = 2**30, 2**26
_UNSYNCHRONISED = 5
"""What the system's adjtimex answers while nothing keeps its clock."""
_TIMEX_BYTES = 512
_Config = TypeVar("_Config")


class CheckOutcome(StrEnum):
    """How a check ended."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found out."""

    check: str
    outcome: CheckOutcome
    text: str
    hint: str = ""
    exit_code: ExitCode = ExitCode.DONE
    """What the command ends with if this is its first failure."""


Check = Callable[[], Iterable[Finding]]


def passed(check: str, text: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(check, CheckOutcome.PASS, text)


def warned(check: str, text: str, hint: str) -> Finding:
    """Return that something works, but not as well or as long as it should."""
    return Finding(check, CheckOutcome.WARN, text, hint)


def failed(check: str, text: str, hint: str, exit_code: ExitCode = ExitCode.USAGE) -> Finding:
    """Return that something does not work."""
    return Finding(check, CheckOutcome.FAIL, text, hint, exit_code)


def skipped(check: str, text: str) -> Finding:
    """Return that something was not checked, and why."""
    return Finding(check, CheckOutcome.SKIP, text)


def failed_with(check: str, error: TesseraError) -> Finding:
    """Return that something failed with an error of the catalogue."""
    return failed(check, on_one_line(error.message), on_one_line(error.hint, "; "), error.exit_code)


def examine(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """Run checks one after the other, whether they fail or not."""
    for name, check in checks:
        error: TesseraError | OSError | None = None
        try:
            yield from check()
        except (TesseraError, OSError) as fault:
            error = fault
        if isinstance(error, PermissionError) and error.filename is not None:
            error = forbidden(error)
        if isinstance(error, TesseraError):
            yield failed_with(name, error)
        elif error is not None:
            yield failed(name, f"{error.strerror or type(error).__name__}", "check the system's own log")


def report(findings: Iterable[Finding], *, as_json: bool) -> ExitCode:
    """Print findings as they are made, or all as one document.

    Returns:
        The exit code of the command: that of the first failure, or 0.
    """
    shown = []
    for finding in findings:
        shown.append(finding)
        if not as_json:
            console.print_line(f"{finding.outcome.upper():<5} {finding.check}: {finding.text}")
            if finding.hint:
                console.print_line(f"      {finding.hint}")
    ends = next(
        (finding.exit_code for finding in shown if finding.outcome is CheckOutcome.FAIL), ExitCode.DONE
    )
    counts = {str(kind): sum(finding.outcome is kind for finding in shown) for kind in CheckOutcome}
    if as_json:
        lines = [
            {key: value for key, value in asdict(finding).items() if key != "exit_code"} for finding in shown
        ]
        console.print_json({"checks": lines, "counts": counts, "healthy": ends is ExitCode.DONE})
    else:
        console.print_line()
        console.print_line(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return ends


# --- files and disk ----------------------------------------------------------------------------------------


def private_folder(check: str, path: Path) -> Iterator[Finding]:
    """Check a folder that only its user may enter."""
    if not path.exists():
        yield skipped(check, f"{path} is not there yet; it is made when it is needed")
        return
    yield _private(check, path, 0o700)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield failed(check, f"{path} cannot be written by this user", "run as the user whose folder it is")


def scratch_folder(check: str, path: Path) -> Iterator[Finding]:
    """Check a scratch folder that a configuration names: it is there, or can be made where one is."""
    if path.exists():
        yield from private_folder(check, path)
        return
    there = next(folder for folder in path.absolute().parents if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        hint = "make it, for the user of the daemon, with mode 0700, or name another one: engine.scratch"
        yield failed(check, f"{path} is not there, and this user cannot make it in {there}", hint)
    elif there != path.absolute().parent:
        hint = (
            "mount the disk that it is on, or make the folder around it, or name another one: engine.scratch"
        )
        yield warned(check, f"{path} is not there, nor is {path.absolute().parent}", hint)
    else:
        yield skipped(check, f"{path} is not there yet; it is made when it is needed")


def private_file(check: str, path: Path) -> Iterator[Finding]:
    """Check a file that holds a secret."""
    if not path.is_file():
        yield failed(check, f"{path} is not there", "correct the path, or make the file")
        return
    yield _private(check, path, 0o600)
    if not os.access(path, os.R_OK):
        yield failed(check, f"{path} cannot be read by this user", "run as the user whose file it is")
    elif not path.stat().st_size:
        yield failed(check, f"{path} is empty", "write the secret into it")


def _private(check: str, path: Path, mode: int) -> Finding:
    status = path.stat()
    seen = stat.S_IMODE(status.st_mode)
    if is_open(status):
        return failed(check, f"{path} is open to other users (mode {seen:04o})", f"chmod {mode:o} {path}")
    if status.st_uid != os.geteuid() and not seen & 0o040:
        whose = f"{path} belongs to {user_name(status.st_uid)}, and this is {user_name(os.geteuid())}"
        return warned(check, whose, "run doctor, and everything else, as the user that the daemon runs as")
    return passed(check, f"{path} (mode {seen:04o})")


def free_disk(check: str, path: Path) -> Iterator[Finding]:
    """Check that there is room where a folder is, or will be."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    text = f"{size_text(free)} free at {there}"
    hint = "make room: a fragment takes up to 8 bytes per value, a release several times that"
    if free < _LEAST_BYTES:
        yield failed(check, text, hint)
    elif free < _SCARCE_BYTES:
        yield warned(check, text, hint)
    else:
        yield passed(check, text)


def database(check: str, path: Path) -> Iterator[Finding]:
    """Check a SQLite database of ours, every page of it, without changing it."""
    if not path.is_file():
        yield skipped(check, f"{path} is not there yet")
        return
    yield from private_file(check, path)
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=30)
        try:
            answer = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        answer = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    if answer == "ok":
        yield passed(check, f"{path.name} is sound")
        for copy in copies_before(path):
            yield passed(check, f"{path.name} was converted; {copy} is the copy from before")
    else:
        yield failed(check, f"{path} is damaged", "restore the newest backup", ExitCode.INTEGRITY)


# --- recipients of records and messages -------------------------------------------------------------------


def recipients(audit: AuditSection, notify: NotifySection) -> Iterator[tuple[str, Check]]:
    """Yield the checks of everything outside that records and messages go to; nothing is sent."""
    if audit.file is not None:
        file = audit.file
        yield "audit", lambda: _audit_file("audit", file)
    if notify.smtp is not None:
        smtp = notify.smtp
        yield "mail", lambda: _mail("mail", smtp)
    if notify.webhook is not None:
        secret = notify.webhook.secret_file
        yield "webhook", lambda: private_file("webhook", secret)


def _audit_file(check: str, path: Path) -> Iterator[Finding]:
    hint = "let the user of the daemon write there, or name another one: audit.file"
    if not path.parent.is_dir():
        yield failed(
            check, f"{path.parent} is not there", "make this folder, or name another file: audit.file"
        )
    elif path.exists() and not path.is_file():
        yield failed(check, f"{path} is not a regular file", "name another one: audit.file")
    elif path.exists() and not os.access(path, os.R_OK | os.W_OK):
        yield failed(check, f"{path} cannot be written by this user", hint)
    elif not path.exists() and not os.access(path.parent, os.W_OK | os.X_OK):
        yield failed(check, f"{path.parent} cannot be written by this user", hint)
    else:
        yield passed(check, f"{path}")


def _mail(check: str, section: SmtpSection) -> Iterator[Finding]:
    wrong = [mailbox for mailbox in (section.sender, *section.to) if not all(mailbox.rpartition("@"))]
    if wrong:
        text = f"no address of a mailbox: {', '.join(map(repr, wrong))}"
        yield failed(check, text, "write notify.smtp.sender and notify.smtp.to like name@example.org")
    if section.ca is not None:
        load_chain(section.ca)
    if section.password_file is not None:
        yield from private_file(check, section.password_file)
    elif not wrong:
        yield passed(check, f"{section.host}:{section.port}, without a password")


# --- identity and clock ------------------------------------------------------------------------------------


def load_configuration(program: str, load: Callable[[], _Config]) -> tuple[list[Finding], _Config | None]:
    """Load the configuration that all other checks need; without one, check only the clock.

    Returns:
        Findings, and the configuration, None if there is none.
    """
    software = passed("software", f"{program} {__version__}")
    try:
        return [software], load()
    except TesseraError as error:
        return [software, failed_with("configuration", error), *examine([("clock", kept_clock)])], None


def identity(
    check: str, tls: TlsSection, party: Party, purpose: Purpose, now: datetime
) -> tuple[list[Finding], Identity | None]:
    """Check the files of `[tls]`: whose they are, that they fit together, and until when they hold.

    Returns:
        What was found, and the identity if it can be used.
    """
    try:
        return _identity(check, tls, party, purpose, now)
    except PermissionError as error:
        return [failed_with(check, forbidden(error))], None


def _identity(
    check: str, tls: TlsSection, party: Party, purpose: Purpose, now: datetime
) -> tuple[list[Finding], Identity | None]:
    if not tls.cert.exists() and not tls.key.exists():
        hint = "enrol: owner-node enroll request, aggregator enroll approve, owner-node enroll install"
        return [warned(check, f"there is no certificate yet ({tls.cert})", hint)], None
    findings = [*private_file(check, tls.key)]
    try:
        identity = read_identity(tls)
        leaf, *others = identity.signer.chain
        verify_chain(leaf, others, identity.authorities, now, purpose)
    except TesseraError as error:
        return [*findings, failed_with(check, error)], None
    if identity.signer.party != party:
        text = f"{tls.cert} names {identity.signer.party.uri}, the configuration {party.uri}"
        hint = "correct the name, or the path of the certificate"
        return [*findings, failed(check, text, hint, ExitCode.NOT_CONNECTED)], None
    ends = leaf.not_valid_after_utc
    text = f"{party.uri}, until {ends:%Y-%m-%d} ({(ends - now).days} days), key {identity.signer.fingerprint}"
    if now >= renewal_begins(leaf):
        hint = "renew it; a connected daemon does so by itself where its CA can"
        return [*findings, warned(check, text, hint)], identity
    return [*findings, passed(check, text)], identity


def processor() -> Iterator[Finding]:
    """State how this program sorts."""
    yield passed("processor", sorting())


def kept_clock() -> Iterator[Finding]:
    """Check whether a time service keeps the system's clock."""
    ask = getattr(ctypes.CDLL(None), "ntp_adjtime", None)
    state = ask(ctypes.create_string_buffer(_TIMEX_BYTES)) if ask is not None else -1
    if state == _UNSYNCHRONISED:
        hint = "run a time service such as chrony or systemd-timesyncd; in a container, on its host"
        yield warned("clock", "no time service sets this machine's clock", hint)
    elif state >= 0:
        yield passed("clock", "kept by a time service")
    else:
        yield skipped("clock", "the system does not say whether something keeps its clock")
