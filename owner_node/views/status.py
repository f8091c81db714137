"""The state of an owner node: daemon, connections, certificate, open sessions, balances and attempts."""

from typing import Any

from common.clock import utc_now
from common.errors import TesseraError
from common.trust.enrolment import expiry_warning
from common.trust.identity import OWNER_RENEWS, fingerprint, renewal_begins
from common.trust.signing import load_chain
from owner_node.config import OwnerConfig
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.release.attempts import Attempts
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.presence import DaemonPresence, DaemonState
from owner_node.state.sessions import Session, Sessions
from owner_node.views.budgets import balances


def status_document(owner: OwnerConfig, db: OwnerDatabase) -> dict[str, Any]:
    """Return what `owner-node status` shows."""
    daemon, ledger = DaemonPresence(db, utc_now).state(), Ledger(db, utc_now)
    halted, sessions = ledger.losses.reason(), Sessions(db, utc_now)
    attempts = Attempts(History(db, utc_now), sessions, utc_now)
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
        "sessions": [_session(each) for each in sessions.live()],
        "balances": balances(owner, ledger),
        "attempts": [each.to_document() | {"text": str(each)} for each in attempts.allowances(owner)],
        "halted": None if halted is None else halted.message,
    }


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


def _session(session: Session) -> dict[str, Any]:
    return {
        "release": session.release,
        "aggregator": session.aggregator,
        "state": str(session.state),
        "dataset": session.dataset,
        "purpose": session.purpose,
        "updated": session.updated,
    }
