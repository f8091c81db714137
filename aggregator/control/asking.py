"""What an operator asks for, as a request to the daemon. All is text: the daemon checks the arguments."""

import secrets
from typing import Any

from aggregator.control.facts_file import facts_document
from common.errors import UsageError
from common.model.plan import TRIAL, is_trial
from common.planning.arguments import ARGUMENTS, Kind, split_groups
from common.planning.names import split_names
from common.wire.v1.control_pb2 import OwnerGroup, StartRequest


def named_id(named: str, *, trial: bool) -> str:
    """Return the id of a release, which says whether it is a trial; empty to have one chosen."""
    if not trial:
        if is_trial(named):
            raise UsageError(
                f"ids that begin with {TRIAL!r} are those of trials", "add --trial, or choose another id"
            )
        return named
    return named if is_trial(named) else f"{TRIAL}{named or secrets.token_hex(4)}"


def start_request(
    *,
    owners: str,
    groups: str,
    release: str,
    trial: bool = False,
    confirmed: bool = False,
    dry_run: bool = False,
    **stated: Any,
) -> StartRequest:
    """Return the request for a release, from what the options of `aggregator release` hold.

    Args:
        owners: Owner ids, separated by commas; empty where `groups` are stated.
        release: Id of the release; empty to have one chosen.
        trial: Whether it is a trial.
        confirmed: Whether the operator agrees to the plan without seeing it.
        dry_run: Whether to stop at the plan.
        stated: The other arguments (`common.planning.arguments.ARGUMENTS`).

    Raises:
        UsageError: If a list names nothing, owners are not named once, or the id is that of a trial.
        ConfigurationError: If a file cannot be used.
    """
    return StartRequest(
        release=named_id(release, trial=trial),
        groups=[OwnerGroup(owners=group) for group in split_groups(stated["layout"], owners, groups)],
        confirmed=confirmed and not dry_run,
        dry_run=dry_run,
        **{name: _field(ARGUMENTS[name].kind, value) for name, value in stated.items()},
    )


def _field(kind: Kind, value: Any) -> Any:
    if kind is Kind.NAMES:
        return split_names(value)
    if kind is Kind.FOLDER:
        return str(value.absolute()) if value else ""
    if kind is Kind.FILE:
        return facts_document(value) if value else ""
    return value
