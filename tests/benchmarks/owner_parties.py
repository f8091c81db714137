"""The processes of the benchmark of many owners: an aggregator, and all owners of a release in one process.

Each is started as `python -m tests.benchmarks.owner_parties ROLE FOLDER [ADDRESS N]`, prints one line when
it is ready, and answers every line that it reads with one line of JSON.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from aggregator.config import AggregatorConfig, AggregatorSection
from aggregator.daemon import AggregatorDaemon
from common.model.plan import Plan
from common.settings import TlsSection
from common.wire.v1 import owner_pb2 as wire
from tests.benchmarks.upload_parties import TRUST_DOMAIN, each_line, peak_bytes
from tests.fakes.releases import random_tokens
from tests.fakes.scripted_owner import ScriptedOwner

N_RECORDS = 20
SECONDS_PER_POLL = 40.0
"""As owner nodes wait for the answer of a poll."""
read_plan = cache(Plan.from_bytes)
"""The owners of this process read a plan once; real ones are on machines of their own."""


async def aggregator(folder: Path) -> None:
    """Run the real daemon; answer with its peak of memory in bytes."""
    section = AggregatorSection(
        "hub", TRUST_DOMAIN, folder / "state", folder / "releases", folder / "c" / "s", listen="127.0.0.1:0"
    )
    tls = TlsSection(folder / "ca.pem", folder / "aggregator.pem", folder / "aggregator.key")
    daemon = AggregatorDaemon(AggregatorConfig(path=folder / "aggregator.toml", aggregator=section, tls=tls))
    await daemon.start()

    async def peak(_: str) -> int:
        return peak_bytes()

    await each_line(peak, daemon.address)
    await daemon.stop()


class CountingOwner(ScriptedOwner):
    """An owner of few records that polls as owner nodes do.

    Args:
        owner: Owner id.
        address: Of the aggregator.
        folder: With the certificates.
        counts: Counts polls that were not answered in time.
    """

    def __init__(self, owner: str, address: str, folder: Path, counts: Counter[str]) -> None:
        tokens = random_tokens(np.random.default_rng(), N_RECORDS)
        super().__init__(owner, address, folder, ("age", "income"), tokens)
        self._counts = counts

    async def poll(self, busy: Sequence[wire.WorkKey] = ()) -> list[wire.Work]:
        """Wait for work; a poll that is not answered in time is counted and repeated."""
        try:
            response = await self.calls.Poll(wire.PollRequest(busy=busy), timeout=SECONDS_PER_POLL)
        except grpc.aio.AioRpcError as error:
            self._counts[error.code().name] += 1
            return []
        for work in response.work:
            await self.fetch(work)
        return list(response.work)

    def read_plan(self, data: bytes) -> Plan:
        """Read a plan, which the owners of this process share."""
        return read_plan(data)


async def owners(folder: Path, address: str, count: str) -> None:
    """Connect all owners; at every line, take part in one release until it has ended."""
    counts: Counter[str] = Counter()
    parties = [CountingOwner(f"o{i:04}", address, folder, counts) for i in range(int(count))]
    await asyncio.gather(*(owner.connect() for owner in parties))

    async def turn(_: str) -> dict[str, Any]:
        ends = await asyncio.gather(*(owner.run() for owner in parties))
        read_plan.cache_clear()
        for owner in parties:
            owner.concluded = None
            owner.documents.clear()
        return {"states": Counter(end.state for end in ends), "reason": ends[0].reason, "late": counts}

    await each_line(turn, "ready")
    await asyncio.gather(*(owner.close() for owner in parties))


async def main(role: str, folder: str, *arguments: str) -> None:
    """Run one of the parties."""
    if role == "aggregator":
        await aggregator(Path(folder))
    else:
        await owners(Path(folder), *arguments)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
