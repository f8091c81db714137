"""`owner-node ledger`: show entries and balances, record decisions about budgets, recover lost entries.

`ledger recover` resumes work after owner.db was lost, restored or copied.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any

import typer

from common.cli import console
from common.cli.console import ConfigOption, JsonOption, YesOption
from common.clock import utc_now
from common.errors import IntegrityError, UsageError
from common.model.privacy import LARGEST_JOINT, is_share, parse_epsilon, read_decimal
from common.words.numbers import (
    bound_cell,
    bound_text,
    cost_text,
    delta_text,
    left_text,
    moment_text,
)
from owner_node import config
from owner_node.cli.status import show_balances
from owner_node.config import OwnerConfig
from owner_node.ledger.ledger import Entry, EntryKind, Ledger
from owner_node.ledger.losses import Shown
from owner_node.local.charge import LOCAL
from owner_node.release.decisions import Decisions, checked_reason, this_person
from owner_node.release.records import Records
from owner_node.release.recovery import Recovery, StatedCharge, assess, carry_out
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.presence import daemon_lock
from owner_node.state.session import CHARGED
from owner_node.state.sessions import Sessions
from owner_node.views.budgets import balances, ledger_warnings

_UNCHANGED = "nothing was changed"
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the budget.", show_default=False)]
TotalOption = Annotated[str, typer.Option("--total", help="New total for the lifetime of the data.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Reason; kept in ledger and history.")]


def budget(
    name: NameArgument,
    total: TotalOption,
    reason: ReasonOption,
    config_file: ConfigOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Record another total of a budget, which owner.toml alone cannot raise. Works beside the daemon."""
    owner, new = config.load(config_file), parse_epsilon(total)
    reason = checked_reason(reason)
    if not (owner.owner.state_dir / "owner.db").is_file():
        raise UsageError(
            f"there is no ledger in {owner.owner.state_dir} yet",
            "the first use of a budget records what owner.toml says; change it there",
        )
    records = Records.open(owner.owner.state_dir, utc_now)
    with records.db:
        check_known(owner, records.ledger, name)
        before = records.ledger.total(name)
        question = (
            f"Change the total of budget {name!r} from {bound_text(before, 'not used yet')} to "
            f"{bound_text(new)}?"
        )
        console.require_yes(question, yes=yes, otherwise=_UNCHANGED)
        with records.db.transaction() as tx:
            records.ledger.check_may_charge(tx)
            records.ledger.change_total(tx, name, new, reason)
            records.history.record(
                tx, aggregator="", release="", event="budget-changed", decision="accept", rule=reason,
                details={"budget": name, "before": before, "total": new, "by": asdict(this_person())},
            )  # fmt: skip
        left = records.ledger.balance(name, new)
    if as_json:
        console.print_json({"budget": name, "before": before, **asdict(left), "reason": reason})
        return
    console.print_line(
        f"budget {name!r} has a total of {bound_text(left.total)}, {left_text(left.remaining)} of it are left"
    )
    configured = {dataset.total_epsilon for dataset in owner.datasets if dataset.budget == name}
    if configured != {new}:
        console.note(f"the smaller of this and total_epsilon in {owner.path} applies: set that as well")


def check_known(owner: OwnerConfig, book: Ledger, name: str) -> None:
    """Check that a budget is configured, or was charged before."""
    known = sorted(
        {dataset.budget for dataset in owner.datasets} | {entry.budget for entry in book.entries()}
    )
    if name not in known:
        hint = f"known budgets: {', '.join(known)}" if known else "no data set is declared"
        raise UsageError(f"there is no budget {name!r}", hint, {"budget": name, "known": known})


ReleaseArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Release id; AGGREGATOR/ID where two aggregators use the same.", show_default=False
    ),
]


def give_back(
    release: ReleaseArgument,
    reason: ReasonOption,
    config_file: ConfigOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Return a reservation that was not spent after its deadline, and refuse its release."""
    owner, reason = config.load(config_file), checked_reason(reason)
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        decisions = Decisions(db, utc_now)
        session = decisions.reserved(release)
        what = f"the reservation of release {session.release} of {session.aggregator}"
        question = f"Return {what}? The release cannot continue here."
        console.require_yes(question, yes=yes, otherwise=_UNCHANGED)
        session = decisions.give_back(release, this_person(), reason)
    if as_json:
        names = {"release": session.release, "aggregator": session.aggregator}
        console.print_json({**names, "state": str(session.state), "reason": session.reason})
    else:
        console.print_line(f"{what} is returned")


ChargeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--charge", metavar="BUDGET=EPSILON[,DELTA]", show_default=False,
        help="What mask and query had charged in the lost entries, 0 included; repeatable. With the δ of "
        "synthetic tables.",
    ),
]  # fmt: skip
ExhaustOption = Annotated[
    bool, typer.Option("--exhaust", help="Charge all ε and δ that are left of every budget instead.")
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without", metavar="NAME", show_default=False,
        help="Do not ask this aggregator; only what the ledger has reserved there is charged. Repeatable.",
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
) -> None:
    """Ask every aggregator what this owner released, and charge what the ledger lacks, in full."""
    owner = config.load(config_file)
    left_out, stated = _check_names(owner, without or []), _parse_charges(owner, charge or [])
    records = Records.open(owner.owner.state_dir, utc_now)
    with records.db, daemon_lock(owner.owner.state_dir):
        records.ledger.verify_chain()
        recovery, shown = _assess(owner, records, left_out)
        halted = records.ledger.losses.reason()
        restored = halted is not None and "restored" in halted.details
        if not recovery.lost and not recovery.charges and halted is None:
            if as_json:
                console.print_json({"recovered": False, "charges": []})
            else:
                console.print_line("nothing to recover: the ledger has everything that this owner signed")
            return
        document = _recovery_document(recovery)
        if (recovery.lost or restored) and not (stated or exhaust):
            raise UsageError(
                f"{recovery.missing} entries of the ledger were lost; no aggregator knows what mask and "
                "query charged, nor what was written after the newest entry that it has; nothing was changed",
                "say what mask and query had charged: --charge BUDGET=EPSILON, as often as needed (0 if they "
                "charged nothing); or charge all that is left: --exhaust",
                document,
            )
        if not as_json:
            _show_recovery(recovery, shown, left_out)
        question = _question(recovery, stated, exhaust=exhaust)
        console.require_yes(question, yes=yes, otherwise=_UNCHANGED)
        asked = [aggregator.name for aggregator in owner.aggregators if aggregator.name not in left_out]
        said = {"asked": asked, "without": list(left_out), "by": asdict(this_person())}
        head = carry_out(records, recovery, stated, owner, said, exhaust=exhaust)
        left = balances(owner, records.ledger)
    if as_json:
        console.print_json({"recovered": True, **document, "balances": left, "head": asdict(head)})
    else:
        console.print_line(f"the ledger continues from entry {head.sequence}")
        show_balances(left)


def _check_names(owner: OwnerConfig, without: Sequence[str]) -> tuple[str, ...]:
    known = [aggregator.name for aggregator in owner.aggregators]
    unknown = [name for name in without if name not in known]
    if unknown:
        raise UsageError(f"there is no aggregator {unknown[0]!r}", f"known aggregators: {', '.join(known)}")
    return tuple(dict.fromkeys(without))


def _parse_charges(owner: OwnerConfig, charges: Sequence[str]) -> dict[str, StatedCharge]:
    budgets, stated = {dataset.budget for dataset in owner.datasets}, dict[str, StatedCharge]()
    for text in charges:
        name, _, amounts = text.rpartition("=")
        epsilon, _, delta = amounts.partition(",")
        try:
            charge = StatedCharge(read_decimal(epsilon), read_decimal(delta or "0"))
        except ValueError:
            charge = StatedCharge(Decimal(-1))
        is_charge = is_share(charge.epsilon, LARGEST_JOINT) and 0 <= charge.delta < 1
        if name not in budgets or not (is_charge or charge == StatedCharge(Decimal(0))):
            hint = (
                "write BUDGET=EPSILON, or BUDGET=EPSILON,DELTA, with one of these budgets: "
                f"{', '.join(sorted(budgets))}"
            )
            raise UsageError(f"--charge {text} is no charge to a budget", hint)
        stated[name] = charge
    return stated


def _assess(
    owner: OwnerConfig, records: Records, without: Sequence[str]
) -> tuple[Recovery, tuple[Shown, ...]]:
    # This import loads gRPC.
    from owner_node.connection.recall import recall

    shown = asyncio.run(recall(owner, records, without, utc_now))
    budgets, ledger = {dataset.name: dataset.budget for dataset in owner.datasets}, records.ledger
    recovery = assess(ledger.lines(), ledger.losses.remembered(), shown, owner.owner.id, budgets)
    unknown = sorted({charge.dataset for charge in recovery.charges if not charge.budget})
    if unknown:
        raise UsageError(
            f"releases were made of data sets that {owner.path} does not declare: {', '.join(unknown)}",
            "declare them again, with the budget that they were charged to; then recover",
            {"datasets": unknown},
        )
    if recovery.missing > _MOST_LOST:
        raise IntegrityError(
            f"an aggregator keeps entry {recovery.lost[-1].sequence} of this owner's ledger, and no ledger "
            "has that many", "ask its operator; leave it out with --without NAME",
        )  # fmt: skip
    return recovery, shown


def _recovery_document(recovery: Recovery) -> dict[str, Any]:
    charges = [
        {key: str(value) if isinstance(value, Decimal) else value for key, value in asdict(charge).items()}
        for charge in recovery.charges
    ]
    return {"missing": recovery.missing, "charges": charges}


def _show_recovery(recovery: Recovery, shown: Sequence[Shown], without: Sequence[str]) -> None:
    for answer in shown:
        newest = answer.newest.sequence if answer.newest else 0
        console.print_line(
            f"aggregator {answer.aggregator}: {len(answer.releases)} releases, "
            f"the ledger up to entry {newest}"
        )
        if answer.newest is not None and not answer.proved:
            console.note(
                f"warning: {answer.aggregator} has that entry under a signature this owner does not know"
            )
    for name in without:
        console.note(f"warning: {name} is not asked; only what the ledger has reserved there is charged")
    console.print_line(f"lost entries: {recovery.missing}")
    columns = ("budget", "charge", "delta", "aggregator", "release", "plan", "own signature")
    rows = [
        (
            *(charge.budget, charge.charge, charge.delta, charge.aggregator, charge.release),
            *(charge.plan_digest[:12], charge.proved),
        )
        for charge in recovery.charges
    ]
    console.table("Charged in full", columns, rows)


def _question(recovery: Recovery, stated: dict[str, StatedCharge], *, exhaust: bool) -> str:
    parts = [f"{len(recovery.charges)} releases"]
    for name, (epsilon, delta) in stated.items():
        amount = cost_text(epsilon, delta) if delta else bound_text(epsilon)
        parts.append(f"{amount} to budget {name!r}")
    parts += ["all ε and δ that are then left of every budget"] if exhaust else []
    return f"Charge {', '.join(parts)}, end every session under way, and continue?"


app = typer.Typer(
    help="Show the ledger; record decisions about budgets; recover lost entries.",
    invoke_without_command=True,
)
app.command()(budget)
app.command("return")(give_back)
app.command()(recover)

DatasetOption = Annotated[
    str | None, typer.Option("--dataset", help="Only the budget of this data set.", show_default=False)
]
BudgetOption = Annotated[str | None, typer.Option("--budget", help="Only this budget.", show_default=False)]
VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Check the hash chains of ledger and history, and every session.")
]


@app.callback()
def ledger(
    context: typer.Context,
    config_file: console.ConfigOption = None,
    dataset: DatasetOption = None,
    budget: BudgetOption = None,
    verify: VerifyOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Show the ledger and what is left of every budget. Works with or without the daemon."""
    if context.invoked_subcommand is not None:
        if config_file or dataset or budget or verify or as_json:
            raise UsageError(
                "options of owner-node ledger stand before a command of it",
                "write them behind: owner-node ledger recover --config FILE",
            )
        return
    owner = config.load(config_file)
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        book = Ledger(db, utc_now)
        chosen = _budget_name(owner, book, dataset, budget)
        if verify:
            _verify(db, book)
        lines, head, halted = book.lines(chosen), book.head(), book.losses.reason()
        left = balances(owner, book, None if chosen is None else [chosen])
        local = {} if as_json else _local_work(db)
        warnings = ledger_warnings(owner, book)
    if as_json:
        document: dict[str, Any] = {
            "entries": [{**asdict(entry), "kind": str(entry.kind)} for entry in lines],
            "balances": left,
            "head": {"sequence": head.sequence, "hash": head.hash},
            "halted": None if halted is None else halted.message,
            "warnings": warnings,
        }
        console.print_json({**document, "verified": True} if verify else document)
        return
    for warning in warnings:
        console.note(f"warning: {warning}")
    _show(lines, local)
    show_balances(left)
    if verify:
        console.print_line(f"ledger and history hold: {head.sequence} ledger entries, head {head.hash}")


def _budget_name(owner: OwnerConfig, book: Ledger, dataset: str | None, budget: str | None) -> str | None:
    if dataset is not None and budget is not None:
        raise UsageError("--dataset and --budget exclude each other", "name one of the two")
    if dataset is not None:
        return owner.dataset(dataset).budget
    if budget is not None:
        check_known(owner, book, budget)
    return budget


def _verify(db: OwnerDatabase, book: Ledger) -> None:
    """Check both chains, and by history and sessions that their newest entries were not cut off."""
    book.verify()
    History(db, utc_now).verify()
    book.verify_history()
    spent = {(e.aggregator, e.release, e.plan_digest) for e in book.entries() if e.kind is EntryKind.SPEND}
    for session in Sessions(db, utc_now).all():
        if (
            session.state in CHARGED
            and (session.aggregator, session.release, session.plan_digest) not in spent
        ):
            raise IntegrityError(
                f"the ledger lacks the spend of release {session.release!r}",
                "its newest entries were cut off: find out by whom, then owner-node ledger recover",
                {"chain": "ledger", "entry": book.head().sequence + 1, "release": session.release},
            )


def _local_work(db: OwnerDatabase) -> dict[str, str]:
    """Return a description of each local charge, by its id."""
    kinds = {}
    for line in History(db, utc_now).entries(LOCAL, event="spent"):
        asked = line.details.get("asked", {})
        kinds[line.release] = " ".join(filter(None, (asked.get("kind"), asked.get("question"))))
    return kinds


def _show(lines: tuple[Entry, ...], local: dict[str, str]) -> None:
    columns = (
        "entry",
        "time",
        "kind",
        "budget",
        "aggregator",
        "release",
        "charge",
        "rank loss",
        "delta",
        "note",
    )
    rows = [
        (
            *(e.sequence, moment_text(e.time, seconds=True), str(e.kind)),
            *(e.budget or None, e.aggregator or None, e.release or None),
            *(
                bound_cell(e.charge) if e.release else None,
                bound_cell(e.rank_loss, ""),
                delta_text(e.delta) if e.delta else None,
                _note(e, local) or None,
            ),
        )
        for e in lines
    ]
    console.table("Ledger (epsilon)", columns, rows)


def _note(entry: Entry, local: dict[str, str]) -> str:
    """Return the note of an entry in short; digests of columns and lost heads are only in `--json`."""
    said = [f"{key} {entry.note[key]}" for key in ("total", "reason", "round") if key in entry.note]
    if entry.kind is EntryKind.RECOVER:
        lost = [head["sequence"] for head in entry.note.get("lost", [])]
        said.append(f"lost up to entry {lost[-1]}" if lost else "nothing lost")
    if entry.accounting:
        said.append(entry.accounting)
    if entry.plan_digest:
        what = local.get(entry.release, "") if entry.aggregator == LOCAL else "plan"
        said.append(f"{what or 'local work'} {entry.plan_digest[:12]}")
    return ", ".join(said)
