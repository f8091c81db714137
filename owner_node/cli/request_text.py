"""A plan in words, for the person who decides about it."""

from decimal import Decimal
from typing import Any

from common import console
from common.shown_bounds import bound_cell, bound_text
from owner_node.cli.request_preview import show_preview
from owner_node.consent.request_view import shown_records


def show_request(document: dict[str, Any]) -> None:
    """Print what would leave, what it would charge, what is promised and what is not."""
    console.print_line(
        f"release {document['release']} of aggregator {document['aggregator']}: {document['state']}"
    )
    _fields(document)
    if "attributes" not in document:
        return
    console.print_line()
    _attributes(document)
    _forecast(document["forecast"])
    show_preview(document.get("preview"))
    for title, key in (("What linking may find", "linking"), ("What linking found", "linking_found")):
        if document[key]:
            _list(title, document[key])
    _list("What leaves this owner", document["leaves"])
    _co_owners(document)
    _list("What is promised", document["promises"])
    _list("What is not hidden", document["invariants"])
    console.print_line()
    console.print_line(f"plan digest: {document['plan_digest']}")
    if document["state"] == "awaiting_approval":
        name = f"{document['aggregator']}/{document['release']}"
        console.print_line(f"to agree:  owner-node approve {name} --digest {document['plan_digest'][:12]}")
        console.print_line(f"to refuse: owner-node refuse {name} --reason TEXT")


def _fields(document: dict[str, Any]) -> None:
    approval = document["approval"]
    fields: dict[str, object] = {
        "asked by rule": document["rule"],
        "reason": document["reason"],
        "approved": ""
        if approval is None
        else f"by {approval['by']} until {approval['until']}" + ("" if approval["valid"] else " (ended)"),
        "purpose": document["purpose"],
        "data set": document["dataset"],
    }
    if "attributes" in document:
        fields |= {
            "records": shown_records(document["records"]),
            "layout": document["layout"],
            "asked by the aggregator on": document["created"],
            "to be answered until": document["deadline"],
            "ε of the release": f"{document['release_epsilon']:f}",
            "ε of this owner": f"{bound_text(document['epsilon'])}, for each released value by itself",
            "ε joint of this owner": _joint(document["epsilon_joint"]),
            "ε table of this owner": _table(document["epsilon_table"]),
            "charge": _charge(document),
        }
    width = max(map(len, fields))
    for name, value in fields.items():
        if value not in ("", None):
            console.print_line(f"  {name:{width}}  {value}")


def _joint(bound: Any) -> str:
    return "not bounded" if bound is None else f"{bound_text(bound)}, for whole lists of released values"


def _table(bound: Any) -> str:
    return "not bounded" if bound is None else f"{bound_text(bound)}, for who has which value, too"


def _charge(document: dict[str, Any]) -> str:
    if document["charge"] is None:
        return "none that the accounting of this owner's policy knows"
    taken = f"{document['charge']:f} from budget {document['budget']!r} ({document['accounting']} accounting)"
    if document["linking"] and document["charge"] != _own(document):
        taken = f"up to {taken}, as linking finds; {_own(document):f} where nobody is at two owners"
    if document["state"] not in ("invited", "awaiting_approval") or document["remaining"] is None:
        return taken
    return f"{taken}, which has {document['remaining']:f} left: {document['remaining_after']:f} after it"


def _own(document: dict[str, Any]) -> Any:
    """Return what is charged where nobody is shared, as the owner's accounting counts."""
    return document["epsilon_joint" if document["accounting"] == "joint" else "epsilon"]


def _attributes(document: dict[str, Any]) -> None:
    columns = (
        "attribute", "type", "domain", "mechanism", "k", "rank noise", "ε", "ε joint", "expected error"
    )  # fmt: skip
    keys = ("name", "type", "domain", "mechanism", "k", "rank_noise")
    rows = [
        (
            *(each[key] for key in keys),
            bound_cell(each["epsilon"]),
            bound_cell(each["epsilon_joint"]),
            f"{each['expected_error']:.3g}",
        )
        for each in document["attributes"]
    ]
    console.table("How every attribute is masked", columns, rows)
    console.print_line(f"What carries the values, and why. {document['carrier_rule']}")
    for each in document["attributes"]:
        console.print_line(f"- {each['name']}: {each['carried_by']}")
    console.print_line(
        "The expected error is the aggregator's own figure from public numbers: a share of the variance of "
        "values spread evenly over the domain; 1 means that the attribute's mean would do as well."
    )


def _forecast(forecast: dict[str, Any] | None) -> None:
    """Print what masking is expected to do to this owner's own data; the aggregator learns nothing of it."""
    if forecast is None:
        return
    console.print_line()
    console.table(
        "What is expected of this owner's data, before any noise is drawn; known only here",
        ("attribute", "error", "leaves unchanged", "without noise", ""),
        [
            (
                each["name"], each["error"] and _number(each["error"]), _percent(each["unchanged"]),
                _percent(each["zero_noise"]),
                "its mean would do as well" if each["error"] and Decimal(each["error"]) >= 1 else "",
            )
            for each in forecast["attributes"]
        ],
    )  # fmt: skip
    values, whole = _percent(forecast["unchanged_values"]), _percent(forecast["unchanged_records"])
    sse, of_means = _number(forecast["mean_sse"]), _number(forecast["mean_sse_of_means"])
    console.print_line("An error is a share of that of the attribute's mean. All attributes together:")
    console.print_line(f"{values} of values and {whole} of whole records are expected to leave unchanged;")
    console.print_line(f"mean SSE {sse}; with every value replaced by its mean it would be {of_means}.")


def _number(text: str) -> str:
    return f"{Decimal(text):.3g}"


def _percent(text: str) -> str:
    return f"{Decimal(text) * 100:.3g} %"


def _co_owners(document: dict[str, Any]) -> None:
    console.print_line()
    rows = [
        (each["id"], ", ".join(each["attributes"]), f"≥ {each['records_told']:,}", each["known"])
        for each in document["co_owners"]
    ]
    if rows:
        console.table("Co-owners", ("owner", "attributes", "records", "how it is known"), rows)
    else:
        console.print_line("There are no co-owners.")


def _list(title: str, lines: list[str]) -> None:
    console.print_line()
    console.print_line(title)
    for line in lines:
        console.print_line(f"- {line}")
