"""The table of budgets that `owner-node status` and `owner-node ledger` print."""

from typing import Any

from common.cli import console
from common.words.numbers import bound_cell, delta_text, left_cell


def show_balances(documents: list[dict[str, Any]]) -> None:
    """Print balances as a table."""
    columns = ("budget", "total", "reserved", "spent", "remaining")
    rows = [
        [
            document["budget"],
            *(
                None if document[key] is None else bound_cell(document[key])
                for key in ("total", "reserved", "spent")
            ),
            None if document["remaining"] is None else left_cell(document["remaining"]),
            bound_cell(document["rank_loss"]),
            document["without_rank_loss"],
            delta_text(document["delta"]) if document["delta"] else None,
        ]
        for document in documents
    ]
    console.table("Budgets (epsilon)", (*columns, "rank loss", "charges without bound", "delta"), rows)
