"""The connection to one aggregator: it reconnects with backoff, takes work, and reports why it broke."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from common.daemon.process import in_thread
from common.errors import (
    IntegrityError,
    InternalError,
    NotConnectedError,
    ProtocolError,
    SourceUnreachableError,
    TesseraError,
)
from common.files import disk_reason
from common.model.plan import RELEASE_ID
from common.trust.credentials import Credentials
from common.wire.v1 import owner_pb2 as wire
from owner_node.config import KnownAggregator, OwnerConfig
from owner_node.connection.client import AggregatorClient, NotTakenError, explain
from owner_node.connection.credentials import Renewal
from owner_node.connection.ledger_guard import LedgerGuard, newest_head
from owner_node.connection.worker import PASSING, Worker, WorkOutcome
from owner_node.release.node import Node
from owner_node.release.records import Records
from owner_node.state.answers import SignedHead
from owner_node.trust import Trust

if TYPE_CHECKING:
    from owner_node.state.chain import Head

_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 30.0
_RETRY_SECONDS = 0.5
"""Delay before a retry of work whose answer found no connection."""
_PAUSE_SECONDS = 0.1
_OVERLAP_SECONDS = 3 * _PAUSE_SECONDS
"""How long a poll that is replaced by another one stays: an owner without a poll counts as disconnected."""
_REST_SECONDS = 5.0
"""Delay before the first retry of work that failed for another transient reason; it doubles each time."""
_MOST_TASKS = 64
"""Limit of work in progress or waiting for a retry; an aggregator repeats all other work."""
_log = logging.getLogger(__name__)


@contextmanager
def _contain_faults() -> Iterator[None]:
    """Confine an unexpected exception to the connection that it occurred in; others keep working."""
    try:
        yield
    except TesseraError:
        raise
    except Exception as fault:  # noqa: BLE001 - the edge of a connection
        _log.error("internal fault", exc_info=fault)
        raise InternalError("an internal fault, see the log") from None


def _why(error: OSError | TesseraError) -> dict[str, str]:
    """Return why work has to wait, for the log."""
    if isinstance(error, OSError):
        return {"reason": disk_reason(error)}
    return {"reason": error.message, "hint": error.hint}


def _step_name(work: wire.Work) -> str:
    """Return the name of a piece of work among those of its release: every round has one of its own."""
    step = work.WhichOneof("step") or ""
    return f"{step}-{getattr(work, step).round}" if step in ("encrypt", "add", "measure") else step


class Connection:
    """Keeps the connection to one aggregator and does its work.

    Args:
        trust: Checks the ledger head that the aggregator returns.
        guard: Stops the work for all aggregators.
        trials: Does the work of trials; None where the policy allows none.
    """

    def __init__(
        self,
        config: OwnerConfig,
        aggregator: KnownAggregator,
        node: Node,
        records: Records,
        trust: Trust,
        credentials: Credentials,
        renewal: Renewal,
        guard: LedgerGuard,
        clock: Callable[[], datetime],
        trials: Node | None = None,
    ) -> None:
        self._config, self._aggregator, self._node, self._guard = config, aggregator, node, guard
        self._records, self._trust, self._clock = records, trust, clock
        self._credentials, self._renewal = credentials, renewal
        self._identity = credentials.current
        self._worker = Worker(node, trials)
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        # Work that waits for a person: it is reported to the aggregator as busy, and no task works on it.
        self._waiting: set[tuple[str, str]] = set()
        self._delays: dict[str, float] = {}
        """Delay before the next retry of a release's work, where the last attempt had to wait."""
        self._checks: set[asyncio.Task[None]] = set()
        self._rested = asyncio.Event()
        self._room = asyncio.Event()
        self._turns: dict[str, asyncio.Lock] = {}
        self._reason = ""
        self._reported: Head | None = None

    async def run(self) -> None:
        """Connect, work and reconnect until cancelled."""
        try:
            while True:
                async with await self._connect_with_retries() as client:
                    try:
                        with _contain_faults():
                            await self._work(client)
                    except TesseraError as error:
                        await self._note_broken(error)
                        pause = _RETRY_SECONDS if isinstance(error, NotConnectedError) else _REST_SECONDS
                        await asyncio.sleep(pause)
        finally:
            await self._stop_tasks()

    async def _connect_with_retries(self) -> AggregatorClient:
        retrying = AsyncRetrying(
            wait=wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_WAIT_SECONDS),
            retry=retry_if_exception_type(TesseraError),
            before_sleep=self._explain,
        )
        return await retrying(self._connect)

    async def _connect(self) -> AggregatorClient:
        # Every attempt gets a new channel: a failed one would apply gRPC's own, longer backoff.
        self._identity = self._credentials.current
        client = AggregatorClient(self._aggregator.address, self._identity)
        try:
            with _contain_faults():
                await self._greet(client)
        except BaseException:
            await client.close()
            raise
        return client

    async def _greet(self, client: AggregatorClient) -> None:
        self._guard.check()
        response = await client.connect(self._datasets(), self._trust)
        await self._examine(response)
        self._reason, self._reported = "", newest_head(response)
        await asyncio.to_thread(self._records.presence.note_connected, self._aggregator.name)
        _log.info(
            "connected", extra={"aggregator": self._aggregator.name, "version": response.software.version}
        )

    def _datasets(self) -> list[str]:
        return [dataset.name for dataset in self._config.datasets]

    async def _examine(self, response: wire.ConnectResponse | wire.PollResponse) -> None:
        """Refuse all work if the ledger lacks entries that this owner signed."""
        if response.HasField("newest_ledger_head"):
            await self._guard.examine(self._trust, self._aggregator.name, response.newest_ledger_head)

    async def _work(self, client: AggregatorClient) -> None:
        """Take work until the connection breaks, or the certificate was renewed."""
        self._worker.answer_through(client)
        while self._credentials.current is self._identity:
            await self._renewal.renew(client, self._aggregator.name)
            while not self._has_room():
                self._room.clear()
                await self._room.wait()
            known = len(self._tasks)
            for work in await self._poll(client):
                if not RELEASE_ID.fullmatch(work.release):
                    raise ProtocolError("the aggregator sends a malformed release id")
                key = (work.release, _step_name(work))
                if key[1] == "conclude":
                    # It waits for its turn, and what has it is of no use any more.
                    await in_thread(self._worker.interrupt, work.release)
                if key not in self._tasks and self._has_room():
                    self._tasks[key] = asyncio.create_task(self._do(work, key))
            if len(self._tasks) <= known:
                # Rate limit: a poll may be answered at once without anything new.
                await asyncio.sleep(_PAUSE_SECONDS)

    def _has_room(self) -> bool:
        return len(self._tasks) - len(self._waiting) < _MOST_TASKS

    async def _poll(self, client: AggregatorClient) -> list[wire.Work]:
        """Wait for work; a poll is replaced when work that it names as busy is to be retried."""
        self._rested.clear()
        head = await self._unreported_head()
        shown = self._reported.hash if self._reported else ""
        presence, name = self._records.presence, self._aggregator.name
        busy = {
            (release, step): presence.masking(name, release) if step == "mask" else None
            for release, step in self._tasks
        }
        poll = asyncio.create_task(client.poll(busy, self._trust, head, shown))
        changes: tuple[Coroutine[Any, Any, object], ...] = (
            self._rested.wait(),
            self._guard.broken.wait(),
            self._credentials.wait_for_other(self._identity),
        )
        events = [asyncio.create_task(change) for change in changes]
        try:
            await asyncio.wait((poll, *events), return_when=asyncio.FIRST_COMPLETED)
            self._guard.check()
            if not poll.done():
                return []
            response = await self._await_answer(client, poll)
            await self._examine(response)
            self._reported = newest_head(response)
            # An answer to a ledger head may have no work although some is due.
            if not response.work and head is None:
                await self._end_forgotten()
            return list(response.work)
        finally:
            for task in events:
                task.cancel()
            poll.add_done_callback(lambda done: done.cancelled() or done.exception())
            asyncio.get_running_loop().call_later(_OVERLAP_SECONDS, poll.cancel)

    async def _end_forgotten(self) -> None:
        """Return reservations that the aggregator, which has no work, does not know any more."""
        try:
            forgotten = await in_thread(self._node.expire_orphans, {release for release, _ in self._tasks})
        except PASSING as error:
            _log.warning("reservations not returned", extra=_why(error))
            return
        for release in forgotten:
            extra = {"aggregator": self._aggregator.name, "release": release}
            _log.warning("the aggregator has forgotten a release", extra=extra)

    async def _await_answer(
        self, client: AggregatorClient, poll: asyncio.Task[wire.PollResponse]
    ) -> wire.PollResponse:
        """Wait for the answer to a poll; if it rejects the ledger head, examine the newest one at once."""
        try:
            return await poll
        except IntegrityError:
            # Another copy of the state directory signed a head before. A new connection shows that head, and
            # examining it stops the work for all aggregators.
            await self._examine(await client.connect(self._datasets(), self._trust))
            raise

    async def _unreported_head(self) -> SignedHead | None:
        """Return the signed head of the ledger if it was not reported to this aggregator yet.

        Charges of `mask` and `query` reach an aggregator in no other way. Without it, the loss of these
        entries would not be detected.
        """
        self._guard.check()
        try:
            head = await asyncio.to_thread(self._records.ledger.head)
            if head.sequence == 0 or head == self._reported:
                return None
            return await asyncio.to_thread(self._node.head)
        except PASSING:
            # For example a full disk: a later poll sends the head.
            return None

    async def _do(self, work: wire.Work, key: tuple[str, str]) -> None:
        rest = 0.0
        about = {"aggregator": self._aggregator.name, "release": key[0], "step": key[1]}
        try:
            # One step of a release at a time, in the order of the requests.
            async with self._turns.setdefault(work.release, asyncio.Lock()):
                self._guard.check()
                self._records.presence.note_wait(self._aggregator.name, work.release)
                outcome = await self._worker.do(work)
            self._delays.pop(work.release, None)
            if outcome is WorkOutcome.WAITS:
                self._waiting.add(key)
            # Rate limit: the aggregator may repeat a refused request at once.
            rest = _REST_SECONDS if outcome is WorkOutcome.REFUSED else 0.0
            if key[1] == "conclude":
                for waiting in [waiting for waiting in self._waiting if waiting[0] == work.release]:
                    self._take_up(waiting)
        # First, since a source that cannot be reached is a kind of lost connection, too.
        except (SourceUnreachableError, *PASSING) as error:
            why = _why(error)
            _log.error("cannot work now", extra=about | why)
            self._records.presence.note_wait(self._aggregator.name, work.release, why["reason"])
            rest = self._back_off(work.release)
        except NotConnectedError:
            _log.info("not answered", extra=about)
            rest = _RETRY_SECONDS
        except NotTakenError as refusal:
            # The fault may be the aggregator's: a sealed fragment stays sealed, and is offered again.
            _log.warning("answer not taken", extra=about | {"code": refusal.error.code})
            rest = _REST_SECONDS
        except IntegrityError as error:
            _log.error("no work is done", extra=about | {"reason": error.message})
        except Exception as error:  # noqa: BLE001 - the edge of a task; retried after a delay
            _log.error("internal fault", exc_info=error, extra=about)
            rest = _REST_SECONDS
        finally:
            # The work stays busy until then, so that the aggregator does not repeat it at once.
            if rest:
                asyncio.get_running_loop().call_later(rest, self._take_up, key)
            elif key in self._waiting:
                # A person may have decided in the meantime.
                self.check_decisions()
            else:
                self._drop(key)

    def _back_off(self, release: str) -> float:
        """Return the delay before a release's work is retried; it doubles each time, up to a limit."""
        delay = self._delays.get(release, _REST_SECONDS)
        if len(self._delays) >= _MOST_TASKS:
            # An aggregator can invent releases while nothing can be stored.
            self._delays.clear()
        self._delays[release] = min(2 * delay, _LONGEST_WAIT_SECONDS)
        return delay

    def check_decisions(self) -> None:
        """Resume work that waited for a person who has decided."""
        task = asyncio.create_task(self._check_waiting())
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check_waiting(self) -> None:
        try:
            for key in sorted(self._waiting):
                if await asyncio.to_thread(self._node.invitations.decided, key[0]):
                    self._take_up(key)
        except (TesseraError, *PASSING) as error:
            _log.error("cannot check for decisions now", extra={"error": type(error).__name__})
            asyncio.get_running_loop().call_later(_REST_SECONDS, self.check_decisions)

    def _take_up(self, key: tuple[str, str]) -> None:
        self._waiting.discard(key)
        self._drop(key)
        self._rested.set()

    def _drop(self, key: tuple[str, str]) -> None:
        """Remove work from the work in progress, and the lock of a release without any."""
        self._tasks.pop(key, None)
        if all(release != key[0] for release, _ in self._tasks):
            self._turns.pop(key[0], None)
        self._room.set()

    async def _explain(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, TesseraError):
            await self._note_broken(error)

    async def _note_broken(self, error: TesseraError) -> None:
        """Log and record why there is no connection, once per reason."""
        if isinstance(error, NotConnectedError):
            error = await self._handshake() or error
        if error.message == self._reason:
            return
        self._reason = error.message
        with suppress(TesseraError, *PASSING):
            await asyncio.to_thread(
                self._records.presence.note_disconnected, self._aggregator.name, error.message
            )
        _log.warning(
            "not connected",
            extra={"aggregator": self._aggregator.name, "reason": error.message, "hint": error.hint},
        )

    async def _handshake(self) -> TesseraError | None:
        try:
            # It reads what anyone on the way may send, and is called where a fault would end the daemon.
            with _contain_faults():
                return await asyncio.to_thread(explain, self._aggregator, self._config.tls, self._clock())
        except TesseraError as error:
            return error

    async def _stop_tasks(self) -> None:
        # What they have not stored is done again at the next start.
        for release in {release for release, _ in self._tasks}:
            await in_thread(self._worker.interrupt, release)
        tasks = [*self._tasks.values(), *self._checks]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
