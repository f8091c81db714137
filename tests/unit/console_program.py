"""A small program on the frame of both command lines, started as a process by test_console."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from typing import Any

from common import log
from common.cli import console
from common.cli.program import Command, program
from common.errors import BalanceError, ConflictError, IntegrityError, UsageError


def end(
    how: str, as_json: console.JsonOption = False, log_level: console.LogLevelOption = log.LogLevel.ERROR
) -> int | None:
    """End in one of several ways."""
    log.start(log_level)
    if how == "balance":
        raise BalanceError("adult", "1", "0.5")
    if how == "conflict":
        raise ConflictError("two\x1b[31m\nlines", "look", {"count": Decimal("1.50")})
    if how == "group":
        raise ExceptionGroup(
            "several", [ValueError("x"), ExceptionGroup("inner", [IntegrityError("broken")])]
        )
    if how == "denied":
        raise ExceptionGroup("one", [PermissionError(13, "Permission denied", "/srv/state/owner.db")])
    if how == "full":
        raise OSError(28, "No space left on device", "/srv/scratch/tessera-records-1")
    if how == "fault":
        raise ValueError("Maria Musterfrau")
    if how == "code":
        return 8
    return None


def wait() -> None:
    """Wait for a signal inside an event loop."""

    async def forever() -> None:
        console.print_line("waiting")
        await asyncio.Event().wait()

    asyncio.run(forever())


def pause() -> None:
    """Wait for a signal without an event loop."""
    console.print_line("waiting")
    signal.pause()


def flood() -> None:
    """Print more than any pipe holds."""
    for _ in range(100_000):
        console.print_line("x" * 100)


def show(as_json: console.JsonOption = False) -> None:
    """Show progress, then a table or a document."""
    with console.progress("making", ["owner", "state", "n"], silent=as_json) as update:
        update([("a", "inviting", None), ("b", "inviting", 1)])
        update([("a", "masking", None), ("b", "inviting", 1)])
    if as_json:
        console.print_json({"b": Decimal("1.50"), "a": [1, None]})
        return
    console.table(
        "Owners",
        ["owner", "n", "epsilon", "ok"],
        [("a\x07", 5, Decimal("1E+1"), True), ("bb", 1234, None, False)],
    )
    console.print_line("rich" if "rich" in sys.modules else "no rich")


def ask(yes: console.YesOption = False) -> None:
    """Ask before going on."""
    if not yes and not console.confirm("go on?"):
        raise UsageError("not agreed")
    console.print_line("went on")


def fork() -> None:
    """Make processes by forks while another thread makes calls."""
    import grpc
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc

    calling = threading.Event()

    async def call() -> None:
        server = grpc.aio.server()
        health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            while True:
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                calling.set()

    threading.Thread(target=asyncio.run, args=(call(),), daemon=True).start()
    calling.wait()
    # With a function to run in the new process, Python forks.
    codes = {subprocess.run(["true"], preexec_fn=lambda: None).returncode for _ in range(200)}
    console.print_line(f"codes {sorted(codes)}")
    sys.stdout.flush()
    os._exit(0)


def application() -> Any:
    """Return the program with its commands."""
    commands = ("end", "wait", "pause", "flood", "show", "ask", "fork")
    listed = {name: Command(f"{__name__}:{name}", "Shows something.") for name in commands}
    return program("program", "Shows what the frame does.", "1.2.3", listed)


if __name__ == "__main__":
    console.main(application, "program")
