"""The numbers and sentences of a manifest that follow from what was signed.

The manifest shows them to people; verification computes them again and compares, so that what a manifest
shows is what the owners signed.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from common import __version__
from common.model.events import EventTable
from common.model.fragment import Addendum, multiples_of, n_records
from common.model.plan import Plan
from common.model.privacy import total, total_or_unbounded
from common.model.rounds import FIRST_COUNTED
from common.model.task import Task
from common.release.evidence import Evidence
from common.release.table import RECORD_COLUMN, events_schema, release_schema
from common.words.guarantee import composition, invariants, promise_as_linked, promises


def summary(plan: Plan, addendum: Addendum) -> dict[str, Any]:
    """Return owners (with ε, ε_joint, k, records, attributes), totals and schema of a release.

    Where the plan lets owners hold the same person, the totals are those of a person as linking found it.
    """
    multiples = multiples_of(plan, addendum)
    return {
        "owners": [_owner(addendum, assignment.tasks) for assignment in plan.assignments.values()],
        "totals": {
            "records": n_records(plan, addendum),
            "attributes": len(plan.released),
            "owners": len(plan.owners),
            "epsilon": plan.epsilon,
            **({"delta": plan.delta} if plan.delta else {}),
            "epsilon_joint": plan.epsilon_joint_of_person(multiples),
            **({"epsilon_person": plan.epsilon_of_person(multiples)} if addendum.multiples else {}),
            **({"epsilon_table": plan.epsilon_table_of_person(multiples)} if plan.has_rank_noise else {}),
        },
        "schema": _schema(plan),
        **({} if plan.events is None else {"events": _events(plan.events)}),
    }


def _owner(addendum: Addendum, tasks: Sequence[Task]) -> dict[str, Any]:
    owner = tasks[0].owner
    return {
        "id": owner,
        "records": addendum.records[owner],
        "epsilon": total(task.epsilon for task in tasks),
        "epsilon_joint": total_or_unbounded(task.epsilon_joint for task in tasks),
        **_of_ranks(tasks),
        "k": min((a.k for task in tasks for a in task.attributes if a.k is not None), default=None),
        "attributes": [document for task in tasks for document in _attributes(task)],
    }


def _of_ranks(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the bound on who has which value, where there is rank noise."""
    if not any(task.has_rank_noise for task in tasks):
        return {}
    return {
        "epsilon_table": total_or_unbounded(task.epsilon_table for task in tasks),
        "rank_loss": total_or_unbounded(task.rank_loss for task in tasks),
    }


def _attributes(task: Task) -> list[dict[str, Any]]:
    if task.modelled is not None:
        return [{"name": name, "group": task.group} for name in task.names]
    return [{**attribute.to_document(), "group": task.group} for attribute in task.attributes]


def _schema(plan: Plan) -> list[dict[str, Any]]:
    types = release_schema(plan)
    return [
        {"name": RECORD_COLUMN, "column": str(types.field(RECORD_COLUMN).type)},
        *({**a.to_document(), "column": str(types.field(a.name).type)} for a in plan.columns),
    ]


def _events(events: EventTable) -> dict[str, Any]:
    types = events_schema(events)
    return {
        "at_most": events.at_most,
        "schema": [{**a.to_document(), "column": str(types.field(a.name).type)} for a in events.columns],
    }


FORMAT = 1
"""Version of the manifest's form."""


def manifest_document(
    evidence: Evidence, aggregator_certificates: str, published: datetime
) -> dict[str, Any]:
    """Return the manifest, still without the digests of the files."""
    plan, addendum = evidence.plan, evidence.addendum
    derived = summary(plan, addendum)
    guarantee, not_hidden = stated_promises(evidence)
    return {
        "format": FORMAT,
        "release": plan.release,
        "version": __version__,
        "layout": str(plan.layout),
        "purpose": plan.purpose,
        "times": {"planned": plan.created, "published": published.isoformat(timespec="seconds")},
        "totals": derived["totals"],
        "composition": composition(plan),
        "guarantee": guarantee,
        "invariants": not_hidden,
        **{key: derived[key] for key in ("schema", "events") if key in derived},
        "owners": [{**owner, **evidence.owners[owner["id"]].to_document()} for owner in derived["owners"]],
        "aggregator": {"id": plan.aggregator, "certificates": aggregator_certificates},
        "plan": evidence.plan_signed.to_document(plan),
        "addendum": evidence.addendum_signed.to_document(addendum),
        **of_synthesis(evidence),
    }


def of_synthesis(evidence: Evidence) -> dict[str, Any]:
    """Return how the records of a synthetic release were made, and what its rounds were opened with."""
    synthesis, rounds = evidence.plan.synthesis, evidence.rounds
    if synthesis is None:
        return {}
    return {
        "product": str(evidence.plan.product),
        "synthesis": {
            **synthesis.to_document(),
            "epsilon": evidence.plan.epsilon,
            "rounds": len(rounds) - FIRST_COUNTED,
            "relations": [list(pair) for pair in evidence.plan.counted_pairs],
        },
        "rounds": [signed.to_document(document) for document, signed in rounds],
    }


def stated_promises(evidence: Evidence) -> tuple[list[str], list[str]]:
    """Return what follows from what was signed: the sentences of the guarantee, and of the invariants."""
    plan, multiples = evidence.plan, evidence.addendum.multiples
    as_linked = [promise_as_linked(plan, multiples)] if multiples else []
    return [*promises(plan), *as_linked], list(invariants(plan))
