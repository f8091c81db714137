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
        "sessions": [_session(session, daemon) for session in sessions.live()],
        "balances": balances(owner, ledger),
        "engines": engines(owner),
        "attempts": [
            allowance.to_document() | {"text": str(allowance)} for allowance in attempts.allowances(owner)
        ],
        "halted": None if halted is None else halted.message,
    }


def engines(owner: OwnerConfig) -> list[dict[str, Any]]:
    """Return the engine that each data set gets, guessed from its source, and the room in scratch."""
    free: int | None
    try:
        free = owner.workspace.free()
    except (TesseraError, OSError):
        free = None
    choices = [(dataset, engine_of(dataset, owner.engine, owner.workspace)) for dataset in owner.datasets]
    return [
        {"dataset": dataset.name, **choice.to_document(), "scratch_free_bytes": free}
        for dataset, choice in choices
    ]


def _certificate(owner: OwnerConfig) -> dict[str, Any]:
    """Return the expiry of the daemon's certificate, and a warning if there is a problem with it."""
    try:
        certificate = load_chain(owner.tls.cert)[0]
    except TesseraError as error:
        return {"expires": None, "fingerprint": None, "warning": f"there is no certificate: {error.message}"}
    ends = certificate.not_valid_after_utc
    return {
        "expires": ends.isoformat(),
        "fingerprint": fingerprint(certificate.public_key()),
        "warning": expiry_warning(
            f"owner {owner.owner.id}", ends, utc_now(), ends - renewal_begins(certificate), how=OWNER_RENEWS
        ),
    }


def certificates(owner: OwnerConfig, db: OwnerDatabase) -> list[dict[str, Any]]:
    """Return the certificates that connections depend on, as far as they are known here, and when they end.

    Returns:
        `{of, ends, days, fingerprint}` each: this owner's, those of the authorities, and those that
        aggregators signed their newest plans with.
    """
    chains = [(f"owner {owner.owner.id}", _chain(owner.tls.cert)[:1])]
    chains += [("certificate authority", [certificate]) for certificate in _chain(owner.tls.ca)]
    sessions = Sessions(db, utc_now)
    for aggregator in owner.aggregators:
        pem = sessions.aggregator_chain(aggregator.name)
        chains.append((f"aggregator {aggregator.name}", load_certificates(pem)[:1] if pem else []))
    now = utc_now()
    return [
        {
            "of": of,
            "ends": certificate.not_valid_after_utc.isoformat(),
            "days": (certificate.not_valid_after_utc - now).days,
            "fingerprint": fingerprint(certificate.public_key()),
        }
        for of, chain in chains
        for certificate in chain
    ]


def _chain(path: Path) -> list[Certificate]:
    try:
        return load_chain(path)
    except TesseraError:
        return []


def _linkage_key(owner: OwnerConfig) -> dict[str, Any]:
    """Return generation and check value of the linkage key, which owners compare with one another."""
    try:
        key = linkage_key.load(owner.owner.state_dir)
    except TesseraError as error:
        return {"generation": None, "check": None, "reason": error.message}
    return {"generation": key.generation, "check": key.check, "reason": ""}


def _aggregators(owner: OwnerConfig, daemon: DaemonState) -> list[dict[str, Any]]:
    known = {connection.aggregator: connection for connection in daemon.connections}
    return [
        {
            "name": aggregator.name,
            "address": aggregator.address,
            "connected": aggregator.name in known and known[aggregator.name].connected,
            "since": known[aggregator.name].since if aggregator.name in known else "",
            "reason": known[aggregator.name].reason if aggregator.name in known else "",
        }
        for aggregator in owner.aggregators
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
