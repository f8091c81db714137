"""Real owner daemons whose state was restored, copied or cut, at real aggregators: nothing is spent twice."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.clock import utc_now
from common.errors import IntegrityError
from common.wire.v1 import control_pb2 as control
from owner_node.config import KnownAggregator, OwnerConfig, OwnerSection
from owner_node.daemon import OwnerDaemon
from owner_node.ledger.ledger import EntryKind, Ledger
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History, Line
from tests.fakes.ledgers import tamper
from tests.wire.test_owner_daemon import Heard, heard, owner, published, running, share_key

__all__ = ["heard"]
WITHOUT_PIPE = shutil.ignore_patterns("*.bell", "*.lock")


def two(tmp_path: Path, address: str, certificates: Path, total: str = "10") -> list[OwnerConfig]:
    """Return two owners of different people that share a linkage key."""
    configs = [owner(tmp_path / name, name, address, certificates, 100 * i) for i, name in enumerate("ab")]
    share_key(configs)
    return [with_dataset(config, total_epsilon=Decimal(total)) for config in configs]


def with_dataset(config: OwnerConfig, **changes: Any) -> OwnerConfig:
    """Return a configuration whose data set says something else."""
    return replace(config, datasets=(replace(config.datasets[0], **changes),))


def backup(config: OwnerConfig, to: Path) -> Path:
    """Copy an owner's state directory."""
    shutil.copytree(config.owner.state_dir, to, ignore=WITHOUT_PIPE)
    return to


def restore(config: OwnerConfig, copy: Path) -> None:
    """Put an older copy back."""
    shutil.rmtree(config.owner.state_dir)
    shutil.copytree(copy, config.owner.state_dir)


def halted(state_dir: Path) -> str:
    """Return why no work is done; empty if it is."""
    with OwnerDatabase(state_dir, make=False) as db:
        reason = Ledger(db, utc_now).losses.reason()
    return "" if reason is None else reason.message


def kinds(state_dir: Path) -> list[str]:
    """Return what the charges in a ledger say, its chain checked."""
    with OwnerDatabase(state_dir, make=False) as db:
        Ledger(db, utc_now).verify()
        return [f"{entry.kind} {entry.aggregator} {entry.release}" for entry in Ledger(db, utc_now).entries()]


def refusal(state_dir: Path, release: str) -> Line:
    """Return the line of the history that says why a release was refused."""
    with OwnerDatabase(state_dir, make=False) as db:
        lines = History(db, utc_now).entries(release=release)
    return next(line for line in lines if line.event == "refused")


async def ended(aggregator: Any, release: str) -> control.ReleaseView:
    """Wait for the end of a release."""
    async with asyncio.timeout(90):
        views = [view async for view in aggregator.calls.Watch(control.ReleaseRequest(release=release))]
    return views[-1]


async def test_a_restored_ledger_is_not_forgotten(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """What one aggregator showed stops the work for all, also after a restart without that aggregator."""
    hub, other = await launch(), await launch("other")
    configs = two(tmp_path, hub.daemon.address, certificates)
    copy = backup(configs[0], tmp_path / "backup")
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await hub.start("a", "b")
        await published(hub)
    restore(configs[0], copy)
    async with running(configs[0]):
        await heard.wait_for("not connected")
    elsewhere = replace(configs[0], aggregators=(KnownAggregator("other", other.daemon.address),))
    async with running(elsewhere):
        await heard.wait_for("not connected")
    state = configs[0].owner.state_dir
    assert "the ledger ends at entry 0, but this owner has signed entry 2" in halted(state)
    with OwnerDatabase(state) as db, pytest.raises(IntegrityError), db.transaction() as tx:
        Ledger(db, utc_now).check_may_charge(tx)
    assert kinds(state) == []


async def test_two_daemons_of_one_identity(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """Of a copied state directory one daemon makes the release; the other stops, and the operator is told."""
    hub = await launch()
    configs = two(tmp_path, hub.daemon.address, certificates)
    states = [configs[0].owner.state_dir, backup(configs[0], tmp_path / "copy")]
    twin = replace(configs[0], owner=OwnerSection("a", configs[0].owner.trust_domain, states[1]))
    async with running(*configs, twin):
        await heard.wait_for("connected", times=3)
        await hub.start("a", "b")
        await published(hub)
        await heard.wait_for("not connected")
        reasons = [halted(state) for state in states]
        assert sorted(map(bool, reasons)) == [False, True]
        assert "another copy of this state directory" in "".join(reasons)
        going, stopped = (states[place] for place in sorted((0, 1), key=lambda each: reasons[each]))
        assert kinds(going) == ["reserve hub r1", "spend hub r1"]
        assert "spend hub r1" not in kinds(stopped)
        await hub.start("a", "b", release="r2")
        assert (await ended(hub, "r2")).state == "published"
    assert kinds(going)[2:] == ["reserve hub r2", "spend hub r2"]
    assert "reserve hub r2" not in kinds(stopped)


async def test_a_cut_tail_does_not_start(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """A ledger whose newest entries were removed is found before anybody is asked, and the entry named."""
    hub = await launch()
    configs = two(tmp_path, hub.daemon.address, certificates)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await hub.start("a", "b")
        await published(hub)
    with OwnerDatabase(configs[0].owner.state_dir) as db:
        tamper(db, "DELETE FROM ledger WHERE sequence = 2")
    with pytest.raises(IntegrityError, match="ends at entry 1") as caught:
        await OwnerDaemon(configs[0]).run(asyncio.Event())
    assert caught.value.details["entry"] == 2


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        ("renamed", "was charged to budget 'cohort'"),
        ("copied", "data were charged to budget 'cohort'"),
        ("raised", "total_epsilon = 20 for budget 'cohort', the ledger has recorded 10"),
    ],
)
async def test_a_budget_is_not_refilled(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard, case: str, rule: str
) -> None:
    """Another name and a larger total are refused at consent, a copy of the file at linking, by a rule that
    says so; nothing is spent.
    """
    hub = await launch()
    configs = two(tmp_path, hub.daemon.address, certificates)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await hub.start("a", "b")
        await published(hub)
    source = Path(configs[0].datasets[0].source)
    copy = source.with_name("exported-again.csv")
    header, *lines = source.read_text().splitlines()
    copy.write_text("\n".join([header, *sorted(lines), ""]))
    changes: dict[str, dict[str, Any]] = {
        "renamed": {"budget": "anew"},
        "copied": {"budget": "anew", "source": str(copy)},
        "raised": {"total_epsilon": Decimal(20)},
    }
    async with running(with_dataset(configs[0], **changes[case]), configs[1]):
        await heard.wait_for("connected", times=2)
        await hub.start("a", "b", release="r2")
        view = await ended(hub, "r2")
    assert (view.state, view.error.code) == ("refused", "refused")
    assert rule in refusal(configs[0].owner.state_dir, "r2").rule
    assert rule not in view.error.message
    returned = ["reserve hub r2", "return hub r2"] if case == "copied" else []
    assert kinds(configs[0].owner.state_dir) == ["reserve hub r1", "spend hub r1", *returned]


async def test_one_lifetime_budget_at_two_aggregators(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """Releases of all aggregators are charged to one budget; what does not fit is refused by both."""
    hub, other = await launch(), await launch("other")
    both = (KnownAggregator("hub", hub.daemon.address), KnownAggregator("other", other.daemon.address))
    configs = [
        replace(config, aggregators=both)
        for config in two(tmp_path, hub.daemon.address, certificates, total="3")
    ]
    async with running(*configs):
        await heard.wait_for("connected", times=4)
        states = []
        for number, aggregator in enumerate((hub, other, other, hub, other), start=1):
            await aggregator.start("a", "b", release=f"r{number}")
            states.append((await ended(aggregator, f"r{number}")).error.code)
    assert states == ["", "", "", "balance", "balance"]
    for config in configs:
        with OwnerDatabase(config.owner.state_dir, make=False) as db:
            book = Ledger(db, utc_now)
            spent = [(e.aggregator, e.release) for e in book.entries() if e.kind is EntryKind.SPEND]
            assert book.balance("cohort", Decimal(3)).remaining == 0
        assert spent == [("hub", "r1"), ("other", "r2"), ("other", "r3")]
