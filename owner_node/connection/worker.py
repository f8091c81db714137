"""Work requests of an aggregator: decode from the wire, let the node do the step, encode the answer."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from common.daemon.metrics import step_histogram
from common.daemon.process import in_thread
from common.errors import InternalError, NotConnectedError, ProtocolError, TesseraError
from common.model.plan import is_trial
from common.model.rounds import ParcelKind
from common.progress import StepStoppedError
from common.wire.limits import check_lengths
from common.wire.software import software_here
from common.wire.v1 import owner_pb2 as wire
from owner_node.connection.client import AggregatorClient, NotTakenError, ledger_head
from owner_node.release.co_owners import CoOwner
from owner_node.release.invitations import Offer
from owner_node.release.measuring import Opening
from owner_node.release.node import Node
from owner_node.state.answers import (
    NOT_OUR_FAULT,
    Failure,
    RefusedBeforeError,
    SignedParcel,
    SpentError,
)
from owner_node.state.database import CannotStoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from common.model.rounds import Parcel
    from owner_node.release.crossing import Crossing
    from owner_node.state.answers import ParcelAnswer

PASSING = (OSError, CannotStoreError, SpentError)
"""Transient errors, such as a full disk or a busy database, which must not end a release."""
STEPS = ("describe", "consent", "link", "mask", "collect", "encrypt", "add", "measure", "conclude")
"""The steps that an aggregator can request."""
STEP_SECONDS = step_histogram(
    "tessera_owner_step_seconds",
    "How long this owner worked at each step of releases, since the start.",
    STEPS,
)
LONG_THREADS = 2
"""Threads that an aggregator can keep busy for long."""
_LONGEST_REST_SECONDS = 5.0
_log = logging.getLogger(__name__)


def _load_libraries() -> None:
    """Import the libraries that a release needs and an idle daemon does not; Arrow imports pandas anyway."""
    import pandas as pd  # noqa: F401
    import scipy.optimize  # noqa: F401

    import owner_node.release.masked  # noqa: F401


def _failure(failure: Failure) -> wire.AnswerRequest:
    return wire.AnswerRequest(
        failure=wire.Failure(code=failure.code, message=failure.message, objects_to=failure.objects_to)
    )


def _consents(data: bytes) -> wire.Consents:
    try:
        consents = wire.Consents.FromString(data)
    except DecodeError:
        raise ProtocolError("the consents of the other owners cannot be decoded") from None
    check_lengths(consents)
    return consents


class WorkOutcome(StrEnum):
    """Outcome of a work request."""

    DONE = "done"
    """Done and answered."""
    WAITS = "waits"
    """A person has to decide."""
    REFUSED = "refused"
    """Answered that this owner will not or cannot do it."""


class Worker:
    """Does work for one aggregator.

    Args:
        trials: Does it for trials; None where the policy allows none.
    """

    def __init__(self, node: Node, trials: Node | None = None) -> None:
        self._node, self._trials = node, trials
        self._connected: AggregatorClient | None = None
        self._loading: asyncio.Task[None] | None = None
        self._turn, self._side_turn = asyncio.Lock(), asyncio.Lock()
        self._steps: Mapping[str, Callable[[wire.Work], Awaitable[wire.AnswerRequest | None]]] = {
            "describe": self._describe,
            "consent": self._consent,
            "link": self._link,
            "mask": self._mask,
            "collect": self._collect,
            "encrypt": self._encrypt,
            "add": self._add,
            "measure": self._measure,
            "conclude": self._conclude,
        }

    def answer_through(self, client: AggregatorClient) -> None:
        """Send answers through this connection from now on; work outlives the connection of its request."""
        self._connected = client

    @property
    def _client(self) -> AggregatorClient:
        if self._connected is None:
            raise NotConnectedError("there is no connection to the aggregator yet")
        return self._connected

    def interrupt(self, release: str) -> None:
        """Stop what is computed for a release; its work ends soon, without an answer."""
        self._node_of(release).interrupt(release)

    def _node_of(self, release: str) -> Node:
        return self._trials if self._trials is not None and is_trial(release) else self._node

    async def do(self, work: wire.Work) -> WorkOutcome:
        """Do one work request and answer it; a refusal or failure is answered as well.

        Returns:
            Its outcome. Work that was interrupted is done without an answer.

        Raises:
            NotConnectedError: If the answer did not arrive; the aggregator repeats the request.
            NotTakenError: If the aggregator rejected the answer; it repeats the request.
            OSError, CannotStoreError: If this machine cannot do it now (a full disk).
            SpentError: If it cannot do it now, and the charge is spent already.
        """
        step = work.WhichOneof("step") or ""
        extra = {"aggregator": self._node.aggregator, "release": work.release, "step": step}
        outcome = WorkOutcome.REFUSED
        try:
            check_lengths(work)
            if step not in self._steps:
                raise ProtocolError("the aggregator requested a step that this version does not know")
            with STEP_SECONDS.labels(step).time():
                answer = await self._attempt(work, step)
            outcome = WorkOutcome.WAITS if answer and answer.HasField("waiting") else WorkOutcome.DONE
        except (*PASSING, NotConnectedError, NotTakenError):
            raise
        except StepStoppedError:
            _log.info("stopped", extra=extra)
            return WorkOutcome.DONE
        except RefusedBeforeError as refusal:
            answer = _failure(refusal.failure)
        except TesseraError as error:
            details = {"code": error.code, "reason": error.message, "hint": error.hint}
            fault = "rejected" if error.code in NOT_OUR_FAULT else "refused"
            answer = await self._failure(work, error)
            _log.warning(fault, extra=extra | details)
        except Exception as error:  # noqa: BLE001 - the edge of a task; the text could quote a value
            _log.error("internal fault", exc_info=error, extra=extra)
            answer = await self._failure(work, InternalError("an internal fault, see the log"))
        if answer is not None:
            answer.release, answer.plan_digest = work.release, work.plan_digest
            await self._client.answer(answer)
        _log.info("waiting for a person" if outcome is WorkOutcome.WAITS else "done", extra=extra)
        return outcome

    async def _attempt(self, work: wire.Work, step: str) -> wire.AnswerRequest | None:
        """Do a step, and show how far it is.

        Raises:
            StepStoppedError: If it was interrupted, whatever that made of it.
        """
        progress = self._node_of(work.release).progress(work.release)
        try:
            return await self._steps[step](work)
        except Exception:
            if progress.stopped:
                raise StepStoppedError from None
            raise
        finally:
            progress.end()

    @asynccontextmanager
    async def _in_turn(self, turn: asyncio.Lock) -> AsyncIterator[None]:
        """Work with plans or data: one piece of work of an aggregator at a time.

        `turn` is that of work with a plan, or the side turn, of work that must not wait for hours of masking.
        So each aggregator keeps at most `LONG_THREADS` busy and has one plan in memory, and one that asks for
        much does not delay the work for another. After a refusal it waits as long as that took: refusals
        cost the aggregator nothing.
        """
        async with turn:
            began = time.monotonic()
            try:
                yield
            except TesseraError:
                await asyncio.sleep(min(time.monotonic() - began, _LONGEST_REST_SECONDS))
                raise

    async def _failure(self, work: wire.Work, error: TesseraError) -> wire.AnswerRequest:
        return _failure(await in_thread(self._node_of(work.release).fail, work.release, error))

    async def _describe(self, work: wire.Work) -> wire.AnswerRequest:
        describe = self._node_of(work.release).invitations.describe
        async with self._in_turn(self._side_turn):
            schema = await in_thread(describe, work.release, work.describe.dataset)
        # The libraries for masking are loaded while other owners answer.
        self._loading = asyncio.create_task(asyncio.to_thread(_load_libraries))
        return wire.AnswerRequest(described=wire.Described(schema=schema, software=software_here()))

    async def _consent(self, work: wire.Work) -> wire.AnswerRequest:
        asked, accept = work.consent, self._node_of(work.release).invitations.consent
        async with self._in_turn(self._turn):
            plan = await self._client.document(work.release, work.plan_digest)
            offer = Offer(plan, asked.signature, asked.certificate, asked.deadline or None)
            acceptance = await in_thread(accept, work.release, work.plan_digest, offer)
        if acceptance is None:
            return wire.AnswerRequest(waiting=wire.Waiting())
        return wire.AnswerRequest(
            consented=wire.Consented(
                key_check=acceptance.key_check,
                key_generation=acceptance.key_generation,
                ledger_head=await self._head(),
                signature=acceptance.signature,
                certificate=acceptance.certificate,
            )
        )

    async def _link(self, work: wire.Work) -> wire.AnswerRequest:
        shown, link = [], self._node_of(work.release).production.link
        async with self._in_turn(self._turn):
            if self._node_of(work.release).production.checks_co_owners:
                consents = await self._client.document(work.release, work.link.consents_digest)
                shown = [
                    CoOwner(
                        co_owner.id,
                        co_owner.key_check,
                        co_owner.signature,
                        co_owner.certificate,
                        co_owner.key_generation,
                    )
                    for co_owner in _consents(consents).co_owners
                ]
            linked = await in_thread(link, work.release, work.plan_digest, shown)
        blob, progress = wire.BlobKey(), self._node_of(work.release).progress(work.release)
        if linked.tokens:
            blob = await self._client.upload_tokens(work.release, work.plan_digest, linked.tokens, progress)
        return wire.AnswerRequest(
            linked=wire.Linked(
                n_records=linked.n_records,
                tokens_digest=blob.digest,
                tokens_size=blob.size,
                sum_key=linked.sum_key,
                signature=linked.signature,
                certificate=linked.certificate,
                key_proof=linked.key_proof,
            )
        )

    async def _mask(self, work: wire.Work) -> wire.AnswerRequest:
        mask, asked = self._node_of(work.release).production.mask, work.mask
        names, selection = (work.release, work.plan_digest), b""
        async with self._in_turn(self._turn):
            addendum = await self._client.document(work.release, asked.addendum_digest)
            signed = (addendum, asked.signature, asked.certificate)
            size = await in_thread(self._node_of(work.release).production.selection_size, *names, addendum)
            if size:
                selection = await self._client.selection(*names, size)
            sealed = await in_thread(mask, *names, *signed, selection)
        return wire.AnswerRequest(
            sealed=wire.Sealed(
                fragment_digest=sealed.fragment_digest,
                size=sealed.size,
                n_records=sealed.n_records,
                signature=sealed.signature,
                certificate=sealed.certificate,
                ledger_head=await self._head(),
            )
        )

    async def _collect(self, work: wire.Work) -> None:
        node, names = self._node_of(work.release), (work.release, work.plan_digest)
        fragment = await in_thread(node.production.fragment, *names)
        received = await self._client.upload_fragment(*names, fragment, node.progress(work.release))
        signed = (received.receipt, received.signature, received.certificate)
        await in_thread(node.production.receive_receipt, *names, *signed)

    async def _encrypt(self, work: wire.Work) -> wire.AnswerRequest:
        async with self._in_turn(self._turn):
            crossing = await self._crossing(work, work.encrypt)
            answer = await in_thread(crossing.kept, ParcelKind.ROWS)
            if answer is None:
                answer = await in_thread(crossing.encrypt)
        return await self._pass_on(work, work.encrypt.round, answer)

    async def _add(self, work: wire.Work) -> wire.AnswerRequest:
        async with self._in_turn(self._turn):
            crossing = await self._crossing(work, work.add)
            answer = await in_thread(crossing.kept, ParcelKind.SUMS)
            if answer is None:
                rows = await self._fetch_parcels(work, crossing, ParcelKind.ROWS, work.add.parcels)
                answer = await in_thread(crossing.add, rows)
        return await self._pass_on(work, work.add.round, answer)

    async def _crossing(self, work: wire.Work, asked: "wire.Pass | wire.Measure") -> "Crossing":
        opening = Opening(work.release, work.plan_digest, *await self._opened(work, asked))
        return await in_thread(self._node_of(work.release).measuring.crossing, opening)

    async def _opened(
        self, work: wire.Work, asked: "wire.Pass | wire.Measure"
    ) -> "tuple[bytes, bytes, bytes, Path | None]":
        """Fetch what opened a round, and all answers to the one before unless their sums were checked."""
        names = (work.release, work.plan_digest)
        opening, answers = await self._client.document(work.release, asked.opening_digest), None
        find = self._node_of(work.release).measuring.unchecked
        if (unchecked := await in_thread(find, *names, opening)) is not None:
            document, answers = unchecked
            await self._client.parcel(*names, document.answers, document.answers_size, answers)
        return opening, asked.signature, asked.certificate, answers

    async def _fetch_parcels(
        self, work: wire.Work, crossing: "Crossing", kind: ParcelKind, sent: "Iterable[wire.Parcel]"
    ) -> "dict[str, Parcel]":
        """Fetch what this owner needs of what others sent; return it by owner."""
        signed = [SignedParcel(parcel.statement, parcel.signature, parcel.certificate) for parcel in sent]
        needed = await in_thread(crossing.needed, kind, signed)
        for parcel in needed.values():
            name, size, to = parcel.parcel_digest, parcel.size, crossing.received(parcel)
            await self._client.parcel(work.release, work.plan_digest, name, size, to)
        return needed

    async def _pass_on(
        self, work: wire.Work, round_number: int, answer: "ParcelAnswer"
    ) -> wire.AnswerRequest:
        names = (work.release, work.plan_digest)
        await self._client.upload_parcel(*names, answer, self._node_of(work.release).progress(work.release))
        parcel = wire.Parcel(
            statement=answer.parcel.to_bytes(), signature=answer.signature, certificate=answer.certificate
        )
        head = await self._head()
        return wire.AnswerRequest(passed=wire.Passed(round=round_number, parcel=parcel, ledger_head=head))

    async def _measure(self, work: wire.Work) -> wire.AnswerRequest:
        asked, measuring = work.measure, self._node_of(work.release).measuring
        selection = b""
        sums: dict[str, Parcel] = {}
        async with self._in_turn(self._turn):
            if asked.parcels:
                crossing = await self._crossing(work, asked)
                if not crossing.is_answered:
                    sums = await self._fetch_parcels(work, crossing, ParcelKind.SUMS, asked.parcels)
            opening = Opening(work.release, work.plan_digest, *await self._opened(work, asked))
            if size := await in_thread(measuring.selection_size, opening):
                selection = await self._client.selection(work.release, work.plan_digest, size)
            answered = await in_thread(measuring.answer, opening, sums, selection)
        return wire.AnswerRequest(
            measured=wire.Measured(
                round=asked.round,
                answer=answered.answer,
                signature=answered.signature,
                certificate=answered.certificate,
                key_proof=answered.key_proof,
                ledger_head=await self._head(),
            )
        )

    async def _conclude(self, work: wire.Work) -> wire.AnswerRequest:
        said, node = work.conclude, self._node_of(work.release)
        # A published fragment is rewritten. Any other end is short, and returns a reservation.
        async with self._in_turn(self._side_turn) if said.state == "published" else nullcontext():
            await in_thread(node.close, work.release, said.state, said.reason, said.manifest_digest)
        _log.info("concluded", extra={"release": work.release, "state": said.state})
        keeps = await in_thread(node.is_resumable, work.release)
        return wire.AnswerRequest(acknowledged=wire.Acknowledged(keeps=keeps))

    async def _head(self) -> Any:
        return ledger_head(await in_thread(self._node.head))
