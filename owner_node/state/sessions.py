"""The owner's sessions in owner.db: the state needed to resume after a crash, or to repeat an answer."""

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from common.errors import ConflictError, InternalError
from owner_node.state.answers import PERSON
from owner_node.state.database import Clock, OwnerDatabase, Transaction
from owner_node.state.session import FINAL, LINKS, UNDECIDED, UNSPENT, SessionEvent, SessionState, advance


@dataclass(frozen=True, slots=True)
class Session:
    """One owner × one release. Fields that are not known yet are empty or None."""

    aggregator: str
    release: str
    state: SessionState
    dataset: str
    purpose: str = ""
    """What the release is for, from its plan."""
    schema: bytes | None = None
    """The schema that was sent, canonical bytes; None before that."""
    plan_digest: str = ""
    """SHA-256 of the plan's canonical bytes, hexadecimal; `Sessions.plan` returns these."""
    epsilon: str = ""
    """Epsilon that the plan requests of this owner at most, decimal text."""
    plan_signature: bytes | None = None
    """The aggregator's signature of the plan."""
    aggregator_certificate: bytes | None = None
    """Certificate chain (PEM) of the aggregator that signed the plan."""
    deadline: int | None = None
    """Until when the aggregator waits for a consent, Unix seconds; None if it set no deadline."""
    key_check: str = ""
    """Linkage key-check value that was sent."""
    key_generation: int = 0
    """Generation of the linkage key that it was made with; 0 without one."""
    release_key: bytes | None = field(default=None, repr=False)
    """Key of this release's tokens, even if the linkage key is replaced; None once sealed."""
    source_digest: str = ""
    """Pin of the source: a digest over the loaded attributes, under a key of the owner's."""
    addendum: bytes | None = None
    """Result of linking, canonical bytes."""
    addendum_signature: bytes | None = None
    """The aggregator's signature of the addendum."""
    fragment_digest: str = ""
    """SHA-256 of the sealed fragment."""
    kept_digest: str = ""
    """SHA-256 of the fragment without its tokens, which were dropped after publication; empty before that."""
    fragment_size: int | None = None
    """Its size in bytes."""
    n_records: int | None = None
    """Exact number of records of the fragment."""
    fragment_signature: bytes | None = None
    """This owner's signature of the fragment."""
    fragment_certificate: bytes | None = None
    """Certificate chain (PEM) that it was signed with; every retry sends the same."""
    receipt: bytes | None = None
    """The aggregator's receipt, canonical bytes."""
    receipt_signature: bytes | None = None
    """The aggregator's signature of the receipt."""
    manifest_digest: str = ""
    """SHA-256 of the published manifest."""
    forecast: str = ""
    """Forecast of masking (`owner_node.masking.foreseen`); empty while unknown."""
    left_out: str = ""
    """Records left out by loading (`owner_node.loading.LoadCounts.left_out`), canonical JSON."""
    answered: bool = False
    """Whether it was asked to link (`release.attempts`)."""
    reason: str = ""
    """Why the session was refused or ended."""
    refusal: str = ""
    """Code of this owner's refusal (`owner_node.state.answers`); empty if it did not refuse."""
    created: str = ""
    """ISO 8601, UTC."""
    updated: str = ""
    """ISO 8601, UTC."""


FORGET_KEPT_KEYS = "UPDATE sessions SET release_key = NULL WHERE state = 'published'"
"""Removes the keys of tokens that are kept for audits."""
MOST_REFUSED_PLANS = 20
"""Most plans that are kept of sessions that ended without a charge and without a person's refusal."""
_NAMES = tuple(field.name for field in fields(Session))
_KEY = ("aggregator", "release")
_OURS = (*_KEY, "state", "created", "updated")
# Fields that a repeated event has to repeat. Signatures, receipts and reasons may differ; the first ones
# stay.
_CONTENT = (
    "dataset", "plan_digest", "key_check", "source_digest", "addendum", "fragment_digest",
    "fragment_size", "n_records", "manifest_digest",
)  # fmt: skip


class Sessions:
    """The owner's sessions."""

    def __init__(self, db: OwnerDatabase, clock: Clock) -> None:
        self._db, self._clock = db, clock

    def get(self, aggregator: str, release: str) -> Session | None:
        """Return a session, or None if there is none."""
        sessions = self._select("WHERE aggregator = ? AND release = ?", (aggregator, release))
        return sessions[0] if sessions else None

    def open(self, tx: Transaction, aggregator: str, release: str, dataset: str) -> Session:
        """Open a session in state invited, or return the one that is there.

        Raises:
            ConflictError: If the release was opened for another data set.
        """
        known = self.get(aggregator, release)
        if known is not None:
            _check_repeat(known, {"dataset": dataset})
            return known
        now = self._clock().isoformat()
        session = Session(aggregator, release, SessionState.INVITED, dataset, created=now, updated=now)
        places = ", ".join("?" * len(_NAMES))
        tx.execute(
            f"INSERT INTO sessions ({', '.join(_NAMES)}) VALUES ({places})",  # noqa: S608 - our own names
            tuple(_column_value(value) for value in asdict(session).values()),
        )
        return session

    def advance(
        self, tx: Transaction, session: Session, event: SessionEvent | str, **changes: Any
    ) -> Session:
        """Apply an event to a session and store it.

        An event that leaves the state as it is changes nothing, and has to repeat the stored content.

        Args:
            session: The session; its stored state counts.

        Returns:
            The session as stored.

        Raises:
            ProtocolError: If the state does not take the event.
            ConflictError: If a repeated event differs from the first.
        """
        unknown = set(changes) - set(_NAMES) | set(changes) & set(_OURS)
        stored = self.get(session.aggregator, session.release)
        if unknown or stored is None or not tx.in_transaction:
            raise InternalError("a session's step needs a stored session, a transaction and known fields")
        state = advance(stored.state, event)
        if state is stored.state:
            _check_repeat(stored, changes)
            return stored
        if stored.release_key is not None and state not in LINKS:
            changes.setdefault("release_key", None)
        if state in (SessionState.REFUSED, SessionState.ENDED) and stored.state in UNSPENT:
            # Nothing of it can follow, and an aggregator can have as many refused as it likes.
            changes |= {"plan_signature": None, "aggregator_certificate": None}
            ended = self._store(tx, replace(stored, **changes, state=state), ("state", *changes))
            self._forget_plans(tx)
            return ended
        return self._store(tx, replace(stored, **changes, state=state), ("state", *changes))

    def _forget_plans(self, tx: Transaction) -> None:
        """Delete plans of sessions that ended without a charge, but for those that a person refused.

        The newest of the others stay, too: enough to see what was refused, however many an aggregator sends.
        """
        over = tuple(map(str, (SessionState.REFUSED, SessionState.ENDED)))
        tx.execute(
            "DELETE FROM plans WHERE digest NOT IN (SELECT plan_digest FROM sessions"
            " WHERE state NOT IN (?, ?) OR fragment_digest != '' OR refusal = ?)"
            " AND digest NOT IN (SELECT plan_digest FROM sessions WHERE state IN (?, ?) AND plan_digest != ''"
            " AND fragment_digest = '' ORDER BY updated DESC LIMIT ?)",
            (*over, PERSON, *over, MOST_REFUSED_PLANS),
        )

    def update(self, tx: Transaction, session: Session, **facts: Any) -> Session:
        """Store new facts about a session without an event; facts that are known already must be equal.

        Returns:
            The session as stored.

        Raises:
            ConflictError: If a fact differs from the known one.
        """
        stored = self.get(session.aggregator, session.release)
        if set(facts) - (set(_NAMES) - set(_OURS)) or stored is None or not tx.in_transaction:
            raise InternalError("facts of a session need a stored session, a transaction and known fields")
        known = {name: fact for name, fact in facts.items() if getattr(stored, name) not in (None, "")}
        _check_repeat(stored, known)
        new = {name: fact for name, fact in facts.items() if name not in known}
        return self._store(tx, replace(stored, **new), new) if new else stored

    def keep_plan(self, tx: Transaction, plan_digest: str, plan: bytes) -> None:
        """Store the canonical bytes of a plan; those that are stored already stay."""
        if self._plan(plan_digest) is None:
            tx.execute("INSERT INTO plans (digest, plan) VALUES (?, ?)", (plan_digest, zlib.compress(plan)))

    def plan(self, session: Session) -> bytes | None:
        """Return the canonical bytes of a session's plan.

        None before there is one, and for older ones of sessions that ended without a charge.
        """
        with self._db.decoding():
            compressed = self._plan(session.plan_digest)
            return None if compressed is None else zlib.decompress(compressed)

    def _plan(self, plan_digest: str) -> bytes | None:
        rows = self._db.rows("SELECT plan FROM plans WHERE digest = ?", (plan_digest,))
        return bytes(rows[0]["plan"]) if rows else None

    def attacks(self, session: Session) -> dict[str, Any] | None:
        """Return what attacks found when the session's data were appraised; None if nobody tried them."""
        rows = self._db.rows(
            "SELECT attacks FROM sessions WHERE aggregator = ? AND release = ?",
            (session.aggregator, session.release),
        )
        with self._db.decoding():
            return json.loads(rows[0]["attacks"]) if rows and rows[0]["attacks"] else None

    def appraise(
        self,
        tx: Transaction,
        session: Session,
        *,
        source_digest: str,
        n_records: int,
        forecast: str,
        attacks: dict[str, Any] | None,
        left_out: str,
    ) -> None:
        """Store the appraisal of an undecided session's data; it replaces an earlier one.

        Args:
            n_records: Exact number of records.
            forecast: Forecast of masking; empty where no record leaves.
            attacks: What attacks find; None where no record leaves.
            left_out: As `Session.left_out`.
        """
        stored = self.get(session.aggregator, session.release)
        if stored is None or stored.state not in UNDECIDED or not tx.in_transaction:
            raise InternalError("an appraisal needs an undecided session and a transaction")
        appraisal: dict[str, Any] = {
            "source_digest": source_digest, "n_records": n_records, "forecast": forecast,
            "left_out": left_out,
        }  # fmt: skip
        self._store(tx, replace(stored, **appraisal), appraisal)
        tx.execute(
            "UPDATE sessions SET attacks = ? WHERE aggregator = ? AND release = ?",
            (json.dumps(attacks, allow_nan=False) if attacks else "", stored.aggregator, stored.release),
        )

    def begin_answer(self, tx: Transaction, session: Session) -> Session:
        """Store that a session is asked to link; idempotent."""
        stored = self.get(session.aggregator, session.release)
        if stored is None or not tx.in_transaction:
            raise InternalError("a session's step needs a stored session and a transaction")
        return stored if stored.answered else self._store(tx, replace(stored, answered=True), ("answered",))

    def live(self, aggregator: str | None = None) -> tuple[Session, ...]:
        """Return the sessions that have not ended, of one aggregator or of all, oldest first."""
        places = ", ".join("?" * len(FINAL))
        sessions = self._select(
            f"WHERE state NOT IN ({places}) ORDER BY created, aggregator, release", tuple(sorted(FINAL))
        )
        return tuple(session for session in sessions if aggregator in (None, session.aggregator))

    def of_release(self, release: str) -> tuple[Session, ...]:
        """Return the sessions of one release id, which several aggregators may use."""
        return tuple(self._select("WHERE release = ? ORDER BY created, aggregator", (release,)))

    def linked(self, aggregator: str, datasets: Sequence[str], since: datetime) -> tuple[Session, ...]:
        """Return an aggregator's sessions that were asked to link data sets: open ones, and ended since."""
        names, final = (", ".join("?" * len(values)) for values in (datasets, FINAL))
        where = f"WHERE answered AND aggregator = ? AND dataset IN ({names})"
        where += f" AND (state NOT IN ({final}) OR updated > ?)"
        return tuple(self._select(where, (aggregator, *datasets, *sorted(FINAL), since.isoformat())))

    def sealed(self, dataset: str, most: int) -> tuple[Session, ...]:
        """Return the sessions that have sealed fragments of a data set, at most `most`, newest first."""
        where = "WHERE dataset = ? AND fragment_digest != '' ORDER BY created DESC LIMIT ?"
        return tuple(self._select(where, (dataset, str(most))))

    def aggregator_chain(self, aggregator: str) -> bytes | None:
        """Return the certificate chain (PEM) that an aggregator signed its newest kept plan with."""
        rows = self._db.rows(
            "SELECT aggregator_certificate FROM sessions WHERE aggregator = ?"
            " AND aggregator_certificate IS NOT NULL ORDER BY created DESC LIMIT 1",
            (aggregator,),
        )
        return bytes(rows[0][0]) if rows else None

    def n_live(self, aggregator: str) -> int:
        """Return how many sessions with an aggregator have not ended."""
        places = ", ".join("?" * len(FINAL))
        rows = self._db.rows(
            f"SELECT count(*) FROM sessions WHERE aggregator = ? AND state NOT IN ({places})",  # noqa: S608
            (aggregator, *sorted(FINAL)),
        )
        return int(rows[0][0])

    def n_opened(self, aggregator: str, since: datetime) -> int:
        """Return how many sessions an aggregator has opened since a moment."""
        rows = self._db.rows(
            "SELECT count(*) FROM sessions WHERE aggregator = ? AND created BETWEEN ? AND ?",
            (aggregator, since.isoformat(), self._clock().isoformat()),
        )
        return int(rows[0][0])

    def count_by_state(self) -> dict[SessionState, int]:
        """Return the number of sessions by state, without the states that have none."""
        rows = self._db.rows("SELECT state, count(*) FROM sessions GROUP BY state")
        with self._db.decoding():
            return {SessionState(state): int(count) for state, count in rows}

    def all(self) -> tuple[Session, ...]:
        """Return every session, oldest first."""
        return tuple(self._select("ORDER BY created, aggregator, release"))

    def forget_key(self, tx: Transaction, aggregator: str, release: str) -> None:
        """Remove the key of a release's tokens."""
        names = (aggregator, release)
        tx.execute("UPDATE sessions SET release_key = NULL WHERE aggregator = ? AND release = ?", names)

    def _store(self, tx: Transaction, session: Session, changed: Iterable[str]) -> Session:
        after = replace(session, updated=self._clock().isoformat())
        assigned = ("updated", *changed)
        values = tuple(_column_value(getattr(after, name)) for name in (*assigned, *_KEY))
        settings = ", ".join(f"{name} = ?" for name in assigned)
        tx.execute(f"UPDATE sessions SET {settings} WHERE aggregator = ? AND release = ?", values)  # noqa: S608
        return after

    def _select(self, rest: str, values: tuple[str, ...] = ()) -> list[Session]:
        rows = self._db.rows(f"SELECT {', '.join(_NAMES)} FROM sessions {rest}", values)  # noqa: S608 - our names
        with self._db.decoding():
            return [
                Session(**{**row, "state": SessionState(row["state"]), "answered": bool(row["answered"])})
                for row in map(dict, rows)
            ]


def _column_value(value: Any) -> Any:
    return str(value) if isinstance(value, SessionState) else value


def _check_repeat(stored: Session, changes: dict[str, Any]) -> None:
    differing = sorted(
        name for name in changes if name in _CONTENT and changes[name] != getattr(stored, name)
    )
    if differing:
        raise ConflictError(
            f"release {stored.release!r} is known here with another {', '.join(differing)}",
            "a release id stands for one plan and one answer: start again under another id",
            {"release": stored.release, "state": str(stored.state), "fields": differing},
        )
