"""The view of a plan for the people who decide: attributes, purpose, charge, and what leaves this node."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from common.model.fragment import Addendum
from common.model.mechanisms import CARRIER_RULE
from common.model.permit import condition_texts
from common.model.plan import Plan
from common.model.privacy import charge
from common.model.schema import Attribute, most_records
from common.model.task import Assignment, PlannedAttribute
from common.words.essentials import essentials
from common.words.guarantee import invariants, promises, trusted, words_of
from common.words.linking import allowed_findings, linking_result
from owner_node.config import OwnerConfig, PolicyConfig
from owner_node.state.sessions import Session


def request_view(
    session: Session, plan: Plan, config: OwnerConfig, remaining: Decimal | None
) -> dict[str, Any]:
    """Return what a person needs to decide about a plan, from the plan and this owner's own state.

    Args:
        session: A session that has a plan.
        remaining: What is left of the data set's budget; None if the data set is no longer configured.
    """
    assignment = plan.assignment_of(config.owner.id)
    most = plan.most_multiples
    taken = charge(config.policy.accounting, assignment.epsilon_at(most), assignment.epsilon_joint_at(most))
    # The charge of an accepted plan is already deducted from the balance.
    after = None if remaining is None or taken is None else remaining - taken
    return {
        **_about(session, plan),
        "dataset": assignment.dataset,
        "records": {
            "rounded": assignment.records_rounded,
            "at_most": most_records(assignment.records_rounded),
        }
        | ({} if session.n_records is None else {"exact": session.n_records}),
        "epsilon": assignment.epsilon,
        "epsilon_joint": assignment.epsilon_joint,
        "epsilon_table": assignment.epsilon_table,
        "rank_loss": assignment.rank_loss,
        "accounting": config.policy.accounting,
        "charge": taken,
        "remaining": remaining,
        "remaining_after": after,
        "max_records_per_person": plan.max_records_per_person,
        "attributes": [_attribute(plan, attribute) for attribute in assignment.attributes]
        or [_modelled_attribute(plan.attribute(name)) for name in assignment.names],
        "carrier_rule": CARRIER_RULE,
        "linking": list(allowed_findings(plan)),
        "linking_found": list(linking_result(plan, Addendum.from_bytes(session.addendum)))
        if session.addendum
        else [],
        "leaves": _leaves(plan, assignment),
        "co_owners": [
            _co_owner(plan, assigned, config.policy)
            for owner, assigned in plan.assignments.items()
            if owner != config.owner.id
        ],
        "forecast": json.loads(session.forecast) if session.forecast else None,
        "left_out": json.loads(session.left_out or "{}"),
        "essentials": list(essentials(plan, config.owner.id)),
        "trusts": list(trusted(plan, config.owner.id)),
        "promises": list(promises(plan)),
        "invariants": list(invariants(plan)),
    }


def _about(session: Session, plan: Plan) -> dict[str, Any]:
    deadline = session.deadline
    return {
        "release": session.release,
        "aggregator": session.aggregator,
        "state": str(session.state),
        "reason": session.reason,
        "purpose": plan.purpose,
        "permit": plan.permit,
        "conditions": condition_texts(plan.duo),
        "layout": str(plan.layout),
        "product": str(plan.product),
        "release_epsilon": plan.epsilon,
        "delta": plan.delta,
        "created": plan.created,
        "deadline": None if deadline is None else datetime.fromtimestamp(deadline, UTC).isoformat(),
        "plan_digest": plan.digest,
    }


def _attribute(plan: Plan, planned: PlannedAttribute) -> dict[str, Any]:
    attribute = plan.attribute(planned.name)
    return {
        "name": attribute.name,
        "type": str(attribute.type),
        "domain": attribute.domain,
        "mechanism": planned.mechanism,
        "epsilon": planned.epsilon,
        "epsilon_joint": planned.epsilon_joint,
        "k": planned.k,
        "expected_error": planned.expected_error,
        "rank_noise": planned.rank_noise,
        "epsilon_table": planned.epsilon_table,
        "carried_by": plan.carrier_reason(planned),
    }


def _modelled_attribute(attribute: Attribute) -> dict[str, Any]:
    """Return an attribute that is modelled: nothing is done to its values by themselves."""
    masking = dict.fromkeys(("mechanism", "epsilon", "epsilon_joint", "k", "expected_error", "rank_noise"))
    about = {"name": attribute.name, "type": str(attribute.type), "domain": attribute.domain}
    return {**about, **masking, "epsilon_table": None, "carried_by": "noisy counts"}


def _leaves(plan: Plan, assignment: Assignment) -> list[str]:
    """Return what leaves this node, in order."""
    lines = ["the exact number of records, to the aggregator and to the users of the release"]
    if plan.linking.tokens:
        of_passes = f"up to {len(plan.passes)} keyed pseudonyms per record, one for each pass of match keys"
        pseudonyms = of_passes if plan.passes else "one keyed pseudonym per record"
        lines.append(f"{pseudonyms}, to the aggregator, which compares and deletes them")
    if plan.owner_column:
        lines.append("the owner of every record, as a column, to the users of the release")
    return [*lines, *words_of(plan).leaves(plan, assignment)]


def _co_owner(plan: Plan, assignment: Assignment, policy: PolicyConfig) -> dict[str, Any]:
    pins = policy.pins.get(assignment.owner)
    if pins is None:
        proof = "; proves the linkage key before anything is charged" if plan.linking.tokens else ""
        known = f"as stated by the aggregator{proof}"
    else:
        known = "proves its pinned key before linking" if pins else "proves its certificate before linking"
    return {
        "id": assignment.owner,
        "attributes": list(assignment.names),
        "records_rounded": assignment.records_rounded,
        "known": known,
    }


def shown_records(records: Mapping[str, int]) -> str:
    """Return the numbers of records as a person reads them."""
    if "exact" in records:
        return f"{records['exact']:,}"
    return f"{records['rounded']:,} to {records['at_most']:,}"
