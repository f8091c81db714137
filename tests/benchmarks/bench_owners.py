"""Releases of many owners with tiny tables: processor time of the aggregator per owner, and of its answers.

The aggregator is the real daemon in a process of its own; all owners are in another, so both share the
machine. An operator watches the release, as `aggregator release` does, and asks for the status all the time.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil

from common.wire.v1 import control_pb2 as control
from common.wire.v1.control_pb2_grpc import ControlServiceStub
from deploy.development_ca import DevelopmentCa
from tests.benchmarks.result import Result, party
from tests.benchmarks.upload_parties import TRUST_DOMAIN

FEW = 30
SECONDS = {300: 30.0, 1000: 120.0}
"""The most seconds that a release of so many owners may take."""
STATUS_SECONDS = 0.5
MEMORY_BYTES = 1e9
FLAT = 1.5
"""How much more of the aggregator's processor time an owner of many may cost than one of few."""
_MODULE = "tests.benchmarks.owner_parties"


@dataclass(frozen=True)
class Measured:
    """One release."""

    seconds: float
    cpu: float
    """Processor time of the aggregator, in seconds."""
    peak: int
    """Most bytes of memory of the aggregator."""
    status: float
    """The longest that `status` took, in seconds."""
    late: dict[str, int]
    """Polls that were not answered in time."""


def run() -> Iterator[Result]:
    """Measure releases of few and of many owners."""
    few = measure(FEW)
    for count, most in SECONDS.items():
        many = measure(count)
        yield Result(
            f"release of {count:,} owners / {most:.0f} s", many.seconds / most, 1.0, f"{many.seconds:.1f} s"
        )
        yield Result(
            f"processor time per owner, {count:,} / {FEW} owners",
            many.cpu / count / (few.cpu / FEW),
            FLAT,
            f"{1e3 * many.cpu / count:.1f} ms against {1e3 * few.cpu / FEW:.1f} ms",
        )
        yield Result(
            f"slowest status, {count:,} owners / 0.5 s",
            many.status / STATUS_SECONDS,
            1.0,
            f"{many.status:.2f} s",
        )
        yield Result(
            f"memory with {count:,} owners / 1 GB", many.peak / MEMORY_BYTES, 1.0, f"{many.peak / 1e6:.0f} MB"
        )
        yield Result(f"late polls of {count:,} owners", float(sum(many.late.values())), 0.0, str(many.late))


def measure(count: int) -> Measured:
    """Make a release of so many owners, after one that is not counted."""
    with tempfile.TemporaryDirectory(prefix="owners-") as name, ExitStack() as stack:
        folder = Path(name)
        _certificates(folder, count)
        ask_aggregator, address, pid = stack.enter_context(party(_MODULE, "aggregator", str(folder)))
        take_part, _, _ = stack.enter_context(party(_MODULE, "owners", str(folder), address, str(count)))
        channel = stack.enter_context(grpc.insecure_channel(f"unix:{folder / 'c' / 's'}"))
        calls = ControlServiceStub(channel)
        _release(calls, take_part, "first", count)
        before = _processor_seconds(pid)
        seconds, status, said = _release(calls, take_part, "second", count)
        cpu = _processor_seconds(pid) - before
        return Measured(seconds, cpu, ask_aggregator("peak"), status, said["late"])


def _processor_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _release(
    calls: ControlServiceStub, take_part: Any, name: str, count: int
) -> tuple[float, float, dict[str, Any]]:
    """Make a release; return its seconds, those of the slowest status, and what the owners counted."""
    slowest, ended = [0.0], threading.Event()

    def ask_status() -> None:
        while not ended.wait(0.1):
            begin = time.perf_counter()
            calls.Status(control.StatusRequest())
            slowest[0] = max(slowest[0], time.perf_counter() - begin)

    owners = [f"o{i:04}" for i in range(count)]
    asking = threading.Thread(target=ask_status)
    asking.start()
    start = time.perf_counter()
    try:
        calls.Start(
            control.StartRequest(
                release=name, dataset="cohort", layout="horizontal", epsilon="1", k="5",
                confirmed=True, anyway=True,
                groups=[control.OwnerGroup(owners=owners)],
            )
        )  # fmt: skip
        watching = threading.Thread(target=lambda: list(calls.Watch(control.ReleaseRequest(release=name))))
        watching.start()
        said = take_part(name)
        seconds = time.perf_counter() - start
        watching.join()
    finally:
        ended.set()
        asking.join()
    if said["states"] != {"published": count}:
        raise RuntimeError(f"the release was not published: {said}")
    return seconds, slowest[0], said


def _certificates(folder: Path, count: int) -> None:
    ca = DevelopmentCa(TRUST_DOMAIN)
    (folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
    ca.aggregator("hub", ["127.0.0.1"]).write(folder, "aggregator")
    for i in range(count):
        ca.owner(f"o{i:04}").write(folder, f"owner-o{i:04}")
