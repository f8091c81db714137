"""States of holder and adder that were put back in a synthetic release, and rounds that are asked again."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from aggregator.drive import conductor, rounds
from aggregator.store.database import FILE_NAME as AGGREGATOR_DB
from common.clock import utc_now
from common.database import SqliteDatabase
from common.model.rounds import SignedAnswers, SignedKey
from owner_node.config import KnownAggregator, OwnerConfig
from owner_node.ledger.ledger import Ledger
from owner_node.state.database import FILE_NAME, OwnerDatabase
from owner_node.state.history import History
from owner_node.synthesis.masks import Masks
from tests.wire.test_lost_ledger import halted
from tests.wire.test_owner_daemon import Heard, ended, heard, running, share_key
from tests.wire.test_synthetic import begin, spent
from tests.wire.test_synthetic_across import _made_keys, part

__all__ = ["_made_keys", "heard"]

STATES = {"answered 1": 1, "spent": 1, "answered 2": 2, "sent": 2, "sealed": 3}
"""By the newest line of an owner's history, how many rounds were answered: zeros are; the charge is spent;
one-way counts are answered; the holder's rows, or the adder's sums, are sent; this owner signed the sums."""
OPENED = ("spent", "sent", "sealed")
"""States in which an owner knows the document of the round that comes next."""
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the group of P-256."""


@dataclass
class Watched:
    """A release of two owners at two aggregators: what its parties were at every state."""

    folder: Path
    vectors: list[tuple[str, list[int]]] = field(default_factory=list)
    """Owner, and its answer before masks."""
    lies: bool = False
    """Whether the aggregator opens rounds by other documents from now on."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Copy every database when its party comes into another state, and keep the answers."""
        transaction, opened, answer = SqliteDatabase.transaction, rounds.opened_round, Masks.answer
        keys, add_up = rounds._keys, rounds._add_up

        @contextmanager
        def copied(db: SqliteDatabase) -> Iterator[Any]:
            with transaction(db) as tx:
                yield tx
            if isinstance(db, OwnerDatabase) and (lines := History(db, utc_now).entries("hub", "r1")):
                event = lines[-1].event
                state = f"{event} {lines[-1].details['round']}" if event == "answered" else event
                copy = self.copy_of(db.state_dir.parent.name, state)
                if state in STATES and not copy.exists():
                    db.copy_to(copy)

        def opening(release: Any, *arguments: Any) -> Any:
            copy, state = self.folder / f"hub-{len(release.rounds) + 1}", self.folder / "state"
            if not copy.exists():
                shutil.copytree(state / "incoming", copy / "incoming")
                with closing(sqlite3.connect(state / AGGREGATOR_DB)) as source:
                    source.execute("VACUUM INTO ?", (str(copy / AGGREGATOR_DB),))
            return opened(release, *arguments)

        def answered(masks: Masks, vector: Any, document: str) -> bytes:
            self.vectors.append((masks.owner, vector.tolist()))
            return answer(masks, vector, document)

        def other_keys(release: Any) -> tuple[SignedKey, ...]:
            return tuple(map(_signed_otherwise, keys(release))) if self.lies else keys(release)

        def other_answers(release: Any, intake: Any) -> Any:
            total, shown = add_up(release, intake)
            if not self.lies:
                return total, shown
            head, _, data = shown.partition(b"\n")
            signed = SignedAnswers.from_bytes(head).answers
            size = len(data) // len(signed)
            pieces = [data[at : at + size] for at in range(0, len(data), size or 1)]
            others = b"".join([SignedAnswers(signed[::-1]).head(), *pieces[::-1]])
            intake.answers(release.id, release.round).write_bytes(others)
            return total, others

        monkeypatch.setattr(SqliteDatabase, "transaction", copied)
        monkeypatch.setattr(conductor, "opened_round", opening)
        monkeypatch.setattr(Masks, "answer", answered)
        monkeypatch.setattr(rounds, "_keys", other_keys)
        monkeypatch.setattr(rounds, "_add_up", other_answers)

    def copy_of(self, party: str, state: str) -> Path:
        """Return where the copy of a party's database is."""
        return self.folder / f"{party}-{state}.db"


def _signed_otherwise(key: SignedKey) -> SignedKey:
    """Return a key under another signature of the same, which is valid, too."""
    r, s = decode_dss_signature(bytes.fromhex(key.signature))
    return replace(key, signature=encode_dss_signature(r, ORDER - s).hex())


def put_back(copy: Path, database: Path) -> None:
    """Replace a database, which nobody uses, by a copy."""
    for leftover in database.parent.glob(f"{database.name}*"):
        leftover.unlink()
    database.write_bytes(copy.read_bytes())
    database.chmod(0o600)


@pytest.fixture
async def released(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Watched, list[OwnerConfig], Any, Any]:
    """A release of adder a and holder b that is published, and the aggregators that know them."""
    hub, other = await launch(), await launch("other")
    configs = [
        replace(
            part(tmp_path, each, hub.daemon.address, certificates),
            aggregators=tuple(
                KnownAggregator(name, one.daemon.address) for name, one in (("hub", hub), ("other", other))
            ),
        )
        for each in "ab"
    ]
    share_key(configs)
    watched = Watched(tmp_path)
    watched.watch(monkeypatch)
    async with running(*configs):
        await heard.wait_for("connected", times=4)
        await begin(hub, "a", "b", layout="vertical")
        assert await ended(hub, seconds=120) == "published", (await hub.show()).error
        await heard.wait_for("concluded", times=2)
    # The other aggregator is told with the next poll.
    async with running(*configs):
        await kept_by(other, *configs)
    return watched, configs, hub, other


async def kept_by(aggregator: Any, *configs: OwnerConfig) -> None:
    """Wait until an aggregator keeps the newest head of every owner's ledger."""
    newest = {(config.owner.id, ledger_end(config)) for config in configs}
    with closing(sqlite3.connect(aggregator.config.aggregator.state_dir / AGGREGATOR_DB)) as db:
        async with asyncio.timeout(60):
            while newest - set(db.execute("SELECT owner, sequence FROM ledger_heads")):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


def ledger_end(config: OwnerConfig) -> int:
    """Return the number of the newest entry of an owner's ledger."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        return Ledger(db, utc_now).head().sequence


@pytest.mark.parametrize("keeper", ["hub", "other"])
async def test_owners_that_were_put_back_halt(released: Any, heard: Heard, keeper: str) -> None:
    """The aggregator of a release, or another one that keeps the heads, stops owners that lack a round."""
    watched, configs, hub, other = released
    newest = ledger_end(configs[0])
    at = (KnownAggregator(keeper, {"hub": hub, "other": other}[keeper].daemon.address),)
    for state in STATES:
        for config in configs:
            put_back(watched.copy_of(config.owner.id, state), config.owner.state_dir / FILE_NAME)
        end = ledger_end(configs[0])
        assert (end == newest) is (state == "sealed")
        async with running(*(replace(config, aggregators=at) for config in configs)):
            await heard.wait_for("connected" if end == newest else "not connected", times=2)
        fault = f"the ledger ends at entry {end}, but this owner has signed entry {newest}: "
        reasons = [halted(config.owner.state_dir) for config in configs]
        assert all(each.startswith(fault) for each in reasons) if end < newest else not any(reasons)


@pytest.mark.parametrize("state", STATES)
async def test_withheld_heads_bring_no_second_draw(
    launch: Callable[..., Any], released: Any, tmp_path: Path, state: str
) -> None:
    """Where no aggregator shows a head, other documents of a round get the same noise, or none."""
    watched, configs, hub, _ = released
    first, watched.vectors = watched.vectors, []
    await hub.daemon.stop()
    n_answered, place = STATES[state], hub.config.aggregator.state_dir
    copy = tmp_path / f"hub-{n_answered + 1}"
    put_back(copy / AGGREGATOR_DB, place / AGGREGATOR_DB)
    shutil.copytree(copy / "incoming", place / "incoming", dirs_exist_ok=True)
    with closing(sqlite3.connect(place / AGGREGATOR_DB)) as db, db:
        db.execute("DELETE FROM ledger_heads")
    for config in configs:
        put_back(watched.copy_of(config.owner.id, state), config.owner.state_dir / FILE_NAME)
    watched.lies = True
    again = await launch()
    at = (KnownAggregator("hub", again.daemon.address),)
    async with running(*(replace(config, aggregators=at) for config in configs)):
        end = await ended(again, seconds=120)
    if state not in OPENED:
        assert end == "published", (await again.show()).error
        assert sorted(watched.vectors) == sorted(first[2 * n_answered :])
    else:
        assert (end, watched.vectors) == ("failed", [])
    assert [spent(config) for config in configs] == [1, 1]
