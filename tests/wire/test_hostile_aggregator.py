"""A real owner daemon at an aggregator that lies: refused each time, nothing spent, and on it works."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from common.clock import utc_now
from common.errors import IdentityError
from common.model.fragment import LedgerHead
from common.model.plan import Layout, Plan
from common.model.schema import Schema
from common.progress import Progress
from common.trust.credentials import read_identity
from common.trust.identity import load_certificates
from common.trust.signing import Domain, verify
from common.wire.v1 import owner_pb2 as wire
from owner_node.connection.command_client import connected_client, probe_aggregator
from owner_node.connection.download import download
from owner_node.connection.enrolment import renew
from owner_node.connection.recall import recall
from owner_node.ledger.ledger import Ledger
from owner_node.release.invitations import Invitations
from owner_node.release.records import Records
from owner_node.state.database import OwnerDatabase
from owner_node.state.outbox import Outbox
from owner_node.state.session import SessionState
from tests.fakes.hostile_aggregator import HostileAggregator, serving
from tests.fakes.ledgers import reserve
from tests.wire.siege import Siege, besieged, now
from tests.wire.test_owner_daemon import Heard, connection, heard, owner, running

__all__ = ["heard"]


@pytest.fixture
async def siege(tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Siege]:
    """An owner daemon with a policy, at a hostile aggregator; afterwards an honest release still works."""
    async with besieged(tmp_path, certificates, monkeypatch) as made:
        yield made


def _stretched(plan: Plan, **changes: Any) -> Plan:
    tasks = tuple(replace(task, **changes) for task in plan.tasks)
    return replace(plan, tasks=tasks)


def _attributes(plan: Plan, **changes: Any) -> Plan:
    return _stretched(plan, attributes=tuple(replace(a, **changes) for a in plan.tasks[0].attributes))


BEYOND = {
    "more epsilon": lambda h, s, r: h.plan(s, r, epsilon="2.5"),
    "smaller k": lambda h, s, r: h.plan(s, r, k="4"),
    "another mechanism": lambda h, s, r: h.plan(s, r, mechanism="dp-ir"),
    "another purpose": lambda h, s, r: replace(h.plan(s, r), purpose="marketing"),
    "another layout": lambda h, s, r: replace(h.plan(s, r), layout=Layout.VERTICAL),
    "another attribute": lambda h, s, r: h.plan(_named(s, "salary"), r),
    "a wider domain": lambda h, s, r: h.plan(_wider(s), r),
    "fewer records": lambda h, s, r: _stretched(h.plan(s, r), records_rounded=10),
    "more records": lambda h, s, r: _stretched(h.plan(s, r), records_rounded=41),
    "other records throughout": lambda h, s, r: h.plan(replace(s, records_rounded=30), r),
    "a smaller bound": lambda h, s, r: _attributes(h.plan(s, r), epsilon_joint=Decimal("0.01")),
    "a better error": lambda h, s, r: _attributes(h.plan(s, r), expected_error=Decimal("0.000001")),
    "another data set": lambda h, s, r: _stretched(h.plan(s, r), dataset="trial"),
    "several records each": lambda h, s, r: replace(h.plan(s, r), max_records_per_person=3),
    "another aggregator": lambda h, s, r: replace(h.plan(s, r), aggregator=h.other.party.uri),
    "no tokens": lambda h, s, r: replace(h.plan(replace(s, identifier=None), r)),
}


def _named(schema: Schema, name: str) -> Schema:
    return replace(schema, attributes=tuple(replace(each, name=name) for each in schema.attributes))


def _wider(schema: Schema) -> Schema:
    return replace(schema, attributes=tuple(replace(each, upper=5000) for each in schema.attributes))


async def test_plans_beyond_policy_and_truth(siege: Siege) -> None:
    """More than the policy allows, or something else than was described, reserves nothing."""
    for number, make in enumerate(BEYOND.values()):
        release = f"beyond-{number}"
        schema = await siege.hostile.schema(release)
        code = await siege.refused(siege.hostile.consent(make(siege.hostile, schema, release)))
        assert code in ("refused", "protocol", "usage"), list(BEYOND)[number]
        assert siege.state(release) is not SessionState.RESERVED
    assert siege.kinds() == []


async def test_numbers_of_records_that_were_not_sent(siege: Siege) -> None:
    """Whatever other number of records a plan states, the answer is the same and the source is not read."""
    source, heard = Path(siege.config.datasets[0].source), set()
    content = source.read_text()
    for number, stated in enumerate((1, 30, 39, 41, 49, 50, 400)):
        release = f"stated-{number}"
        schema = await siege.hostile.schema(release)
        source.unlink()
        plan = _stretched(siege.hostile.plan(schema, release), records_rounded=stated)
        failure = (await siege.hostile.ask(siege.hostile.consent(plan))).failure
        heard.add((failure.code, failure.message))
        source.write_text(content)
    assert heard == {("refused", "refused by owner policy")}
    schema = await siege.hostile.schema("grown")
    source.write_text(content + "".join(f"q{i},5\n" for i in range(90)))
    assert await siege.hostile.schema("grown") == schema
    source.write_text(content)
    assert siege.kinds() == []


async def test_plans_that_are_not_the_aggregators(siege: Siege) -> None:
    """Wrong keys, wrong domains, other releases' plans and bytes that are no plan are not even considered."""
    hostile = siege.hostile
    plan = hostile.plan(await hostile.schema("r1"), "r1")
    of_another = hostile.plan(await hostile.schema("r2"), "r2")
    work = hostile.consent(plan)
    wrong_domain, unsigned, renamed, other_digest = (wire.Work() for _ in range(4))
    for each in (wrong_domain, unsigned, renamed, other_digest):
        each.CopyFrom(work)
    wrong_domain.consent.signature = hostile.hub.sign(Domain.MANIFEST, plan.to_bytes())
    unsigned.consent.signature = b""
    renamed.consent.CopyFrom(hostile.consent(of_another).consent)
    other_digest.plan_digest = of_another.digest
    huge = plan.to_bytes().replace(b'"epsilon":"1"', b'"epsilon":"1E+100000000"', 1)
    grid = plan.to_bytes().replace(b'"group":"0"', b'"group":"100000000"')
    works = [hostile.consent(plan, hostile.other), wrong_domain, unsigned, renamed, other_digest]
    works += [
        hostile.consent(plan, data=data) for data in (b"", b"{}", b"\xff" * 99, b"[" * 9999, huge, grid)
    ]
    codes = {await siege.refused(work) for work in works}
    assert codes <= {"identity", "integrity", "protocol"}
    assert siege.kinds() == []
    assert siege.state("r1") is SessionState.INVITED
    assert (await hostile.ask(work)).WhichOneof("answer") == "consented"


@pytest.mark.parametrize("moment", [253_402_300_800, 2**62])
async def test_a_deadline_that_no_calendar_has(siege: Siege, moment: int) -> None:
    """A person could not be shown it: such an offer is not considered, and the requests stay listed."""
    hostile = siege.hostile
    work = hostile.consent(hostile.plan(await hostile.schema("r1"), "r1"))
    work.consent.deadline = moment
    assert await siege.refused(work) == "protocol"
    assert siege.state("r1") is SessionState.INVITED
    work.consent.deadline = 2_000_000_000
    assert (await hostile.ask(work)).WhichOneof("answer") == "consented"


async def test_one_id_one_plan_one_charge(siege: Siege) -> None:
    """A plan that was agreed to cannot be exchanged, and repeating any step changes and charges nothing."""
    hostile = siege.hostile
    plan = await siege.accepted("r1")
    changed = replace(plan, epsilon=Decimal("1.5"), purpose="care")
    assert await siege.refused(hostile.consent(changed)) in ("conflict", "protocol")
    assert siege.kinds() == ["reserve"]
    agreed = [await hostile.ask(hostile.consent(plan)) for _ in range(2)]
    assert agreed[0].consented.key_check == agreed[1].consented.key_check
    linked = [(await hostile.ask(hostile.link(plan))).linked for _ in range(3)]
    assert linked[0] == linked[1] == linked[2]
    sealed = [(await hostile.ask(hostile.mask(plan, 40))).sealed for _ in range(3)]
    assert len({each.fragment_digest for each in sealed}) == 1
    assert siege.kinds() == ["reserve", "spend"]
    assert await siege.refused(hostile.mask(plan, 39)) in ("protocol", "conflict")
    assert await siege.refused(hostile.consent(changed)) in ("conflict", "protocol")
    await hostile.ask(hostile.conclude("r1", "failed", reason="x"))
    for work in (hostile.consent(plan), hostile.link(plan)):
        assert await siege.refused(work) == "protocol"
    # What was paid for can still be had, and nothing else.
    assert await siege.refused(hostile.mask(plan, 39)) == "protocol"
    again = (await hostile.ask(hostile.mask(plan, 40))).sealed
    assert again.fragment_digest == sealed[0].fragment_digest
    assert siege.kinds() == ["reserve", "spend"]


async def test_nothing_leaves_before_it_is_sealed(siege: Siege) -> None:
    """An upload asked for too early is refused, and what linking is said to have found must be true."""
    hostile = siege.hostile
    plan = await siege.accepted("r1")
    assert await siege.refused(hostile.collect(plan)) == "protocol"
    assert await siege.refused(hostile.mask(plan, 40)) == "protocol"
    await hostile.ask(hostile.link(plan))
    assert await siege.refused(hostile.collect(plan)) == "protocol"
    lies = [
        hostile.mask(plan, 41),
        hostile.mask(plan, 40, linking="asserted"),
        hostile.mask(plan, 40, signer=hostile.other),
        hostile.mask(replace(plan, purpose="care"), 40),
    ]
    lies[3].plan_digest = plan.digest
    for work in lies:
        assert await siege.refused(work) in ("protocol", "identity", "integrity")
    assert siege.kinds() == ["reserve"]
    assert not list(Outbox(siege.config.owner.state_dir).sealed())
    sealed = (await hostile.ask(hostile.mask(plan, 40))).sealed
    assert sealed.n_records == 40


async def test_receipts_and_ends_that_lie(siege: Siege) -> None:
    """A receipt for something else is not kept, and a lie about the end cannot be told twice differently."""
    hostile = siege.hostile
    plan = await siege.accepted("r1")
    await hostile.ask(hostile.link(plan))
    await hostile.ask(hostile.mask(plan, 40))

    async def lying(chunks: AsyncIterator[wire.UploadChunk], _context: Any) -> wire.UploadResponse:
        async for _ in chunks:
            pass
        return hostile.receipt("r1", plan.digest, "ab" * 32)

    hostile.misbehave["Upload"] = lying
    assert await siege.refused(hostile.collect(plan)) == "protocol"
    assert siege.state("r1") is SessionState.SEALED
    del hostile.misbehave["Upload"]
    await hostile.deliver(plan)
    await hostile.ask(hostile.conclude("r1", "published", manifest_digest="ab" * 32))
    await hostile.ask(hostile.conclude("r1", "published", manifest_digest="cd" * 32))
    await hostile.ask(hostile.conclude("r1", "failed", reason="no"))
    assert siege.state("r1") is SessionState.PUBLISHED
    assert len(list(Outbox(siege.config.owner.state_dir).sealed())) == 1
    assert siege.kinds() == ["reserve", "spend"]


async def test_ledger_heads_that_lie(siege: Siege, caplog: pytest.LogCaptureFixture) -> None:
    """A head that this owner did not sign stops this aggregator's work, and no other; a stale one is true."""
    hostile = siege.hostile
    caplog.set_level(logging.WARNING)
    answer = await hostile.ask(hostile.consent(hostile.plan(await hostile.schema("r1"), "r1")))
    true = answer.consented.ledger_head
    text = "ab" * 32
    forged = hostile.other.sign(Domain.LEDGER_HEAD, LedgerHead("a", 99, text).to_bytes())
    stale = true.__class__()
    stale.CopyFrom(true)
    heads = [
        wire.LedgerHead(sequence=99, hash=text, signature=forged, certificate=true.certificate),
        wire.LedgerHead(
            sequence=99, hash=text, signature=forged, certificate=hostile.other.chain_pem.encode()
        ),
        wire.LedgerHead(sequence=99, hash="x", signature=b"", certificate=b"\xff"),
        wire.LedgerHead(sequence=2**64 - 1, hash=text, signature=true.signature, certificate=b""),
    ]
    for head in heads:
        hostile.head = head
        hostile.connected.clear()
        hostile.misbehave["Poll"] = _broken
        async with asyncio.timeout(90):
            await hostile.connected.wait()
    hostile.head = stale
    hostile.connected.clear()
    del hostile.misbehave["Poll"]
    async with asyncio.timeout(90):
        await hostile.connected.wait()
    assert siege.kinds() == ["reserve"]


async def _broken(_request: Any, context: Any) -> None:
    import grpc

    await context.abort(grpc.StatusCode.UNAVAILABLE, "")


async def test_garbage_and_oversized_messages(siege: Siege, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that do not exist, names that are none, thousands of pieces of work and messages too large."""
    hostile = siege.hostile
    nothing = wire.Work(release="r1")
    assert await siege.refused(nothing) == "protocol"
    assert (
        await siege.refused(wire.Work(release="r1", describe=wire.Describe(dataset="x" * 10_000)))
        == "protocol"
    )
    for work in (hostile.link, hostile.collect):
        plan = hostile.plan(await hostile.schema("r2"), "r2")
        assert await siege.refused(work(plan)) == "protocol"
    for release in ("", "../../etc", "x" * 100_000, "R1", "a/b"):
        hostile.connected.clear()
        hostile.tell(wire.Work(release=release, describe=wire.Describe(dataset="cohort")))
        async with asyncio.timeout(90):
            await hostile.connected.wait()
    hostile.connected.clear()
    hostile.tell(wire.Work(release="r1", plan_digest="x" * (5 << 20), link=wire.Link()))
    async with asyncio.timeout(90):
        await hostile.connected.wait()
    crowd = [wire.Work(release=f"crowd-{n}", conclude=wire.Conclude(state="failed")) for n in range(1000)]
    hostile.tell(*crowd)
    answered = {(await hostile.answer()).release for _ in range(64)}
    assert len(answered) == 64
    assert siege.state("crowd-1") is None
    assert siege.kinds() == []


async def test_work_that_is_repeated_without_end(siege: Siege) -> None:
    """An aggregator that tells the same work for ever neither fills the history nor spins the owner."""
    hostile = siege.hostile
    work = wire.Work(release="r9", plan_digest="ab" * 32, link=wire.Link())

    async def for_ever(request: wire.PollRequest, _context: Any) -> wire.PollResponse:
        return hostile.signed(request, wire.PollResponse(work=[work]))

    hostile.misbehave["Poll"] = for_ever
    for _ in range(20):
        assert (await hostile.answer()).failure.code == "protocol"
    with OwnerDatabase(siege.config.owner.state_dir, make=False) as db:
        assert len(db.rows("SELECT * FROM history")) == 1
    del hostile.misbehave["Poll"]
    await _drained(hostile, hostile.conclude("r9", "failed"))


async def test_calls_that_never_end(siege: Siege, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls, answers and uploads that are never answered are given up, and made again."""
    hostile = siege.hostile
    plan = await siege.accepted("r1")
    await hostile.ask(hostile.link(plan))
    await hostile.ask(hostile.mask(plan, 40))
    with monkeypatch.context() as impatient:
        for name in ("CALL_SECONDS", "_POLL_SECONDS"):
            impatient.setattr(f"owner_node.connection.client.{name}", 0.5)
        for call in ("Poll", "Answer", "UploadState", "Upload"):
            reached = asyncio.Queue[None]()

            async def silent(*_arguments: Any, reached: asyncio.Queue[None] = reached) -> None:
                reached.put_nowait(None)
                await asyncio.Event().wait()

            hostile.misbehave[call] = silent
            hostile.due = [hostile.collect(plan) if call.startswith("Upload") else hostile.consent(plan)]
            async with asyncio.timeout(90):
                # Given up once, and made again.
                await reached.get()
                await reached.get()
            del hostile.misbehave[call]
    await hostile.deliver(plan)
    await _drained(hostile, hostile.conclude("r1", "failed"))
    assert siege.kinds() == ["reserve", "spend"]


async def _drained(hostile: HostileAggregator, last: wire.Work) -> None:
    """Tell a last piece of work until it is answered; what came before may be answered, too."""
    hostile.tell(last)
    while (await hostile.answer()).WhichOneof("answer") != "acknowledged":
        pass


async def test_charges_of_its_own_are_told_with_a_poll(siege: Siege) -> None:
    """Where the ledger is goes with polls until the aggregator shows it again: no backup can deny it."""
    polls: asyncio.Queue[wire.PollRequest] = asyncio.Queue()
    kept, head = wire.PollResponse(), wire.LedgerHead()

    async def poll(request: wire.PollRequest, _context: Any) -> wire.PollResponse:
        polls.put_nowait(request)
        return kept

    siege.hostile.misbehave["Poll"] = poll
    async with asyncio.timeout(90):
        assert not (await polls.get()).HasField("ledger_head")
        with OwnerDatabase(siege.config.owner.state_dir) as db:
            reserve(db, Ledger(db, now), "query-1", "0.1", aggregator="(local)", budget="other")
            newest = Ledger(db, now).head()
        for _ in range(2):
            while not (told := (await polls.get()).ledger_head).sequence:
                continue
            head = told
        kept.newest_ledger_head.CopyFrom(head)
        while (await polls.get()).HasField("ledger_head"):
            continue
        assert not (await polls.get()).HasField("ledger_head")
    assert (head.sequence, head.hash) == (newest.sequence, newest.hash)
    (certificate, *_) = load_certificates(head.certificate)
    statement = LedgerHead("a", head.sequence, head.hash)
    verify(certificate, Domain.LEDGER_HEAD, statement.to_bytes(), head.signature)
    del siege.hostile.misbehave["Poll"]


WORK = wire.Work(release="r1", describe=wire.Describe(dataset="cohort"))


def _of_another(hostile: HostileAggregator, request: wire.PollRequest) -> wire.PollResponse:
    return hostile.signed(request, wire.PollResponse(work=[WORK]), hostile.other)


def _unsigned(_hostile: HostileAggregator, _request: wire.PollRequest) -> wire.PollResponse:
    return wire.PollResponse(work=[WORK])


def _of_another_connection(hostile: HostileAggregator, _request: wire.PollRequest) -> wire.PollResponse:
    return hostile.signed(wire.PollRequest(nonce=b"x" * 16), wire.PollResponse(work=[WORK]))


def _with_more_work(hostile: HostileAggregator, request: wire.PollRequest) -> wire.PollResponse:
    response = hostile.signed(request, wire.PollResponse(work=[WORK]))
    response.work.add(release="r2", describe=wire.Describe(dataset="cohort"))
    return response


@pytest.mark.parametrize("lie", [_of_another, _unsigned, _of_another_connection, _with_more_work])
async def test_work_that_the_aggregator_did_not_sign_is_not_done(
    siege: Siege, lie: Callable[[HostileAggregator, wire.PollRequest], wire.PollResponse]
) -> None:
    """No work is done that the aggregator of owner.toml did not sign for this owner and connection."""
    hostile, polls = siege.hostile, asyncio.Queue[wire.PollRequest]()

    async def poll(request: wire.PollRequest, _context: Any) -> wire.PollResponse:
        polls.put_nowait(request)
        return lie(hostile, request)

    hostile.misbehave["Poll"] = poll
    async with asyncio.timeout(90):
        nonces = {(await polls.get()).nonce for _ in range(3)}
    del hostile.misbehave["Poll"]
    # The connection was given up each time.
    assert len(nonces) == 3
    assert (siege.state("r1"), hostile.answers.empty()) == (None, True)


async def test_another_aggregator_at_the_same_host_learns_nothing(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of the same CA for the same host is not enough: the aggregator is known by its name."""
    monkeypatch.setattr("owner_node.connection.connection._LONGEST_WAIT_SECONDS", 0.02)
    hostile = HostileAggregator(certificates)
    hostile.hub, calls = hostile.other, asyncio.Queue[str]()
    for call in ("Poll", "Answer", "UploadState", "Upload"):

        async def note(_request: object, _context: object, call: str = call) -> None:
            calls.put_nowait(call)

        hostile.misbehave[call] = note
    async with serving(hostile, certificates, "other") as address:
        config = owner(tmp_path / "a", "a", address, certificates)
        async with running(config), asyncio.timeout(90):
            for _ in range(3):
                hostile.connected.clear()
                await hostile.connected.wait()
            assert "comes with the certificate of spiffe://release.test/aggregator/other" in (
                connection(config).reason
            )
    assert calls.empty()


async def test_another_aggregator_that_takes_the_place_gets_no_answer(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    """What was asked for over a connection is sent over that one alone, not to whoever gRPC reaches next."""
    describe, made, replaced = Invitations.describe, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def described(self: Invitations, *asked: str) -> bytes:
        schema = describe(self, *asked)
        loop.call_soon_threadsafe(made.set)
        assert replaced.wait(90)
        return schema

    monkeypatch.setattr(Invitations, "describe", described)
    named, other = HostileAggregator(certificates), HostileAggregator(certificates)
    other.hub = other.other
    async with AsyncExitStack() as stack, asyncio.timeout(90):
        first = await stack.enter_async_context(AsyncExitStack())
        address = await first.enter_async_context(serving(named, certificates))
        await stack.enter_async_context(running(owner(tmp_path / "a", "a", address, certificates)))
        named.tell(wire.Work(release="r1", describe=wire.Describe(dataset="cohort")))
        await made.wait()
        await first.aclose()
        await stack.enter_async_context(serving(other, certificates, "other", address))
        replaced.set()
        await heard.wait_for("not answered")
    assert other.answers.empty()


class Listening(HostileAggregator):
    """Keeps what polls say."""

    def __init__(self, certificates: Path) -> None:
        super().__init__(certificates)
        self.polls: asyncio.Queue[wire.PollRequest] = asyncio.Queue()

    async def Poll(self, request: wire.PollRequest, context: Any) -> wire.PollResponse:
        """Answer as any aggregator."""
        self.polls.put_nowait(request)
        return await super().Poll(request, context)


async def test_polls_do_not_say_how_far_counting_is(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before linking, the share that is done and the time it took would disclose the number of records."""
    counting, done = threading.Event(), threading.Event()
    monkeypatch.setattr("common.progress._SHORTEST_SECONDS", 0.0)

    def count_slowly(dataset: object, allowed: object, progress: Progress) -> int:
        progress.begin("counting", 100)
        progress.reach(43)
        counting.set()
        assert done.wait(90)
        return 0

    monkeypatch.setattr("owner_node.release.invitations.count_records", count_slowly)
    aggregator = Listening(certificates)
    # The second has to wait for its turn. It must not get the progress of the first.
    for work in (wire.Work(describe=wire.Describe(dataset="cohort")), wire.Work(mask=wire.Mask())):
        work.release = "r1"
        aggregator.tell(work)
    async with AsyncExitStack() as stack, asyncio.timeout(90):
        address = await stack.enter_async_context(serving(aggregator, certificates))
        await stack.enter_async_context(running(owner(tmp_path / "a", "a", address, certificates)))
        assert await asyncio.to_thread(counting.wait, 20)
        said: dict[str, bool] = {}
        while len(said) < 2:
            poll = await aggregator.polls.get()
            said = {key.step: key.HasField("progress") for key in poll.busy}
        # One more, after the count began for certain.
        poll = await aggregator.polls.get()
        done.set()
    assert {key.step: key.HasField("progress") for key in poll.busy} == {"describe": False, "mask": False}


async def test_work_that_has_to_wait_is_retried_with_backoff(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delay doubles up to a limit, and stays there however long it takes."""
    loop, delays, failures = asyncio.get_running_loop(), list[float](), 8
    later, describe = loop.call_later, Invitations.describe

    def at_once(delay: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        if callback.__name__ != "_take_up":
            return later(delay, callback, *arguments)
        delays.append(delay)
        return later(0, callback, *arguments)

    def described(self: Invitations, *asked: str) -> bytes:
        if len(delays) < failures:
            raise OSError(ENOSPC, "No space left on device")
        return describe(self, *asked)

    monkeypatch.setattr(loop, "call_later", at_once)
    monkeypatch.setattr(Invitations, "describe", described)
    aggregator = HostileAggregator(certificates)
    async with AsyncExitStack() as stack, asyncio.timeout(90):
        address = await stack.enter_async_context(serving(aggregator, certificates))
        await stack.enter_async_context(running(owner(tmp_path / "a", "a", address, certificates)))
        await aggregator.ask(wire.Work(release="r1", describe=wire.Describe(dataset="cohort")))
    assert delays[:failures] == [5, 10, 20, 30, 30, 30, 30, 30]


async def test_commands_take_nothing_from_another_aggregator_at_the_same_host(
    tmp_path: Path, certificates: Path
) -> None:
    """Doctor, download, schema, renewal and recall ask nothing of an aggregator that is not the named one."""
    hostile, asked = HostileAggregator(certificates), list[str]()
    hostile.hub = hostile.other
    for call in ("Download", "Renew", "FetchSchema", "Recall"):

        async def note(_request: object, _context: object, call: str = call) -> None:
            asked.append(call)

        hostile.misbehave[call] = note
    async with serving(hostile, certificates, "other") as address:
        config = owner(tmp_path / "a", "a", address, certificates)
        (section,) = config.aggregators
        identity = read_identity(config.tls)
        records = Records.open(config.owner.state_dir, utc_now)
        with closing(records.db):
            with records.db.transaction() as tx:
                records.sessions.open(tx, "hub", "r1", "cohort")

            async def fetched() -> None:
                async with connected_client(config, section) as client:
                    await client.schema("cohort")

            commands: dict[str, Callable[[], Awaitable[object]]] = {
                "doctor": lambda: asyncio.to_thread(probe_aggregator, config, section, identity),
                "download": lambda: download(config, "r1", tmp_path / "out"),
                "schema": fetched,
                "renewal": lambda: renew(config),
                "recall": lambda: recall(config, records, (), utc_now),
            }
            for command in commands.values():
                with pytest.raises(IdentityError, match=r"certificate of .*/aggregator/other"):
                    await command()
    assert (asked, (tmp_path / "out").exists()) == ([], False)


async def test_an_owner_that_takes_work_up_again_has_a_poll_at_every_moment(
    siege: Siege, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll that names other work than the one before is there before that one ends: nobody seems gone."""
    monkeypatch.setattr("owner_node.connection.connection._REST_SECONDS", 0.2)
    hostile, held, left = siege.hostile, 0, asyncio.Queue[int]()

    async def poll(request: wire.PollRequest, _context: object) -> wire.PollResponse:
        nonlocal held
        held += 1
        try:
            if not request.busy:
                work = wire.Work(release="r1", describe=wire.Describe(dataset="nothing"))
                return hostile.signed(request, wire.PollResponse(work=[work]))
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            left.put_nowait(held - 1)
            raise
        finally:
            held -= 1
        return wire.PollResponse()

    hostile.misbehave["Poll"] = poll
    try:
        async with asyncio.timeout(90):
            found = [await left.get() for _ in range(3)]
    finally:
        del hostile.misbehave["Poll"]
    assert found == [1, 1, 1]


async def test_a_forgotten_release_ends_and_its_reservation_comes_back(
    siege: Siege, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aggregator that is connected and asks for nothing, long after the deadline, has lost the release."""
    await siege.accepted("r1")
    assert siege.state("r1") is SessionState.RESERVED
    seen: list[wire.LedgerHead] = []

    async def idle(request: wire.PollRequest, _: Any) -> wire.PollResponse:
        """Answer as an aggregator that keeps ledger heads and has no work."""
        if request.HasField("ledger_head"):
            seen.append(request.ledger_head)
        await asyncio.sleep(0.05)
        return siege.hostile.signed(request, wire.PollResponse(newest_ledger_head=seen[-1] if seen else None))

    siege.hostile.misbehave["Poll"] = idle
    with monkeypatch.context() as changed:
        changed.setattr("owner_node.release.node.LONGEST_HOLD", timedelta(seconds=-1))
        await heard.wait_for("the aggregator has forgotten a release")
    del siege.hostile.misbehave["Poll"]
    assert siege.state("r1") is SessionState.ENDED
    assert siege.kinds() == ["reserve", "return"]
