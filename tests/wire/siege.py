"""A real owner daemon at an aggregator that lies, for the tests of what comes of that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from common.model.plan import Plan
from common.wire.v1 import owner_pb2 as wire
from owner_node.config import OwnerConfig, PolicyConfig
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.state.database import OwnerDatabase
from owner_node.state.session import SessionState
from owner_node.state.sessions import Sessions
from tests.fakes.hostile_aggregator import HostileAggregator, serving
from tests.wire.test_owner_daemon import owner, running

POLICY = PolicyConfig(
    max_epsilon_per_release=Decimal(2), min_k=5, mechanisms=("idp-joint",), layouts=("horizontal",),
    purposes=("", "care"),
)  # fmt: skip


def now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


@dataclass
class Siege:
    """A running owner daemon and the aggregator that it is connected to."""

    hostile: HostileAggregator
    config: OwnerConfig

    def kinds(self) -> list[str]:
        """Return the kinds of all ledger entries, the chain checked."""
        with OwnerDatabase(self.config.owner.state_dir, make=False) as db:
            ledger = Ledger(db, now)
            ledger.verify()
            return [str(entry.kind) for entry in ledger.entries() if str(entry.kind) != "budget"]

    def state(self, release: str) -> SessionState | None:
        """Return where a session is."""
        with OwnerDatabase(self.config.owner.state_dir, make=False) as db:
            session = Sessions(db, now).get("hub", release)
            return session.state if session else None

    async def refused(self, work: wire.Work) -> str:
        """Tell work that is to be refused; return the code that comes back."""
        answer = await self.hostile.ask(work)
        assert answer.WhichOneof("answer") == "failure", answer
        assert answer.release == work.release
        return answer.failure.code

    async def accepted(self, release: str) -> Plan:
        """Bring a release to a reservation."""
        plan = self.hostile.plan(await self.hostile.schema(release), release)
        assert (await self.hostile.ask(self.hostile.consent(plan))).WhichOneof("answer") == "consented"
        return plan


@asynccontextmanager
async def besieged(folder: Path, certificates: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Siege]:
    """Run an owner daemon with a policy at a hostile aggregator; at the end an honest release still works."""
    for name in ("_REST_SECONDS", "_RETRY_SECONDS", "_FIRST_WAIT_SECONDS", "_LONGEST_WAIT_SECONDS"):
        patch.setattr(f"owner_node.connection.connection.{name}", 0.02)
    hostile = HostileAggregator(certificates)
    async with serving(hostile, certificates) as address:
        config = replace(owner(folder / "a", "a", address, certificates), policy=POLICY)
        linkage_key.new(config.owner.state_dir)
        hostile.linkage = config.owner.state_dir
        siege = Siege(hostile, config)
        async with running(config):
            async with asyncio.timeout(90):
                await hostile.connected.wait()
            yield siege
            before = siege.kinds()
            await hostile.honest_release("good")
            assert siege.kinds() == [*before, "reserve", "spend"]
