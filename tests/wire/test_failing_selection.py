"""An aggregator that does not send its selection, and a machine that fails: no end of an owner's release."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from aggregator.api.call_errors import abort
from common.canonical import digest
from common.errors import ConflictError, InternalError, NotConnectedError, TesseraError
from common.wire.v1 import owner_pb2 as wire
from owner_node.connection.client import AggregatorClient, NotTakenError
from owner_node.connection.worker import PASSING, Worker, WorkOutcome
from owner_node.state.session import SessionState
from tests.fakes.hostile_aggregator import HostileAggregator, serving
from tests.fakes.offered_plans import session
from tests.fakes.offering import Offering
from tests.protocol.test_linking_exceptions import POLICY, intersected, linked, selection

CHOSEN = selection()


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node whose policy allows a selection, and what its aggregator signs."""
    made = Offering(tmp_path, POLICY)
    yield made
    made.records.db.close()


def _work(offering: Offering, state: SessionState, patch: pytest.MonkeyPatch) -> tuple[wire.Work, bytes]:
    """Bring a release to linking, or to between spending and sealing; return its work and addendum."""
    plan = linked(offering, "vertical", on_mismatch="intersect")
    addendum, signature = offering.signed(intersected(plan, CHOSEN))
    if state is SessionState.SPENT:
        with patch.context() as broken:
            broken.setattr("owner_node.engines.pinned.encode", _dies)
            with pytest.raises(KeyboardInterrupt):
                offering.node.production.mask("r1", plan.digest, addendum, signature, b"", CHOSEN)
        offering.restart()
    assert session(offering).state is state
    told = wire.Mask(
        addendum_digest=digest(addendum), signature=signature, certificate=offering.hub.chain_pem.encode()
    )
    return wire.Work(release="r1", plan_digest=plan.digest, mask=told), addendum


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


@asynccontextmanager
async def _working(offering: Offering) -> AsyncIterator[tuple[Worker, HostileAggregator, AggregatorClient]]:
    hostile = HostileAggregator(offering.folder)
    async with serving(hostile, offering.folder) as address:
        port = address.rpartition(":")[2]
        async with AggregatorClient(f"localhost:{port}", offering.config.tls) as client:
            worker = Worker(offering.node)
            worker.answer_through(client)
            yield worker, hostile, client


def _says(error: TesseraError) -> Callable[[Any, Any], Awaitable[None]]:
    return lambda _request, context: abort(context, error)


def _ends(status: grpc.StatusCode) -> Callable[[Any, Any], Awaitable[None]]:
    return lambda _request, context: context.abort(status, "")


FAILURES = {
    "its disk is broken": (_says(InternalError("an internal fault of the other side")), NotTakenError),
    "it has another plan": (_says(ConflictError("another plan")), NotTakenError),
    "too many calls": (_ends(grpc.StatusCode.RESOURCE_EXHAUSTED), NotTakenError),
    "it goes away": (_ends(grpc.StatusCode.UNAVAILABLE), NotConnectedError),
}


@pytest.mark.parametrize("state", [SessionState.LINKED, SessionState.SPENT])
async def test_a_selection_that_is_not_sent(
    offering: Offering, state: SessionState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fetching it fails, the release stays where it is, and is sealed when the selection comes."""
    work, addendum = _work(offering, state, monkeypatch)
    kinds = offering.kinds()
    async with _working(offering) as (worker, hostile, _):
        hostile.serve(addendum)
        for name, (failure, expected) in FAILURES.items():
            hostile.misbehave["Select"] = failure
            with pytest.raises(expected):
                await worker.do(work)
            assert (name, session(offering).state, offering.kinds()) == (name, state, kinds)
        assert hostile.answers.empty()
        del hostile.misbehave["Select"]
        hostile.selections = [CHOSEN]
        assert await worker.do(work) is WorkOutcome.DONE
        assert (await hostile.answer()).WhichOneof("answer") == "sealed"
    assert offering.kinds() == ["reserve", "spend"]


async def test_too_little_memory_after_the_spend(offering: Offering, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer ends a release whose charge is spent: it is sealed under it when there is memory again."""
    work, addendum = _work(offering, SessionState.SPENT, monkeypatch)
    async with _working(offering) as (worker, hostile, _):
        hostile.serve(addendum)
        hostile.selections = [CHOSEN]
        with monkeypatch.context() as broken:
            broken.setattr("owner_node.release.product.pin", _has_no_memory)
            with pytest.raises(PASSING, match="internal fault"):
                await worker.do(work)
        assert session(offering).state is SessionState.SPENT
        assert hostile.answers.empty()
        assert await worker.do(work) is WorkOutcome.DONE
        assert (await hostile.answer()).WhichOneof("answer") == "sealed"
    assert offering.kinds() == ["reserve", "spend"]


def _has_no_memory(*_: object, **__: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("state", [SessionState.LINKED, SessionState.SPENT])
@pytest.mark.parametrize("sent", [[], [CHOSEN[:-1]], [CHOSEN[:2], CHOSEN[2:4]]])
async def test_a_selection_that_ends_early(
    offering: Offering, state: SessionState, sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that ends before all bits came is asked for again, as a connection that broke would be."""
    work, addendum = _work(offering, state, monkeypatch)
    kinds = offering.kinds()
    async with _working(offering) as (worker, hostile, _):
        hostile.serve(addendum)
        hostile.selections = sent
        for _ in range(2):
            with pytest.raises(NotTakenError, match=f"sent {sum(map(len, sent))} of the {len(CHOSEN)} bytes"):
                await worker.do(work)
            assert (session(offering).state, offering.kinds()) == (state, kinds)
        assert hostile.answers.empty()
        hostile.selections = [CHOSEN]
        assert await worker.do(work) is WorkOutcome.DONE
        assert (await hostile.answer()).WhichOneof("answer") == "sealed"
    assert offering.kinds() == ["reserve", "spend"]


@pytest.mark.parametrize("state", [SessionState.LINKED, SessionState.SPENT])
async def test_a_connection_that_was_closed(
    offering: Offering, state: SessionState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that outlives its connection is told again by the next one; it is no fault of the release."""
    work, addendum = _work(offering, state, monkeypatch)
    async with _working(offering) as (worker, hostile, client):
        hostile.serve(addendum)
        await client.close()
        with pytest.raises(NotConnectedError):
            await worker.do(work)
    assert session(offering).state is state
