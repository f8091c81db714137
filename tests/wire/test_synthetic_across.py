"""Synthetic releases of owners with different attributes through real daemons, and what is left of them."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from aggregator.api.uploads import Uploads
from aggregator.drive import rounds
from aggregator.release import linking
from common.canonical import canonical
from common.clock import utc_now
from common.errors import DataChangedError, IntegrityError, NotConnectedError, UsageError
from common.model.rounds import FIRST_COUNTED
from common.model.schema import Attribute, AttributeType
from common.progress import Progress
from common.release.verification import verify_release
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from owner_node.config import OwnerConfig, PolicyConfig
from owner_node.connection.client import AggregatorClient, NotTakenError
from owner_node.connection.credentials import own_credentials
from owner_node.connection.worker import Worker
from owner_node.linking import linkage_key
from owner_node.release import crossing
from owner_node.release.recomputed import Message, recompute
from owner_node.release.records import NOT_KEPT, Records
from owner_node.release.recovery import Recovery, carry_out
from owner_node.release.work import Owner
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.rounds import Rounds
from owner_node.state.session import SessionState
from owner_node.synthesis import crossed, paillier
from owner_node.synthesis.packing import Packing
from owner_node.trust import Trust
from tests.fakes.small_keys import CIPHERTEXT_BYTES, MODULUS_BITS, MODULUS_BYTES, small_keys
from tests.fakes.synthetic_owners import paillier_key
from tests.wire.test_owner_daemon import Heard, ended, heard, owner, running, share_key
from tests.wire.test_synthetic import begin, rounds_of, session_of, spent

__all__ = ["heard"]

ATTRIBUTES = {
    "a": (Attribute("age", AttributeType.INTEGER, 0, 90), Attribute("sex", AttributeType.BOOLEAN, 0, 1)),
    "b": (Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),),
    "c": (Attribute("pay", AttributeType.NUMBER, 0, 9_999, 2),),
}
RECORDS = 60
_PARCELS = ("rows", "sums")


@pytest.fixture(autouse=True)
def _made_keys(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every owner's key is another small one, made once for all tests; one release makes its own in full."""
    if "names" not in request.fixturenames:
        small_keys(monkeypatch)
        numbers = count(10)
        monkeypatch.setattr(paillier, "new_key", lambda: paillier_key(next(numbers)))


def part(folder: Path, name: str, address: str, certificates: Path, records: int = RECORDS) -> OwnerConfig:
    """Return the configuration of an owner of some attributes of the same persons, in an order of its own."""
    config = owner(folder / name, name, address, certificates)
    draws = np.random.default_rng(1)
    ages = draws.integers(0, 91, RECORDS)
    columns = {
        "age": ages, "sex": np.where(ages > 45, "true", "false"),
        "ward": np.array(list("abc"))[np.minimum(ages // 31, 2)], "pay": ages + 0.25,
    }  # fmt: skip
    order = np.random.default_rng(ord(name)).permutation(RECORDS)[:records]
    names = [each.name for each in ATTRIBUTES[name]]
    lines = [",".join([f"p{i}", *(str(columns[each][i]) for each in names)]) for i in order.tolist()]
    (dataset,) = config.datasets
    Path(dataset.source).write_text("\n".join([",".join(["person", *names]), *lines, ""]))
    return replace(config, datasets=(replace(dataset, attributes=ATTRIBUTES[name]),))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("names", ["ab", "abc"])
async def test_a_release_across_owners(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard, names: str
) -> None:
    """Records have the attributes of all owners, which are charged the whole ε and keep no key."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates) for each in names]
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=len(names))
        await begin(aggregator, *names, layout="vertical")
        # Every owner makes a key of 3,072 bits, which takes seconds where many tests run.
        assert await ended(aggregator, seconds=120) == "published"
        await heard.wait_for("concluded", times=len(names))
    folder = aggregator.config.aggregator.release_dir / "r1"
    verified = verify_release(folder, aggregator.certificates / "ca.pem")
    assert verified.n_records == RECORDS
    attributes = [each.name for name in names for each in ATTRIBUTES[name]]
    assert pq.read_table(folder / "data.parquet").column_names == ["record", *attributes]
    kinds = set(pq.read_table(folder / "counts.parquet").column("kind").to_pylist())
    assert kinds == {"one-way", "two-way"}
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["synthesis"]["colluding"] == "0"
    for config in configs:
        assert spent(config) == 1
        assert session_of(config).state is SessionState.PUBLISHED
        assert not list((config.owner.state_dir / "outbox").glob("*.parcel"))
        with OwnerDatabase(config.owner.state_dir, make=False) as db:
            assert Rounds(db).secrets("hub", "r1") is None


async def test_persons_of_all_owners_are_counted_once_for_delta(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """A δ that the stated 60 persons allow is no error, although 60 may stand for 69 of each owner."""
    aggregator = await launch()
    policy = PolicyConfig(total_delta=Decimal("0.01"))
    configs = [
        replace(part(tmp_path, each, aggregator.daemon.address, certificates), policy=policy) for each in "ab"
    ]
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, *"ab", layout="vertical", delta="0.0016")
        assert await ended(aggregator, seconds=120) == "published", (await aggregator.show()).error
        await heard.wait_for("concluded", times=2)
    verify_release(aggregator.config.aggregator.release_dir / "r1", aggregator.certificates / "ca.pem")
    assert [spent(config) for config in configs] == [1, 1]


@pytest.mark.parametrize(
    "pairs",
    [
        ["age:sex", "age:ward", "sex:pay"],
        # The owner of pay counts with nobody, and then nobody with anybody.
        ["age:sex", "age:ward"],
        ["age:sex"],
    ],
)
async def test_named_pairs_across_owners(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard, pairs: list[str]
) -> None:
    """Exactly the tables are counted that were named, also where owners have none with others."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates) for each in "abc"]
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=3)
        await begin(aggregator, *"abc", layout="vertical", pairs=pairs)
        assert await ended(aggregator, seconds=120) == "published", (await aggregator.show()).error
    folder = aggregator.config.aggregator.release_dir / "r1"
    verify_release(folder, aggregator.certificates / "ca.pem")
    counts = pq.read_table(folder / "counts.parquet").to_pylist()
    counted = {(each["first"], each["second"]) for each in counts if each["kind"] == "two-way"}
    assert counted == {tuple(pair.split(":")) for pair in pairs}
    assert [spent(config) for config in configs] == [1, 1, 1]


def messages(config: OwnerConfig) -> list[Message]:
    """Compute again what an owner sent, as `owner-node verify --messages` does."""
    records = Records.open(config.owner.state_dir, utc_now)
    credentials = own_credentials(config, utc_now)
    trust = Trust(credentials.authorities, config.owner.trust_domain, config.owner.id, "hub", utc_now)
    with records.db:
        party = Owner(config, "hub", records, credentials, trust, utc_now)
        work = party.work("r1")
        assert work is not None
        return list(recompute(party, work, Progress()))


def sent_of(config: OwnerConfig) -> list[tuple[str, str]]:
    """Return the digests that an owner's history has of what it sent others, and of what others sent."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        lines = History(db, utc_now).entries("hub", "r1")
    told = [line.details for line in lines if line.event in ("sent", "answered")]
    return [(kind, digest) for details in told for kind, digest in details.items() if kind[:4] in _PARCELS]


@pytest.mark.parametrize("honest", [True, False])
async def test_an_auditor_computes_messages_again(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    honest: bool,
) -> None:
    """All that an owner sent follows from what it has, unless it encrypted other rows than its own."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates) for each in "ab"]
    # With next to no noise, bins are never merged into one, of which other rows would be the same.
    configs = [
        replace(
            each,
            owner=replace(each.owner, keep_for_audit=NOT_KEPT if honest else timedelta(days=2)),
            datasets=tuple(replace(dataset, total_epsilon=Decimal(1000)) for dataset in each.datasets),
        )
        for each in configs
    ]
    adder, holder = configs
    share_key(configs)
    encrypted = crossed.encrypted_rows

    def other_rows(roles: Any, number: int, columns: Any, *others: Any) -> Iterator[bytes]:
        return encrypted(roles, number, {name: each * 0 for name, each in columns.items()}, *others)

    async with running(*configs):
        await heard.wait_for("connected", times=2)
        with monkeypatch.context() as patch:
            if not honest:
                patch.setattr(crossing, "encrypted_rows", other_rows)
            asked = {"audit": "2d"} if honest else {}
            await begin(aggregator, "a", "b", layout="vertical", epsilon="900", **asked)
            assert await ended(aggregator, seconds=120) == "published"
        await heard.wait_for("concluded", times=2)
    manifest = json.loads((aggregator.config.aggregator.release_dir / "r1" / "manifest.json").read_bytes())
    assert {each["consent"]["document"].get("audit_days") for each in manifest["owners"]} == {
        "2" if honest else None
    }
    # Another linkage key, for later releases, and a recovery of the ledger change nothing.
    linkage_key.new(adder.owner.state_dir, replace=True)
    records = Records.open(adder.owner.state_dir, utc_now)
    with records.db:
        carry_out(records, Recovery((), 0, ()), {}, adder, {})
    found = {(each.round, each.kind): each.digest for each in messages(adder)}
    assert list(found) == [(1, "answer"), (2, "answer"), (3, "sums"), (3, "answer"), (4, "answer")]
    assert found[4, "answer"] == session_of(adder).fragment_digest
    assert sent_of(holder)[1:] == [("sums of a", found[3, "sums"])]
    if honest:
        (rows,) = [each for each in messages(holder) if each.kind == "rows"]
        assert ("rows of b", rows.digest) in sent_of(adder)
    else:
        with pytest.raises(IntegrityError, match="its message 'rows' of round 3 does not follow from its"):
            messages(holder)
    Path(adder.datasets[0].source).write_text("person,age,sex\np0,1,true\n")
    with pytest.raises(DataChangedError):
        messages(adder)
    # The time is over at one of them. At the other the setting is gone, and the clock was set back: then only
    # what the plan asks for is kept.
    for config, days, kept in ((adder, 3, adder.owner.keep_for_audit), (holder, -1, NOT_KEPT)):
        clock = partial(datetime.fromtimestamp, (utc_now() + timedelta(days=days)).timestamp(), UTC)
        later = Records.open(config.owner.state_dir, clock, kept)
        with later.db:
            later.drop_fragments()
        if honest and config is holder:
            assert messages(config)
            continue
        assert not list((config.owner.state_dir / "outbox").glob("*.parcel"))
        assert session_of(config).release_key is None
        with pytest.raises(UsageError, match=f"deleted its messages of release r1, .* on {clock():%Y-%m-%d}"):
            messages(config)


def parts(folder: Path, address: str, certificates: Path, *groups: str) -> list[OwnerConfig]:
    """Return the configurations of owners of groups; each group divides the persons of `part` in its way."""
    configs = []
    for place, (names, owners) in enumerate(zip(ATTRIBUTES, groups, strict=False)):
        whole = part(folder / "whole", names, address, certificates)
        header, *lines = Path(whole.datasets[0].source).read_text().splitlines()
        for number, own in enumerate(owners):
            config = owner(folder / own, own, address, certificates)
            (dataset,) = config.datasets
            persons = [int(line.partition(",")[0].removeprefix("p")) // 3**place for line in lines]
            kept = [line for line, i in zip(lines, persons, strict=True) if i % len(owners) == number]
            Path(dataset.source).write_text("\n".join([header, *kept, ""]))
            configs.append(replace(config, datasets=(replace(dataset, attributes=ATTRIBUTES[names]),)))
    return configs


async def begin_mixed(aggregator: Any, *groups: str, **changes: Any) -> None:
    """Start a synthetic release of groups of owners."""
    grid = [control.OwnerGroup(owners=group) for group in groups]
    await begin(aggregator, *"".join(groups), layout="mixed", groups=grid, **changes)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("groups", "delta"), [(("ab", "cd"), ""), (("a", "bc", "d"), "0.0001")])
async def test_a_release_of_groups_of_owners(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    groups: tuple[str, ...],
    delta: str,
) -> None:
    """Owners of one group have different persons, and groups the same ones: one table of all."""
    aggregator = await launch()
    allowed = PolicyConfig(total_delta=Decimal("0.0001"))
    configs = [
        replace(each, policy=allowed)
        for each in parts(tmp_path, aggregator.daemon.address, certificates, *groups)
    ]
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=len(configs))
        await begin_mixed(aggregator, *groups, delta=delta)
        state = await ended(aggregator, seconds=240)
        assert state == "published", (await aggregator.show()).error
        await heard.wait_for("concluded", times=len(configs))
    folder = aggregator.config.aggregator.release_dir / "r1"
    verified = verify_release(folder, aggregator.certificates / "ca.pem")
    assert verified.n_records == RECORDS
    attributes = [
        each.name for names, _ in zip(ATTRIBUTES, groups, strict=False) for each in ATTRIBUTES[names]
    ]
    assert pq.read_table(folder / "data.parquet").column_names == ["record", *attributes]
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["synthesis"]["colluding"] == "1"
    assert manifest["synthesis"].get("delta", "") == delta
    assert [spent(config) for config in configs] == [1] * len(configs)
    for config in configs:
        assert not list((config.owner.state_dir / "outbox").glob("*.parcel"))
        with OwnerDatabase(config.owner.state_dir, make=False) as db:
            assert Rounds(db).secrets("hub", "r1") is None
            assert not Rounds(db).selection("hub", "r1")


@pytest.mark.parametrize("consistent", [False, True])
async def test_what_the_aggregator_says_about_partners_is_checked(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    consistent: bool,
) -> None:
    """Other bytes than the addendum names cost nothing; a lie that fits it ends before anything is read."""
    aggregator = await launch()
    configs = parts(tmp_path, aggregator.daemon.address, certificates, "ab", "c")
    share_key(configs)
    partners, uploaded = linking.with_partners, Uploads.selection

    def turned(*arguments: Any) -> dict[str, bytes]:
        """Say of the persons of c that they are at the other owner."""
        found: dict[str, bytes] = partners(*arguments)
        return found | {"c": bytes(1 - each if i % 2 == 0 else each for i, each in enumerate(found["c"]))}

    def changed(self: Uploads, *arguments: Any) -> Path:
        path = uploaded(self, *arguments)
        copy = tmp_path / f"changed-{path.name}"
        copy.write_bytes(path.read_bytes()[:-1] + b"x")
        return copy

    if consistent:
        monkeypatch.setattr(linking, "with_partners", turned)
    else:
        monkeypatch.setattr(Uploads, "selection", changed)
    async with running(*configs):
        await heard.wait_for("connected", times=3)
        await begin_mixed(aggregator, "ab", "c")
        assert await ended(aggregator, seconds=120) == "failed"
        await heard.wait_for("concluded", times=3)
    said = "is for other persons" if consistent else "it is not what the addendum is about"
    assert any(said in each for each in refusals(configs))
    assert sum(map(spent, configs)) == (3 if consistent else 0)
    assert not (aggregator.config.aggregator.release_dir / "r1").exists()


async def test_what_was_sent_is_made_again_byte_for_byte(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An owner that loses what it was about to send makes the same; asked again, it sends what it has."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates) for each in "ab"]
    share_key(configs)
    upload, seen = AggregatorClient.upload_parcel, dict[tuple[str, str], list[str]]()

    async def lost(self: Any, release: str, plan: str, answer: Any, progress: Any) -> None:
        made = seen.setdefault((answer.parcel.owner, answer.parcel.opening), [])
        made.append(answer.parcel.parcel_digest)
        if len(made) == 1:
            answer.path.unlink()
            raise NotConnectedError("the network is gone")
        await upload(self, release, plan, answer, progress)
        await upload(self, release, plan, answer, progress)

    monkeypatch.setattr(AggregatorClient, "upload_parcel", lost)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, *"ab", layout="vertical")
        assert await ended(aggregator, seconds=120) == "published"
    # The holder's rows, and the adder's sums.
    assert len(seen) == 2
    assert all(len(made) == 2 and len(set(made)) == 1 for made in seen.values())
    assert [spent(each) for each in configs] == [1, 1]


@pytest.mark.parametrize(
    ("late", "groups"), [("rows", ("a", "b")), ("sums", ("a", "b")), ("rows", ("ab", "c"))]
)
async def test_a_partner_that_never_answers_ends_the_release(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    pass_deadline: Callable[..., None],
    late: str,
    groups: tuple[str, ...],
) -> None:
    """The deadline ends what waits for an owner; the same command goes on, with the same bytes and charge."""
    aggregator = await launch()
    configs = parts(tmp_path, aggregator.daemon.address, certificates, *groups)
    share_key(configs)
    mixed = len(configs) > len(groups)

    async def again() -> None:
        await (begin_mixed(aggregator, *groups) if mixed else begin(aggregator, *groups, layout="vertical"))

    upload, made = AggregatorClient.upload_parcel, dict[tuple[str, str], set[str]]()
    silent, asked = True, asyncio.Event()

    async def hung(self: Any, release: str, plan: str, answer: Any, progress: Any) -> None:
        parcel = answer.parcel
        made.setdefault((parcel.owner, parcel.opening), set()).add(parcel.parcel_digest)
        if silent and parcel.kind == late:
            asked.set()
            raise NotConnectedError("the network is gone")
        await upload(self, release, plan, answer, progress)

    monkeypatch.setattr(AggregatorClient, "upload_parcel", hung)
    async with running(*configs):
        await heard.wait_for("connected", times=len(configs))
        await again()
        async with asyncio.timeout(60):
            await asked.wait()
        pass_deadline()
        assert await ended(aggregator) == "expired"
        view = await aggregator.show()
        # Only one is late: the other one waits for it.
        assert re.search("no answer from [abc]$", view.error.message)
        assert view.resumable
        await heard.wait_for("concluded", times=len(configs))
        assert [session_of(each).state for each in configs] == [SessionState.ENDED] * len(configs)
        before = [[each.digest for each in rounds_of(config)] for config in configs]
        silent = False
        await again()
        assert await ended(aggregator, seconds=120) == "published"
    for config, digests in zip(configs, before, strict=True):
        assert [each.digest for each in rounds_of(config)][: len(digests)] == digests
    # Rows of one holder, and sums of its adders.
    assert len(made) == (3 if mixed else 2)
    assert all(len(each) == 1 for each in made.values())
    assert [spent(each) for each in configs] == [1] * len(configs)


@pytest.mark.parametrize("kind", ["rows", "sums"])
async def test_what_was_deleted_at_the_end_is_sent_again(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    pass_deadline: Callable[..., None],
    kind: str,
) -> None:
    """An owner that had not fetched what another one sent gets it once the release goes on."""
    fetch, asked, gone = AggregatorClient.parcel, asyncio.Event(), True

    async def lost(self: Any, release: str, plan: str, name: str, size: int, to: Path) -> None:
        if gone and to.name.partition(".")[2].startswith(kind):
            asked.set()
            raise NotConnectedError("the network is gone")
        await fetch(self, release, plan, name, size, to)

    monkeypatch.setattr(AggregatorClient, "parcel", lost)
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates) for each in "ab"]
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, *"ab", layout="vertical")
        async with asyncio.timeout(60):
            await asked.wait()
        pass_deadline()
        assert await ended(aggregator) == "expired"
        await heard.wait_for("concluded", times=2)
        left = aggregator.config.aggregator.state_dir.glob("incoming/r1/*")
        assert [path.name for path in left] == ["2.answers"]
        gone = False
        await begin(aggregator, *"ab", layout="vertical")
        assert await ended(aggregator, seconds=120) == "published"
    # What is sent again adds no line to the history.
    made = [each for config in configs for each in sent_of(config) if each[0] in _PARCELS]
    assert len(made) == len(set(made)) == 2
    assert [spent(each) for each in configs] == [1, 1]


@pytest.mark.timeout(900)
async def test_an_owner_away_in_the_first_round_is_no_loss_for_the_others(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    pass_deadline: Callable[..., None],
) -> None:
    """What the others have spent is not lost: it still finds its partners when the release goes on."""
    aggregator = await launch()
    groups = "ab", "c"
    *others, late = configs = parts(tmp_path, aggregator.daemon.address, certificates, *groups)
    share_key(configs)
    opened, asked = Worker._opened, asyncio.Event()
    answer, measured = AggregatorClient.answer, asyncio.Semaphore(0)

    async def answered(self: Any, request: wire.AnswerRequest) -> None:
        await answer(self, request)
        if request.measured.round == FIRST_COUNTED:
            measured.release()

    async def lost(self: Any, work: wire.Work, measure: wire.Measure) -> Any:
        if measure.round == FIRST_COUNTED and self._node.measuring._owner.id == late.owner.id:
            asked.set()
            raise NotConnectedError("the network is gone")
        return await opened(self, work, measure)

    async with running(*others):
        with monkeypatch.context() as patch:
            patch.setattr(Worker, "_opened", lost)
            patch.setattr(AggregatorClient, "answer", answered)
            async with running(late), asyncio.timeout(120):
                await heard.wait_for("connected", times=3)
                await begin_mixed(aggregator, *groups)
                await asked.wait()
                for _ in others:
                    await measured.acquire()
        pass_deadline()
        assert await ended(aggregator) == "expired"
        assert [spent(each) for each in configs] == [1, 1, 0]
        assert (await aggregator.show()).resumable
        # Before it is told of the end, for it would return its reservation.
        await begin_mixed(aggregator, *groups)
        async with running(late):
            assert await ended(aggregator, seconds=120) == "published"
    assert [spent(each) for each in configs] == [1, 1, 1]


async def test_a_person_can_stop_what_takes_long(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A release that is cancelled while an owner encrypts for hours is over at once, there, too."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates) for each in "ab"]
    share_key(configs)
    started, loop = asyncio.Event(), asyncio.get_running_loop()

    def endless(*_: Any) -> Iterator[bytes]:
        yield b"a key"
        loop.call_soon_threadsafe(started.set)
        while True:
            yield b""

    monkeypatch.setattr(crossing, "encrypted_rows", endless)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, *"ab", layout="vertical")
        async with asyncio.timeout(60):
            await started.wait()
        await aggregator.calls.Cancel(control.ReleaseRequest(release="r1"))
        await heard.wait_for("stopped")
    assert not list(configs[0].owner.state_dir.glob("outbox/*rows*"))


async def test_rows_that_come_after_the_end_are_refused(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An owner that learns late that a release was cancelled leaves nothing at the aggregator."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates) for each in "ab"]
    share_key(configs)
    upload, ready, over = AggregatorClient.upload_parcel, asyncio.Event(), asyncio.Event()
    said: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def late(self: Any, release: str, plan: str, answer: Any, _progress: Any) -> None:
        ready.set()
        await over.wait()
        try:
            await upload(self, release, plan, answer, Progress())
        except NotTakenError as error:
            said.set_result(str(error))
            raise
        said.set_result("taken")

    monkeypatch.setattr(AggregatorClient, "upload_parcel", late)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, *"ab", layout="vertical")
        async with asyncio.timeout(120):
            await ready.wait()
            await aggregator.calls.Cancel(control.ReleaseRequest(release="r1"))
            over.set()
            assert "no rows of owner" in await said
    assert not list(aggregator.config.aggregator.state_dir.glob("incoming/r1"))


def weak(header: dict[str, Any]) -> dict[str, Any]:
    """Return a header with a number that is divisible by 3."""
    return header | {"modulus": (3 * (2 ** (MODULUS_BITS - 1) // 3 + 1)).to_bytes(MODULUS_BYTES).hex()}


def other_persons(header: dict[str, Any]) -> dict[str, Any]:
    """Return the header of rows of other persons."""
    return header | {"persons": {"b": "0" * 64, "a": "0" * 64}}


def changed_header(message: bytes, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    """Return a message with another header."""
    size = int.from_bytes(message[:4])
    header = canonical(change(json.loads(message[4 : 4 + size])))
    return len(header).to_bytes(4) + header + message[4 + size :]


@pytest.mark.parametrize(
    ("false", "said"),
    [
        (lambda rows: rows[:-CIPHERTEXT_BYTES], "is truncated"),
        (lambda rows: rows + rows[-CIPHERTEXT_BYTES:], "has trailing bytes"),
        (lambda rows: rows[:-CIPHERTEXT_BYTES] + b"\xff" * CIPHERTEXT_BYTES, "out of range"),
        (lambda rows: changed_header(rows, weak), "has a factor below 65,536"),
        (lambda rows: changed_header(rows, other_persons), "is for other persons"),
    ],
    ids=["fewer", "more", "no ciphertext", "weak key", "other persons"],
)
async def test_false_rows_end_the_release(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    false: Callable[[bytes], bytes],
    said: str,
) -> None:
    """Rows of another shape, or with a weak key, are refused in words by the owner that would add them up."""
    encrypted = crossed.encrypted_rows

    def rows(*arguments: Any) -> Iterator[bytes]:
        yield false(b"".join(encrypted(*arguments)))

    monkeypatch.setattr(crossing, "encrypted_rows", rows)
    await fails(launch, tmp_path, certificates, heard, said)


def refusals(configs: list[OwnerConfig]) -> list[str]:
    """Return what the owners refused, as it stands in their histories."""
    found = []
    for config in configs:
        with OwnerDatabase(config.owner.state_dir, make=False) as db:
            found += [
                str(row["rule"]) for row in db.rows("SELECT rule FROM history WHERE event = 'rejected'")
            ]
    return found


async def fails(
    launch: Callable[..., Any],
    folder: Path,
    certificates: Path,
    heard: Heard,
    said: str,
    public: str = "what another owner sent for tables of both cannot be used",
    epsilon: str = "1",
) -> list[OwnerConfig]:
    """Check that a release fails with one sentence, publishes nothing and charges ε once."""
    aggregator = await launch()
    configs = [
        replace(each, datasets=tuple(replace(data, total_epsilon=Decimal(1000)) for data in each.datasets))
        for each in (part(folder, name, aggregator.daemon.address, certificates) for name in "ab")
    ]
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, *"ab", layout="vertical", epsilon=epsilon)
        assert await ended(aggregator, seconds=120) == "failed"
        view = await aggregator.show()
        assert public in view.error.message
        assert not (aggregator.config.aggregator.release_dir / "r1").exists()
        await heard.wait_for("concluded", times=2)
    assert said in "; ".join([view.error.message, *refusals(configs)])
    assert [spent(each) for each in configs] == [Decimal(epsilon)] * 2
    return configs


SMALL_NOISE = "900"
"""ε with which noise explains less than the 60 records of a test."""


async def test_an_adder_that_weights_persons_is_named(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It raises the ciphertexts of its targets to a power, to read their bins at the holder in the tables."""
    add = crossed._add

    def powers(work: Any) -> Any:
        key = paillier.PublicKey(int.from_bytes(work.modulus))
        rows = [pow(int(each), 1000, int(key.square)) for each in key.parse(work.data)]
        return add(replace(work, data=paillier.to_bytes(rows)))

    monkeypatch.setattr(crossed, "_add", powers)
    said = "noise explains a distance of at most"
    configs = await fails(launch, tmp_path, certificates, heard, said, epsilon=SMALL_NOISE)
    (refusal,) = refusals(configs)
    assert re.match("what owner a sent for tables of both cannot be used: .* of age and ward is ", refusal)
    assert len(rounds_of(configs[1])) == FIRST_COUNTED


async def test_a_holder_that_encrypts_no_rows_is_named(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights in place of ones, at a holder that accepts what comes back."""
    numbers = Packing.numbers
    monkeypatch.setattr(Packing, "numbers", lambda *work: [1000 * each for each in numbers(*work)])
    monkeypatch.setattr(crossing, "fault_of_tables", lambda *_: "")
    found = " of age and ward, counted by a, b, is "
    await fails(launch, tmp_path, certificates, heard, found, found, SMALL_NOISE)


async def test_invented_sums_are_not_answered(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An aggregator that states other sums than it has gets no answer to the next round."""
    add_up = rounds._add_up

    def invented(*known: Any) -> Any:
        total, shown = add_up(*known)
        return total + total.any(), shown

    monkeypatch.setattr(rounds, "_add_up", invented)
    said = "they have other sums than the aggregator states"
    configs = await fails(
        launch, tmp_path, certificates, heard, said, "a signature or digest does not hold", SMALL_NOISE
    )
    assert refusals(configs)
    assert all(len(rounds_of(each)) == FIRST_COUNTED for each in configs)


async def test_a_key_of_two_owners_ends_the_release(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever has the key of another owner could read what is meant for that one."""
    key = paillier_key(0)
    monkeypatch.setattr(paillier, "new_key", lambda: key)
    await fails(launch, tmp_path, certificates, heard, "has a factor of this owner's")


async def test_what_the_aggregator_changes_ends_the_release(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An owner reads nothing that another one did not sign."""
    parcel = Uploads.parcel

    def changed(self: Uploads, *arguments: Any) -> Path:
        path = parcel(self, *arguments)
        if path.suffix == ".answers":
            return path
        copy = tmp_path / f"changed-{path.name}"
        copy.write_bytes(path.read_bytes()[:-1] + b"x")
        return copy

    monkeypatch.setattr(Uploads, "parcel", changed)
    await fails(launch, tmp_path, certificates, heard, "it is not what its owner signed")
