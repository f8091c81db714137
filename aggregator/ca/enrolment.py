"""The register of owners' certificates: approved, renewed, seen and revoked, with a log of every change.

The register is tables of aggregator.db, which the daemon and the operator's commands share. The commands
write to it with or without the daemon. The daemon reads it at every call and caches nothing, so that a
revocation takes effect at the next call.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from aggregator.ca.authority import Authority
from aggregator.store.database import FILE_NAME, AggregatorDatabase
from aggregator.store.operator_log import Action, OperatorLog
from common.errors import ConflictError, IdentityError, ProtocolError, UsageError
from common.trust.enrolment import CertificateRequest
from common.trust.identity import Party, fingerprint, party_of_certificate, renewal_begins

_PREFIX = "enroll "
"""Begins the names of these actions in the operators' log."""
_MOST_RENEWALS_A_DAY = 10
_FORGOTTEN_AFTER = timedelta(days=7)
_WITH_RENEWED = """digest IN (
    WITH RECURSIVE family (digest, fingerprint) AS (
        SELECT digest, fingerprint FROM certificates WHERE serial = ?
        UNION SELECT each.digest, each.fingerprint FROM certificates AS each, family
        WHERE each.fingerprint = family.fingerprint OR each.parent = family.digest)
    SELECT digest FROM family)"""
"""A certificate, others of its key, and whatever was renewed from any of these."""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """One certificate of an owner."""

    owner: str
    fingerprint: str
    serial: str
    """Hexadecimal digits."""
    origin: str
    """approved, renewed, or seen: issued by another CA, and used here."""
    since: int
    """Unix time of its issue, or of its first use here."""
    expires: int
    """Unix time."""
    revoked: int | None
    """Unix time of its revocation."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One change of the register."""

    sequence: int
    """Its number in the operators' log."""
    time: int
    """Unix time."""
    actor: str
    """User of the aggregator's machine, or owner/ID for what an owner requested over its connection."""
    action: str
    """approve, refuse, renew, replace or revoke."""
    owner: str
    fingerprint: str
    serial: str
    """Of the certificate; empty for a request that was refused."""


class Enrolment:
    """The aggregator's register of certificates. Any number of processes may use it."""

    def __init__(self, db: AggregatorDatabase, operators: OperatorLog, clock: Callable[[], datetime]) -> None:
        self._db, self._operators, self._clock = db, operators, clock

    # --- what the daemon asks --------------------------------------------------------------------------

    def check(self, certificate: x509.Certificate) -> None:
        """Check that a certificate is not revoked."""
        if self.is_revoked(certificate):
            owner, key, serial = _names_of(certificate)
            raise IdentityError(
                f"the certificate of owner {owner} is revoked",
                "ask the aggregator's operator; to enrol again with a new key: owner-node enroll request",
                {"fingerprint": key, "serial": serial},
            )

    def is_revoked(self, certificate: x509.Certificate) -> bool:
        """Whether a certificate, its key, or all that its owner had when it was issued, is revoked."""
        owner, key, _ = _names_of(certificate)
        rows = self._db.rows(
            "SELECT 1 FROM certificates WHERE fingerprint = ? AND revoked IS NOT NULL "
            "UNION SELECT 1 FROM revoked_owners WHERE owner = ? AND time >= ? AND NOT EXISTS "
            "(SELECT 1 FROM certificates WHERE digest = ? AND revoked IS NULL)",
            (key, owner, int(certificate.not_valid_before_utc.timestamp()), _digest(certificate)),
        )
        return bool(rows)

    def revoked_keys(self) -> frozenset[str]:
        """Return the fingerprints of the keys that are revoked."""
        rows = self._db.rows("SELECT DISTINCT fingerprint FROM certificates WHERE revoked IS NOT NULL")
        return frozenset(key for (key,) in rows)

    def revoked_owners(self) -> frozenset[str]:
        """Return the owners whose newest key is revoked."""
        rows = self._db.rows(
            "SELECT id FROM owners WHERE fingerprint IN "
            "(SELECT fingerprint FROM certificates WHERE revoked IS NOT NULL)"
        )
        return frozenset(owner for (owner,) in rows)

    def note_seen(self, certificate: x509.Certificate) -> None:
        """Store a certificate that is used here; one that another CA issued is known from then on.

        Such certificates that expired long ago are deleted: some authorities issue one every hour.
        """
        if not self._db.rows("SELECT 1 FROM certificates WHERE digest = ?", (_digest(certificate),)):
            long_ago = int((self._clock() - _FORGOTTEN_AFTER).timestamp())
            with self._db.transaction() as tx:
                tx.execute(
                    "DELETE FROM certificates WHERE origin = 'seen' AND revoked IS NULL AND expires < ?",
                    (long_ago,),
                )
                self._store(tx, certificate, "seen")

    def renew(
        self, authority: Authority, present: x509.Certificate, request: CertificateRequest
    ) -> x509.Certificate:
        """Issue a certificate for an owner's new key, and take nothing else of the request.

        Raises:
            IdentityError: If the present certificate is revoked, or was issued by another CA.
            UsageError: If it is not time yet.
            ProtocolError: If the key is not new, or renewals come too often.
        """
        now, party = self._clock(), party_of_certificate(present)
        if not authority.has_issued(present):
            raise IdentityError(
                "the certificate was issued by another CA", "have it renewed by the CA that issued it"
            )
        if now < (begins := renewal_begins(present)):
            raise UsageError(
                f"the certificate is renewed from {begins:%Y-%m-%d} on",
                "for a new key before then: owner-node enroll request --new-key",
            )
        with self._changing() as tx:
            self.check(present)
            if _known_key(tx, request.key) is not None:
                raise ProtocolError("a renewal needs a key that was never used", "make a new key")
            day_ago = int((now - timedelta(days=1)).timestamp())
            recent = "SELECT count(*) FROM certificates WHERE owner = ? AND origin = 'renewed' AND since > ?"
            if tx.execute(recent, (party.name, day_ago)).fetchone()[0] >= _MOST_RENEWALS_A_DAY:
                raise ProtocolError("too many renewals in one day", "retry tomorrow")
            issued = authority.issue(request.key, party, now)
            self._store(tx, issued, "renewed", _digest(present))
            self._log(tx, f"owner/{party.name}", "renew", *_names_of(issued))
        return issued

    # --- what operators do -----------------------------------------------------------------------------

    def approve(
        self, authority: Authority, request: CertificateRequest, party: Party, actor: str, *, replace: bool
    ) -> x509.Certificate:
        """Issue an owner's certificate for the key of a request, and take nothing else of it.

        Args:
            replace: Whether other keys of the same owner are revoked.

        Raises:
            ConflictError: If the owner holds another key, or the key is another owner's, or revoked.
            IdentityError: If no party would accept the certificate.
        """
        key, now = fingerprint(request.key), self._clock()
        with self._changing() as tx:
            known = _known_key(tx, request.key)
            if known is not None and (known[0] != party.name or known[1] is not None):
                what = "revoked" if known[1] is not None else f"that of owner {known[0]}"
                raise ConflictError(
                    f"the key of this request is {what}",
                    "have the owner make a new one: owner-node enroll request --new-key",
                    {"fingerprint": key},
                )
            others = self._others(tx, party.name, key, int(now.timestamp()))
            if others and not replace:
                raise ConflictError(
                    f"owner {party.name} holds another key, {others[0][:16]}…",
                    "if that key is lost or was stolen, add --replace: it is revoked at once",
                    {"owner": party.name, "fingerprint": others[0]},
                )
            for other in others:
                self._revoke(tx, actor, "replace", "fingerprint = ?", other)
            issued = authority.issue(request.key, party, now)
            self._store(tx, issued, "approved")
            self._log(tx, actor, "approve", *_names_of(issued))
        return issued

    def refuse(self, request: CertificateRequest, party: Party, actor: str) -> None:
        """Note that a request is not approved. The same request can be approved later."""
        with self._changing() as tx:
            self._log(tx, actor, "refuse", party.name, fingerprint(request.key), "")

    def revoke(self, actor: str, owner: str = "", serial: str = "") -> list[Enrolled]:
        """Revoke an owner's certificates, or one by its serial number, and their keys, from the next call on.

        Revoking a certificate also revokes those renewed from it: anyone who stole its key could renew it.

        Returns:
            The certificates that were revoked now; none if all were revoked already.

        Raises:
            UsageError: If no such certificate is known.
        """
        where, value = ("owner = ?", owner) if owner else ("serial = ?", serial)
        if not self._db.rows(f"SELECT 1 FROM certificates WHERE {where}", (value,)):  # noqa: S608 - our own words
            raise UsageError(
                f"no certificate of {f'owner {owner}' if owner else f'serial number {serial}'} is known",
                "aggregator enroll list shows those that are",
            )
        with self._changing() as tx:
            revoked = self._revoke(tx, actor, "revoke", where if owner else _WITH_RENEWED, value)
            if owner:
                at = int(self._clock().timestamp())
                tx.execute("INSERT OR REPLACE INTO revoked_owners VALUES (?, ?)", (owner, at))
        return revoked

    def certificates(self) -> list[Enrolled]:
        """Return every certificate, by owner, oldest first."""
        columns = "owner, fingerprint, serial, origin, since, expires, revoked"
        rows = self._db.rows(f"SELECT {columns} FROM certificates ORDER BY owner, since, serial")  # noqa: S608 - our own names
        return [Enrolled(*row) for row in rows]

    def log(self) -> list[LogEntry]:
        """Return all changes, oldest first."""
        return [
            LogEntry(sequence, action.at, action.user, action.name.removeprefix(_PREFIX), **action.arguments)
            for sequence, action in self._operators.actions()
            if action.name.startswith(_PREFIX)
        ]

    # --- the database ----------------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that writes to the operators' log as well."""
        with self._db.transaction() as tx:
            yield tx
        self._operators.announce()

    def _store(
        self, tx: sqlite3.Connection, certificate: x509.Certificate, origin: str, parent: str = ""
    ) -> None:
        times = int(self._clock().timestamp()), int(certificate.not_valid_after_utc.timestamp())
        values = (_digest(certificate), *_names_of(certificate), origin, *times, parent)
        tx.execute("INSERT OR IGNORE INTO certificates VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?)", values)

    def _log(self, tx: sqlite3.Connection, actor: str, action: str, *named: str) -> None:
        whose = dict(zip(("owner", "fingerprint", "serial"), named, strict=True))
        at = int(self._clock().timestamp())
        self._operators.insert(tx, Action(at, actor, _PREFIX + action, "", whose))

    def _others(self, tx: sqlite3.Connection, owner: str, key: str, now: int) -> list[str]:
        """Return the other keys that an owner can still use."""
        rows = tx.execute(
            "SELECT DISTINCT fingerprint FROM certificates "
            "WHERE owner = ? AND fingerprint != ? AND revoked IS NULL AND expires > ?",
            (owner, key, now),
        )
        return [key for (key,) in rows]

    def _revoke(
        self, tx: sqlite3.Connection, actor: str, action: str, where: str, value: str
    ) -> list[Enrolled]:
        columns, now = "owner, fingerprint, serial, origin, since, expires", int(self._clock().timestamp())
        rows = tx.execute(
            f"SELECT {columns}, ? FROM certificates WHERE {where} AND revoked IS NULL",  # noqa: S608 - our own words
            (now, value),
        ).fetchall()
        tx.execute(f"UPDATE certificates SET revoked = ? WHERE {where} AND revoked IS NULL", (now, value))  # noqa: S608
        revoked = [Enrolled(*row) for row in rows]
        for certificate in revoked:
            self._log(tx, actor, action, certificate.owner, certificate.fingerprint, certificate.serial)
        return revoked


@contextmanager
def open_register(state_dir: Path, clock: Callable[[], datetime]) -> Iterator[Enrolment]:
    """Open the register beside the daemon, or without one."""
    with AggregatorDatabase(state_dir / FILE_NAME) as db:
        yield Enrolment(db, OperatorLog(db), clock)


def serial_number(certificate: x509.Certificate) -> str:
    """Return a certificate's serial number as hexadecimal digits."""
    return f"{certificate.serial_number:x}"


def parse_serial(text: str) -> str:
    """Read a serial number as typed by a person: colons, capitals and leading zeros are accepted."""
    try:
        return f"{int(text.replace(':', '').replace(' ', ''), 16):x}"
    except ValueError:
        raise UsageError(
            "a serial number has hexadecimal digits", "aggregator enroll list shows those that are known"
        ) from None


@lru_cache(maxsize=4096)
def _names_of(certificate: x509.Certificate) -> tuple[str, str, str]:
    """Return owner, fingerprint of the key, and serial number."""
    owner = party_of_certificate(certificate).name
    return owner, fingerprint(certificate.public_key()), serial_number(certificate)


@lru_cache(maxsize=4096)
def _digest(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()


def _known_key(tx: sqlite3.Connection, key: ec.EllipticCurvePublicKey) -> tuple[str, int | None] | None:
    """Return whose a key is, and when it was revoked; None if it was never seen."""
    row = tx.execute(
        "SELECT owner, max(revoked) FROM certificates WHERE fingerprint = ? GROUP BY owner",
        (fingerprint(key),),
    ).fetchone()
    return None if row is None else (str(row[0]), row[1])
