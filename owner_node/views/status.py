"""The state of an owner node: daemon, connections, certificate, open sessions, balances and attempts."""

from pathlib import Path
from typing import Any

from cryptography.x509 import Certificate

from common.clock import utc_now
from common.errors import TesseraError
from common.trust.enrolment import expiry_warning
from common.trust.identity import OWNER_RENEWS, fingerprint, load_certificates, renewal_begins
from common.trust.signing import load_chain
from owner_node.config import OwnerConfig
from owner_node.engines.choice import engine_of
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.release.attempts import Attempts
from owner_node.state.database import OwnerDatabase
from owner_node.state.presence import DaemonPresence, DaemonState
from owner_node.state.sessions import Session, Sessions
from owner_node.views.budgets import balances


def status_document(owner: OwnerConfig, db: OwnerDatabase, ledger: Ledger | None = None) -> dict[str, Any]:
    """Return what `owner-node status` shows."""
    daemon, ledger = DaemonPresence(db, utc_now).state(), ledger or Ledger(db, utc_now)
    halted, sessions = ledger.losses.reason(), Sessions(db, utc_now)
    attempts = Attempts(sessions, utc_now)
    return {
        "owner": owner.owner.id,
        "running": daemon.running,
        "pid": daemon.pid,
        "version": daemon.version,
        "started": daemon.started,
        "outdated": daemon.outdated(owner.digest) or None,
        "certificate": _certificate(owner),
        "linkage_key": _linkage_key(owner),
        "aggregators": _aggregators(owner, daemon),
        "sessions": [_session(each, daemon) for each in sessions.live()],
        "balances": balances(owner, ledger),
        "engines": engines(owner),
        "attempts": [each.to_document() | {"text": str(each)} for each in attempts.allowances(owner)],
        "halted": None if halted is None else halted.message,
    }


def engines(owner: OwnerConfig) -> list[dict[str, Any]]:
    """Return the engine that each data set gets, guessed from its source, and the room in scratch."""
    free: int | None
    try:
        free = owner.workspace.free()
    except (TesseraError, OSError):
        free = None
    found = [(each, engine_of(each, owner.engine, owner.workspace)) for each in owner.datasets]
    return [
        {"dataset": each.name, **choice.to_document(), "scratch_free_bytes": free} for each, choice in found
    ]


def _certificate(owner: OwnerConfig) -> dict[str, Any]:
    """Return the expiry of the daemon's certificate, and a warning if there is a problem with it."""
    try:
        found = load_chain(owner.tls.cert)[0]
    except TesseraError as error:
        return {"expires": None, "fingerprint": None, "warning": f"there is no certificate: {error.message}"}
    ends = found.not_valid_after_utc
    return {
        "expires": ends.isoformat(),
        "fingerprint": fingerprint(found.public_key()),
        "warning": expiry_warning(
            f"owner {owner.owner.id}", ends, utc_now(), ends - renewal_begins(found), how=OWNER_RENEWS
        ),
    }


def certificates(owner: OwnerConfig, db: OwnerDatabase) -> list[dict[str, Any]]:
    """Return the certificates that connections depend on, as far as they are known here, and when they end.

    Returns:
        `{of, ends, days, fingerprint}` each: this owner's, those of the authorities, and those that
        aggregators signed their newest plans with.
    """
    found = [(f"owner {owner.owner.id}", _chain(owner.tls.cert)[:1])]
    found += [("certificate authority", [each]) for each in _chain(owner.tls.ca)]
    sessions = Sessions(db, utc_now)
    for each in owner.aggregators:
        pem = sessions.aggregator_chain(each.name)
        found.append((f"aggregator {each.name}", load_certificates(pem)[:1] if pem else []))
    now = utc_now()
    return [
        {
            "of": of,
            "ends": each.not_valid_after_utc.isoformat(),
            "days": (each.not_valid_after_utc - now).days,
            "fingerprint": fingerprint(each.public_key()),
        }
        for of, chain in found
        for each in chain
    ]


def _chain(path: Path) -> list[Certificate]:
    try:
        return load_chain(path)
    except TesseraError:
        return []


def _linkage_key(owner: OwnerConfig) -> dict[str, Any]:
    """Return generation and check value of the linkage key, which owners compare with one another."""
    try:
        found = linkage_key.load(owner.owner.state_dir)
    except TesseraError as error:
        return {"generation": None, "check": None, "reason": error.message}
    return {"generation": found.generation, "check": found.check, "reason": ""}


def _aggregators(owner: OwnerConfig, daemon: DaemonState) -> list[dict[str, Any]]:
    known = {each.aggregator: each for each in daemon.connections}
    return [
        {
            "name": each.name,
            "address": each.address,
            "connected": each.name in known and known[each.name].connected,
            "since": known[each.name].since if each.name in known else "",
            "reason": known[each.name].reason if each.name in known else "",
        }
        for each in owner.aggregators
    ]


def _session(session: Session, daemon: DaemonState) -> dict[str, Any]:
    return {
        "release": session.release,
        "aggregator": session.aggregator,
        "state": str(session.state),
        "dataset": session.dataset,
        "purpose": session.purpose,
        "updated": session.updated,
        "progress": daemon.progress.get((session.aggregator, session.release), ""),
    }
