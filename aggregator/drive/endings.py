"""Events and error texts for releases that end without being published."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

from aggregator.protocol.events import Conflicted, Ending, Expired, Failed, Refused
from aggregator.protocol.release import Release
from aggregator.protocol.states import TRANSITIONS, State
from aggregator.protocol.work import work_for
from common.errors import (
    ConflictError,
    InternalError,
    TesseraError,
    UsageError,
    by_code,
    from_document,
    one_line,
)
from common.model.rounds import FIRST_COUNTED
from common.words.guarantee import worth_of
from common.words.worth import BETTER

_LONGEST_MESSAGE = 500
_HINTS = {
    "version": "upgrade this owner, or leave out what it does not know",
    "refused": "ask this owner: owner-node history there names the rule, or the person, that decided",
    "balance": "ask for a smaller epsilon; a budget is for the lifetime of its data and does not refill",
    "unusable_data": "ask this owner, owner-node history there says why; or ask for a smaller k",
    "bad_data": "the owner sees at its own command line what is wrong: owner-node check",
    "data_changed": "start it again under another --id; the owner's data must not change while it runs",
    "configuration": "the owner sees at its own command line what is missing: owner-node check",
    "usage": "the owner's data sets are listed by: aggregator owners",
}


def failed_at_owner(at: int, owner: str, code: str, message: str, objects_to: str = "") -> Ending:
    """Return the event that ends a release because of an owner's failure.

    Args:
        objects_to: Another owner, whose messages it found not to hold.
    """
    code = by_code(code).code
    kind = Refused if code in ("refused", "balance") else Failed
    text = f"owner {owner}: {one_line(message[:_LONGEST_MESSAGE]) or 'gave no reason'}"
    if objects_to:
        text += f"; it objects to what came in the name of owner {objects_to}"
    details = {"objects_to": objects_to} if objects_to else {}
    hint = _HINTS.get(code, "see the owner's log")
    return kind(at=at, owner=owner, code=code, message=text, hint=hint, details=details)


def ended_by(at: int, error: TesseraError, owner: str, state: State) -> Ending:
    """Return the event that ends a release because of an error at the aggregator."""
    kind: type[Ending] = Failed
    if isinstance(error, ConflictError) and "conflicted" in TRANSITIONS[state]:
        kind = Conflicted
    elif error.code == "refused" and state is State.INVITING:
        kind = Refused
    # The journal stores JSON. What an error speaks of must not keep a release from ending.
    details = json.loads(error.details_json())
    return kind(at=at, owner=owner, code=error.code, message=error.message, hint=error.hint, details=details)


def expiry(at: int, release: Release, connected: Callable[[str], bool]) -> Ending:
    """Return the event that ends a release because a deadline has passed."""
    if release.state is State.PLANNED:
        return Expired(
            at=at,
            code="deadline",
            message=f"the plan of release {release.id} was not confirmed in time",
            hint="ask for it again under another --id and confirm the plan, or use --yes",
        )
    # Of owners that count together, one may only wait for another.
    late = [owner for owner in release.progress if work_for(release, owner)]
    away = [owner for owner in late if not connected(owner)]
    if release.state is State.INVITING and away:
        return Failed(
            at=at,
            code="not_connected",
            message=f"not connected: {', '.join(away)}",
            hint="start the owner nodes (owner-node run), then ask for it again under another --id",
            details={"owners": away},
        )
    reason, see = f"no answer from {', '.join(late)}", "see at these owners what they wait for"
    if not late:
        reason, see = "all owners had answered, the aggregator was not done", "see the aggregator's log"
    return Expired(
        at=at,
        code="deadline",
        message=f"the deadline of {release.state} passed; {reason}",
        hint=f"{see}; [deadlines] in aggregator.toml sets the time",
        details={"owners": late, "state": str(release.state)},
    )


def halted_by(release: Release, error: TesseraError) -> TesseraError:
    """Return the error that an operator sees while the publication of a release is halted."""
    first = error.hint or "see the aggregator's log"
    return InternalError(
        f"release {release.id} is not published yet: {error.message}; nothing is lost: the fragments are "
        "kept, and to try again charges nobody",
        f"{first}; then repeat the same command with --id {release.id} to try again, or end the release: "
        f"aggregator cancel {release.id}",
        {"release": release.id, "state": str(release.state), "cause": error.code, **error.details},
    )


def worthless_plan(release: Release) -> TesseraError:
    """Return why a release is not confirmed whose result is expected to be worthless."""
    worth = worth_of(release.the_plan())
    return UsageError(
        f"{worth.text}; no owner was asked and nothing is charged",
        f"{BETTER}; if you want this one, repeat the same command with --id {release.id} --anyway; "
        f"to drop it: aggregator cancel {release.id}",
        {"release": release.id, "attributes": list(worth.lost)},
    )


def spent_by(release: Release) -> str:
    """Return what is known about budgets after a release that ended without being published.

    A charge is spent before noise is drawn, so an owner that was asked to mask may have spent already.
    """
    if release.addended is None or (release.measures and len(release.rounds) < FIRST_COUNTED):
        return "nothing was spent"
    sealed = [owner for owner, progress in release.progress.items() if progress.sealed is not None]
    asked = [owner for owner in release.progress if owner not in sealed]
    parts = [f"spent at {', '.join(sealed)}"] if sealed else []
    parts += (
        [f"{', '.join(asked)} {'were' if len(asked) > 1 else 'was'} asked to and may have spent"]
        if asked
        else []
    )
    return "; ".join(parts)


def operator_error(release: Release, at: float) -> TesseraError | None:
    """Return why a release ended without being published, as an error; None if it did not.

    Args:
        at: The time now, in seconds since 1970.
    """
    ending = release.ending
    if ending is None:
        return None
    details = {"release": release.id, "state": str(release.state), **ending.details}
    if ending.owner:
        details["owner"] = ending.owner
    hint, again = ending.hint, ""
    if at < release.resumable_until:
        day = datetime.fromtimestamp(release.resumable_until, UTC).date()
        same = f"repeat the same command with --id {release.id}"
        again = f"{same} before {day} to continue: nobody is charged again"
    elif "another --id" not in hint:
        again = f"ask again under another --id: release {release.id} has ended for good"
    if again:
        hint = f"{hint}; then {again}" if hint else again
    body = {"code": ending.code, "message": ending.message, "hint": hint, "details": details}
    return from_document({"error": body})
