"""Carries one schedule out: asks, kills, starts again, cancels, decides, until all is at rest."""

import signal
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from time import monotonic, sleep

from aggregator.control.connection import daemon, stated_user
from aggregator.protocol.release import Release
from aggregator.protocol.states import State as ReleaseState
from common.errors import ConfigurationError, ExitCode, NotConnectedError, TesseraError, UsageError
from common.model.products import Product
from common.wire.v1.control_pb2 import OwnerGroup, ReleaseRequest, StartRequest
from deploy.local_process import LocalProcessError
from owner_node import config
from owner_node.release.approvals import Person
from owner_node.release.decisions import Decisions
from owner_node.state.notification_pipe import notify_daemon
from owner_node.state.session import SessionState
from owner_node.views.appraisal import appraise
from tests.chaos.old_state import known_charges
from tests.chaos.parties import (
    BUDGETS,
    answered_rounds,
    daemon_of,
    is_at,
    linked_by,
    records_of,
    release_of,
    session_state,
)
from tests.chaos.schedule import (
    AGGREGATOR,
    OWNERS,
    PARTIES,
    Answer,
    Blow,
    Deed,
    Kind,
    Linking,
    Round,
    Schedule,
    Work,
)
from tests.chaos.surroundings import Surroundings
from tests.system.small_owners import state_dir

LONGEST_SECONDS = 180.0
"""After this a release that is not at its end, or an owner that does not know of it, is a fault.

This and the next are so many times longer as the schedule's patience says.
"""
_LONGEST_MOMENT = 6.0
"""How long a state is waited for that may never come; then the blow falls anyway."""
_START_SECONDS = 5.0
"""How long the start of a process may take on a busy machine."""
_CALL_SECONDS = 30.0
_TICK_SECONDS = 0.002
_EPSILON = {Kind.PLAIN: "1", Kind.ASKED: "14", Kind.EXCESSIVE: "100"}
_RELEASE_ORDER = tuple(ReleaseState)
_SESSION_ORDER = tuple(SessionState)


def start_request(schedule: Schedule, release: str) -> StartRequest:
    """Return what the operator asks for."""
    allowed = schedule.linking is not Linking.STRICT
    masked = schedule.product is Product.MASKED
    groups = [OWNERS] if schedule.layout == "horizontal" else [(owner,) for owner in OWNERS]
    return StartRequest(
        release=release, dataset=linked_by(schedule).dataset, layout=schedule.layout,
        groups=[OwnerGroup(owners=each) for each in groups], epsilon=_EPSILON[schedule.kind],
        product=str(schedule.product), k="20" if masked else "", budget_split="owner" if masked else "",
        formats=["parquet"], confirmed=True, anyway=True,
        max_overlap="2" if allowed and schedule.layout == "horizontal" else "",
        on_mismatch="intersect" if allowed and schedule.layout == "vertical" else "",
    )  # fmt: skip


@dataclass(slots=True)
class Course:
    """What came of a schedule."""

    release: Release | None = None
    """The release at its end, as the journal has it; None if it was never stored."""
    at_rest: bool = False
    """Whether it ended, and every owner has acknowledged that, in time."""
    away: float = 0.0
    """Seconds for which the aggregator was away, at most."""
    cancelled: bool = False
    """Whether the aggregator took a cancellation."""
    died_in: list[str] = field(default_factory=list)
    """Who was killed in which state, in order."""
    failed: list[str] = field(default_factory=list)
    """Whose disk was full, whose clock was wrong, whose database was away, in order."""
    skipped: list[str] = field(default_factory=list)
    """What could not be done on this machine, and why."""
    clocks: set[str] = field(default_factory=set)
    """Parties whose clocks were set."""
    second: list[str] = field(default_factory=list)
    """What second daemons said that did not refuse as they have to."""
    charged: dict[str, dict[str, Decimal]] = field(default_factory=dict)
    """For each owner whose old state was put back: what the aggregator knew to be spent, by plan."""


class Player:
    """Carries out one schedule on a cluster whose processes all run.

    Args:
        around: The processes, and what they stand on.
        schedule: What is to happen.
        release: Id of the release.
    """

    def __init__(self, around: Surroundings, schedule: Schedule, release: str) -> None:
        self._around, self._cluster = around, around.cluster
        self._schedule, self._release = schedule, release
        self.course = Course()
        """What has come of it so far."""
        self._began = monotonic()
        self._asked = False
        self._blows = list(schedule.blows)
        self._due: float | None = None
        self._blow_since = self._began
        self._returning: dict[str, float] = {}
        self._halted: dict[str, float] = {}
        self._failing: dict[tuple[Deed, str], float] = {}
        self._behind: set[str] = set()
        self._died = self._began
        self._person_since: float | None = None
        self._decided = False

    def play(self) -> None:
        """Carry it out."""
        while monotonic() - self._began < LONGEST_SECONDS * self._schedule.patience:
            self._bring_back()
            self._ask()
            self.course.release = release_of(self._cluster, self._release)
            self._strike()
            self._decide()
            self._recover()
            if self._rests():
                self.course.at_rest = True
                break
            sleep(_TICK_SECONDS)
        for fault in list(self._failing):
            self._mend(*fault)
        for party in PARTIES:
            self._go_on(party)
            self._start(party)

    # --- asking --------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for the release until somebody has heard it: the same id asks for the same release."""
        if self._asked or self._away(AGGREGATOR):
            return
        try:
            with daemon(self._cluster.aggregator.config) as calls:
                request = start_request(self._schedule, self._release)
                calls.Start(request, timeout=_CALL_SECONDS, metadata=stated_user())
        except NotConnectedError:
            return
        except ConfigurationError:
            if not self._full(AGGREGATOR):
                raise
            return
        self._asked = True

    def _rests(self) -> bool:
        found = self.course.release
        if self._blows or self._returning or self._halted or self._failing or not self._asked:
            return False
        if not all(self._says(owner, "connected") for owner in self.course.charged):
            return False
        return found is not None and found.ended and not found.missing("acknowledged")

    # --- blows ---------------------------------------------------------------------------------------

    def _strike(self) -> None:
        if not self._blows:
            return
        blow = self._blows[0]
        if self._due is None and self._reached(blow):
            self._due = monotonic() + blow.moment.after
        if self._due is None or monotonic() < self._due:
            return
        if blow.deed is Deed.KILL:
            self._kill(blow)
        elif blow.deed is Deed.HALT:
            self._halt(blow)
        else:
            special = {Deed.CANCEL: self._cancel, Deed.START_AGAIN: self._start_again}
            if not special.get(blow.deed, self._fail)(blow):
                return
        self._blows.pop(0)
        self._due, self._blow_since = None, monotonic()

    def _reached(self, blow: Blow) -> bool:
        """Whether a party is in the state that is waited for or past it, or it is not waited for any more."""
        party, found = blow.moment.party, self.course.release
        if not party or (found and found.ended) or self._waited_long():
            return True
        if blow.moment.state in tuple(Round):
            return self._rounds(party) >= Round(blow.moment.state).number
        if party == AGGREGATOR:
            state = ReleaseState(blow.moment.state)
            return found is not None and _RELEASE_ORDER.index(found.state) >= _RELEASE_ORDER.index(state)
        if blow.moment.state in tuple(Work):
            return is_at(self._cluster, party, Work(blow.moment.state))
        reached = session_state(self._cluster, party, self._release)
        order = _SESSION_ORDER.index
        return bool(reached) and order(SessionState(reached)) >= order(SessionState(blow.moment.state))

    def _rounds(self, party: str) -> int:
        """Return how many rounds the aggregator has opened, or an owner answered."""
        if party == AGGREGATOR:
            return len(self.course.release.rounds) if self.course.release else 0
        return answered_rounds(self._cluster, party, self._release)

    def _waited_long(self) -> bool:
        return monotonic() - self._blow_since > _LONGEST_MOMENT * self._schedule.patience

    def _kill(self, blow: Blow) -> None:
        alive = [party for party in blow.parties if party not in self._returning]
        for party in alive:
            daemon_of(self._cluster, party).kill()
        for party in alive:
            self._returning[party] = monotonic() + blow.pause
            if party == AGGREGATOR:
                self._died = monotonic()
                found = release_of(self._cluster, self._release)
                state = str(found.state) if found else ""
            else:
                state = session_state(self._cluster, party, self._release)
                if blow.moment.party == party and blow.moment.state in tuple(Work):
                    state = f"{state} ({blow.moment.state})"
                state = f"{state or 'before'}, {self._schedule.engines[party]}"
            if rounds := self._rounds(party):
                state = f"{state}, in round {rounds}"
            self.course.died_in.append(f"{party} {state or 'before'}")

    def _halt(self, blow: Blow) -> None:
        for party in blow.parties:
            daemon_of(self._cluster, party).signal(signal.SIGSTOP)
            self._halted[party] = monotonic() + blow.pause
            if party == AGGREGATOR:
                self.course.away += blow.pause

    def _fail(self, blow: Blow) -> bool:
        """Let fail what parties stand on; returns whether that is done."""
        if blow.deed is Deed.PUT_BACK and any(self._away(each) or self._full(each) for each in blow.parties):
            return False
        # One that is starting may find a full disk, or that its certificate is not valid yet, and end.
        if blow.deed in (Deed.FILL, Deed.SET_CLOCK) and any(self._starting(each) for each in blow.parties):
            return False
        if (why := self._around.lacking.get(blow.deed)) is not None:
            self.course.skipped.append(f"{blow.deed}: {why}")
            return True
        for party in blow.parties:
            self._around.fail(blow, party)
            self._failing[blow.deed, party] = monotonic() + blow.pause
            self.course.failed.append(f"{blow.deed} of {party}")
            if blow.deed is Deed.SET_CLOCK:
                self.course.clocks.add(party)
                if blow.wrong_by < 0:
                    self._behind.add(party)
            elif party == AGGREGATOR:
                self.course.away += blow.pause
        return True

    def _start_again(self, blow: Blow) -> bool:
        """Start second daemons; returns whether there were first ones to refuse them."""
        unfit = {party for deed, party in self._failing if deed in (Deed.FILL, Deed.SET_CLOCK)}
        unfit |= {party for party in PARTIES if party in self._returning or not self._says(party, "ready")}
        if unfit & {*blow.parties}:
            return False
        began = monotonic()
        for party in blow.parties:
            first = daemon_of(self._cluster, party)
            verb, owner = ("serve", "") if party == AGGREGATOR else ("run", party)
            ended = self._cluster.cli(first.program, verb, "--config", first.config, owner=owner)
            words = f"is locked by {first.program} {verb} (process {first.pid})"
            if ended.returncode != ExitCode.USAGE or words not in ended.stderr:
                self.course.second.append(f"{party}: exit code {ended.returncode}, {ended.stderr[-400:]}")
            self.course.failed.append(f"{blow.deed} of {party}")
        # Whoever was to come back meanwhile did not.
        self.course.away += monotonic() - began
        return True

    def _says(self, party: str, event: str, hint: str = "") -> bool:
        """Whether the log of a daemon's latest start has an event, with words in its hint."""
        entries = daemon_of(self._cluster, party).entries
        return any(each["event"] == event and hint in each.get("hint", "") for each in entries)

    def _starting(self, party: str) -> bool:
        return daemon_of(self._cluster, party).running and not self._says(party, "ready")

    def _full(self, party: str) -> bool:
        return (Deed.FILL, party) in self._failing

    def _cancel(self, _: Blow) -> bool:
        """Cancel the release; returns whether the aggregator has answered."""
        if self._away(AGGREGATOR):
            return False
        try:
            with daemon(self._cluster.aggregator.config) as calls:
                request = ReleaseRequest(release=self._release)
                calls.Cancel(request, timeout=_CALL_SECONDS, metadata=stated_user())
        except NotConnectedError:
            return False
        except UsageError:
            return True
        except ConfigurationError:
            if not self._full(AGGREGATOR):
                raise
            return False
        self.course.cancelled = True
        return True

    def _away(self, party: str) -> bool:
        """Whether a party neither answers nor lets anybody else write to its database."""
        return party in self._returning or party in self._halted

    def _bring_back(self) -> None:
        for deed, party in [each for each, due in self._failing.items() if due <= monotonic()]:
            if deed is not Deed.PUT_BACK or not self._full(party):
                self._mend(deed, party)
        for party in [each for each, due in self._halted.items() if due <= monotonic()]:
            self._go_on(party)
        for party in [each for each, due in self._returning.items() if due <= monotonic()]:
            # On a full disk, or before its certificate begins, a daemon says that it cannot start, and ends.
            if not self._full(party) and party not in self._behind:
                self._start(party)

    def _mend(self, deed: Deed, party: str) -> None:
        del self._failing[deed, party]
        if deed is Deed.SET_CLOCK:
            self._behind.discard(party)
        if deed is Deed.PUT_BACK:
            daemon_of(self._cluster, party).kill()
            self._returning.setdefault(party, monotonic())
            known = self.course.charged.setdefault(party, {})
            for plan, charge in known_charges(self._cluster, party).items():
                known[plan] = max(charge, known.get(plan, charge))
        self._around.mend(deed, party)

    def _go_on(self, party: str) -> None:
        if self._halted.pop(party, None) is not None:
            daemon_of(self._cluster, party).signal(signal.SIGCONT)

    def _start(self, party: str) -> None:
        if self._returning.pop(party, None) is None:
            return
        daemon_of(self._cluster, party).start()
        if party == AGGREGATOR:
            self.course.away += monotonic() - self._died + _START_SECONDS

    def _recover(self) -> None:
        """Recover a ledger whose daemon says that it lacks entries, once nothing else is wrong."""
        for owner in self.course.charged:
            if self._failing or self._halted or self._returning:
                return
            if not self._says(owner, "not connected", "owner-node ledger recover"):
                continue
            daemon_of(self._cluster, owner).stop()
            command = ["ledger", "recover", "--charge", f"{BUDGETS[0]}=0", "--yes"]
            ended = self._cluster.cli("owner-node", *command, owner=owner)
            if not ended.returncode:
                self.course.failed.append(f"ledger of {owner}, recovered")
            elif ended.returncode != ExitCode.NOT_CONNECTED:
                raise LocalProcessError(f"ledger recover at {owner}: {ended.returncode}, {ended.stderr}")
            # If the aggregator was not there yet, the daemon will say again what is wrong.
            self._returning[owner] = monotonic()

    # --- the person ----------------------------------------------------------------------------------

    def _decide(self) -> None:
        if self._schedule.kind is not Kind.ASKED or self._decided or "a" in self._halted or self._full("a"):
            return
        if session_state(self._cluster, "a", self._release) != SessionState.AWAITING_APPROVAL:
            return
        self._person_since = self._person_since or monotonic()
        if monotonic() - self._person_since < self._schedule.hesitates:
            return
        self._decided = True
        if self._schedule.answer is Answer.NOTHING:
            return
        with records_of(self._cluster, "a") as records:
            person, decisions = Person("vera"), Decisions(records.db, lambda: datetime.now(UTC))
            try:
                if self._schedule.answer is Answer.APPROVE:
                    appraise(decisions.find(self._release), config.load(self._cluster.owner("a").config))
                    decisions.approve(self._release, "", person, timedelta(days=1), anyway=True)
                else:
                    decisions.refuse(self._release, "", person, "no")
            except TesseraError:
                # It may have ended between the look and the decision.
                return
        notify_daemon(state_dir(self._cluster, "a"))
