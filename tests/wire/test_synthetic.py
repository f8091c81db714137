"""Synthetic releases through real daemons over real TLS: rounds, restarts, endings, and what is left."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from common.analysis.answers import COLUMNS
from common.analysis.reading import read_release
from common.canonical import digest
from common.check import unchecked
from common.errors import IntegrityError
from common.model.rounds import N_ZEROS
from common.model.schema import Attribute, AttributeType
from common.planning.synthetic import design_of
from common.release.companion_files import companion_files
from common.release.evidence import Evidence
from common.release.verification import verify_release
from common.trust.signing import Domain, Signer
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from owner_node.cli.releases import _verify_own
from owner_node.config import KnownAggregator, OwnerConfig, PolicyConfig
from owner_node.connection.client import AggregatorClient, NotTakenError
from owner_node.ledger.ledger import Ledger
from owner_node.release.measuring import Measuring
from owner_node.state.answers import RoundAnswer
from owner_node.state.database import CannotStoreError, OwnerDatabase
from owner_node.state.rounds import AnsweredRound, Rounds
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session, Sessions
from owner_node.synthesis.masks import Masks
from tests.description_checks import description_problems
from tests.needs import missing_descriptions
from tests.wire.test_owner_daemon import Heard, ended, heard, owner, published, running, share_key

__all__ = ["heard"]

ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 0, 90),
    Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),
    Attribute("pay", AttributeType.NUMBER, 0, 9_999_999, 2),
)
RECORDS = 400
NAMES = "abcd"


def cohort(
    folder: Path, name: str, address: str, certificates: Path, records: int = RECORDS, **policy: Any
) -> OwnerConfig:
    """Return the configuration of an owner whose attributes depend on each other."""
    first = 1000 * NAMES.index(name)
    config = owner(folder / name, name, address, certificates, first)
    draws = np.random.default_rng(first)
    ages = draws.integers(0, 91, records)
    wards = np.array(list("abc"))[np.minimum(ages // 31, 2)]
    lines = (
        f"p{first + i},{age},{ward},{age * 1000 + 0.25:.2f}"
        for i, (age, ward) in enumerate(zip(ages, wards, strict=True))
    )
    (dataset,) = config.datasets
    Path(dataset.source).write_text("\n".join(["person,age,ward,pay", *lines, ""]))
    dataset = replace(dataset, attributes=ATTRIBUTES)
    return replace(config, datasets=(dataset,), policy=PolicyConfig(**policy))


@pytest.fixture
def owners(launch: Callable[..., Any], tmp_path: Path, certificates: Path) -> Callable[..., Any]:
    """Start an aggregator, and return it with configurations of so many owners."""

    async def start(number: int = 3, **policy: Any) -> tuple[Any, list[OwnerConfig]]:
        aggregator = await launch()
        address = aggregator.daemon.address
        configs = [cohort(tmp_path, each, address, certificates, **policy) for each in NAMES[:number]]
        share_key(configs)
        return aggregator, configs

    return start


async def begin(aggregator: Any, *names: str, **changes: Any) -> control.ReleaseView:
    """Start a synthetic release."""
    return await aggregator.start(*names, product="synthetic", k="", **changes)


@asynccontextmanager
async def releasing(
    heard: Heard, aggregator: Any, configs: list[OwnerConfig], **changes: Any
) -> AsyncIterator[None]:
    """Run owner daemons, and start a synthetic release once all are connected."""
    async with running(*configs):
        await heard.wait_for("connected", times=len(configs))
        await begin(aggregator, *(config.owner.id for config in configs), **changes)
        yield


def session_of(config: OwnerConfig, release: str = "r1") -> Session:
    """Return an owner's session."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        session = Sessions(db, lambda: datetime.now(UTC)).get("hub", release)
    assert session is not None
    return session


def rounds_of(config: OwnerConfig, release: str = "r1") -> tuple[AnsweredRound, ...]:
    """Return what an owner stored of the rounds."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        return Rounds(db).answered("hub", release)


def spent(config: OwnerConfig) -> Decimal:
    """Return what an owner's budget was charged."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        return Ledger(db, lambda: datetime.now(UTC)).balance("cohort", Decimal(10)).spent


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_release_is_made_of_sums(
    owners: Callable[..., Any], heard: Heard, number: int, tmp_path: Path
) -> None:
    """Records follow from what the aggregator added up; owners are charged ε once, and keep no answer."""
    aggregator, configs = await owners(number)
    async with releasing(heard, aggregator, configs, formats=["parquet", "csv"]):
        await published(aggregator)
        await heard.wait_for("concluded", times=number)
    folder = aggregator.config.aggregator.release_dir / "r1"
    verified = verify_release(folder, aggregator.certificates / "ca.pem")
    assert verified.n_records == RECORDS * number
    assert {"data.parquet", "data.csv", "counts.parquet", "report.html"} <= set(verified.files)
    # Validators take six seconds, and owners differ in nothing but their names.
    if number == 3 and missing_descriptions() is None:
        assert not any(description_problems(folder).values())
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["product"] == "synthetic"
    assert manifest["synthesis"]["colluding"] == str(min(number - 1, 1))
    assert manifest["synthesis"]["rounds"] == "2"
    assert manifest["synthesis"]["relations"] == [["age", "ward"], ["age", "pay"], ["ward", "pay"]]
    report = (folder / "report.html").read_text()
    assert "mask" not in re.sub(r"<style.*?</style>|id=\"masked\"|#masked", "", report)
    assert pq.read_table(folder / "data.parquet").column_names == ["record", "age", "ward", "pay"]
    # Whoever reads it gets the counts, and no corrections for masking.
    release = read_release(folder)
    assert release.counts is not None
    assert release.caveats[-1].startswith("Relations of two attributes are weakened a little")
    assert repr(release).endswith(release.caveats[-1])
    assert release.frame.attrs["caveats"] == list(release.caveats)
    assert release.caveats[-1] in report
    assert len(release.counts.frame) == pq.read_table(folder / "counts.parquet").num_rows
    assert release.counts.table("ward")["count"].sum() == pytest.approx(RECORDS * number)
    assert list(release.codebook.index) == ["age", "ward", "pay"]
    assert release.estimates.means("age").columns.tolist() == list(COLUMNS)
    assert "three attributes" in release.supports("pay ~ age + age:ward")
    for config in configs:
        assert _verify_own(config, folder, verified).n_records == RECORDS
        assert spent(config) == 1
        assert session_of(config).state is SessionState.PUBLISHED
        # Zeros, two rounds that count, and the one in which owners sign that the sums hold.
        assert len(rounds_of(config)) == 4
        assert not any(each.answer or each.attached for each in rounds_of(config))
        with OwnerDatabase(config.owner.state_dir, make=False) as db:
            assert Rounds(db).secrets("hub", "r1") is None


@pytest.mark.parametrize(("records", "taken"), [(299, "0.00008"), (200, "0.0001")])
async def test_rounded_numbers_of_records_fail_no_release(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard, records: int, taken: str
) -> None:
    """Four owners state 200 records each: with up to 1,196, a release takes the δ that these allow."""
    aggregator = await launch()
    address = aggregator.daemon.address
    allowed = Decimal("0.001")
    configs = [cohort(tmp_path, each, address, certificates, records, total_delta=allowed) for each in NAMES]
    share_key(configs)
    async with releasing(heard, aggregator, configs, delta="0.0001"):
        await published(aggregator)
        await heard.wait_for("concluded", times=len(configs))
    verified = verify_release(
        aggregator.config.aggregator.release_dir / "r1", aggregator.certificates / "ca.pem"
    )
    assert {task.records_rounded for task in verified.plan.tasks} == {200}
    assert verified.n_records == 4 * records
    assert design_of(verified.plan, verified.n_records).delta == Decimal(taken)
    assert [spent(config) for config in configs] == [1] * 4


async def test_a_published_release_is_analysed(
    owners: Callable[..., Any], heard: Heard, tmp_path: Path
) -> None:
    """Models, any analysis and tables for other software, from a folder that was published."""
    aggregator, configs = await owners(1)
    configs = [
        replace(each, datasets=tuple(replace(data, total_epsilon=Decimal(100)) for data in each.datasets))
        for each in configs
    ]
    async with releasing(heard, aggregator, configs, formats=["csv"], epsilon="50"):
        await published(aggregator)
    release = read_release(aggregator.config.aggregator.release_dir / "r1")
    original = pd.read_csv(configs[0].datasets[0].source)
    true = original.groupby("ward")["age"].mean()
    b, c = release.estimates.regress("age", on="ward", confidence=0.9999).to_dict("records")
    assert b["low"] <= true["b"] - true["a"] <= b["high"]
    assert c["low"] <= true["c"] - true["a"] <= c["high"]
    (line,) = release.analyse(lambda frame: {"mean": frame["age"].mean()}, ["age", "ward"], 4).to_dict(
        "records"
    )
    assert line["low"] < line["estimate"] < line["high"]
    assert abs(line["estimate"] - original["age"].mean()) < 3
    written = release.replicates(tmp_path / "tables", ["age", "ward"], 4)
    assert [list(pd.read_csv(each).columns) for each in written] == [["record", "age", "ward"]] * 6


async def test_the_published_numbers_are_checked(
    owners: Callable[..., Any], heard: Heard, tmp_path: Path, certificates: Path
) -> None:
    """A count or a record that is another one is found, also with digests that fit."""
    aggregator, configs = await owners(2)
    async with releasing(heard, aggregator, configs, formats=["parquet"]):
        await published(aggregator)
    folder, copy = aggregator.config.aggregator.release_dir / "r1", tmp_path / "copy"
    shutil.copytree(folder, copy)
    counts = pq.read_table(copy / "counts.parquet")
    other = counts.column("count").to_numpy().copy()
    other[0] += 1
    pq.write_table(
        counts.set_column(counts.schema.get_field_index("count"), counts.schema.field("count"), [other]),
        copy / "counts.parquet",
    )
    with pytest.raises(IntegrityError, match=r"counts\.parquet was changed"):
        verify_release(copy)
    relist(copy, certificates)
    with pytest.raises(
        IntegrityError, match=r"(do not follow from counts|does not follow from its own counts)"
    ):
        verify_release(copy)
    shutil.copy(folder / "counts.parquet", copy)
    table = pq.read_table(copy / "data.parquet")
    pq.write_table(table.set_column(2, table.schema.field(2), table.column(2)[::-1]), copy / "data.parquet")
    relist(copy, certificates)
    with pytest.raises(IntegrityError, match="another value of ward"):
        verify_release(copy)
    # A plan that nobody could count for, whoever signed it, is no wrong call of `verify`.
    evidence = Evidence.from_manifest(json.loads((folder / "manifest.json").read_bytes()))
    assert evidence.plan.synthesis is not None
    least = Decimal("0.0000000000005")
    for impossible in ({"colluding": 7}, {"split": (1 - least, least)}):
        lie = replace(evidence.plan, synthesis=replace(evidence.plan.synthesis, **impossible))
        with pytest.raises(IntegrityError, match="the plan does not hold"):
            companion_files(lie).records(replace(evidence, plan=lie)).check(folder, "", unchecked)


def relist(folder: Path, certificates: Path) -> None:
    """List the files of a release anew and sign that, as a lying aggregator could."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name in manifest["files"]:
        data = (folder / name).read_bytes()
        manifest["files"][name] = {"digest": digest(data), "size": str(len(data))}
    data = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False).encode()
    (folder / "manifest.json").write_bytes(data)
    signer = Signer.load(certificates / "hub.key", certificates / "hub.pem")
    (folder / "manifest.sig").write_bytes(signer.sign(Domain.MANIFEST, data))


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], asyncio.Event]:
    """A function that lets an owner store no answer to a round, and says when it has tried."""

    def cut(name: str, number: int) -> asyncio.Event:
        reached, loop, store = asyncio.Event(), asyncio.get_running_loop(), Measuring._store

        def stored(self: Any, opened: Any, *arguments: Any) -> Any:
            if opened.work.owner.id == name and opened.document.round == number:
                loop.call_soon_threadsafe(reached.set)
                raise CannotStoreError("the disk is full")
            return store(self, opened, *arguments)

        monkeypatch.setattr(Measuring, "_store", stored)
        return reached

    return cut


@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_everybody_starts_again_in_a_round(
    owners: Callable[..., Any],
    launch: Callable[..., Any],
    heard: Heard,
    cut_off: Callable[[str, int], asyncio.Event],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Aggregator and owners go on in the round that they were in, and what was answered stays as it is."""
    aggregator, configs = await owners(2)
    reached = cut_off("b", number)
    async with releasing(heard, aggregator, configs), asyncio.timeout(90):
        await reached.wait()
    before = [rounds_of(config) for config in configs]
    assert len(before[1]) == number - 1
    await aggregator.daemon.stop()
    monkeypatch.undo()
    again = await launch()
    moved = (KnownAggregator("hub", again.daemon.address),)
    async with running(*(replace(config, aggregators=moved) for config in configs)):
        await published(again)
    for config, answered in zip(configs, before, strict=True):
        after = rounds_of(config)
        assert len(after) == 4
        assert [(each.number, each.digest) for each in after][: len(answered)] == [
            (each.number, each.digest) for each in answered
        ]
        assert spent(config) == 1
    verify_release(again.config.aggregator.release_dir / "r1", again.certificates / "ca.pem")


@pytest.fixture
def lose_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], asyncio.Event]:
    """A function that lets an owner store answers that never leave it, and says when it has one."""

    def lose(name: str, number: int) -> asyncio.Event:
        reached, loop, answer = asyncio.Event(), asyncio.get_running_loop(), Measuring.answer

        def answered(self: Measuring, *arguments: Any) -> RoundAnswer:
            found = answer(self, *arguments)
            if self._owner.id == name and len(rounds_of(self._owner.config)) == number:
                loop.call_soon_threadsafe(reached.set)
                raise CannotStoreError("the disk is full")
            return found

        monkeypatch.setattr(Measuring, "answer", answered)
        return reached

    return lose


@pytest.mark.parametrize(
    ("how", "number", "last"),
    [("cut_off", 3, "spent"), ("cut_off", 4, "spent"), ("lose_answer", 2, "linked")],
)
async def test_a_release_goes_on_after_its_deadline(
    owners: Callable[..., Any],
    heard: Heard,
    pass_deadline: Callable[..., None],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    number: int,
    last: str,
) -> None:
    """An owner that stays away ends the release; the same command goes on with it, under the same charge.

    Also where the aggregator never heard of what this owner has spent and answered.
    """
    # It comes back soon after the command is given again.
    monkeypatch.setattr("owner_node.connection.connection._REST_SECONDS", 0.1)
    aggregator, configs = await owners(2)
    reached = request.getfixturevalue(how)("b", number)
    async with releasing(heard, aggregator, configs):
        await reached.wait()
        async for view in aggregator.calls.Watch(control.ReleaseRequest(release="r1")):
            if [each.state for each in view.owners] == ["answered", last]:
                break
        pass_deadline()
        assert await ended(aggregator) == "expired"
        async for _ in aggregator.calls.WatchAll(control.WatchAllRequest()):
            happened = await aggregator.calls.ListEvents(control.ListEventsRequest(release="r1", most=99))
            if [each.event for each in happened.events].count("acknowledged") == 2:
                break
        view = await aggregator.show()
        assert "no answer from b" in view.error.message
        assert view.resumable
        before = rounds_of(configs[0])
        assert [session_of(each).state for each in configs] == [SessionState.ENDED] * 2
        monkeypatch.undo()
        await begin(aggregator, "a", "b")
        await published(aggregator)
    assert [each.digest for each in rounds_of(configs[0])][: len(before)] == [each.digest for each in before]
    assert [spent(each) for each in configs] == [1, 1]


@pytest.mark.parametrize(
    ("false", "zeros", "said"),
    [
        (lambda right: right[:-8], True, "owner b answered round 1 with"),
        (lambda right: right + bytes(8), True, "owner b answered round 1 with"),
        (lambda right: right[:8] * (len(right) // 8), True, "the masks of the owners do not cancel"),
        (lambda right: bytes(len(right)), True, "the masks of the owners do not cancel"),
        (lambda right: right[:-8], False, "owner b answered round 2 with"),
        (lambda right: bytes(len(right)), False, "out of bounds: their masks do not cancel"),
    ],
)
async def test_a_false_answer_ends_the_release(
    owners: Callable[..., Any],
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    false: Callable[[bytes], bytes],
    zeros: bool,
    said: str,
) -> None:
    """An answer of another length is its owner's fault; one under other masks can be anybody's.

    That masks do not cancel comes out in the round of zeros, before anybody is charged.
    """
    aggregator, configs = await owners(2)
    right = Masks.answer

    def answer(self: Masks, vector: Any, document: str) -> bytes:
        made = right(self, vector, document)
        return false(made) if self.owner == "b" and (vector.size == N_ZEROS) is zeros else made

    monkeypatch.setattr(Masks, "answer", answer)
    async with releasing(heard, aggregator, configs):
        assert await ended(aggregator) == "failed"
    view = await aggregator.show()
    assert said in view.error.message
    assert [spent(each) for each in configs] == [0 if zeros else 1] * 2
    if "owner b" in said:
        assert view.error.message.startswith("owner b: owner b answered")
    assert not (aggregator.config.aggregator.release_dir / "r1").exists()


async def test_an_answer_is_given_once(
    owners: Callable[..., Any], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other bytes for a round that is answered are refused, the same ones are not; the first ones count."""
    aggregator, configs = await owners(2)
    answer, refused = AggregatorClient.answer, []
    tried: dict[int, asyncio.Event] = {}

    async def thrice(self: AggregatorClient, request: wire.AnswerRequest) -> None:
        number = request.measured.round
        if number in tried:
            # The round stays open until the other owner has tried.
            await tried[number].wait()
        # Nobody can sign other bytes for the last round, which has none.
        if not request.measured.answer or number in tried:
            await answer(self, request)
            return
        tried[number] = asyncio.Event()
        await answer(self, request)
        await answer(self, request)
        other = wire.AnswerRequest()
        other.CopyFrom(request)
        other.measured.answer = bytes(len(request.measured.answer))
        with pytest.raises(NotTakenError) as error:
            await answer(self, other)
        refused.append(error.value.error.code)
        tried[number].set()

    monkeypatch.setattr(AggregatorClient, "answer", thrice)
    async with releasing(heard, aggregator, configs):
        await published(aggregator)
    assert len(refused) == 3
    assert set(refused) <= {"integrity", "conflict"}
    verify_release(aggregator.config.aggregator.release_dir / "r1", aggregator.certificates / "ca.pem")


async def test_a_trial_counts_invented_records(owners: Callable[..., Any], heard: Heard) -> None:
    """A trial takes the same rounds, and charges nobody."""
    aggregator, configs = await owners(2, allow_trials=True)
    async with releasing(heard, aggregator, configs, release="trial-1"):
        await published(aggregator, "trial-1")
    folder = aggregator.config.aggregator.release_dir / "trial-1"
    verified = verify_release(folder, aggregator.certificates / "ca.pem")
    assert _verify_own(configs[0], folder, verified).n_records == verified.addendum.records["a"]
    assert [spent(each) for each in configs] == [0, 0]


async def test_what_is_refused_before_anybody_is_asked(owners: Callable[..., Any], heard: Heard) -> None:
    """How values are masked, a product that a policy does not list, and too few records cost nothing."""
    aggregator, configs = await owners(2, products=("masked",))
    with pytest.raises(grpc.aio.AioRpcError, match="--rank-noise: only with"):
        await begin(aggregator, "a", "b", rank_noise=["0.1"])
    async with releasing(heard, aggregator, configs):
        assert await ended(aggregator) == "refused"
    view = await aggregator.show()
    assert "policy.products does not list 'synthetic'" in view.error.message
    assert [session_of(each).plan_digest for each in configs] == ["", ""]


async def test_too_few_records_wait_for_anyway(owners: Callable[..., Any], heard: Heard) -> None:
    """The plan says how many records would do, and goes to nobody unless that is wanted anyway."""
    aggregator, configs = await owners(2)
    async with releasing(heard, aggregator, configs, anyway=False, epsilon="0.01"):
        async with asyncio.timeout(90):
            async for view in aggregator.calls.Watch(control.ReleaseRequest(release="r1")):
                if view.state == "planned":
                    break
        assert view.needs_anyway
        assert re.search(r"about [0-9,]+ records", view.error.message)
        await begin(aggregator, "a", "b", epsilon="0.01")
        await published(aggregator)
