"""The catalogue of errors: whose fault it is, what to do about it, and the exit code it ends in.

Every error that a user can cause is one of these classes. Each keeps the objects it speaks of in
`details` (ids, counts and digests only, never a value of a record, an identifier or a token), says what
to do in `hint`, and carries the exit code of the command line contract. `aggregator.api.call_errors` maps the
same catalogue to gRPC status codes, so that an error keeps its meaning across the wire.
"""

import errno
import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, ClassVar
from unicodedata import normalize


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known name, ignoring case; empty if none is similar.

    A name that looks the same is written with its code points.
    """
    by_folded = {option.casefold(): option for option in known}
    close = get_close_matches(name.casefold(), by_folded, n=1)
    if not close:
        return ""
    nearest = by_folded[close[0]]
    if nearest != name and unicode_form(nearest) == unicode_form(name):
        return f"did you mean {nearest!a}, which is {name!a} here?"
    return f"did you mean {nearest!r}?"


def unicode_form(text: str) -> str:
    """Return a text in Unicode NFKC: texts that look the same are the same in it."""
    return normalize("NFKC", text)


class ExitCode(IntEnum):
    """Exit codes of both command lines."""

    DONE = 0
    """Done."""
    INTERNAL = 1
    """An internal fault."""
    USAGE = 2
    """Wrong usage or configuration, or bad data found by an owner's own command."""
    CONFLICT = 3
    """Schemas or linkage keys conflict, persons overlap, or groups hold different persons."""
    REFUSED = 4
    """A policy or a person refused, or an owner's data cannot be used (fewer than k records included)."""
    BALANCE = 5
    """Every refusal was for lack of balance."""
    NOT_CONNECTED = 6
    """Not connected, a daemon does not run or cannot now (a full disk), transport or identity failed, or the
    output cannot be written."""
    INTEGRITY = 7
    """A digest, a signature or a chain does not hold."""
    ENDED = 8
    """A deadline passed, or the release was cancelled."""
    INTERRUPTED = 130
    """Ctrl-C."""


class TesseraError(Exception):
    """An error that says what happened and what to do.

    Args:
        message: One sentence, without a trailing period.
        details: JSON-serialisable objects the error speaks of; never a value of a record.
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL

    def __init__(self, message: str, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})

    def details_json(self) -> str:
        """Return the details as JSON; a value that JSON has no type for, such as a decimal, is text in it."""
        return json.dumps(self.details, ensure_ascii=False, default=str, skipkeys=True)

    def to_document(self) -> dict[str, Any]:
        """Return the `{"error": ...}` document of the `--json` contract."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "hint": self.hint,
                "details": self.details,
            }
        }


_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


def lacks_resources(error: Exception) -> bool:
    """Whether a call of the system failed for want of open files or memory, which may pass."""
    return isinstance(error, OSError) and error.errno in _RESOURCES


def check_resources(error: Exception) -> None:
    """Raise an error again if `lacks_resources`: it says nothing about what was read."""
    if lacks_resources(error):
        raise error


class InternalError(TesseraError):
    """Our own fault: a state that the program's author thought impossible."""


class UsageError(TesseraError):
    """The arguments name something that does not exist or does not fit together."""

    code = "usage"
    exit_code = ExitCode.USAGE


class ConfigurationError(TesseraError):
    """A configuration file cannot be used; `problems` lists every reason, not only the first."""

    code = "configuration"
    exit_code = ExitCode.USAGE

    def __init__(self, message: str, problems: Sequence[str] = (), hint: str = "") -> None:
        text = "\n  ".join([message, *problems])
        super().__init__(text, hint, {"problems": list(problems)})
        self.problems = tuple(problems)


class CannotStoreError(ConfigurationError):
    """Disk or memory do not suffice, a disk is not mounted, or another process locks a file: it may pass.

    Nothing of a transaction happened.
    """


class CannotListenError(ConfigurationError):
    """Another process listens at an address, or this machine does not have the address, perhaps not yet."""


class DataError(TesseraError):
    """The data set cannot be used: exit 2 at an owner's own command, 4 when a release meets it."""

    code = "bad_data"
    exit_code = ExitCode.USAGE


class ConflictError(TesseraError):
    """Schemas, linkage keys, overlaps or mismatches between owners do not fit."""

    code = "conflict"
    exit_code = ExitCode.CONFLICT


class VersionError(ConflictError):
    """One side runs a version that the other does not understand, or that lacks a feature of a release."""

    code = "version"


class RefusedError(TesseraError):
    """An owner's policy or a person there said no."""

    code = "refused"
    exit_code = ExitCode.REFUSED


class UnusableDataError(RefusedError):
    """An owner's data cannot take part in this release (fewer records than k included)."""

    code = "unusable_data"


class DataChangedError(UnusableDataError):
    """The source is not what it was when its owner consented; nothing was spent."""

    code = "data_changed"


class BalanceError(RefusedError):
    """The budget that is left does not cover the charge; both are decimal strings."""

    code = "balance"
    exit_code = ExitCode.BALANCE

    def __init__(self, budget: str, requested: str, remaining: str) -> None:
        super().__init__(
            f"budget {budget!r} has {remaining} left, and {requested} would be charged",
            "ask for a smaller epsilon; a budget is for the lifetime of its data and does not refill",
            {"budget": budget, "requested": requested, "remaining": remaining},
        )


class NotConnectedError(TesseraError):
    """The other side cannot be reached, or its daemon is not running."""

    code = "not_connected"
    exit_code = ExitCode.NOT_CONNECTED


class CannotPrintError(TesseraError):
    """The result of a command cannot be written to standard output."""

    code = "output"
    exit_code = ExitCode.NOT_CONNECTED


class CannotRunError(NotConnectedError):
    """A daemon ended for a reason that may pass: a service manager is to start it again."""


class SourceUnreachableError(NotConnectedError):
    """The database of a data set cannot be used now; a release waits for it."""

    code = "source_unreachable"


class IdentityError(TesseraError):
    """A certificate is not the one that was expected, or may not do what it tried."""

    code = "identity"
    exit_code = ExitCode.NOT_CONNECTED


class ProtocolError(TesseraError):
    """The peer sent something that the protocol does not allow at this point."""

    code = "protocol"
    exit_code = ExitCode.INTEGRITY


class IntegrityError(TesseraError):
    """A digest, a signature or a chain does not hold."""

    code = "integrity"
    exit_code = ExitCode.INTEGRITY


class CancelledError(TesseraError):
    """The release was cancelled by its operator."""

    code = "cancelled"
    exit_code = ExitCode.ENDED


class DeadlineError(TesseraError):
    """A step's deadline passed."""

    code = "deadline"
    exit_code = ExitCode.ENDED


def _all_subclasses(base: type[TesseraError]) -> list[type[TesseraError]]:
    direct = list(base.__subclasses__())
    return direct + [deeper for sub in direct for deeper in _all_subclasses(sub)]


def by_code(code: str) -> type[TesseraError]:
    """Return the error class of a code read from the wire or a journal; `InternalError` if unknown."""
    # A subclass that shares its base's code says more than the code does: what a caller does about it
    # (a database that is busy here) does not hold for what a peer sent.
    known = {cls.code: cls for cls in _all_subclasses(TesseraError) if "code" in vars(cls)}
    return known.get(code, InternalError)


def from_document(document: Mapping[str, Any]) -> TesseraError:
    """Rebuild an error from its `{"error": ...}` document without running its constructor's wording."""
    body = document.get("error", {})
    cls = by_code(str(body.get("code", "internal")))
    error = cls.__new__(cls)
    TesseraError.__init__(error, str(body.get("message", "")), str(body.get("hint", "")), body.get("details"))
    return error


def on_one_line(text: str, after_first: str = ": ") -> str:
    """Return an error's text of several lines, the first of which is what they are about, on one line."""
    first, *others = (line.strip() for line in text.splitlines() or [""])
    return after_first.join([first, "; ".join(others)]) if others else first


def one_line(text: str) -> str:
    """Return a text with its control characters escaped: what a peer sends cannot steer a terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
