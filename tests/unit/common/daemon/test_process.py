"""A daemon as a process: what the service manager hears over its real kind of socket, and how it stops."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from common.daemon.process import READY, in_thread, notify, run, stop_event
from common.errors import CannotListenError, CannotRunError, CannotStoreError, ConfigurationError, ExitCode


@pytest.fixture
def manager(tmp_path):
    """A socket as a service manager has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.settimeout(5)
        yield heard


def test_a_manager_hears(manager, tmp_path, monkeypatch):
    """The state arrives as it is."""
    place = str(tmp_path / "notify")
    manager.bind(place)
    monkeypatch.setenv("NOTIFY_SOCKET", place)
    notify(READY)
    assert manager.recv(100) == b"READY=1"


def test_a_manager_of_the_abstract_namespace_hears(manager, monkeypatch):
    """A name that begins with an at sign is no file."""
    name = f"tessera-test-{os.getpid()}"
    manager.bind(f"\0{name}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    notify(READY)
    assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("place", ["", "/nowhere/at/all", "vsock:2:1", "/" + "x" * 300])
def test_nobody_listens(place, monkeypatch):
    """A daemon that nobody manages, or whose manager is away, works all the same."""
    monkeypatch.setenv("NOTIFY_SOCKET", place)
    notify(READY)


_WATCHED = """
import asyncio, sys, time
from common.daemon import process
async def main():
    stopping = process.stop_event()
    print("runs", flush=True)
    await stopping.wait()
    print("blocked", flush=True)
    sys.stdin.readline()
process.run(main())
"""


def test_a_manager_sees_whether_the_event_loop_runs(manager, tmp_path):
    """Signs of life come all the time, and none while the event loop is blocked or the process is stopped."""
    manager.bind(str(tmp_path / "notify"))
    expects = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    with subprocess.Popen(
        [sys.executable, "-c", _WATCHED],
        env=os.environ | expects,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "runs\n"
        assert {manager.recv(100) for _ in range(5)} == {b"WATCHDOG=1"}
        daemon.send_signal(signal.SIGTERM)
        assert daemon.stdout.readline() == "blocked\n"
        manager.settimeout(0.5)
        late = 0
        with suppress(TimeoutError):
            while late < 5:
                manager.recv(100)
                late += 1
        assert late < 5
        daemon.communicate("continue\n")
    assert daemon.returncode == 0


@pytest.mark.parametrize(
    "asked",
    [{}, {"WATCHDOG_USEC": "many"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}],
)
def test_no_manager_expects_signs_of_life(asked, manager, tmp_path, monkeypatch):
    """Without a watchdog, or for another process, none is sent."""
    manager.bind(str(tmp_path / "notify"))
    for name, value in {"NOTIFY_SOCKET": str(tmp_path / "notify"), **asked}.items():
        monkeypatch.setenv(name, value)
    run(asyncio.sleep(0))
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


async def test_a_cancelled_caller_waits_for_its_thread():
    """A database is not closed while a thread still works with it."""
    loop, begun, release, ended = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), []

    def work():
        loop.call_soon_threadsafe(begun.set)
        release.wait()
        ended.append(True)

    task = asyncio.create_task(in_thread(work))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


def test_a_failure_after_the_cancellation_is_not_logged(caplog):
    """A daemon that stops while a thread works says nothing of the error with which that work stops."""
    release = threading.Event()

    def work(begun):
        begun()
        release.wait()
        raise OSError("stopped")

    async def main():
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        task = asyncio.create_task(in_thread(work, lambda: loop.call_soon_threadsafe(begun.set)))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gc.collect()
    assert not caplog.records


async def test_a_kept_error_keeps_nothing_of_its_call():
    """A generator that a failed call was reading ends with it, though the error is still there."""
    ended = []

    def numbers():
        try:
            yield from range(10)
        finally:
            ended.append(True)

    def work():
        for number in numbers():
            if number == 3:
                raise OSError("full")

    with pytest.raises(OSError, match="full") as caught:
        await in_thread(work)
    assert caught.value.__traceback__ is not None
    assert ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_daemon_is_told_to_stop(number):
    """Either signal asks the daemon to stop instead of ending the process."""
    stopping = stop_event()
    try:
        os.kill(os.getpid(), number)
        async with asyncio.timeout(90):
            await stopping.wait()
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "found"), [(64, 256, 128, 128), (64, 256, 999, 256), (64, 256, 32, 32)]
)
def test_the_limit_of_files_is_raised(soft: int, hard: int, wanted: int, found: int) -> None:
    """As far as it is wanted and allowed, and never lowered."""
    script = (
        "import resource; from common.daemon.process import raise_file_limit\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        f"print(raise_file_limit({wanted}), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(found), str(max(found, soft))]


@pytest.mark.parametrize(
    ("fault", "ends"),
    [
        (CannotStoreError("full"), CannotRunError),
        (ExceptionGroup("", [ValueError(), ExceptionGroup("", [CannotListenError("full")])]), CannotRunError),
        (ConfigurationError("full"), ConfigurationError),
        (ExceptionGroup("", [ConfigurationError("full")]), ExceptionGroup),
    ],
)
def test_what_may_pass_has_an_exit_code_of_its_own(fault, ends):
    """A service manager starts a daemon again after a full disk, not after a wrong configuration."""

    async def main():
        raise fault

    with pytest.raises(ends) as caught:
        run(main())
    if ends is CannotRunError:
        assert (caught.value.message, caught.value.exit_code) == ("full", ExitCode.NOT_CONNECTED)
