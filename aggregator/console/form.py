"""The form for a new release: its fields as texts, and the request that they make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aggregator.control.asking import start_request
from common.model.plan import Layout
from common.planning.arguments import ARGUMENTS, FORMATS, Argument, Kind
from common.planning.names import join_names, split_names
from common.wire.v1.control_pb2 import StartRequest

_NO_TEXT = ("owners", "formats", "out")
"""Arguments without a text of their own: owners and formats are ticked one by one, a copy is not offered."""
_TEXTS = [name for name, arg in ARGUMENTS.items() if arg.kind is not Kind.FLAG and name not in _NO_TEXT]
_FLAGS = [name for name, arg in ARGUMENTS.items() if arg.kind is Kind.FLAG]
_PLACED = frozenset(
    {
        "dataset",
        "layout",
        "product",
        "epsilon",
        "delta",
        "attributes",
        "purpose",
        "permit",
        "duo",
        "groups",
        "release",
    }
)
"""Arguments that the page shows where they matter; it lists the others below each other."""
_OWNER, _FORMAT, _ATTRIBUTE = "owner:", "format:", "attribute:"
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")
_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of the form."""

    texts: Mapping[str, str]
    """Fields with a text, by name."""
    owners: frozenset[str]
    """Owners that are ticked."""
    formats: frozenset[str]
    """Data formats that are ticked."""
    flags: frozenset[str] = frozenset()
    """Other arguments that are ticked, by name."""
    trial: bool = False
    plan_only: bool = False
    """Whether to stop at the plan."""

    @property
    def attributes(self) -> frozenset[str]:
        """Names of the attributes that are chosen; empty for all."""
        return frozenset(split_names(self.texts["attributes"]))

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """How each argument is stated."""
        return ARGUMENTS

    @property
    def listed(self) -> Sequence[str]:
        """Names of the texts without a place of their own on the page."""
        return [name for name in _TEXTS if name not in _PLACED]

    @property
    def offered_flags(self) -> Sequence[str]:
        """Names of the arguments that can be ticked."""
        return _FLAGS


def fitting_groups(schemas: Mapping[str, Mapping[str, Any]]) -> tuple[Layout, str]:
    """Return the layout that fits what owners hold, and for a mixed one the owners by group.

    Returns:
        Vertical or mixed where groups of owners hold different attributes altogether, and can be linked; else
        horizontal, as the groups are "": the same attributes, or some of them, of different records.
    """
    groups: dict[frozenset[str], list[str]] = {}
    for owner, schema in schemas.items():
        names = frozenset(attribute["name"] for attribute in schema["attributes"])
        groups.setdefault(names, []).append(owner)
    n_names = len(frozenset().union(*groups))
    apart = len(groups) > 1 and sum(map(len, groups)) == n_names
    if not apart or not all(schema["identifier"] for schema in schemas.values()):
        return Layout.HORIZONTAL, ""
    if all(len(owners) == 1 for owners in groups.values()):
        return Layout.VERTICAL, ""
    return Layout.MIXED, ";".join(",".join(sorted(owners)) for owners in groups.values())


def empty_form(
    dataset: str, day: str, mark: str, layout: Layout = Layout.HORIZONTAL, groups: str = ""
) -> Form:
    """Return a form with the usual choices.

    Args:
        day: The day, such as "2026-03-01".
        mark: Some random letters or digits, so that the suggested id is a new one. A form that is sent twice
            then starts one release.
    """
    name = "".join(letter if letter in _NAME_LETTERS else "-" for letter in dataset.lower())[:_LONGEST_NAME]
    texts = {name: str(next(iter(ARGUMENTS[name].choices), "")) for name in _TEXTS}
    texts |= {"dataset": dataset, "release": f"{day}-{name}-{mark}", "layout": str(layout), "groups": groups}
    return Form(texts, frozenset(), frozenset(FORMATS))


def form_values(sent: Mapping[str, str]) -> Form:
    """Read a form that was sent; a field that is not there is empty.

    Attributes that are ticked come before those that are named: the columns have their order.
    """
    texts = {name: sent.get(name, "").strip() for name in _TEXTS}
    ticked = [name.removeprefix(_ATTRIBUTE) for name in sent if name.startswith(_ATTRIBUTE)]
    named = split_names(texts["attributes"])
    texts["attributes"] = join_names(dict.fromkeys([*ticked, *named]))
    return Form(
        texts,
        frozenset(name.removeprefix(_OWNER) for name in sent if name.startswith(_OWNER)),
        frozenset(name.removeprefix(_FORMAT) for name in sent if name.startswith(_FORMAT)),
        frozenset(name for name in _FLAGS if name in sent),
        trial="trial" in sent,
        plan_only=sent.get("what", "plan") == "plan",
    )


def request_of(form: Form) -> StartRequest:
    """Return the request of a form; the daemon checks it as it checks that of the command line.

    A release waits for its plan to be confirmed.
    """
    mixed = form.texts["layout"] == Layout.MIXED
    texts: dict[str, Any] = {name: text for name, text in form.texts.items() if name != "groups"}
    texts |= dict.fromkeys(form.flags, True)
    return start_request(
        **texts,
        owners="" if mixed else ",".join(sorted(form.owners)),
        groups=form.texts["groups"] if mixed else "",
        formats=",".join(sorted(form.formats)),
        trial=form.trial,
        dry_run=form.plan_only,
    )
