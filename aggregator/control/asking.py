"""What an operator asks for, as a request to the daemon. All is text: the daemon checks the arguments."""

import secrets
from typing import Any

from common.errors import UsageError
from common.model.plan import TRIAL, is_trial
from common.planning.arguments import split_groups, split_names
from common.wire.v1.control_pb2 import OwnerGroup, StartRequest


def named_id(named: str | None, *, trial: bool) -> str:
    """Return the id of a release, which says whether it is a trial; empty to have one chosen."""
    if not trial:
        if named is not None and is_trial(named):
            raise UsageError(
                f"ids that begin with {TRIAL!r} are those of trials", "add --trial, or choose another id"
            )
        return named or ""
    return named if named is not None and is_trial(named) else f"{TRIAL}{named or secrets.token_hex(4)}"


def start_request(
    *,
    release: str | None,
    layout: str,
    owners: str,
    groups: str,
    attributes: str,
    weights: str,
    rank_noise: str,
    formats: str,
    trial: bool = False,
    confirmed: bool = False,
    dry_run: bool = False,
    **as_they_are: Any,
) -> StartRequest:
    """Return the request for a release, from texts as the options of `aggregator release` take them.

    Options that need no conversion are passed as fields of the request (`as_they_are`).

    Raises:
        UsageError: If a list names nothing, owners are not named once, or the id is that of a trial.
    """
    return StartRequest(
        release=named_id(release, trial=trial),
        layout=layout,
        groups=[OwnerGroup(owners=group) for group in split_groups(layout, owners, groups)],
        attributes=split_names(attributes),
        weights=split_names(weights),
        rank_noise=split_names(rank_noise),
        formats=split_names(formats),
        confirmed=confirmed and not dry_run,
        dry_run=dry_run,
        **as_they_are,
    )
