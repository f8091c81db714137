"""`owner-node check --epsilon`: how this owner's policy would decide on a hypothetical release."""

from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from common import __version__
from common.cli import console
from common.cli.sections import show
from common.clock import utc_now
from common.errors import TesseraError, UsageError
from common.model.plan import Layout, Plan
from common.model.privacy import plain
from common.model.schema import Attribute, AttributeType, Schema, derivable
from common.planning.arguments import ReleaseArguments, distinct, parse_arguments, split_groups
from common.planning.names import split, split_names
from common.planning.planner import make_plan
from common.words.essentials import questions
from common.words.linking import allowed_findings
from common.words.numbers import bound_text, cost_text, left_text
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.consent.data_limits import forecast_objections
from owner_node.consent.judge import Accept, Refuse, judge
from owner_node.consent.plan_rules import Request
from owner_node.engines.sampling import sampled
from owner_node.ledger.ledger import Ledger
from owner_node.masking.foreseen import Forecast
from owner_node.release.attempts import Attempts
from owner_node.release.work import product_of
from owner_node.risk.appraisal import foresee
from owner_node.state.database import OwnerDatabase
from owner_node.state.own_keys import OwnKeys
from owner_node.state.sessions import Sessions
from owner_node.views.details import attribute_table


@dataclass(frozen=True, slots=True)
class Hypothetical:
    """A release that was not requested, as far as one owner can describe it."""

    arguments: ReleaseArguments
    """Its arguments. They name no attributes: an owner knows only its own."""
    aggregator: str
    """Name of the aggregator that would request it."""
    attributes: tuple[tuple[str, ...], ...]
    """This owner's attributes in each of its groups; empty: all that may take part, in one group."""


def read_options(
    owner: OwnerConfig,
    dataset: DatasetConfig,
    *,
    layout: str,
    owners: str,
    groups: str,
    aggregator: str,
    attributes: str,
    rank_noise: str,
    **options: Any,
) -> Hypothetical:
    """Read the options of a hypothetical release; `options` are further ones of `parse_arguments`."""
    own, layout = owner.owner.id, layout or Layout.HORIZONTAL
    if not groups and own not in split_names(owners):
        owners = ",".join([own, *split_names(owners)])
    arguments = parse_arguments(
        release="hypothetical",
        dataset=dataset.name,
        layout=layout,
        groups=split_groups(layout, owners, groups),
        rank_noise=split_names(rank_noise),
        **options,
    )
    if own not in arguments.owners:
        raise UsageError(f"{own}, this owner, is in no group", "name it in one: --groups 'a,b;c'")
    if not aggregator and not owner.aggregators:
        raise UsageError("no aggregator is configured", "name one: --aggregator NAME")
    named = tuple(tuple(split_names(names)) for names in split(attributes, ";")) if attributes else ()
    distinct("attribute", [name for group in named for name in group])
    return Hypothetical(arguments, aggregator or owner.aggregators[0].name, named)


def plan_of(asked: Hypothetical, schema: Schema, owner: OwnerConfig) -> Plan:
    """Make the plan that an aggregator would make, as far as it concerns this owner.

    This owner does not know other groups of attributes, so one placeholder attribute stands for each; its own
    share does not depend on them.

    Raises:
        RefusedError: If the policy admits none of its attributes.
    """
    arguments = asked.arguments
    owner.admitted(owner.dataset(arguments.dataset))
    if schema.identifier is None and len(arguments.groups) > 1:
        raise UsageError(
            f"data set {arguments.dataset!r} has no identifier, which several groups of attributes are "
            "aligned on",
            "declare one, or ask about --layout horizontal",
        )
    if schema.identifier is None and arguments.max_overlap > 1:
        raise UsageError(
            "persons at several owners are linked by an identifier, and none is declared",
            "declare one, or leave --max-overlap out",
        )
    mine = [index for index, owners in enumerate(arguments.groups) if owner.owner.id in owners]
    chosen = dict(zip(mine, _attributes_of(asked, schema, len(mine)), strict=True))
    arguments.rank_noise.check_names(attribute.name for group in chosen.values() for attribute in group)
    groups = [
        (owners, chosen.get(index) or (_stand_in(owners),)) for index, owners in enumerate(arguments.groups)
    ]
    schemas = {}
    for each in arguments.owners:
        attributes = tuple(a for owners, held in groups if each in owners for a in held)
        names = {a.name for a in attributes}
        schemas[each] = replace(schema, attributes=attributes, following=derivable(schema.following, names))
    aggregator = f"spiffe://{owner.owner.trust_domain}/aggregator/{asked.aggregator}"
    return make_plan(arguments, schemas, aggregator=aggregator, created="", version=__version__)


def _attributes_of(asked: Hypothetical, schema: Schema, n_groups: int) -> tuple[tuple[Attribute, ...], ...]:
    """Return the attributes in question, in each of this owner's groups."""
    if not asked.attributes and n_groups == 1:
        return (schema.attributes,)
    if len(asked.attributes) != n_groups or not all(asked.attributes):
        raise UsageError(
            f"this owner is in {n_groups} groups, and attributes are named for {len(asked.attributes)}",
            "name those of each of its groups, in their order: --attributes 'a,b;c'",
        )
    unknown = [name for group in asked.attributes for name in group if name not in schema.by_name]
    if unknown:
        raise UsageError(
            f"attributes that do not take part here: {', '.join(unknown)}",
            f"known are {', '.join(schema.by_name)}; policy.attributes limits which may take part",
            {"unknown": unknown},
        )
    return tuple(tuple(schema.by_name[name] for name in group) for group in asked.attributes)


def _stand_in(owners: tuple[str, ...]) -> Attribute:
    return Attribute(f"(attributes of {', '.join(owners)})", AttributeType.INTEGER, 0, 1)


def ask_policy(
    owner: OwnerConfig, dataset: DatasetConfig, schema: Schema, asked: Hypothetical
) -> dict[str, Any]:
    """Return how the policy would decide now; nothing is reserved, sent or counted.

    Raises:
        RefusedError, BalanceError, UnusableDataError: The error of a refusal, with every rule that objects in
            its details.
    """
    plan = plan_of(asked, schema, owner)
    assignment = plan.assignment_of(owner.owner.id)
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        ledger = Ledger(db, utc_now)
        remaining = ledger.balance(dataset.budget, dataset.total_epsilon).remaining
        request = Request(
            plan=plan, assignment=assignment, owner_id=owner.owner.id, aggregator_name=asked.aggregator,
            trust_domain=owner.owner.trust_domain, policy=owner.policy, dataset=dataset, schema=schema,
            balance=remaining, today=utc_now().date(),
            rank_lost=ledger.rank_losses(dataset.budget).bounded,
            delta_spent=ledger.deltas(dataset.budget),
        )  # fmt: skip
        verdict = judge(request)
        if isinstance(verdict, Refuse):
            raise verdict.error
        ledger.check_budget(dataset.budget, dataset.total_epsilon, dataset.origin.place)
        attempts = Attempts(Sessions(db, utc_now), utc_now)
        attempts.check(owner, dataset.budget, asked.aggregator)
        answer = _document(plan, assignment.owner, verdict, remaining)
        if not plan.product.rules.by_record:
            # A model hides no single value, so nothing of it depends on the data that a policy could limit.
            return {"exceeded": [], "delta": plan.delta, "questions": questions(plan), **answer}
        forecast = _forecast(owner, dataset, plan, ledger, OwnKeys(db, utc_now).known_source_key())
    exceeded = forecast_objections(forecast, owner.policy)
    return {"exceeded": exceeded, **answer, "forecast": forecast.to_document()}


def _document(plan: Plan, own: str, verdict: Accept, remaining: Decimal) -> dict[str, Any]:
    assignment = plan.assignment_of(own)
    return {
        "answer": "ask" if verdict.asks else "accept",
        "rule": verdict.asks or 'policy.approval = "auto"',
        "layout": str(plan.layout),
        "linking": list(allowed_findings(plan)),
        "owners": list(plan.owners),
        "epsilon": verdict.epsilon,
        "epsilon_joint": verdict.epsilon_joint,
        "epsilon_table": plan.assignment_of(own).epsilon_table,
        "rank_loss": verdict.rank_loss,
        "accounting": verdict.accounting,
        "charge": verdict.charge,
        "budget": verdict.budget,
        "remaining": remaining,
        "remaining_after": plain(remaining - verdict.charge),
        "attributes": [attribute.to_document() for attribute in assignment.attributes],
    }


def _forecast(
    owner: OwnerConfig, dataset: DatasetConfig, plan: Plan, ledger: Ledger, source_key: bytes | None
) -> "Forecast":
    """Forecast the effect of masking on the data, and check them against the ledger."""
    engine = owner.engine.kind, owner.workspace
    own = plan.assignment_of(owner.owner.id)
    prepared = product_of(plan).prepare(dataset, plan, own, None, source_key, engine)
    with closing(prepared.pinned):
        ledger.check_budget(dataset.budget, dataset.total_epsilon, dataset.origin.place, prepared.known_by)
        return foresee(*sampled(prepared.records, prepared.tasks), owner.policy)[0]


def show_answer(document: dict[str, Any]) -> None:
    """Print how the policy would decide."""
    says = {"accept": "would accept", "ask": "would ask a person about"}[document["answer"]]
    owners = ", ".join(document["owners"])
    console.print_line(f"the policy {says} a {document['layout']} release of {owners}, by {document['rule']}")
    for rule in document["exceeded"]:
        console.print_line(f"the data exceed {rule}")
    after = f"{left_text(document['remaining'])} left, {left_text(document['remaining_after'])} after it"
    console.print_line(
        f"charge {bound_text(document['charge'])} from budget {document['budget']!r} "
        f"({document['accounting']} accounting): {after}"
    )
    for line in document["linking"]:
        console.print_line(line)
    if "forecast" not in document:
        cost = cost_text(document["epsilon"], document["delta"])
        console.print_line(f"synthetic records: {cost} for the whole record of a person")
        console.print_line(document["questions"])
        return
    if loss := Forecast.from_document(document["forecast"]).loss:
        console.print_line(loss)
    show([attribute_table(document["attributes"], document["forecast"])])


def show_refusal(error: TesseraError) -> None:
    """Print every rule that objects; the deciding one follows as the error."""
    rules = error.details.get("rules", [])
    if len(rules) > 1:
        console.print_line("every rule that objects:")
        for rule in rules:
            console.print_line(f"- {rule}")
