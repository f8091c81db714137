"""`owner-node ledger`: what every release charged, and what is left."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from common import console
from common.errors import IntegrityError, UsageError
from common.shown_bounds import bound_cell
from owner_node import config
from owner_node.cli import ledger_budget, ledger_recover
from owner_node.cli.budgets import balances, note_raised, show_balances
from owner_node.config import OwnerConfig
from owner_node.ledger.ledger import Entry, Kind, Ledger
from owner_node.local.charge import LOCAL
from owner_node.state.database import Database
from owner_node.state.history import History
from owner_node.state.session import CHARGED
from owner_node.state.sessions import Sessions

app = typer.Typer(
    help="Show the ledger; record another total of a budget; recover lost entries.",
    invoke_without_command=True,
)
app.command()(ledger_budget.budget)
app.command()(ledger_recover.recover)

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
        _check_alone(config_file, dataset, budget, verify=verify, as_json=as_json)
        return
    owner = config.load(config_file)
    with Database(owner.owner.state_dir, make=False) as db:
        book = Ledger(db, _now)
        chosen = _chosen(owner, book, dataset, budget)
        if verify:
            _verify(db, book)
        lines, head, halted = book.lines(chosen), book.head(), book.halt.reason()
        left = balances(owner, book, None if chosen is None else [chosen])
        local = {} if as_json else _local_work(db)
        if not as_json:
            note_raised(owner, book)
    if as_json:
        document: dict[str, Any] = {
            "entries": [_document(entry) for entry in lines],
            "balances": left,
            "head": {"sequence": head.sequence, "hash": head.hash},
            "halted": None if halted is None else halted.message,
        }
        console.print_json({**document, "verified": True} if verify else document)
        return
    if not (owner.owner.state_dir / "owner.db").is_file():
        console.note(f"there is no ledger in {owner.owner.state_dir} yet: is state_dir the right one?")
    if halted is not None:
        console.note(f"no work is done: {halted.message}; {halted.hint}")
    _show(lines, local)
    show_balances(left)
    if verify:
        console.print_line(f"ledger and history hold: {head.sequence} ledger entries, head {head.hash}")


def _now() -> datetime:
    return datetime.now(UTC)


def _check_alone(
    config_file: object, dataset: object, budget: object, *, verify: bool, as_json: bool
) -> None:
    if config_file or dataset or budget or verify or as_json:
        raise UsageError(
            "options of owner-node ledger stand before a command of it",
            "write them behind: owner-node ledger recover --config FILE",
        )


def _chosen(owner: OwnerConfig, book: Ledger, dataset: str | None, budget: str | None) -> str | None:
    if dataset is not None and budget is not None:
        raise UsageError("--dataset and --budget exclude each other", "name one of the two")
    if dataset is not None:
        return owner.dataset(dataset).budget
    if budget is not None:
        ledger_budget.check_known(owner, book, budget)
    return budget


def _verify(db: Database, book: Ledger) -> None:
    """Check both chains; then what shows if their newest entries were cut off: ledger and sessions."""
    book.verify()
    History(db, _now).verify()
    book.verify_history()
    spent = {(e.aggregator, e.release, e.plan_digest) for e in book.entries() if e.kind is Kind.SPEND}
    for session in Sessions(db, _now).all():
        if (
            session.state in CHARGED
            and (session.aggregator, session.release, session.plan_digest) not in spent
        ):
            raise IntegrityError(
                f"the ledger lacks the spend of release {session.release!r}",
                "its newest entries were cut off: find out by whom, then owner-node ledger recover",
                {"chain": "ledger", "entry": book.head().sequence + 1, "release": session.release},
            )


def _document(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "kind": str(entry.kind)}


def _local_work(db: Database) -> dict[str, str]:
    """Return what was charged here without a release, by its id."""
    found = {}
    for line in History(db, _now).entries(LOCAL, event="spent"):
        asked = line.details.get("asked", {})
        found[line.release] = " ".join(filter(None, (asked.get("kind"), asked.get("question"))))
    return found


def _show(lines: tuple[Entry, ...], local: dict[str, str]) -> None:
    columns = ("entry", "time", "kind", "budget", "aggregator", "release", "charge", "rank loss", "note")
    rows = [
        (
            *(e.sequence, e.time, str(e.kind), e.budget or None, e.aggregator or None, e.release or None),
            *(e.charge if e.release else None, bound_cell(e.rank_loss, ""), _note(e, local) or None),
        )
        for e in lines
    ]
    console.table("Ledger (epsilon)", columns, rows)


def _note(entry: Entry, local: dict[str, str]) -> str:
    """Return what else an entry says, in short; digests of columns and lost heads are for `--json`."""
    said = [f"{key} {entry.note[key]}" for key in ("total", "reason") if key in entry.note]
    if entry.kind is Kind.RECOVER:
        lost = [each["sequence"] for each in entry.note.get("lost", [])]
        said.append(f"lost up to entry {lost[-1]}" if lost else "nothing lost")
    if entry.accounting:
        said.append(entry.accounting)
    if entry.plan_digest:
        what = local.get(entry.release, "") if entry.aggregator == LOCAL else "plan"
        said.append(f"{what or 'local work'} {entry.plan_digest[:12]}")
    return ", ".join(said)
