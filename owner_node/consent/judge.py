"""Decision whether work with an owner's data is allowed, by the owner's own arithmetic and policy.

`judge` decides about an aggregator's plan, which is untrusted input. `check_local` decides about
masks and queries that the owner makes for itself.

Every rule is a function that yields its objections. All objections are collected: first those that make the
plan invalid, then those of the policy, then the balance. The first one decides. The owner's history records
all of them in full; the aggregator receives a code and one fixed sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Self

from common.errors import BalanceError, InternalError, RefusedError, TesseraError
from common.model.privacy import Accounting, plain
from common.model.products import Product
from owner_node.consent import plan_rules, policy_rules
from owner_node.consent.plan_rules import JudgedWork, Objection, PlannedWork, Request

if TYPE_CHECKING:
    from owner_node.config import PolicyConfig


@dataclass(frozen=True, slots=True)
class Accept:
    """A plan may be accepted, or an owner's own work done, for this charge."""

    charge: Decimal
    """Amount that the ledger reserves."""
    budget: str
    epsilon: Decimal
    """Sum of the shares of the owner's attributes, times the multiplicity that the plan allows per person."""
    epsilon_joint: Decimal | None
    """Sum of their joint bounds; None where one has none."""
    accounting: Accounting
    """Which of the two is charged."""
    asks: str = ""
    """The rule that requires a person's decision; empty if the policy alone decides."""
    rank_loss: Decimal | None = None
    """Privacy loss of the record-to-rank assignment; None where it is unbounded."""
    delta: Decimal = Decimal(0)

    @classmethod
    def of(cls, work: JudgedWork) -> Self:
        """Return the terms of work to which no rule objects."""
        most, amount = work.most, work.charge
        if amount is None:
            raise InternalError("work without a charge passed the policy")
        return cls(
            amount, work.dataset.budget, most.epsilon, most.epsilon_joint, work.policy.accounting,
            rank_loss=most.rank_loss, delta=most.delta,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refuse:
    """The plan is refused."""

    error: TesseraError
    """For the owner, in full."""
    rule: str
    """The deciding rule in full, for the owner's history."""


Verdict = Accept | Refuse


def judge(request: Request) -> Verdict:
    """Judge a plan, whose signature and certificate have been checked.

    Returns:
        Accept with the charge, or Refuse with every rule that objects.
    """
    objections = [*plan_rules.parties(request), *plan_rules.settings(request)]
    shares = list(plan_rules.shares(request))
    # Sums of decimals that are out of bounds would be rounded, so rules that compute are skipped for them.
    objections += shares or [objection for rule in _BY_AMOUNT for objection in rule(request)]
    objections += [objection for rule in _BY_NAME for objection in rule(request)]
    if objections:
        return _refuse(request, objections)
    terms = Accept.of(request)
    if terms.charge > request.balance:
        amounts = format(plain(terms.charge), "f"), format(plain(request.balance), "f")
        error = BalanceError(terms.budget, *amounts)
        return Refuse(error, error.message)
    return replace(terms, asks=_asks(request.policy, terms.charge))


def check_local(work: JudgedWork, product: Product | None = None) -> None:
    """Check work that an owner does for itself. `approval` does not apply: a person runs the command.

    Args:
        product: What it makes; None for an answer to a question.

    Raises:
        RefusedError: With every rule of the policy that objects.
    """
    objections = [objection for rule in policy_rules.OF_ALL_WORK for objection in rule(work)]
    if product is not None:
        objections += policy_rules.products(product, work.policy)
    if isinstance(work, PlannedWork):
        objections += [
            objection
            for rule in (*policy_rules.OF_LISTS, *policy_rules.OF_AMOUNTS)
            for objection in rule(work)
        ]
    else:
        objections += policy_rules.amount(work)
    refuse_for([objection.rule for objection in objections])


def refuse_for(rules: Sequence[str]) -> None:
    """Refuse work that an owner does for itself for the rules that object; nothing happens without any."""
    if rules:
        raise RefusedError(
            "\n  ".join(rules),
            "nothing was spent; the policy is declared in owner.toml",
            {"rule": rules[0], "rules": list(rules)},
        )


def _asks(policy: "PolicyConfig", amount: Decimal) -> str:
    """Return the rule that requires a person's decision; called only if there is no objection."""
    if policy.approval == "manual":
        return 'policy.approval = "manual"'
    limit = policy.manual_above_epsilon
    if limit is not None and amount > limit:
        return f"policy.manual_above_epsilon = {plain(limit):f}, the release would charge {plain(amount):f}"
    return ""


def _refuse(request: Request, objections: list[Objection]) -> Refuse:
    rules = list(dict.fromkeys(objection.rule for objection in objections))
    # Unusable data are reported as the cause only if there is no other objection.
    refused = [objection for objection in objections if objection.cause is RefusedError]
    deciding = (refused or objections)[0]
    error = deciding.cause(
        deciding.rule,
        "nothing was spent; the owner's policy and data set are declared in owner.toml",
        {"release": request.plan.release, "rule": deciding.rule, "rules": rules},
    )
    return Refuse(error, deciding.rule)


_BY_AMOUNT = (plan_rules.composition, plan_rules.whole_records, plan_rules.bounds, *policy_rules.OF_AMOUNTS)
_BY_NAME = (
    plan_rules.cluster_sizes,
    *policy_rules.OF_ALL_WORK,
    *policy_rules.OF_LISTS,
    *policy_rules.OF_RELEASES,
    plan_rules.records,
)
