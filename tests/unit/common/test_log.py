import asyncio
import gc
import io
import json
import logging
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from common import log
from common.errors import on_one_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        """Say that somebody watches."""
        return True


@pytest.fixture(autouse=True)
def _previous_logging() -> Iterator[None]:
    """Leave the process's logging as it was."""
    loggers = [logging.getLogger(name) for name in ("", *log.OUR_LOGGERS)]
    levels, handlers = [each.level for each in loggers], loggers[0].handlers[:]
    shown = warnings.showwarning
    yield
    warnings.showwarning = shown
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def _lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_lines_are_json_objects_when_nobody_watches():
    """A supervisor reads event, level and fields from every line, and one event is one line."""
    stream = io.StringIO()
    log.start("info", stream)
    logging.getLogger("owner_node.daemon").info(
        "connected\nto",
        extra={"aggregator": "central", "n": 3, "epsilon": Decimal("0.50"), "path": Path("/x")},
    )
    (line,) = _lines(stream)
    assert str(line.pop("time")).endswith("Z")
    assert line == {
        "level": "info",
        "logger": "owner_node.daemon",
        "event": "connected\nto",
        "aggregator": "central",
        "n": 3,
        "epsilon": "0.50",
        "path": "/x",
    }


def test_lines_are_text_on_a_terminal_and_cannot_steer_it():
    """What a peer calls itself does not clear the screen or fake a second line."""
    stream = Terminal()
    log.start("info", stream)
    logging.getLogger("aggregator.x").warning("seen", extra={"owner": "a\x1b[2J\nerror: b", "counts": [1, 2]})
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("warning seen owner=a\\x1b[2J\\nerror: b counts=[1, 2]")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_traceback_has_places_and_no_text(stream):
    """Libraries quote the value that they stumbled over; the log keeps only where it happened."""
    log.start("debug", stream)
    try:
        int("Maria Musterfrau")
    except ValueError as problem:
        logging.getLogger("common.x").error("broken", exc_info=problem)
    text = stream.getvalue()
    assert "Maria" not in text
    assert "test_log.py" in text
    assert "ValueError" in text


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_what_nobody_waited_for_fails_without_its_text(stream):
    """The error of a forgotten task, which asyncio quotes, is logged as places and type."""

    async def fail() -> None:
        raise ValueError("Maria Musterfrau")

    async def forget() -> None:
        task = asyncio.ensure_future(fail())
        await asyncio.sleep(0)
        del task
        gc.collect()

    log.start("info", stream)
    asyncio.run(forget())
    text = stream.getvalue()
    assert "Task exception was never retrieved" in text
    assert "ValueError" in text
    assert "in fail" in text
    assert "Musterfrau" not in text


def test_objects_are_named_by_their_type_only():
    """An array or a record handed to the log by mistake is not written out."""
    stream = io.StringIO()
    log.start("info", stream)
    extra = {"thing": object(), "data": b"Maria", "many": {"a": [b"Maria"]}, "long": "x" * 1000}
    logging.getLogger("owner_node").info("event", extra=extra)
    (line,) = _lines(stream)
    assert (line["thing"], line["data"], line["many"]) == ("<object>", "<bytes>", {"a": ["<bytes>"]})
    assert len(str(line["long"])) < 600


def test_levels_are_ours_and_libraries_are_heard_from_warning():
    """--log-level debug shows our own steps, not every library's chatter."""
    stream = io.StringIO()
    log.start(log.LogLevel.DEBUG, stream)
    for name in ("owner_node.a", "grpc.b"):
        logging.getLogger(name).debug("debug")
        logging.getLogger(name).warning("warning")
    assert [(line["logger"], line["event"]) for line in _lines(stream)] == [
        ("owner_node.a", "debug"),
        ("owner_node.a", "warning"),
        ("grpc.b", "warning"),
    ]


def test_starting_again_replaces_the_stream():
    """A second set-up does not write every line twice."""
    first, second = io.StringIO(), io.StringIO()
    log.start("info", first)
    log.start("error", second)
    logging.getLogger("common").error("once")
    assert (first.getvalue(), len(_lines(second))) == ("", 1)


@pytest.mark.filterwarnings("always")
def test_warnings_of_libraries_are_lines_without_their_words():
    """A library that warns writes no text of its own, which could quote a value, among the JSON lines."""
    stream = io.StringIO()
    log.start("info", stream)
    warnings.warn("mixed types in 1999-12-31", UserWarning, stacklevel=1)
    (line,) = _lines(stream)
    assert (line["level"], line["event"], line["kind"]) == ("warning", "warned", "UserWarning")
    assert str(line["place"]).startswith("common/test_log.py:")
    assert "1999" not in stream.getvalue()


def test_lines_of_an_error_are_joined_into_one():
    """What an error is about, then what was found; nothing else changes."""
    found = "data set 'p' cannot be used: /x.csv\n  column 'age' is missing\n  there are no records"
    assert (
        on_one_line(found)
        == "data set 'p' cannot be used: /x.csv: column 'age' is missing; there are no records"
    )
    assert [on_one_line(each) for each in ("", "one line")] == ["", "one line"]
    assert on_one_line("do this\n  do that", "; ") == "do this; do that"


def _to_journal(path: Path, monkeypatch: pytest.MonkeyPatch, of: Path | None = None) -> list[str]:
    status = (of or path).stat()
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    with path.open("w") as stream:
        log.start("debug", stream)
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
            logging.getLogger("owner_node.daemon").log(level, "event", extra={"text": "two\nlines"})
    return path.read_text().splitlines()


def test_lines_for_the_journal_carry_their_priority(tmp_path, monkeypatch):
    """`journalctl -p warning` works: a line begins with its priority, then is JSON as ever."""
    path = tmp_path / "stderr"
    path.touch()
    lines = _to_journal(path, monkeypatch)
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>", "<2>"]
    assert {json.loads(line[3:])["event"] for line in lines} == {"event"}


def test_only_the_journal_gets_priorities(tmp_path, monkeypatch):
    """The variable is inherited; a stream that somebody redirected to a file is not the journal."""
    other = tmp_path / "other"
    other.touch()
    assert all(line.startswith("{") for line in _to_journal(tmp_path / "stderr", monkeypatch, other))


def test_a_line_that_cannot_be_formatted_ends_nothing(capsys):
    """A wrong call of the logger is reported by the library, not raised."""
    log.start("info", io.StringIO())
    logging.getLogger("common.x").warning("%d", "text")
    assert "Logging error" in capsys.readouterr().err
