"""The real owner daemon at a real aggregator over real TLS: connecting, being told why not, and refusing."""

import asyncio
import logging
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import grpc
import numpy as np
import pytest

from aggregator.api.owner_service import OwnerService
from aggregator.drive import messages
from aggregator.protocol.release import Release
from common.model.fragment import Consent
from common.model.schema import Attribute, AttributeType
from common.settings import TlsSection
from common.trust.identity import fingerprint
from common.trust.signing import Domain, Signer, load_chain
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from deploy.development_ca import DevelopmentCa
from owner_node.config import DatasetConfig, KnownAggregator, OwnerConfig, OwnerSection, PolicyConfig
from owner_node.daemon import OwnerDaemon, OwnerMetrics
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.release.masked import MASKED
from owner_node.state.database import OwnerDatabase
from owner_node.state.outbox import Outbox
from owner_node.state.presence import ConnectionState, DaemonPresence, is_running
from owner_node.state.session import SessionState
from owner_node.state.sessions import Sessions
from tests.wire.conftest import TRUST_DOMAIN

ATTRIBUTE = Attribute("age", AttributeType.INTEGER, 0, 1000)

produce = MASKED.produce


def owner(folder: Path, name: str, address: str, certificates: Path, first: int = 0) -> OwnerConfig:
    """Return the configuration of an owner with 40 records about people of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "cohort.csv"
    ages = np.random.default_rng(first).integers(0, 1000, 40).tolist()
    source.write_text("person,age\n" + "".join(f"p{first + i},{age}\n" for i, age in enumerate(ages)))
    cohort = DatasetConfig(
        name="cohort", source=str(source), budget="cohort", total_epsilon=Decimal(10),
        identifier=("person",), normalise=("trim",), attributes=(ATTRIBUTE,),
    )  # fmt: skip
    return OwnerConfig(
        path=folder / "owner.toml",
        owner=OwnerSection(name, TRUST_DOMAIN, folder / "state"),
        aggregators=(KnownAggregator("hub", address),),
        tls=TlsSection(
            certificates / "ca.pem", certificates / f"owner-{name}.pem", certificates / f"owner-{name}.key"
        ),
        datasets=(cohort,),
    )


def share_key(configs: list[OwnerConfig]) -> None:
    """Give all owners one linkage key."""
    first, *others = [config.owner.state_dir for config in configs]
    linkage_key.new(first)
    for state in others:
        state.mkdir(mode=0o700)
        shutil.copy(next(first.glob("linkage*")), state)


@asynccontextmanager
async def running(*configs: OwnerConfig) -> AsyncIterator[None]:
    """Run owner daemons."""
    stopping = asyncio.Event()
    tasks = [asyncio.create_task(OwnerDaemon(config).run(stopping)) for config in configs]
    try:
        yield
    finally:
        stopping.set()
        await asyncio.gather(*tasks)


class Heard(logging.Handler):
    """Hands on what the owners' connections log, so that tests wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.events: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        """Take one entry."""
        self.events.put_nowait(record.getMessage())

    async def wait_for(self, event: str, times: int = 1) -> None:
        """Wait until an event was logged so often."""
        async with asyncio.timeout(60):
            for _ in range(times):
                while await self.events.get() != event:
                    pass


@pytest.fixture
def heard() -> Iterator[Heard]:
    """What the owners' connections log."""
    handler, logger = Heard(), logging.getLogger("owner_node.connection")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def connection(config: OwnerConfig) -> ConnectionState:
    """Return what the daemon wrote down for the owner's commands."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        return DaemonPresence(db, lambda: datetime.now(UTC)).state().connections[0]


async def ended(aggregator: Any, release: str = "r1", seconds: float = 60) -> str:
    """Wait until a release has ended; return how."""
    state = ""
    async with asyncio.timeout(seconds):
        async for view in aggregator.calls.Watch(control.ReleaseRequest(release=release)):
            state = view.state
    return state


async def published(aggregator: Any, release: str = "r1") -> None:
    """Wait until a release is published."""
    state = await ended(aggregator, release)
    assert state == "published", (await aggregator.show(release)).error


async def test_a_restored_ledger_does_no_work(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """After a release, an owner whose database is an older copy is told so and refuses all work."""
    aggregator = await launch()
    address = aggregator.daemon.address
    configs = [owner(tmp_path / name, name, address, certificates, 100 * i) for i, name in enumerate("ab")]
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
    state, backup = configs[0].owner.state_dir, tmp_path / "backup"
    shutil.copytree(state, backup)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await aggregator.start("a", "b")
        await published(aggregator)
    shutil.rmtree(state)
    shutil.copytree(backup, state)
    async with running(configs[0]):
        await heard.wait_for("not connected")
        broken = connection(configs[0])
    assert "restored from a backup" in broken.reason
    assert not broken.connected


async def test_some_attributes_have_more_records_than_all(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """Where records that lack a value are left out, a choice of attributes may have far more records than the
    schema counts: the release is made of all of them.
    """
    aggregator = await launch()
    address, configs = aggregator.daemon.address, []
    for index, name in enumerate("ab"):
        config = owner(tmp_path / name, name, address, certificates, 100 * index)
        (cohort,) = config.datasets
        cohort = replace(cohort, missing="drop", attributes=(ATTRIBUTE, replace(ATTRIBUTE, name="pay")))
        lines = (f"p{100 * index + i},{i * 7 % 97},{i if i < 12 else ''}" for i in range(40))
        Path(cohort.source).write_text("\n".join(["person,age,pay", *lines, ""]))
        configs.append(replace(config, datasets=(cohort,)))
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await aggregator.start("a", "b", attributes=["age"])
        await published(aggregator)
        # A bound that counts clusters would not hold for so many.
        await aggregator.start("a", "b", release="r2", attributes=["age"], mechanism="idp-cbls")
        assert await ended(aggregator, "r2") in ("failed", "refused")
    with OwnerDatabase(configs[0].owner.state_dir, make=False) as db:
        session = Sessions(db, lambda: datetime.now(UTC)).get("hub", "r1")
    assert session is not None
    assert session.n_records == 40


async def test_one_aggregator_that_knows_better_stops_the_work_for_all(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """A restored ledger is refused for every aggregator as soon as one of them shows the newer head."""
    hub, other = await launch(), await launch("other")
    configs = [
        owner(tmp_path / name, name, hub.daemon.address, certificates, 100 * i) for i, name in enumerate("ab")
    ]
    share_key(configs)
    backup = tmp_path / "backup"
    shutil.copytree(configs[0].owner.state_dir, backup)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await hub.start("a", "b")
        await published(hub)
    shutil.rmtree(configs[0].owner.state_dir)
    shutil.copytree(backup, configs[0].owner.state_dir)
    both = (*configs[0].aggregators, KnownAggregator("other", other.daemon.address))
    async with running(replace(configs[0], aggregators=both)):
        await heard.wait_for("not connected", times=2)
        with OwnerDatabase(configs[0].owner.state_dir, make=False) as db:
            told = DaemonPresence(db, lambda: datetime.now(UTC)).state().connections
    assert [each.connected for each in told] == [False, False]
    assert all("restored from a backup" in each.reason for each in told)


async def test_stopping_waits_for_what_is_being_masked(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody else can take over the state while a thread still masks under a charge that is spent."""
    aggregator = await launch()
    address = aggregator.daemon.address
    configs = [owner(tmp_path / name, name, address, certificates, 100 * i) for i, name in enumerate("ab")]
    share_key(configs)
    masking, go_on = threading.Event(), threading.Event()
    state, stopping = configs[0].owner.state_dir, asyncio.Event()

    def slow(outbox: Outbox, *arguments: Any) -> Any:
        if state in outbox.path("hub", "r1").parents:
            masking.set()
            go_on.wait(90)
        return produce(outbox, *arguments)

    monkeypatch.setattr("owner_node.release.masked.MASKED.produce", slow)
    async with running(configs[1]):
        daemon = asyncio.create_task(OwnerDaemon(configs[0]).run(stopping))
        await heard.wait_for("connected", times=2)
        await aggregator.start("a", "b")
        assert await asyncio.to_thread(masking.wait, 20)
        stopping.set()
        await asyncio.wait([daemon], timeout=0.5)
        assert not daemon.done()
        assert is_running(state)
        go_on.set()
        await daemon
    with OwnerDatabase(state, make=False) as db:
        session = Sessions(db, lambda: datetime.now(UTC)).get("hub", "r1")
    assert session is not None
    assert session.state in (SessionState.SPENT, SessionState.SEALED)
    assert bool(session.fragment_digest) == (session.state is SessionState.SEALED)
    assert not is_running(state)


async def test_operators_see_how_far_masking_is(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The share that is done and an estimate reach the operator, not what is being done."""
    monkeypatch.setattr("aggregator.api.owner_service.POLL_SECONDS", 0.2)
    monkeypatch.setattr("common.progress._SHORTEST_SECONDS", 0.0)
    aggregator = await launch()
    address = aggregator.daemon.address
    configs = [owner(tmp_path / name, name, address, certificates, 100 * i) for i, name in enumerate("ab")]
    share_key(configs)
    go_on = threading.Event()

    def slow(*arguments: Any) -> Any:
        progress = arguments[-1]
        progress.begin("masking", 100)
        progress.reach(43)
        assert go_on.wait(90)
        return produce(*arguments)

    monkeypatch.setattr("owner_node.release.masked.MASKED.produce", slow)
    async with asyncio.timeout(90), running(*configs):
        await heard.wait_for("connected", times=2)
        await aggregator.start("a", "b")
        told = [""]
        while not any(told):
            told = [each.progress for each in (await aggregator.show()).owners]
        go_on.set()
        await published(aggregator)
        assert [each.progress for each in (await aggregator.show()).owners] == ["", ""]
    assert set(told) <= {"", "40 %, less than a minute left"}


async def test_cancelling_does_not_wait_for_what_is_being_masked(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a release overtakes the step that it makes useless, whose charge stays spent."""
    aggregator = await launch()
    address = aggregator.daemon.address
    configs = [owner(tmp_path / name, name, address, certificates, 100 * i) for i, name in enumerate("ab")]
    share_key(configs)
    masking, over = threading.Event(), threading.Event()

    def endless(_records: Any, _tasks: Any, reach: Callable[[int], None]) -> None:
        masking.set()
        while not over.wait(0.01):
            reach(0)

    monkeypatch.setattr("owner_node.release.masked.mask_table", endless)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await aggregator.start("a", "b")
        assert await asyncio.to_thread(masking.wait, 20)
        try:
            await aggregator.calls.Cancel(control.ReleaseRequest(release="r1"))
            await heard.wait_for("concluded", times=2)
        finally:
            over.set()
    for config in configs:
        with OwnerDatabase(config.owner.state_dir, make=False) as db:
            session = Sessions(db, lambda: datetime.now(UTC)).get("hub", "r1")
        assert session is not None
        assert (session.state, session.fragment_digest) == (SessionState.ENDED, "")


def swapped(stranger: Signer) -> Callable[..., Any]:
    """Return how a hostile aggregator shows co-owners: with consents that a key of its own signed."""
    honest = messages._consents

    def consents(release: Release) -> wire.Consents:
        shown = honest(release)
        for each in shown.co_owners:
            consent = Consent(
                release.id, each.id, release.plan_digest, each.key_check, "accept", each.key_generation
            )
            each.signature = stranger.sign(Domain.CONSENT, consent.to_bytes())
            each.certificate = stranger.chain_pem.encode()
        return shown

    return consents


@pytest.mark.parametrize("lie", ["nobody", "swapped"])
async def test_an_aggregator_that_invents_co_owners_links_nothing(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    lie: str,
) -> None:
    """Consents left out or signed by another key: nothing is spent, and an honest release follows."""
    aggregator = await launch()
    address = aggregator.daemon.address
    configs = [owner(tmp_path / name, name, address, certificates, 100 * i) for i, name in enumerate("ab")]
    share_key(configs)
    own = load_chain(certificates / "owner-b.pem")[0]
    pinned = PolicyConfig(co_owners=(f"b={fingerprint(own.public_key())}",))
    stranger = Signer.load(certificates / "owner-a.key", certificates / "owner-a.pem")
    lies = {"nobody": lambda _: wire.Consents(), "swapped": swapped(stranger)}
    async with running(replace(configs[0], policy=pinned), configs[1]):
        await heard.wait_for("connected", times=2)
        with monkeypatch.context() as patched:
            patched.setattr(messages, "_consents", lies[lie])
            await aggregator.start("a", "b")
            assert await ended(aggregator) == "refused"
        assert (await aggregator.show()).error.message == "owner a: refused by owner policy"
        await aggregator.start("a", "b", release="r2")
        await published(aggregator, "r2")
    with OwnerDatabase(configs[0].owner.state_dir, make=False) as db:
        kinds = [(str(each.kind), each.release) for each in Ledger(db, lambda: datetime.now(UTC)).entries()]
    assert kinds == [("reserve", "r1"), ("return", "r1"), ("reserve", "r2"), ("spend", "r2")]


async def test_an_aggregator_at_fault_ends_nothing(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An internal fault of an aggregator is noted, and the owner comes back to it."""
    monkeypatch.setattr("owner_node.connection.connection._REST_SECONDS", 0.05)
    poll, faults = OwnerService.Poll, iter([True])

    async def faulty(service: Any, request: Any, context: Any) -> Any:
        if next(faults, False):
            await context.abort(grpc.StatusCode.INTERNAL, "a fault")
        return await poll(service, request, context)

    monkeypatch.setattr(OwnerService, "Poll", faulty)
    aggregator = await launch()
    config = owner(tmp_path / "a", "a", aggregator.daemon.address, certificates)
    async with running(config):
        await heard.wait_for("connected")
        await heard.wait_for("not connected")
        await heard.wait_for("connected")
        assert connection(config).connected


async def test_an_absent_aggregator_is_explained(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """When the aggregator goes away the owner's status says what is wrong, in words."""
    aggregator = await launch()
    config = owner(tmp_path / "a", "a", aggregator.daemon.address, certificates)
    async with running(config):
        await heard.wait_for("connected")
        assert connection(config).connected
        await aggregator.daemon.stop()
        await heard.wait_for("not connected")
        gone = connection(config)
    assert "refuses connections" in gone.reason
    assert not gone.connected


@pytest.mark.parametrize(
    ("whose", "reason"),
    [("aggregator", "was not issued under the CA"), ("owner", "refused this owner's certificate")],
)
async def test_a_certificate_that_does_not_fit_is_named(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard, whose: str, reason: str
) -> None:
    """A TLS failure says whose certificate is not accepted, in the status that the owner's commands show."""
    aggregator = await launch()
    folder = tmp_path / "certificates"
    folder.mkdir()
    stranger = DevelopmentCa(TRUST_DOMAIN)
    if whose == "owner":
        stranger.owner("a").write(folder, "owner-a")
        shutil.copy(certificates / "ca.pem", folder)
    else:
        for name in ("owner-a.pem", "owner-a.key"):
            shutil.copy(certificates / name, folder)
        (folder / "ca.pem").write_bytes(stranger.issued.certificate_pem)
    config = owner(tmp_path / "a", "a", aggregator.daemon.address, folder)
    async with running(config):
        await heard.wait_for("not connected")
        told = connection(config)
    assert reason in told.reason
    assert not told.connected


async def test_a_blocked_event_loop_shows_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that hangs is no healthy one to Prometheus, though its endpoint still answers."""
    monkeypatch.setattr("owner_node.daemon._ANSWER_SECONDS", 0.1)
    metrics = OwnerMetrics(cast("Any", None), cast("Any", None), cast("Any", None))
    with ThreadPoolExecutor(1) as endpoint, pytest.raises(TimeoutError):
        endpoint.submit(metrics.families).result()
