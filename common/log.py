"""Logging of the daemons: text on a terminal, one JSON object per line everywhere else, always to stderr.

A line for systemd's journal begins with its priority, which the journal takes off.

A line carries ids, counts and digests, never a value of a record, an identifier or a token. Programs log with
the standard library: `logging.getLogger(__name__).info("connected", extra={"aggregator": name})`. The
message is the name of the event; its fields go into `extra`. Errors of libraries quote the values that caused
them, so tracebacks and warnings are written as places and types, without texts.
"""

import json
import logging
import os
import sys
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from common.errors import one_line

OUR_LOGGERS = ("aggregator", "common", "owner_node", "deploy")
"""The packages that `--log-level` applies to; libraries log from level warning on."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LONGEST_TEXT = 500


class LogLevel(StrEnum):
    """What `--log-level` accepts."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def places(error: BaseException) -> list[str]:
    """Return where an error came from, innermost last, as places and types without any text of it."""
    lines = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        lines.append(f"{_short(code.co_filename)}:{traceback.tb_lineno} in {code.co_name}")
        traceback = traceback.tb_next
    return [*lines, type(error).__name__]


def _short(filename: str) -> str:
    """Return the last two parts of a file name, which is what names a module of ours."""
    return "/".join(Path(filename).parts[-2:])


def _plain(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + "…"
    if isinstance(value, Decimal | Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return f"<{type(value).__name__}>"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a line: the `extra` of the call, and the places of an exception."""
    fields = {name: _plain(value) for name, value in vars(record).items() if name not in _STANDARD}
    if record.exc_info and record.exc_info[1] is not None:
        fields["traceback"] = places(record.exc_info[1])
    return fields


def _event(record: logging.LogRecord) -> str:
    """Return the name of the event; only the first line for asyncio, whose other lines quote errors."""
    message = record.getMessage()
    return message.partition("\n")[0] if record.name == "asyncio" else message


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, event, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
        }
        line = json.dumps(_fields(record) | head, ensure_ascii=False)
        # What a peer sent cannot steer the terminal of somebody who reads the log.
        return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in line)


class TextFormatter(logging.Formatter):
    """One line for a person: time of day, level, event, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = _fields(record)
        trace = fields.pop("traceback", [])
        words = [time, f"{record.levelname.lower():7}", one_line(_event(record))]
        words += [f"{name}={one_line(value_text(value))}" for name, value in fields.items()]
        return "\n    ".join([" ".join(words), *trace])


_PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
"""Priorities of syslog(3)."""


def is_journal(stream: TextIO) -> bool:
    """Whether a stream is the one that systemd connected with its journal, and was not redirected since."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def for_journal(level: int, text: str) -> str:
    """Return a text with its priority before every line (sd-daemon(3))."""
    return "\n".join(f"<{_PRIORITIES.get(level, 6)}>{line}" for line in text.split("\n"))


class JournalFormatter(JsonFormatter):
    """A JSON object after its priority."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return for_journal(record.levelno, super().format(record))


def value_text(value: object) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _log_warning(*about: Any, **_: Any) -> None:
    """Log that a library warns; in the place of `warnings.showwarning`, whose arguments it takes."""
    _, category, filename, lineno, *_rest = about
    fields = {"kind": category.__name__, "place": f"{_short(filename)}:{lineno}"}
    logging.getLogger(__name__).warning("warned", extra=fields)


def start(level: LogLevel | str = LogLevel.INFO, stream: TextIO | None = None) -> None:
    """Send the log, and the warnings of libraries, to a stream, replacing whatever was set up before."""
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    elsewhere = JournalFormatter() if is_journal(target) else JsonFormatter()
    handler.setFormatter(TextFormatter() if target.isatty() else elsewhere)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OUR_LOGGERS:
        logging.getLogger(name).setLevel(str(level).upper())
    warnings.showwarning = _log_warning
