"""The essentials of a plan for a decision, in a line or two each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import ceil, sqrt
from typing import TYPE_CHECKING

from common import __version__
from common.model.mechanisms import GLOBAL, INDIVIDUAL
from common.model.permit import condition_texts
from common.model.plan import Plan
from common.model.products import Product
from common.model.schema import most_records
from common.words.guarantee import trial, trusted, words_of
from common.words.linking import unit_word
from common.words.masked import has_lists, notions
from common.words.numbers import bound_text, cost_text, count_text, first_text, percent_text, size_text
from common.words.ranks import ranks_in_short
from common.words.synthetic import (
    derived_in,
    expected_noise,
    of_events,
    of_presence,
    rules_in,
    trust,
    wrong_links,
)

if TYPE_CHECKING:
    from common.synthesis.schedule import Design

_LEAST_BYTES = 1e6
_MOST_NAMES = 5
"""Most names of fields that a sentence lists."""


def essentials(plan: Plan, owner: str = "") -> tuple[str, ...]:
    """Return what matters most for a decision, in a line or two each.

    What the plan says beyond what is shown, and how often a person may be charged; then what its product
    promises and does not hide, and whom it trusts.

    Args:
        owner: Id of the owner that decides; empty for all.
    """
    lines = [*_not_read(plan)]
    if plan.permit:
        lines.append(f"The release is made under data permit {plan.permit}.")
    if plan.duo:
        lines.append(f"Conditions of use: {', '.join(condition_texts(plan.duo))}.")
    if (most := plan.linking.max_overlap) > 1:
        lines.append(f"A person may be at {most} owners and is charged at each of them.")
    return (*trial(plan), *lines, *_OF_PRODUCT[plan.product](plan), *trusted(plan, owner))


def _not_read(plan: Plan) -> Iterator[str]:
    """Say what the plan states and no page shows: a consent is to all of it."""
    if names := plan.ignored:
        yield (
            f"The plan has fields that version {__version__} does not know and does not follow: "
            f"{first_text(names, _MOST_NAMES)}. A consent is to the whole plan: ask the operator of "
            "the aggregator what they mean."
        )


def _alternative(plan: Plan) -> tuple[str, ...]:
    """Say what a synthetic release of masked attributes would be, if it has enough records."""
    from common.planning.synthetic_noise import alternative_design, expected_errors

    design = alternative_design(plan)
    if design is None:
        return ()
    errors = expected_errors(design)
    return (
        (
            f"A synthetic table would fit, where policies allow it: ε = {bound_text(design.epsilon)} for the "
            f"whole record; expected total variation: {errors.one_way:.2g} of one attribute, "
            f"{errors.two_way:.2g} of two. Masked records keep more of extremes, and of numbers with many "
            "values."
        ),
    )


def questions(plan: Plan) -> str:
    """Say what is asked of the owners of a synthetic release, from public numbers."""
    from common.planning.synthetic import design_of
    from common.synthesis.schedule import n_rounds

    design = design_of(plan)
    n_attributes = len(plan.attributes) - (len(plan.counted) - len(plan.modelled))
    shares = [percent_text(share) for share in design.split]
    rounds, ones = count_text(n_rounds(design), "round"), count_text(n_attributes, "attribute")
    asked, noise = f"Asked in {rounds}: one-way counts of {ones}", expected_noise(design)
    expected = f"{noise[:1].upper()}{noise[1:]}."
    if unused := [each.name for each in plan.attributes if each.taxonomy]:
        expected += f" Not used: the taxonomy of {', '.join(unused)}, whose labels are counted one by one."
    if not design.pairs:
        return f"{asked}. {expected}"
    named = "the named" if design.named_pairs else "all"
    tables = f"the tables of {named} {count_text(len(design.pairs), 'pair')}"
    if design.events is not None and not design.named_pairs:
        tables = (
            f"the tables of {count_text(len(design.pairs), 'pair')}: attributes of persons, these with the "
            "first event, and neighbouring events"
        )
    deviations = sorted({sqrt(each) for each in design.pair_variances.values()})
    noise_of_count = " to ".join(f"{each:.3g}" for each in dict.fromkeys((deviations[0], deviations[-1])))
    exchanged = f" {_traffic_text(design)}" if any(map(design.is_across, design.pairs)) else ""
    return (
        f"{asked} ({shares[0]} of the budget), and {tables} ({shares[1]}), whose counts have noise of a "
        f"standard deviation of {noise_of_count}. {expected}{exchanged}"
    )


def _together(plan: Plan) -> tuple[str, ...]:
    """Say which attributes are counted as one."""
    pairs = () if plan.synthesis is None else plan.synthesis.together
    both = "; ".join(" and ".join(pair) for pair in pairs)
    text = f"Counted together, as one attribute with a value for each combination: {both}."
    return (text,) if pairs else ()


def _traffic_text(design: "Design") -> str:
    """Say what owners of different attributes send each other, from public numbers."""
    from common.model.rounds import CIPHERTEXT_BYTES
    from common.synthesis.counters import traffic
    from common.synthesis.sample import MOST_RECORDS

    # Owners state numbers that are rounded down.
    cost = traffic(replace(design, n_records=min(most_records(design.n_records), MOST_RECORDS)))
    sent, passed_on = (size_text(max(size, _LEAST_BYTES)) for size in (cost.n_bytes, cost.passed_on))
    minutes = count_text(ceil(cost.seconds / 60), "minute")
    return (
        f"Owners send the aggregator up to {sent} of encrypted bins, {CIPHERTEXT_BYTES} bytes or more a "
        f"person; it sends on {passed_on}; the owner that encrypts most computes for up to {minutes}."
    )


def _promise_in_short(plan: Plan, condition: str) -> str:
    unit = unit_word(plan)
    if plan.epsilon_joint is None:
        return (
            f"Promised to one {unit}: nothing about whole lists of released values, only about single values."
        )
    protected = "the lists of all released values" if has_lists(plan) else "the released table"
    bound = bound_text(plan.epsilon_joint)
    return f"Promised to one {unit}: {notions(plan)[0]} with ε = {bound} for {protected}{condition}."


def _not_hidden_in_short(plan: Plan) -> str:
    size = ", the size of the noise" if INDIVIDUAL in notions(plan) else ""
    known = "; anyone who knows many original values of a person can often re-identify its record"
    return (
        f"Not hidden: numbers of records, {'' if plan.owner_column else 'often '}their owner, missing "
        f"values{size}"
        f"{known if has_lists(plan) else ''}."
    )


def _of_masked(plan: Plan) -> tuple[str, ...]:
    """Say the promise, who has which value and what is not hidden, in a line or two each."""
    common = f"Only persons of all groups are masked, at least {plan.linking.min_common}."
    return (
        *([common] if plan.linking.intersects else []),
        _promise_in_short(plan, words_of(plan).condition(plan)),
        ranks_in_short(plan) if has_lists(plan) else "This promise includes who has which value.",
        _not_hidden_in_short(plan),
        *_alternative(plan),
    )


def _of_synthetic(plan: Plan) -> tuple[str, ...]:
    """Say what is promised and against whom, what is asked, and what is not hidden."""
    cost = cost_text(plan.epsilon_of_person(plan.most_multiples), plan.delta)
    shown = "numbers of records, and facts about many"
    if plan.linking.unites:
        shown = "from the aggregator, who has which person; the number of all persons; facts about many"
    if plan.has_partners:
        shown = f"from owners, which owner of another group has each of their persons; {shown}"
    common = f"Only persons of all groups are counted, at least {plan.linking.min_common}."
    return (
        *([common] if plan.linking.intersects else []),
        (
            f"Promised to one {unit_word(plan)}: {GLOBAL} with {cost} for the whole record, all that is "
            "released of it together."
        ),
        *filter(
            None,
            [of_presence(plan), of_events(plan), wrong_links(plan), trust(plan), questions(plan)],
        ),
        *_together(plan),
        *rules_in(plan),
        *derived_in(plan),
        f"Not hidden: {shown}.",
    )


_OF_PRODUCT: Mapping[Product, Callable[[Plan], tuple[str, ...]]] = {
    Product.MASKED: _of_masked,
    Product.SYNTHETIC: _of_synthetic,
}
