"""What the aggregator does for a release grows with its owners one by one: counts of work, never of time."""

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.api import control_service
from aggregator.drive import messages
from aggregator.store.ledger_heads import LedgerHeads
from common import canonical
from common.model.fragment import FragmentStatement
from common.model.plan import Plan
from common.wire.v1 import control_pb2 as control
from deploy.development_ca import DevelopmentCa
from tests.fakes.releases import random_tokens
from tests.wire.conftest import TRUST_DOMAIN, Aggregator

FEW, MANY = 3, 12
NAMES = [f"o{number:02}" for number in range(MANY)]
STATES = 8
"""States of a release that is published."""
read_plan = cache(Plan.from_bytes)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of an aggregator and of all owners."""
    folder = tmp_path_factory.mktemp("many")
    ca = DevelopmentCa(TRUST_DOMAIN)
    (folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
    ca.aggregator("hub", ["localhost", "127.0.0.1"]).write(folder, "hub")
    for name in NAMES:
        ca.owner(name).write(folder, f"owner-{name}")
    return folder


def counted(patch: pytest.MonkeyPatch, counts: Counter[str], place: Any, name: str, what: str) -> None:
    """Count the calls of a function."""
    true = getattr(place, name)

    def call(*arguments: Any, **named: Any) -> Any:
        counts[what] += 1
        return true(*arguments, **named)

    patch.setattr(place, name, call)


async def release(aggregator: Aggregator, names: list[str], rng: np.random.Generator) -> int:
    """Make a release that an operator watches; return how many views that took."""
    owners = [aggregator.owner(name, ["age", "income"], random_tokens(rng, 20)) for name in names]
    for owner in owners:
        owner.read_plan = read_plan  # type: ignore[method-assign]  # the owners of this process share it
        await owner.connect()
    await aggregator.start(*names, release=f"r{len(names)}")
    watch = aggregator.calls.Watch(control.ReleaseRequest(release=f"r{len(names)}"))
    running = asyncio.gather(*(owner.run() for owner in owners))
    views = [view.state async for view in watch]
    assert {end.state for end in await running} == {"published"}
    return len(views)


async def test_work_per_owner_does_not_grow(
    launch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans and consents are serialised, compressed and shown as often for many owners as for few."""
    monkeypatch.setattr(control_service, "_SHORTEST_SECONDS", 3600.0)
    monkeypatch.setattr(control_service, "_REFRESH_SECONDS", 3600.0)
    aggregator, rng, found = await launch(), np.random.default_rng(5), {}
    for count in (FEW, MANY):
        counts: Counter[str] = Counter()
        with monkeypatch.context() as patch:
            true = canonical.canonical

            def plans(document: Any, counts: Counter[str] = counts, true: Any = true) -> bytes:
                counts["plan"] += "tasks" in document
                return true(document)

            patch.setattr(canonical, "canonical", plans)
            counted(patch, counts, messages, "_consents", "consents")
            counted(patch, counts, zlib, "compress", "compress")
            counted(patch, counts, FragmentStatement, "from_bytes", "statement")
            n_views = await release(aggregator, NAMES[:count], rng)
        assert n_views <= STATES
        counts["statement"] //= count
        found[count] = counts
    assert found[FEW] == found[MANY]
    assert (found[MANY]["consents"], found[MANY]["compress"]) == (1, 3)


async def test_the_newest_ledger_head_is_answered_from_memory(
    launch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every poll is answered with it; the database is read once per head, not once per poll."""
    aggregator, reads = await launch(), Counter[str]()
    monkeypatch.setattr("aggregator.api.owner_service.POLL_SECONDS", 0.0)
    counted(monkeypatch, reads, LedgerHeads, "_read_newest", "head")
    owner = aggregator.owner("o00", ["age"], random_tokens(np.random.default_rng(5), 20))
    owner.sequence = 1
    first = await owner.poll_with(owner.head())
    for _ in range(5):
        assert await owner.poll_with(owner.head(), first.newest_ledger_head.hash) == first
    assert reads["head"] == 2  # before the first head came, and after
