"""Audit sinks: everything arrives, in order, whatever fails between."""

import asyncio
import json
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from common.daemon.audit import AuditSection, parse_syslog
from common.daemon.delivery import Delivery, FileSink, SyslogSink, open_sinks
from common.errors import ConfigurationError
from tests.fakes.deliveries import KeptRecords, deliver

RECORDS = [{"sequence": 1, "event": "refused", "rule": "k = 3\nund süß"}, {"sequence": 2, "event": "x"}]


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_gets_one_line_per_record(tmp_path: Path) -> None:
    """A text with a line break stays one line, and what was written before stays."""
    path = tmp_path / "audit.jsonl"
    sink = FileSink(path)
    sink.write(RECORDS[:1])
    sink.write(RECORDS[1:])
    sink.write([])
    assert lines(path) == RECORDS
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_rotated_file_is_begun_anew(tmp_path: Path) -> None:
    """After a rotation the next records are in the new file, not in the renamed one."""
    path = tmp_path / "audit.jsonl"
    sink = FileSink(path)
    sink.write(RECORDS[:1])
    path.rename(tmp_path / "audit.1")
    sink.write(RECORDS[1:])
    assert lines(path) == RECORDS[1:]


def test_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    """A line that a crash cut short stands by itself."""
    path = tmp_path / "audit.jsonl"
    path.write_text('{"sequence": 1, "ev')
    FileSink(path).write(RECORDS)
    assert [json.loads(line) for line in path.read_text().splitlines()[1:]] == RECORDS


def test_a_full_disk_leaves_no_half_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch that does not fit nothing stays, so that it can be written again whole."""
    path = tmp_path / "audit.jsonl"
    sink, write = FileSink(path), os.write
    sink.write(RECORDS[:1])
    before = path.read_bytes()

    def full(descriptor: int, data: memoryview) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:20])

    monkeypatch.setattr("common.daemon.delivery.os.write", full)
    with pytest.raises(ConfigurationError, match="No space left"):
        sink.write(RECORDS)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["folder", "pipe", "absent"])
def test_what_is_no_file_is_named(tmp_path: Path, kind: str) -> None:
    """A folder, a pipe that nobody reads, a folder that is not there: an error, and no waiting."""
    path = tmp_path / "there"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = path / "audit.jsonl"
    with pytest.raises(ConfigurationError, match="cannot be written"):
        FileSink(path).write(RECORDS)


def test_the_syslog_of_this_machine(tmp_path: Path) -> None:
    """A record arrives with its priority and program."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        SyslogSink(str(tmp_path / "log"), "tessera").write(RECORDS[:1])
        head, _, body = listener.recv(4096).partition(b": ")
    assert head == f"<110>tessera[{os.getpid()}]".encode()
    assert json.loads(body) == RECORDS[0]


def test_a_record_that_no_datagram_holds(tmp_path: Path) -> None:
    """A record with a huge text is told shortened, so that those after it arrive too."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        SyslogSink(str(tmp_path / "log"), "tessera").write([{"sequence": 1, "rule": "x" * 10_000_000}])
        record = json.loads(listener.recv(4096).partition(b": ")[2])
    assert (record["sequence"], record["rule"], record["shortened"]) == (1, "x" * 200, True)


def test_a_syslog_that_is_away(tmp_path: Path) -> None:
    """Nobody listening is an error, not a loss in silence."""
    with pytest.raises(ConfigurationError, match="cannot be reached"):
        SyslogSink(str(tmp_path / "log"), "tessera").write(RECORDS)


@pytest.mark.parametrize(("written", "read"), [(True, "/dev/log"), (False, ""), ("/run/log", "/run/log")])
def test_sockets_of_syslog(written: object, read: str) -> None:
    """What a person writes becomes one form, the name that the sink is remembered by."""
    assert parse_syslog(written) == read


@pytest.mark.parametrize("written", [1, "", "logs.example", "udp://logs.example:514", "tcp://[::1]:601"])
def test_syslog_of_another_machine_is_refused(written: object) -> None:
    """An address that version 0.1 accepted is refused when the configuration is read, with what to do."""
    with pytest.raises(ValueError, match="path of a socket of this machine; its syslog can forward"):
        parse_syslog(written)


def numbered(count: int) -> list[dict[str, int]]:
    """Return records."""
    return [{"sequence": number} for number in range(1, count + 1)]


async def test_a_failing_sink_delays_no_other_and_catches_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With syslog away the file gets everything; when it is back it gets everything too, once."""
    kept, socket_path = KeptRecords(numbered(1200)), tmp_path / "log"
    sinks = open_sinks(AuditSection(tmp_path / "audit.jsonl", str(socket_path)), "tessera")
    await deliver(kept, sinks)
    assert [each["sequence"] for each in lines(tmp_path / "audit.jsonl")] == list(range(1, 1201))
    assert [record.getMessage() for record in caplog.records] == ["audit sink fails"]
    heard = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(socket_path))
        delivery = asyncio.create_task(deliver(kept, sinks))
        for _ in range(1200):
            message = await asyncio.to_thread(listener.recv, 4096)
            heard.append(json.loads(message.partition(b": ")[2])["sequence"])
        await delivery
    assert heard == list(range(1, 1201))
    assert len(lines(tmp_path / "audit.jsonl")) == 1200


async def test_what_comes_during_a_stop_is_delivered(tmp_path: Path) -> None:
    """The last actions of a daemon are in the copy, too."""
    kept = KeptRecords([])
    delivery = Delivery(kept, open_sinks(AuditSection(tmp_path / "audit.jsonl"), "tessera"))
    running = asyncio.create_task(delivery.run())
    await asyncio.sleep(0)
    kept.records += numbered(3)
    running.cancel()
    await asyncio.wait([running])
    assert [each["sequence"] for each in lines(tmp_path / "audit.jsonl")] == [1, 2, 3]


async def test_a_syslog_that_reads_nothing_keeps_no_stop_waiting(tmp_path: Path) -> None:
    """A syslog that takes some records and then nothing: the stop abandons it."""
    kept = KeptRecords(numbered(10_000))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        running = asyncio.create_task(
            Delivery(kept, open_sinks(AuditSection(syslog=str(tmp_path / "log")), "tessera")).run()
        )
        await asyncio.to_thread(listener.recv, 4096)
        running.cancel()
        async with asyncio.timeout(90):
            await asyncio.wait([running])
    assert kept.cursors == {}


async def test_a_wake_brings_what_is_new(tmp_path: Path) -> None:
    """What is recorded while the daemon runs is delivered at once, without being asked for."""
    kept, arrived = KeptRecords(numbered(1)), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Told(FileSink):
        """A file that says when something came."""

        def write(self, records: Iterable[Mapping[str, Any]]) -> None:
            super().write(records)
            loop.call_soon_threadsafe(arrived.set)

    delivery = Delivery(kept, [Told(tmp_path / "audit.jsonl")])
    running = asyncio.create_task(delivery.run())
    async with asyncio.timeout(90):
        await arrived.wait()
        arrived.clear()
        kept.records.append({"sequence": 2})
        await asyncio.to_thread(delivery.wake)
        await arrived.wait()
    running.cancel()
    assert [each["sequence"] for each in lines(tmp_path / "audit.jsonl")] == [1, 2]
