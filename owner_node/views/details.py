"""All about a plan for the person who decides: sections that the command prints and the page shows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from common.cli.brief import PagePart, list_items
from common.cli.console import Cell
from common.cli.sections import Facts, Listing, Section, SectionTable
from common.model.products import Product
from common.words.numbers import (
    OF_UNIFORM,
    OF_YOUR_DATA,
    bound_cell,
    bound_text,
    cost_text,
    delta_text,
    error_text,
    left_text,
    moment_text,
    number_text,
    percent_text,
)
from owner_node.loading.advice import left_out_lines
from owner_node.release.request_view import shown_records
from owner_node.views.verdict import attack_rows


def plan_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the facts about a plan, then its attributes, co-owners, promises and what is not hidden.

    Args:
        document: From `owner_node.views.plan.plan_document`; only facts if a plan is not made, or not kept.
    """
    if "attributes" not in document:
        return [Facts(_decision(document))]
    product = _PRODUCTS[document["product"]]
    return [
        Facts({**_decision(document), **_facts(document, product.bounds(document))}),
        *product.sections(document),
        Listing("What loading left out", [line.strip() for line in left_out_lines(document["left_out"])]),
        _co_owners(document),
        Listing("What linking may find", document["linking"]),
        Listing("What linking found", document["linking_found"]),
        Listing("What leaves this owner, in order", document["leaves"]),
        Listing("What is promised", document["promises"]),
        Listing("What is not hidden", document["invariants"]),
        Facts({"plan digest": document["plan_digest"]}),
    ]


def _decision(document: Mapping[str, Any]) -> dict[str, object]:
    approval, needed, approved = document["approval"], document["approvers"], ""
    if approval:
        ended = "" if approval["valid"] else " (ended)"
        several = f"; {len(document['approved_by'])} of {needed} persons" if needed > 1 else ""
        approved = f"by {approval['by']} until {moment_text(approval['until'])}{ended}{several}"
    return {
        "asked by rule": document["rule"],
        "reason": document["reason"],
        "approved": approved,
        "purpose": document["purpose"],
        "data permit": document.get("permit"),
        "conditions of use": ", ".join(document.get("conditions", ())),
        "data set": document["dataset"],
    }


def _facts(document: Mapping[str, Any], bounds: Mapping[str, object]) -> dict[str, object]:
    return {
        "records": shown_records(document["records"]),
        "others see": f"at least {document['records']['rounded']:,}",
        "records of one person, at most": document["max_records_per_person"],
        "layout": document["layout"],
        "asked by the aggregator on": moment_text(document["created"]),
        "to be answered until": document["deadline"] and moment_text(document["deadline"]),
        "ε of the release": bound_text(document["release_epsilon"]),
        **bounds,
        "charge": charge_text(document),
    }


def charge_text(document: Mapping[str, Any]) -> str:
    """Return what a plan is charged, and what that leaves of the budget."""
    if document["charge"] is None:
        return "unbounded under the accounting of this owner's policy"
    amount = cost_text(document["charge"], document["delta"])
    taken = f"{amount} from budget {document['budget']!r} ({document['accounting']} accounting)"
    if document["linking"] and document["charge"] != _own(document):
        taken = f"up to {taken}, as linking finds; {bound_text(_own(document))} where nobody is at two owners"
    if document["state"] not in ("invited", "awaiting_approval") or document["remaining"] is None:
        return taken
    left, after = left_text(document["remaining"]), left_text(document["remaining_after"])
    spent = Decimal(document["balance"]["spent"])
    then = bound_text(spent + Decimal(document["charge"]))
    in_all = f"a person in every release from it has spent {bound_text(spent)} in all, {then} after it"
    return f"{taken}, which has {left} left: {after} after it; {in_all}"


def _own(document: Mapping[str, Any]) -> Any:
    """Return the charge if no person is at two owners, under the owner's accounting."""
    return document["epsilon_joint" if document["accounting"] == "joint" else "epsilon"]


def _co_owners(document: Mapping[str, Any]) -> Section:
    rows = [
        (owner["id"], ", ".join(owner["attributes"]), f"≥ {owner['records_rounded']:,}", owner["known"])
        for owner in document["co_owners"]
    ]
    if not rows:
        return Listing("Co-owners", ["There are none."])
    return SectionTable("Co-owners", ("owner", "attributes", "records", "how it is known"), rows)


def leaving_line(document: Mapping[str, Any]) -> PagePart:
    """Return the attributes that leave with their expected errors, this owner's own where they are known."""
    return _PRODUCTS[document["product"]].leaving(document)


class _Shown(ABC):
    """What is shown of the product of a plan."""

    @abstractmethod
    def bounds(self, document: Mapping[str, Any]) -> dict[str, object]:
        """Return the ε of an owner, and of what."""

    @abstractmethod
    def sections(self, document: Mapping[str, Any]) -> list[Section]:
        """Return what is done to the attributes."""

    @abstractmethod
    def leaving(self, document: Mapping[str, Any]) -> PagePart:
        """Return the attributes that leave."""


class _Masked(_Shown):
    def bounds(self, document: Mapping[str, Any]) -> dict[str, object]:
        joint, table = document["epsilon_joint"], document["epsilon_table"]
        return {
            "ε of this owner": f"{bound_text(document['epsilon'])}, for each released value by itself",
            "ε joint of this owner": _bound(joint, "for whole lists of released values"),
            "ε table of this owner": _bound(table, "for who has which value, too"),
        }

    def sections(self, document: Mapping[str, Any]) -> list[Section]:
        carriers = (f"{attribute['name']}: {attribute['carried_by']}" for attribute in document["attributes"])
        return [
            attribute_table(document["attributes"], document["forecast"]),
            Listing("What carries the values, and why", [document["carrier_rule"], *carriers]),
        ]

    def leaving(self, document: Mapping[str, Any]) -> PagePart:
        if (forecast := document["forecast"]) is None:
            planned = (
                f"{attribute['name']} {error_text(attribute['expected_error'])}"
                for attribute in document["attributes"]
            )
            return list_items(f"leaves, with the expected error ({OF_UNIFORM})", planned)
        errors = (
            attribute["name"]
            + (" " + error_text(Decimal(attribute["error"])) if attribute["error"] else " does not vary")
            for attribute in forecast["attributes"]
        )
        return list_items(f"leaves, with the expected error ({OF_YOUR_DATA})", errors)


class _Synthetic(_Shown):
    def bounds(self, document: Mapping[str, Any]) -> dict[str, object]:
        return {
            "product": "records made of noisy counts",
            "ε of this owner": f"{bound_text(document['epsilon'])}, for the whole record of a person",
            "δ": delta_text(document["delta"]) if document["delta"] else "",
        }

    def sections(self, document: Mapping[str, Any]) -> list[Section]:
        rows = [(each["name"], each["type"], each["domain"]) for each in document["attributes"]]
        return [SectionTable("What is modelled", ("attribute", "type", "domain"), rows)]

    def leaving(self, document: Mapping[str, Any]) -> PagePart:
        return list_items("leaves, as noisy counts of", [each["name"] for each in document["attributes"]])


_PRODUCTS: Mapping[str, _Shown] = {Product.MASKED: _Masked(), Product.SYNTHETIC: _Synthetic()}


def _bound(bound: Decimal | None, what: str) -> str:
    return "not bounded" if bound is None else f"{bound_text(bound)}, {what}"


def attribute_table(attributes: list[dict[str, Any]], forecast: Mapping[str, Any] | None) -> SectionTable:
    """Return how every attribute is masked, with one error each: this owner's own where it is known.

    Args:
        attributes: Name, mechanism, k, rank noise, ε and ε joint of each; type and domain, if these matter.
        forecast: The document of a forecast of masking this owner's data; None if nobody made one.
    """
    own = {attribute["name"]: attribute for attribute in (forecast or {}).get("attributes", ())}
    about = [key for key in ("type", "domain") if key in attributes[0]]

    def cells(attribute: Mapping[str, Any]) -> tuple[Cell, ...]:
        error = Decimal(attribute["expected_error"])
        if not own:
            return (number_text(error),)
        known = own[attribute["name"]]
        error = Decimal(known["error"] or 0)
        text = number_text(error) if known["error"] else "does not vary"
        return text, percent_text(known["unchanged"]), percent_text(known["zero_noise"])

    def is_lost(attribute: Mapping[str, Any]) -> bool:
        return Decimal((own[attribute["name"]]["error"] or 0) if own else attribute["expected_error"]) >= 1

    known_here = " Errors, unchanged and without noise are known only here." if own else ""
    whose = OF_YOUR_DATA if own else f"{OF_UNIFORM}, from public numbers alone"
    return SectionTable(
        "How every attribute is masked",
        (
            "attribute", "error", *(("unchanged", "without noise") if own else ()), *about, "mechanism", "k",
            "rank noise", "ε", "ε joint", "",
        ),
        [
            (
                row["name"], *cells(row), *(row[key] for key in about), row["mechanism"], row["k"],
                row.get("rank_noise"), bound_cell(row["epsilon"]), bound_cell(row["epsilon_joint"]),
                "its mean would do as well" if is_lost(row) else "",
            )
            for row in attributes
        ],
        [f"Error: expected squared error, {whose}. At 1, the attribute's mean is as good.{known_here}"],
    )  # fmt: skip


def attack_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return what attacks found, and how masking changes single attributes; empty if nobody tried them.

    Args:
        document: From `owner_node.views.plan.plan_document`.
    """
    attacks = document.get("attacks")
    if not attacks:
        return []
    title = "Every attack, by intruders who know attributes"
    if "problem" in attacks:
        return [Listing(title, [f"This plan was not attacked: {attacks['problem']}."])]
    n_others, bare = attacks["others_attributes"], attacks["risks_without_rank_noise"]
    of_bare = ("without rank noise",) if bare else ()
    found = SectionTable(
        f"{title}{' of this owner' if n_others else ''} of everybody; known only here",
        ("attack", "right about", "without the release", "what it means", *of_bare, "from", "to"),
        [
            (
                row["name"],
                percent_text(row["share"]),
                percent_text(row["without"]),
                row["means"],
                *((_share(row["without_rank_noise"]),) if bare else ()),
                percent_text(row["low"]),
                percent_text(row["high"]),
            )
            for row in attack_rows(attacks)
        ],
        [
            "Tried on this owner's data, with noise drawn for this only.",
            "“Right about” is the share of targets; from and to is its 95 % confidence interval.",
            *_remarks(attacks),
        ],
    )
    changed = [
        (
            distortion["name"],
            distortion["mean"] and f"{distortion['mean']['before']:.4g} → {distortion['mean']['after']:.4g}",
            distortion["zeros"] and _change(distortion["zeros"]),
            distortion["most_frequent"]["value"],
            _change(distortion["most_frequent"]),
            "distorted" if distortion["distorted"] else "",
        )
        for distortion in attacks["distortions"]
    ]
    title = "How masking changes single attributes, averaged over a few draws"
    columns = ("attribute", "mean", "zeros", "most frequent value", "its share", "")
    return [found, SectionTable(title, columns, changed)]


def _share(share: float | None) -> str:
    return "" if share is None else percent_text(share)


def _change(share: Mapping[str, Any]) -> str:
    return f"{percent_text(share['before'])} → {percent_text(share['after'])}"


def _remarks(attacks: Mapping[str, Any]) -> Iterator[str]:
    if attacks["sampled"]:
        yield f"{attacks['sampled']}."
    if n_others := attacks["others_attributes"]:
        yield (
            f"The other owners have {n_others} more attributes of the same people in this release: anyone "
            "who also knows those finds more."
        )
    n_inferred = sum(risk["attack"] == "inference" for risk in attacks["risks"])
    if 0 < n_inferred < attacks["attributes"]:
        yield f"Guessing was tried for {n_inferred} of {attacks['attributes']} attributes, chosen at random."
