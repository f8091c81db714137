"""The aggregators of the flood benchmark: `python -m tests.benchmarks.flood_party ROLE FOLDER`.

As `other` it floods an owner with large plans, as `hub` it makes releases. It says its address, and then
answers line by line.
"""

import asyncio
import sys
import time
from dataclasses import replace
from pathlib import Path

from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType, Schema
from common.planning.arguments import parse_arguments
from common.planning.planner import make_plan
from tests.benchmarks.upload_parties import each_line
from tests.fakes.hostile_aggregator import HostileAggregator, serving

PLANS = 32
"""An owner begins a hundred releases of an aggregator within an hour."""
LABELS = 100_000
"""Categories of an invented co-owner's attribute, of some twenty bytes each."""


class Flooding:
    """An aggregator that sends large plans.

    Args:
        hostile: Sends them.
    """

    def __init__(self, hostile: HostileAggregator) -> None:
        self._hostile = hostile
        self._plans: list[Plan] = []

    async def do(self, line: str) -> int:
        """Do one thing.

        `open EPSILON` begins releases, `send` sends their plans, `count` counts the answers to them,
        `end` waits for the others and cancels the releases.
        """
        verb, _, argument = line.partition(" ")
        if verb == "open":
            return await self._open(argument)
        if verb == "send":
            self._hostile.tell(*(self._hostile.consent(plan) for plan in self._plans))
            return len(self._plans[0].to_bytes())
        if verb == "end":
            return await self._end()
        return self._hostile.answers.qsize()

    async def _open(self, epsilon: str) -> int:
        labels = tuple(f"category-{i:011d}" for i in range(LABELS))
        wide = Attribute("diagnosis", AttributeType.CATEGORY, 0, LABELS - 1, 0, "error", labels)
        for number in range(PLANS):
            release = f"flood-{epsilon}-{number}".replace(".", "-")
            schema = await self._hostile.schema(release)
            others = replace(schema, attributes=(wide,))
            self._plans.append(self._plan(release, epsilon, {"a": schema, "zz": others}))
        return len(self._plans)

    async def _end(self) -> int:
        for _ in self._plans:
            await self._hostile.answers.get()
        for plan in self._plans:
            await self._hostile.ask(self._hostile.conclude(plan.release, "cancelled"))
        self._plans.clear()
        return 0

    def _plan(self, release: str, epsilon: str, schemas: dict[str, Schema]) -> Plan:
        request = parse_arguments(
            release=release, dataset="cohort", layout="vertical", groups=[("a",), ("zz",)], epsilon=epsilon,
            k="5", mechanism="idp-joint",
        )  # fmt: skip
        uri = self._hostile.hub.party.uri
        created = "2026-01-01T00:00:00+00:00"
        return make_plan(request, schemas, aggregator=uri, created=created, version="0.1.0")


async def main(role: str, folder: Path) -> None:
    """Be one of the aggregators."""
    hostile = HostileAggregator(folder)
    hostile.linkage = folder / "state"
    if role == "other":
        hostile.hub = hostile.other
    async with serving(hostile, folder, role) as address:

        async def release(name: str) -> float:
            start = time.perf_counter()
            await hostile.honest_release(name)
            return time.perf_counter() - start

        await each_line(release if role == "hub" else Flooding(hostile).do, address)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
