"""`owner-node ledger budget`: record another total of a budget."""

from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from common import console
from common.console import ConfigOption, JsonOption, YesOption
from common.errors import ExitCode, UsageError
from common.privacy import parse_epsilon
from owner_node import config
from owner_node.config import OwnerConfig
from owner_node.consent.decisions import this_person
from owner_node.ledger.ledger import Ledger
from owner_node.state.records import Records

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the budget.", show_default=False)]
TotalOption = Annotated[str, typer.Option("--total", help="Its total from now on, for the data's lifetime.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; stays in ledger and history.")]
_LONGEST_REASON = 500


def budget(
    name: NameArgument,
    total: TotalOption,
    reason: ReasonOption,
    config_file: ConfigOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> int:
    """Record another total of a budget, which owner.toml alone cannot raise. Works beside the daemon."""
    owner, new = config.load(config_file), parse_epsilon(total)
    reason = _reason(reason)
    _check_state(owner.owner.state_dir)
    records = Records.open(owner.owner.state_dir, lambda: datetime.now(UTC))
    with records.db:
        check_known(owner, records.ledger, name)
        before = records.ledger.total(name)
        told = "not used yet" if before is None else f"{before:f}"
        if not (yes or console.confirm(f"Change the total of budget {name!r} from {told} to {new:f}?")):
            console.note("nothing was changed")
            return ExitCode.REFUSED
        _record(records, name, before, new, reason)
        left = records.ledger.balance(name, new)
    if as_json:
        console.print_json({"budget": name, "before": before, **asdict(left), "reason": reason})
        return 0
    console.print_line(f"budget {name!r} has a total of {left.total:f}, {left.remaining:f} of it are left")
    configured = {each.total_epsilon for each in owner.datasets if each.budget == name}
    if configured != {new}:
        console.note(f"the smaller of this and total_epsilon in {owner.path} holds: set that, too")
    return 0


def check_known(owner: OwnerConfig, book: Ledger, name: str) -> None:
    """Check that a budget is configured, or was ever charged.

    Raises:
        UsageError: If it is neither.
    """
    known = sorted({each.budget for each in owner.datasets} | {entry.budget for entry in book.entries()})
    if name not in known:
        hint = f"known budgets: {', '.join(known)}" if known else "no data set is declared"
        raise UsageError(f"there is no budget {name!r}", hint, {"budget": name, "known": known})


def _record(records: Records, name: str, before: Decimal | None, new: Decimal, reason: str) -> None:
    with records.db.transaction() as tx:
        records.ledger.check_may_charge(tx)
        records.ledger.change_total(tx, name, new, reason)
        records.history.record(
            tx, aggregator="", release="", event="budget-changed", decision="accept", rule=reason,
            details={"budget": name, "before": before, "total": new, "by": asdict(this_person())},
        )  # fmt: skip


def _reason(reason: str) -> str:
    if not reason.strip() or len(reason) > _LONGEST_REASON:
        raise UsageError(
            f"a reason has 1 to {_LONGEST_REASON} characters", "say why in a sentence: --reason TEXT"
        )
    return reason.strip()


def _check_state(state_dir: Path) -> None:
    if not (state_dir / "owner.db").is_file():
        raise UsageError(
            f"there is no ledger in {state_dir} yet",
            "the first use of a budget records what owner.toml says; change it there",
        )
