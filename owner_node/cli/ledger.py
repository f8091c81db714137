"""`owner-node ledger`: what every release charged, and what is left."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from common import console
from common.errors import IntegrityError, UsageError
from owner_node import config
from owner_node.cli.budgets import balances, show_balances
from owner_node.config import OwnerConfig
from owner_node.database import Database
from owner_node.history import History
from owner_node.ledger import Entry, Kind, Ledger
from owner_node.session import CHARGED
from owner_node.sessions import Sessions

DatasetOption = Annotated[
    str | None, typer.Option("--dataset", help="Only the budget of this data set.", show_default=False)
]
BudgetOption = Annotated[str | None, typer.Option("--budget", help="Only this budget.", show_default=False)]
VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Check the hash chains of ledger and history, and every session.")
]


def ledger(
    config_file: console.ConfigOption = None,
    dataset: DatasetOption = None,
    budget: BudgetOption = None,
    verify: VerifyOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Show the ledger and what is left of every budget. Works with or without the daemon."""
    owner = config.load(config_file)
    with Database(owner.owner.state_dir, make=False) as db:
        book = Ledger(db, _now)
        chosen = _chosen(owner, book, dataset, budget)
        if verify:
            _verify(db, book)
        entries, head = book.entries(chosen), book.head()
        left = balances(owner, book, None if chosen is None else [chosen])
    if as_json:
        document: dict[str, Any] = {
            "entries": [_document(entry) for entry in entries],
            "balances": left,
            "head": {"sequence": head.sequence, "hash": head.hash},
        }
        console.print_json({**document, "verified": True} if verify else document)
        return
    if not (owner.owner.state_dir / "owner.db").is_file():
        console.note(f"there is no ledger in {owner.owner.state_dir} yet: is state_dir the right one?")
    _show(entries)
    show_balances(left)
    if verify:
        console.print_line(f"ledger and history hold: {head.sequence} ledger entries, head {head.hash}")


def _now() -> datetime:
    return datetime.now(UTC)


def _chosen(owner: OwnerConfig, book: Ledger, dataset: str | None, budget: str | None) -> str | None:
    if dataset is not None and budget is not None:
        raise UsageError("--dataset and --budget exclude each other", "name one of the two")
    if dataset is not None:
        return owner.dataset(dataset).budget
    known = sorted({each.budget for each in owner.datasets} | {entry.budget for entry in book.entries()})
    if budget is not None and budget not in known:
        hint = f"known budgets: {', '.join(known)}" if known else "no data set is declared"
        raise UsageError(f"there is no budget {budget!r}", hint, {"budget": budget, "known": known})
    return budget


def _verify(db: Database, book: Ledger) -> None:
    """Check both chains; then the sessions, which show if the newest entries were cut off."""
    book.verify()
    History(db, _now).verify()
    spent = {(e.aggregator, e.release, e.plan_digest) for e in book.entries() if e.kind is Kind.SPEND}
    for session in Sessions(db, _now).all():
        if (
            session.state in CHARGED
            and (session.aggregator, session.release, session.plan_digest) not in spent
        ):
            raise IntegrityError(
                f"the ledger lacks the spend of release {session.release!r}",
                "its newest entries were cut off: restore the newest backup and find out by whom",
                {"chain": "ledger", "entry": book.head().sequence + 1, "release": session.release},
            )


def _document(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "kind": str(entry.kind)}


def _show(entries: tuple[Entry, ...]) -> None:
    columns = ("entry", "time", "kind", "budget", "aggregator", "release", "charge", "accounting", "plan")
    rows = [
        (e.sequence, e.time, str(e.kind), e.budget, e.aggregator, e.release, e.charge, e.accounting,
         e.plan_digest[:12])
        for e in entries
    ]  # fmt: skip
    console.table("Ledger (epsilon)", columns, rows)
