"""An aggregator cannot make an owner's state grow without limit, whatever it invents."""

import asyncio
import threading
import zlib
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pytest

from common.canonical import canonical, digest
from common.errors import ConflictError, IntegrityError, ProtocolError, RefusedError, VersionError
from common.model.plan import LARGEST_PLAN, Plan
from common.progress import Progress
from common.trust.signing import Domain
from common.wire.limits import check_lengths
from common.wire.v1 import owner_pb2 as wire
from owner_node.connection.recall import _within_limits
from owner_node.connection.worker import Worker
from owner_node.release.approvals import Person
from owner_node.release.decisions import Decisions
from owner_node.release.invitations import Offer
from owner_node.views.status import status_document
from tests.fakes.offered_plans import consent, offered, session, under
from tests.fakes.offering import Offering

if TYPE_CHECKING:
    from owner_node.connection.client import AggregatorClient
    from owner_node.release.node import Node


@pytest.fixture
def offering(tmp_path):
    """An owner node and the aggregator that asks it."""
    made = Offering(tmp_path)
    yield made
    made.records.db.close()


def events(offering: Offering) -> list[str]:
    """Return the kinds of all lines of history."""
    return [entry.event for entry in offering.records.history.entries()]


def test_open_releases_are_few(offering):
    """An aggregator that invents releases is refused; each that ends makes room for another."""
    under(offering, max_open_releases=3)
    for number in range(3):
        offering.node.invitations.describe(f"r{number}", "cohort")
    with pytest.raises(RefusedError, match="max_open_releases = 3: hub"):
        offering.node.invitations.describe("r3", "cohort")
    offering.node.invitations.describe("r1", "cohort")
    offering.node.close("r0", "cancelled", "", "")
    offering.node.invitations.describe("r3", "cohort")
    assert len(offering.records.sessions.all()) == 4


def test_releases_are_begun_slowly(offering, monkeypatch):
    """Releases that end at once are for ever in the history: an aggregator can begin only so many an hour."""
    monkeypatch.setattr("owner_node.release.invitations._MOST_NEW", 3)
    for number in range(3):
        offering.node.invitations.describe(f"r{number}", "cohort")
        offering.node.close(f"r{number}", "cancelled", "", "")
    with pytest.raises(RefusedError, match="3 new releases of hub per hour"):
        offering.node.invitations.describe("r3", "cohort")
    offering.restart()
    with pytest.raises(RefusedError, match="3 new releases of hub per hour"):
        offering.node.invitations.describe("r3", "cohort")
    offering.later = timedelta(minutes=61)
    offering.node.invitations.describe("r3", "cohort")


@pytest.fixture
def parsed(monkeypatch):
    """Every plan that is unpacked or decoded from now on, by its size."""
    found = []
    decode, unpack = Plan.from_bytes, zlib.decompress

    def counted(work):
        def count(data, *others):
            found.append(len(data))
            return work(data, *others)

        return count

    monkeypatch.setattr(Plan, "from_bytes", counted(decode))
    monkeypatch.setattr(zlib, "decompress", counted(unpack))
    return found


def test_open_plans_cost_other_releases_nothing(offering, parsed):
    """However many plans are open, a release decodes its own alone, and lists decode none."""

    def one(release):
        parsed.clear()
        plan = offered(offering, release, epsilon="0.01")
        assert consent(offering, plan)
        offering.node.production.link(release, plan.digest)
        offering.node.production.mask(release, plan.digest, *offering.addendum(plan))
        return len(parsed)

    one("before")  # a library that is imported on first use unpacks data, too
    alone = one("first")
    for number in range(12):
        assert consent(offering, offered(offering, f"open-{number}", epsilon="0.01"))
    assert one("last") == alone
    parsed.clear()
    decisions = Decisions(offering.records.db, offering.now)
    shown = [decisions.summary(each) for each in decisions.all()]
    assert [str(each["epsilon"]) for each in shown] == ["0.01"] * 15
    status_document(offering.config, offering.records.db)
    assert parsed == []


def test_a_plan_is_stored_once_and_small_and_stays_with_its_refusal(offering, monkeypatch):
    """What is kept of plans that came to nothing does not grow with them, but for what a person refused."""
    monkeypatch.setattr("owner_node.state.sessions.MOST_REFUSED_PLANS", 2)

    def stored():
        return offering.records.db.rows("SELECT sum(length(plan)) AS bytes, count(*) AS n FROM plans")[0]

    under(offering, approval="manual")
    plan = offered(offering)
    for _ in range(2):
        assert not consent(offering, plan)
    assert stored()["n"] == 1
    assert stored()["bytes"] < len(plan.to_bytes()) / 2
    assert offering.records.sessions.plan(session(offering)) == plan.to_bytes()
    Decisions(offering.records.db, offering.now).refuse("r1", "", Person("vera"), "no")
    others = {}
    for release in ("r2", "r3", "r4", "r5"):
        others[release] = offered(offering, release)
        assert not consent(offering, others[release])
        offering.node.close(release, "cancelled", "", "")
    kept = [session(offering, each) for each in ("r1", *others)]
    assert [each.plan_digest for each in kept] == [plan.digest, *(each.digest for each in others.values())]
    shown = [offering.records.sessions.plan(each) is not None for each in kept]
    assert shown == [True, False, False, True, True]
    assert all(each.aggregator_certificate is None and each.plan_signature is None for each in kept)


def test_what_costs_little_is_checked_first(offering, parsed):
    """A plan that is too large, another one, or signed by nobody is refused without decoding it."""
    plan, offer = (made := offered(offering)), offering.offer(made)
    accept = offering.node.invitations.consent
    with pytest.raises(ProtocolError, match="another plan"):
        accept("r1", "ab" * 32, offer)
    with pytest.raises(IntegrityError):
        accept("r1", plan.digest, replace(offer, signature=offering.other.sign(Domain.PLAN, offer.plan)))
    under(offering, max_plan_bytes=len(offer.plan) - 1)
    with pytest.raises(RefusedError, match="max_plan_bytes"):
        offering.node.invitations.consent("r1", plan.digest, offer)
    assert parsed == []
    under(offering, max_plan_bytes=len(offer.plan))
    assert consent(offering, plan)
    with pytest.raises(ConflictError):
        offering.node.invitations.consent("r1", "ab" * 32, offer)


def test_a_version_is_a_version(offering):
    """The version in a plan is shown to people, so it is one."""
    plan = offered(offering)
    for version in ("", "approved", "1 2", "1\n2", "1" * 65):
        other = replace(plan, version=version)
        with pytest.raises(ProtocolError, match="version"):
            consent(offering, other)
    assert consent(offering, replace(plan, version="0.1.7rc1"))


def take(offering: Offering, data: bytes):
    """Offer a signed plan, given as its bytes."""
    offer = Offer(data, offering.hub.sign(Domain.PLAN, data), offering.hub.chain_pem.encode())
    return offering.node.invitations.consent("r1", digest(data), offer)


def test_a_plan_that_needs_what_is_not_known(offering):
    """What such a plan means is unknown, however well it reads: it is refused with what to upgrade. Fields
    that a later version added, and needs nobody to know, are ignored, and signed with the rest.
    """
    plan = offered(offering)
    document = plan.to_document() | {"version": "9.1.0"}
    for change, words in (
        ({"protocol": 2}, "protocol 2, and 1 is the newest known here"),
        ({"features": ["perfect-noise"]}, "not known here: perfect-noise"),
        ({"features": ["perfect-noise"], "layout": "spiral"}, "not known here: perfect-noise"),
    ):
        with pytest.raises(VersionError, match=words) as caught:
            take(offering, canonical(document | change))
        assert "upgrade it to version 9.1.0" in caught.value.hint
    later = canonical(document | {"colour": "green", "linking": document["linking"] | {"depth": ["2"]}})
    assert take(offering, later) is not None
    assert Plan.from_bytes(later).digest == digest(later)


@pytest.mark.parametrize(
    ("state", "manifest"), [("x" * 3_000_000, ""), ("published", "f" * 3_000_000), ("published", "")]
)
def test_an_end_is_one_of_few(offering, state, manifest):
    """What an aggregator says about the end goes into the history, so it is bounded."""
    offered(offering)
    with pytest.raises(ProtocolError, match="does not end like that"):
        offering.node.close("r1", state, "", manifest)


def _messages(message, path=()):
    """Yield a way to set every text of a message, at any depth."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            kind = getattr(wire, field.message_type.name)
            yield from _messages(kind, (*path, (field.name, field.is_repeated)))
        elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            yield path, field


def _filled(kind, path, field, value):
    message = kind()
    part = message
    for name, repeated in path:
        part = getattr(part, name).add() if repeated else getattr(part, name)
    if field.is_repeated:
        getattr(part, field.name).append(value)
    else:
        setattr(part, field.name, value)
    return message


@pytest.mark.parametrize(
    "kind",
    [
        *(wire.Work, wire.ConnectResponse, wire.UploadResponse, wire.RenewResponse, wire.RecallItem),
        *(wire.DownloadChunk, wire.SelectChunk),
    ],
)
def test_every_text_of_a_message_has_a_limit(kind):
    """No field of any message can bring megabytes that nobody asked for."""
    texts = list(_messages(kind))
    assert texts
    for path, field in texts:
        text = b"x" if field.type == field.TYPE_BYTES else "x"
        short, long = text * 72, text * (LARGEST_PLAN + 1)
        check_lengths(_filled(kind, path, field, short))
        with pytest.raises(ProtocolError, match=field.name):
            check_lengths(_filled(kind, path, field, long))


class _Slow:
    """A node that notes how many of its calls overlap, for as long as a test holds them."""

    def __init__(self):
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self.now = self.most = 0
        self.aggregator = "hub"
        self.invitations = self

    def progress(self, _release):
        return Progress()

    def consent(self, *_arguments):
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.release()
        self.go.wait(20)
        self.now -= 1

    def describe(self, *_arguments):
        self.consent()
        return b""

    def close(self, _release, state, *_arguments):
        if state == "published":
            self.consent()

    def is_resumable(self, _release):
        return False


PLANS = [wire.Work(release=f"r{number}", consent=wire.Consent()) for number in range(8)]
INVITATIONS = [wire.Work(release=f"r{number}", describe=wire.Describe()) for number in range(6)]
PUBLISHED = [wire.Work(release=f"p{number}", conclude=wire.Conclude(state="published")) for number in (1, 2)]


@pytest.mark.parametrize(
    "works", [PLANS, INVITATIONS + PUBLISHED, PUBLISHED + INVITATIONS], ids=["plans", "counts", "published"]
)
async def test_each_aggregator_keeps_one_thread_busy(works: list[wire.Work]) -> None:
    """An aggregator's work is done piece by piece; another's, and ends of releases, are not behind it."""

    class Client:
        answered = 0

        async def document(self, *_names: str) -> bytes:
            return b""

        async def answer(self, _request: object) -> None:
            self.answered += 1

    nodes, client = (_Slow(), _Slow()), Client()
    workers = [Worker(cast("Node", node)) for node in nodes]
    for worker in workers:
        worker.answer_through(cast("AggregatorClient", client))
    busy = [asyncio.create_task(workers[0].do(work)) for work in works]
    other = asyncio.create_task(workers[1].do(works[0]))
    for node in nodes:
        assert await asyncio.to_thread(node.begun.acquire, timeout=20)
    nodes[1].go.set()
    await other
    await workers[0].do(wire.Work(release="c1", conclude=wire.Conclude(state="cancelled")))
    assert (client.answered, nodes[0].most) == (2, 1)
    nodes[0].go.set()
    await asyncio.gather(*busy)
    assert (client.answered, nodes[0].most) == (10, 1)


class _Endless:
    """The calls of an aggregator that shows the same for ever."""

    def __init__(self, item):
        self.item, self.told = item, 0

    async def items(self):
        """Show it."""
        while True:
            self.told += 1
            yield self.item


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (wire.RecallItem(heads=[wire.LedgerHead(sequence=1)] * 40), 3),
        (wire.RecallItem(release=wire.RecalledRelease(release="r1")), 101),
        (wire.RecallItem(release=wire.RecalledRelease(plan=b"x" * 600)), 2),
        (wire.RecallItem(heads=[wire.LedgerHead(sequence=2**63)]), 1),
    ],
)
async def test_what_is_recalled_is_bounded(monkeypatch, item, told):
    """An aggregator that shows releases and heads without end does not fill the memory of a recovery."""
    for name, most in (("_MOST_PLACES", 100), ("_MOST_RELEASES", 100), ("_MOST_BYTES", 1000)):
        monkeypatch.setattr(f"owner_node.connection.recall.{name}", most)
    endless = _Endless(item)
    with pytest.raises(IntegrityError, match="hub shows more"):
        async for _ in _within_limits(endless.items(), "hub"):
            pass
    assert endless.told == told


def test_nonsense_is_written_down_once(offering, monkeypatch):
    """A rejected message is in the history once, and no more than so many of them a day."""
    monkeypatch.setattr("owner_node.release.node._MOST_REJECTED", 5)
    for _ in range(20):
        offering.node.fail("r1", ProtocolError("there is no open session for this release"))
    assert events(offering) == ["rejected"]
    for number in range(20):
        offering.node.fail(f"x{number}", ProtocolError("there is no open session for this release"))
    assert events(offering) == ["rejected"] * 5


def test_refusing_before_a_session_is_written_down_once(offering):
    """What this owner refuses again and again without a session does not fill the history either."""
    for _ in range(20):
        offering.node.fail("r1", RefusedError("no"))
    assert events(offering) == ["refused"]
