"""A slow and lossy line between two network namespaces, with packets that a process delays and drops.

    python -m tests.benchmarks.line NAMESPACE OTHER MBIT DELAY LOSS

As root. It connects two namespaces that exist, prints "ready" and runs until it is killed. The kernels of
small machines often lack netem. TUN devices are there nearly always, and the packets on them are real.
"""

import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import UsageError

FIRST, SECOND = "10.77.0.1", "10.77.0.2"
"""Addresses of the two ends."""
QUEUE_BYTES = 1_500_000
"""What waits before the line at most: a little more than is under way in 100 ms at 100 Mbit/s."""
_TUN_DEVICE = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_LARGEST_PACKET = 65_536
_AT_ONCE = 64
_URGENT = -15
"""A real line does not wait for the processor: this process goes before others."""


class _Way:
    """One way of the line.

    Args:
        source: Packets come from this device.
        sink: And go to this one.
        rate: Bytes per second.
        delay: Seconds.
        loss: Share of packets that are lost.
        chance: Decides which.
    """

    def __init__(
        self, source: int, sink: int, rate: float, delay: float, loss: float, chance: random.Random
    ) -> None:
        self._source, self._sink = source, sink
        self._rate, self._delay, self._loss, self._chance = rate, delay, loss, chance
        self._free_at = 0.0
        self._flying: deque[tuple[float, bytes]] = deque()

    @property
    def next_at(self) -> float:
        """When the next packet arrives."""
        return self._flying[0][0] if self._flying else float("inf")

    def take(self) -> None:
        """Take what was sent."""
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(self._source, _LARGEST_PACKET)
            except BlockingIOError:
                return
            now = time.monotonic()
            begins = max(self._free_at, now)
            if self._chance.random() < self._loss or (begins - now) * self._rate > QUEUE_BYTES:
                continue
            self._free_at = begins + len(packet) / self._rate
            self._flying.append((self._free_at + self._delay, packet))

    def give(self) -> None:
        """Deliver what has arrived."""
        now = time.monotonic()
        while self.next_at <= now:
            os.write(self._sink, self._flying.popleft()[1])


def _end(namespace: str, name: str, own: str, other: str) -> int:
    """Make one end of the line; returns its device."""
    device = os.open(_TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    _ip(f"link set {name} netns {namespace}")
    _ip(f"-n {namespace} address add {own} peer {other} dev {name}")
    _ip(f"-n {namespace} link set {name} up")
    return device


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def carry(namespace: str, other: str, megabits: float, delay: float, loss: float) -> None:
    """Be the line.

    Args:
        namespace: Name of the namespace of the first end.
        other: Name of that of the second.
        megabits: Megabits per second, each way.
        delay: Seconds there and back together.
        loss: Share of packets that are lost, each way.
    """
    first = _end(namespace, f"line{os.getpid()}a", FIRST, SECOND)
    second = _end(other, f"line{os.getpid()}b", SECOND, FIRST)
    os.nice(_URGENT)
    chance, rate = random.Random(1), megabits * 1e6 / 8
    ways = [_Way(*ends, rate, delay / 2, loss, chance) for ends in ((first, second), (second, first))]
    poll = select.poll()
    poll.register(first, select.POLLIN)
    poll.register(second, select.POLLIN)
    print("ready", flush=True)
    while True:
        wait = min(way.next_at for way in ways) - time.monotonic()
        poll.poll(None if wait == float("inf") else max(int(1000 * wait + 0.999), 0))
        for way in ways:
            way.take()
            way.give()


@contextmanager
def line(megabits: float, delay: float, loss: float) -> Iterator[tuple[str, str]]:
    """Connect two namespaces of their own by a line, as `carry`; yields their names.

    Raises:
        UsageError: If this machine does not let us.
    """
    if os.geteuid() != 0 or not _TUN_DEVICE.exists():
        raise UsageError(f"a line needs root and {_TUN_DEVICE}", "run this benchmark as root")
    names = (f"tessera{os.getpid()}a", f"tessera{os.getpid()}b")
    made = []
    try:
        for name in names:
            _ip(f"netns add {name}")
            made.append(name)
            _ip(f"-n {name} link set lo up")
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.line",
            *names,
            str(megabits),
            str(delay),
            str(loss),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                if process.stdout is None or process.stdout.readline() != "ready\n":
                    raise UsageError("the line cannot be made", "its message is above")
                yield names
            finally:
                process.kill()
    finally:
        for name in made:
            _ip(f"netns delete {name}")


if __name__ == "__main__":
    carry(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:6]))
