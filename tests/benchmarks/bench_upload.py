"""Uploading 1 GiB of fragment over TLS, against a bare gRPC stream of the same chunks; memory of both sides.

Each of the four parties is a process of its own. An upload is timed from the call to the signed receipt:
received, on disk, digest and every batch checked. The bare stream does nothing with what it receives.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from deploy.development_ca import DevelopmentCa
from tests.benchmarks.result import Result
from tests.benchmarks.upload_parties import FRAGMENT, TRUST_DOMAIN, write_fragment

TIME_LIMIT = 1.25
MEMORY_LIMIT = 400e6
TURNS = 5


def run() -> Iterator[Result]:
    """Measure uploads and bare streams in turns, and the memory that the uploads took."""
    with tempfile.TemporaryDirectory(prefix="upload-") as name, ExitStack() as stack:
        folder = Path(name)
        _prepare(folder)
        ask_aggregator, address = stack.enter_context(_party("aggregator", folder))
        ask_owner, _ = stack.enter_context(_party("owner", folder, address))
        _, address = stack.enter_context(_party("bare-server", folder))
        ask_client, _ = stack.enter_context(_party("bare-client", folder, address))
        uploads, streams = [], []
        for turn in range(TURNS + 1):
            uploads.append(ask_owner(f"r{turn}"))
            streams.append(ask_client(f"r{turn}"))
        size = (folder / FRAGMENT).stat().st_size
        # The first turn of each is not counted: connections are made and libraries loaded.
        ours = statistics.median(each["seconds"] for each in uploads[1:])
        bare = statistics.median(streams[1:])
        detail = f"{size / 1e6:,.0f} MB in {ours:.2f} s against {bare:.2f} s"
        yield Result("upload with receipt / bare gRPC stream", ours / bare, TIME_LIMIT, detail)
        for side, above in (
            ("the owner", max(each["above_idle"] for each in uploads)),
            ("the aggregator", ask_aggregator("peak")),
        ):
            detail = f"{above / 1e6:.0f} MB above idle"
            yield Result(f"peak memory of {side} / 400 MB", above / MEMORY_LIMIT, 1.0, detail)


def _prepare(folder: Path) -> None:
    ca = DevelopmentCa(TRUST_DOMAIN)
    (folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
    ca.aggregator("hub", ["127.0.0.1"]).write(folder, "aggregator")
    for owner in ("a", "b"):
        ca.owner(owner).write(folder, f"owner-{owner}")
    write_fragment(folder / FRAGMENT)


@contextmanager
def _party(role: str, folder: Path, *arguments: str) -> Iterator[tuple[Any, str]]:
    """Start a process; yields how to ask it, and what it said when it was ready."""
    command = [sys.executable, "-m", "tests.benchmarks.upload_parties", role, str(folder), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process without pipes")
        asking, answers = process.stdin, process.stdout

        def ask(line: str) -> Any:
            asking.write(f"{line}\n")
            asking.flush()
            return json.loads(answers.readline())

        try:
            yield ask, json.loads(answers.readline())
        finally:
            asking.close()
            process.wait()
