"""`owner-node ledger recover`: take up work again after owner.db was lost, restored or copied."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common import console
from common.console import ConfigOption, JsonOption, YesOption
from common.errors import ExitCode, IntegrityError, UsageError
from common.privacy import LARGEST_JOINT, is_share
from owner_node import config
from owner_node.config import OwnerConfig

if TYPE_CHECKING:
    from owner_node.ledger.recovering import Estimate
    from owner_node.ledger.recovery import Recovery, Shown
    from owner_node.state.records import Records

ChargeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--charge", metavar="BUDGET=EPSILON", show_default=False,
        help="What mask and query had charged in the lost entries, 0 included; repeatable.",
    ),
]  # fmt: skip
ExhaustOption = Annotated[
    bool, typer.Option("--exhaust", help="Charge all that is left of every budget instead.")
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without", metavar="NAME", show_default=False,
        help="Do not ask this aggregator; what was released there is not charged. Repeatable.",
    ),
]  # fmt: skip
_MOST_LOST = 1_000_000


def recover(
    config_file: ConfigOption = None,
    charge: ChargeOption = None,
    exhaust: ExhaustOption = False,
    without: WithoutOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> int:
    """Ask every aggregator what this owner released, and charge what the ledger lacks, in full."""
    from owner_node.state.presence import daemon_lock
    from owner_node.state.records import Records

    owner = config.load(config_file)
    left_out = _check_names(owner, without or [])
    stated = _stated(owner, charge or [])
    records = Records.open(owner.owner.state_dir, _now)
    with records.db, daemon_lock(owner.owner.state_dir):
        records.ledger.verify_chain()
        recovery, shown = _assess(owner, records, left_out)
        if not recovery.lost and not recovery.charges and records.ledger.halt.reason() is None:
            _nothing(as_json=as_json)
            return 0
        if recovery.lost and not (stated or exhaust):
            raise _unstated(recovery)
        if not as_json:
            _show(recovery, shown, left_out)
        if not (yes or console.confirm(_question(recovery, stated, exhaust=exhaust))):
            console.note("nothing was changed")
            return ExitCode.REFUSED
        from owner_node.ledger.recovering import Estimate

        estimate = Estimate(stated, exhaust)
        return _carry_out(owner, records, recovery, estimate, left_out, as_json=as_json)


def _now() -> datetime:
    return datetime.now(UTC)


def _check_names(owner: OwnerConfig, without: Sequence[str]) -> tuple[str, ...]:
    known = [each.name for each in owner.aggregators]
    unknown = [name for name in without if name not in known]
    if unknown:
        raise UsageError(f"there is no aggregator {unknown[0]!r}", f"known aggregators: {', '.join(known)}")
    return tuple(dict.fromkeys(without))


def _stated(owner: OwnerConfig, charges: Sequence[str]) -> dict[str, Decimal]:
    budgets, stated = {each.budget for each in owner.datasets}, {}
    for each in charges:
        name, _, amount = each.rpartition("=")
        try:
            value = Decimal(amount)
        except InvalidOperation:
            value = Decimal(-1)
        if name not in budgets or not (value == 0 or is_share(value, LARGEST_JOINT)):
            hint = f"write BUDGET=EPSILON with one of these budgets: {', '.join(sorted(budgets))}"
            raise UsageError(f"--charge {each} is no charge to a budget", hint)
        stated[name] = value
    return stated


def _assess(
    owner: OwnerConfig, records: "Records", without: Sequence[str]
) -> tuple["Recovery", tuple["Shown", ...]]:
    import asyncio

    from owner_node.ledger.recall import recall
    from owner_node.ledger.recovering import remembered
    from owner_node.ledger.recovery import assess

    shown = asyncio.run(recall(owner, records, without, _now))
    budgets = {each.name: each.budget for each in owner.datasets}
    found = assess(
        records.ledger.lines(), records.ledger.heads.lost(), remembered(records), shown, owner.owner.id,
        budgets,
    )  # fmt: skip
    unknown = sorted({each.dataset for each in found.charges if not each.budget})
    if unknown:
        raise UsageError(
            f"releases were made of data sets that {owner.path} does not declare: {', '.join(unknown)}",
            "declare them again, with the budget that they were charged to; then recover",
            {"datasets": unknown},
        )
    if found.missing > _MOST_LOST:
        raise IntegrityError(
            f"an aggregator keeps entry {found.lost[-1].sequence} of this owner's ledger, and no ledger has "
            "that many", "ask its operator; leave it out with --without NAME",
        )  # fmt: skip
    return found, shown


def _nothing(*, as_json: bool) -> None:
    if as_json:
        console.print_json({"recovered": False, "charges": []})
    else:
        console.print_line("nothing to recover: the ledger has everything that this owner signed")


def _unstated(recovery: "Recovery") -> UsageError:
    return UsageError(
        f"{recovery.missing} entries of the ledger were lost, and {recovery.unexplained} of them are not "
        f"explained by releases{_possible(recovery)}; charges of mask and query, and what was written after "
        "the newest entry that an aggregator keeps, no aggregator knows; nothing was changed",
        "say what mask and query had charged: --charge BUDGET=EPSILON, as often as needed (0 if they charged "
        "nothing); or charge all that is left: --exhaust",
        {"missing": recovery.missing, "unexplained": recovery.unexplained, "possible": recovery.possible,
         "charges": [_document(each) for each in recovery.charges]},
    )  # fmt: skip


def _possible(recovery: "Recovery") -> str:
    """Say how many of the unexplained entries need not be a sign of anything."""
    if not recovery.possible:
        return ""
    return f" (up to {recovery.possible} may be ends of these releases or returns of a part of their charges)"


def _document(charge: Any) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Decimal) else value for key, value in asdict(charge).items()}


def _show(recovery: "Recovery", shown: Sequence["Shown"], without: Sequence[str]) -> None:
    for each in shown:
        newest = each.newest.sequence if each.newest else 0
        console.print_line(
            f"aggregator {each.aggregator}: {len(each.releases)} releases, the ledger up to entry {newest}"
        )
        if each.newest is not None and not each.proved:
            console.note(
                f"warning: {each.aggregator} has that entry under a signature this owner does not know"
            )
    for name in without:
        console.note(f"warning: {name} is not asked; what was released there is not charged")
    unexplained = f"{recovery.unexplained}{_possible(recovery)}"
    console.print_line(f"lost entries: {recovery.missing}, unexplained: {unexplained}")
    columns = ("budget", "charge", "aggregator", "release", "plan", "own signature")
    rows = [
        (each.budget, each.charge, each.aggregator, each.release, each.plan_digest[:12], each.proved)
        for each in recovery.charges
    ]
    console.table("Charged in full", columns, rows)


def _question(recovery: "Recovery", stated: dict[str, Decimal], *, exhaust: bool) -> str:
    parts = [f"{len(recovery.charges)} releases"]
    parts += [f"{value:f} to budget {name!r}" for name, value in stated.items()]
    parts += ["all that is then left of every budget"] if exhaust else []
    return f"Charge {', '.join(parts)}, end every session under way, and go on?"


def _carry_out(
    owner: OwnerConfig,
    records: "Records",
    recovery: "Recovery",
    estimate: "Estimate",
    without: Sequence[str],
    *,
    as_json: bool,
) -> int:
    from owner_node.cli.budgets import balances, show_balances
    from owner_node.consent.decisions import this_person
    from owner_node.ledger.recovering import carry_out

    asked = [each.name for each in owner.aggregators if each.name not in without]
    said = {"asked": asked, "without": list(without), "by": asdict(this_person())}
    head = carry_out(records, recovery, estimate, owner.datasets, said)
    left = balances(owner, records.ledger)
    if as_json:
        charges = [_document(each) for each in recovery.charges]
        document = {"recovered": True, "missing": recovery.missing, "unexplained": recovery.unexplained,
                    "possible": recovery.possible}  # fmt: skip
        console.print_json({**document, "charges": charges, "balances": left, "head": asdict(head)})
        return 0
    console.print_line(f"the ledger goes on from entry {head.sequence}")
    show_balances(left)
    return 0
