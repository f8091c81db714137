"""What must hold after every run, whatever happened in it. Each check yields what does not, in words."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from aggregator.protocol.events import Event, Measured, Received, Sealed
from aggregator.protocol.release import Release
from aggregator.protocol.states import State as ReleaseState
from common.errors import TesseraError
from common.model.fragment import FragmentStatement, Receipt, multiples_of
from common.model.products import Product
from common.model.rounds import FIRST_COUNTED
from common.release.verification import verify_release
from common.workspace import Workspace
from deploy.local_cluster import LocalCluster
from owner_node.ledger.ledger import EntryKind
from owner_node.release.own_fragment import check_announced, verify_answered, verify_own
from owner_node.release.records import Records
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session
from tests.chaos.barrier import Watch
from tests.chaos.old_state import spent
from tests.chaos.parties import (
    BUDGETS,
    DEADLINES,
    aggregator_name,
    aggregator_state,
    daemon_of,
    events_of,
    in_scratch,
    linked_by,
    records_of,
)
from tests.chaos.play import Course
from tests.chaos.schedule import AGGREGATOR, OWNERS, PARTIES, Answer, Kind, Schedule
from tests.system.small_owners import state_dir

_CLOCK_SECONDS = 0.02
"""File systems take times from a clock that ticks a few times in this."""
_SLACK_SECONDS = 10.0
"""How late a busy machine may be, all steps together."""
_FAULTS = ("Traceback", "internal fault", "step failed")
_HALTS = ("ledger halted", "no work is done")


@dataclass(frozen=True, slots=True)
class Ended:
    """Everything that is looked at after a run."""

    cluster: LocalCluster
    """The processes, all of which run."""
    schedule: Schedule
    """What was to happen."""
    course: Course
    """What came of it."""
    release: Release
    """The release at its end."""
    events: list[Event]
    """Its events."""
    watch: Watch
    """What was seen to arrive at the aggregator."""
    log_sizes: dict[Path, int]
    """How long the logs were before the run."""

    @property
    def published(self) -> bool:
        """Whether it was published."""
        return self.release.state is ReleaseState.PUBLISHED

    @property
    def synthetic(self) -> bool:
        """Whether its records were to be synthetic."""
        return self.schedule.product is Product.SYNTHETIC


def problems(
    cluster: LocalCluster, schedule: Schedule, course: Course, watch: Watch, log_sizes: dict[Path, int]
) -> list[str]:
    """Return what does not hold after a run; empty if all is well."""
    release = course.release
    if release is None or not course.at_rest:
        state = str(release.state) if release else "never stored"
        missing = ", ".join(release.missing("acknowledged")) if release else "nobody"
        said = f"not at rest: the release is {state}; not acknowledged by {missing}"
        return [said, *_logs(cluster, course, log_sizes)]
    ended = Ended(cluster, schedule, course, release, events_of(cluster, release.id), watch, log_sizes)
    found = [
        *_end(ended),
        *_linked(ended),
        *_barrier(ended),
        *_aggregator(ended),
        *_published(ended),
        *_logs(cluster, course, log_sizes),
        *(f"{party}: left in scratch: {left}" for party in PARTIES if (left := in_scratch(cluster, party))),
        *(f"a second daemon was not refused: {each}" for each in course.second),
    ]
    for owner in OWNERS:
        with records_of(cluster, owner) as records:
            found += [f"{owner}: {each}" for each in _owner(ended, owner, records)]
    return found + list(_processes(ended))


def _end(ended: Ended) -> Iterator[str]:
    """The release ended in time, and as it had to."""
    release, kind = ended.release, ended.schedule.kind
    last = max(event.at for event in ended.events if event.name != "acknowledged")
    patience = ended.schedule.patience
    allowed = patience * (sum(DEADLINES.values()) + _SLACK_SECONDS) + ended.course.away
    if AGGREGATOR not in ended.course.clocks and last - release.created > allowed:
        yield f"it took {last - release.created} s, {allowed:.0f} s were allowed"
    if ended.course.cancelled and release.state is not ReleaseState.CANCELLED:
        yield f"a cancellation was taken, and the release is {release.state}"
    if kind is Kind.EXCESSIVE and ended.published:
        yield "it was published against the policies"
    if kind is Kind.ASKED and ended.schedule.answer is not Answer.APPROVE and ended.published:
        yield "it was published without a person's approval"
    code = release.ending.code if release.ending else ""
    wrong = {"internal", "integrity", "protocol", "conflict", "data_changed", "identity"}
    # An owner that lost its newest state says that its ledger halted, or knows no session.
    if code in wrong - ({"integrity", "protocol"} if ended.course.charged else set()):
        yield f"it ended with {code}: {release.ending.message if release.ending else ''}"


def _linked(ended: Ended) -> Iterator[str]:
    """Linking found what there is, and every owner masked what it found."""
    found, plan, expected = ended.release.addendum, ended.release.plan, linked_by(ended.schedule)
    if found is None or plan is None:
        return
    multiples = (expected.multiple,) * plan.n_groups
    told = (found.linking, dict(found.records), multiples_of(plan, found), found.common)
    if told != (expected.linking, expected.records, multiples, expected.common):
        yield f"the addendum says {told}"
    for event in ended.events:
        if isinstance(event, Sealed | Measured):
            masked = FragmentStatement.from_bytes(event.statement.encode()).records
            if masked != expected.records[event.owner]:
                yield f"{event.owner} masked or counted {masked} records, not {expected.records[event.owner]}"


def _barrier(ended: Ended) -> Iterator[str]:
    """No byte of a fragment was at the aggregator before every owner had sealed."""
    sealed_at: list[float] = []
    for owner in OWNERS:
        with records_of(ended.cluster, owner) as records:
            lines = records.history.entries(aggregator_name(), ended.release.id, "sealed")
        sealed_at += [datetime.fromisoformat(line.time).timestamp() for line in lines]
    # An owner that went on from an old state may have forgotten when it sealed.
    if ended.watch.first and not ended.course.charged:
        early = min(ended.watch.first.values())
        if len(sealed_at) < len(OWNERS):
            yield "bytes of a fragment arrived although not every owner has sealed"
        elif not ended.course.clocks & {*OWNERS} and early < max(sealed_at) - _CLOCK_SECONDS:
            yield f"bytes of a fragment arrived {max(sealed_at) - early:.3f} s before every owner had sealed"
    names = [event.name for event in ended.events]
    if "received" in names and names[: names.index("received")].count("sealed") != len(OWNERS):
        yield "the journal has a receipt before every owner had sealed"


def _aggregator(ended: Ended) -> Iterator[str]:
    """Nothing is left at the aggregator of what it took in, and a folder is there if it was published.

    Of a release that can go on it keeps what owners fetch: selections, and the answers to the last round.
    """
    incoming = aggregator_state(ended.cluster) / "incoming" / ended.release.id
    shown = ("*.selection", f"{len(ended.release.rounds) - 1}.answers")
    kept = shown if ended.release.resumable_until else ()
    left = list(incoming.iterdir()) if incoming.exists() else []
    if unused := sorted(each.name for each in left if not any(map(each.match, kept))):
        yield f"left in incoming: {unused}"
    folders = ended.cluster.folder / "releases"
    named = {each.name for each in folders.glob(f"*{ended.release.id}*")} if folders.exists() else set()
    if named != ({ended.release.id} if ended.published else set()):
        yield f"release folders: {sorted(named)}, and the release is {ended.release.state}"


def _published(ended: Ended) -> Iterator[str]:
    """What was published holds, for everybody and for each owner."""
    if not ended.published:
        return
    folder = ended.cluster.folder / "releases" / ended.release.id
    size = linked_by(ended.schedule).released
    try:
        verified = verify_release(folder, ended.cluster.folder / "tls" / "ca.pem")
        if verified.n_records != size:
            yield f"it has {verified.n_records} records, not {size}"
        for owner in {*OWNERS} - ended.course.charged.keys():
            with records_of(ended.cluster, owner) as records:
                session = records.sessions.get(aggregator_name(), ended.release.id)
                assert session is not None
                path = records.outbox.path(aggregator_name(), ended.release.id)
                rounds = records.rounds.answered(aggregator_name(), ended.release.id)
            check_announced(session, verified)
            signature = session.fragment_signature or b""
            if ended.synthetic:
                verify_answered(verified, owner, rounds, session.fragment_digest, signature)
                continue
            with TemporaryDirectory() as scratch:
                workspace = Workspace(256 * 10**6, Path(scratch), 2)
                sealed = session.fragment_digest
                verify_own(folder, verified, owner, path, sealed, signature, workspace, session.kept_digest)
    except TesseraError as error:
        yield f"it does not verify: {error.message}"


def _owner(ended: Ended, owner: str, records: Records) -> Iterator[str]:
    """An owner's ledger, history, session and outbox agree with each other and with the aggregator."""
    try:
        records.ledger.verify()
        records.history.verify()
    except TesseraError as error:
        yield error.message
    yield from _charged(ended, owner, records)
    if records.outbox.leftovers():
        yield f"left in the outbox: {[each.name for each in records.outbox.leftovers()]}"
    if owner in ended.course.charged:
        # Its old session may know nothing of the end that it acknowledged, and keep what it reserved.
        return
    session = records.sessions.get(aggregator_name(), ended.release.id)
    yield from _session(ended, session)
    yield from _charges(ended, owner, records)
    if ended.synthetic:
        yield from _answers(ended, owner, records)
        return
    yield from _fragments(ended, owner, session)
    kept = (aggregator_name(), ended.release.id) in records.outbox.sealed()
    # A sealed fragment is kept: its release can go on.
    if kept != (ended.published or (session is not None and bool(session.fragment_digest))):
        verb = "keeps" if kept else "lacks"
        yield f"the outbox {verb} the fragment of a release that is {ended.release.state}"


def _session(ended: Ended, session: Session | None) -> Iterator[str]:
    """Both sides say the same of how it ended."""
    if ended.published:
        told = ended.release.published.manifest_digest if ended.release.published else ""
        if session is None or (session.state, session.manifest_digest) != (SessionState.PUBLISHED, told):
            yield f"the release is published, the session is {session.state if session else 'absent'}"
    elif session is not None and session.state not in (SessionState.REFUSED, SessionState.ENDED):
        yield f"the release is {ended.release.state}, the session is {session.state}"


def _charges(ended: Ended, owner: str, records: Records) -> Iterator[str]:
    """Reserved once, then spent or returned once, as the history says."""
    entries = [each for each in records.ledger.entries() if each.release == ended.release.id]
    kinds, lines = [each.kind for each in entries], records.history.entries(aggregator_name())
    own = [line.event for line in lines if line.release == ended.release.id]
    charged = [(each.kind, each.charge) for each in entries]
    if charged not in _allowed(ended, owner):
        yield f"the ledger has {[f'{kind} {charge}' for kind, charge in charged]}"
    paid = EntryKind.SPEND in kinds
    if own.count("spent") != int(paid) or own.count("sealed") > int(paid):
        counts = f"spent {own.count('spent')}, sealed {own.count('sealed')}"
        yield f"spent in the ledger: {paid}; in the history: {counts}"


def _charged(ended: Ended, owner: str, records: Records) -> Iterator[str]:
    """What was told is charged, whatever was put back; balances are sums, and no release is charged twice."""
    charged = spent(records)
    plan, addendum = ended.release.plan, ended.release.addendum
    if plan is not None and addendum is not None and ended.release.progress[owner].sealed is not None:
        found = plan.assignment_of(owner).epsilon_joint_at(multiples_of(plan, addendum))
        assert found is not None
        if (paid := charged.get(plan.digest, Decimal(0))) < found:
            yield f"{paid} of {found} is spent for a fragment that the aggregator was told of"
    told = set[str]().union(*_told(ended, owner).values())
    if len(told) > 1:
        yield f"more than one fragment was told: {sorted(told)}"
    for number, digests in _stated(ended, owner).items():
        if len(digests) > 1:
            yield f"more than one answer to round {number} was told: {sorted(digests)}"
    for digest, charge in ended.course.charged.get(owner, {}).items():
        if charged.get(digest, Decimal(0)) < charge:
            yield f"{charge} was spent for plan {digest}, and now {charged.get(digest)}"
    for budget in BUDGETS:
        spends = [e for e in records.ledger.entries(budget) if e.kind is EntryKind.SPEND]
        balance = records.ledger.balance(budget, Decimal(10**6))
        summed = sum((each.charge for each in spends), Decimal(0))
        if balance.spent != summed:
            yield f"balance of {budget}: spent {balance.spent} of {summed}"
        if len({each.release for each in spends}) != len(spends):
            yield f"a release was charged twice to {budget}"


def _allowed(ended: Ended, owner: str) -> list[list[tuple[EntryKind, Decimal | None]]]:
    """Return what a ledger may have of a release: all that is allowed reserved, what was found spent."""
    plan, addendum = ended.release.plan, ended.release.addendum
    if plan is None:
        return [[]]
    task = plan.assignment_of(owner)
    most = task.epsilon_joint_at(plan.most_multiples)
    assert most is not None
    allowed: list[list[tuple[EntryKind, Decimal | None]]] = [
        [],
        [(EntryKind.RESERVE, most), (EntryKind.RETURN, most)],
    ]
    if addendum is not None:
        found = task.epsilon_joint_at(multiples_of(plan, addendum))
        assert found is not None
        rest = [] if found == most else [(EntryKind.RETURN, most - found)]
        allowed.append([(EntryKind.RESERVE, most), *rest, (EntryKind.SPEND, found)])
    return allowed


def _fragments(ended: Ended, owner: str, session: Session | None) -> Iterator[str]:
    """Of one plan only one fragment was ever told, sent, received or published: the one that was sealed."""
    told = _told(ended, owner)
    sealed = {session.fragment_digest} if session and session.fragment_digest else set()
    for where, digests in told.items():
        if not digests <= sealed:
            yield f"fragments {where}: {sorted(digests)}; sealed: {sorted(sealed)}"
    held = state_dir(ended.cluster, owner) / "outbox"
    if session is not None and not session.fragment_digest and any(held.glob(f"*{ended.release.id}*")):
        yield "the outbox has a fragment that was never sealed"


def _answers(ended: Ended, owner: str, records: Records) -> Iterator[str]:
    """What was told of a round is stored; answers and secrets are kept while they may be asked for."""
    answered = records.rounds.answered(aggregator_name(), ended.release.id)
    stored = {each.number: {each.digest} for each in answered}
    for number, digests in _stated(ended, owner).items():
        if digests != stored.get(number):
            yield f"answers to round {number}, told: {sorted(digests)}; stored: {stored.get(number)}"
    # Zeros alone are nothing to go on with, and the last answer is empty.
    may_go_on = len(answered) >= FIRST_COUNTED and not ended.published
    kept = [bool(each.attached) for each in answered]
    if any(each is not may_go_on for each in kept):
        yield f"answers are kept: {kept}, and the release is {ended.release.state}"
    held = (aggregator_name(), ended.release.id) in records.rounds.held()
    if held is not may_go_on:
        verb = "keeps" if held else "lacks"
        yield f"it {verb} the secrets of {len(answered)} answers to a release that is {ended.release.state}"


def _stated(ended: Ended, owner: str) -> dict[int, set[str]]:
    """Return digests of an owner's answers up to each round, as it stated them to the aggregator."""
    found: dict[int, set[str]] = {}
    for each in ended.events:
        if isinstance(each, Measured) and each.owner == owner:
            digest = FragmentStatement.from_bytes(each.statement.encode()).fragment_digest
            found.setdefault(each.round, set()).add(digest)
    return found


def _told(ended: Ended, owner: str) -> dict[str, set[str]]:
    """Return digests of an owner's fragments, by where the aggregator has them from."""
    told = {"seen at the aggregator": ended.watch.digests.get(owner, set())}
    mine = [each for each in ended.events if getattr(each, "owner", "") == owner]
    told["stated to it"] = {
        FragmentStatement.from_bytes(each.statement.encode()).fragment_digest
        for each in mine
        if isinstance(each, Sealed)
    }
    told["in its receipts"] = {
        Receipt.from_bytes(each.receipt.encode()).fragment_digest
        for each in mine
        if isinstance(each, Received)
    }
    if ended.published:
        path = ended.cluster.folder / "releases" / ended.release.id / "manifest.json"
        stated = {each["id"]: each for each in json.loads(path.read_text())["owners"]}
        told["in the manifest"] = {stated[owner]["fragment"]["document"]["fragment_digest"]}
    return told


def _logs(cluster: LocalCluster, course: Course, log_sizes: dict[Path, int]) -> Iterator[str]:
    """No log tells of a fault that nobody thought of; only whose old state was put back stops all work."""
    old = {cluster.owner(owner).log_file for owner in course.charged}
    for path, size in log_sizes.items():
        faults = _FAULTS if path in old else (*_FAULTS, *_HALTS)
        with path.open(encoding="utf-8", errors="replace") as stream:
            stream.seek(size)
            for line in stream:
                if any(fault in line for fault in faults):
                    yield f"{path.name}: {line.strip()[:400]}"


def _processes(ended: Ended) -> Iterator[str]:
    """The daemons run, and nothing else of this folder."""
    parties = [daemon_of(ended.cluster, party) for party in PARTIES]
    ids = {party.pid for party in parties if party.running}
    if len(ids) != len(parties):
        yield f"not running: {[party.name for party in parties if not party.running]}"
    ours = str(ended.cluster.folder)
    for each in psutil.process_iter(["pid", "cmdline"]):
        words = each.info["cmdline"] or []
        if each.pid not in ids and any(ours in word for word in words if word.endswith(".toml")):
            yield f"process {each.pid} is still there: {words[-3:]}"
