"""What a release promises and what it does not hide, in plain words, derived from its plan.

The words are for a data protection officer. They say what is proved (docs/guarantee.md) and never more: which
part of the release a bound speaks of, whose change it protects against, and what no mechanism here hides.
What every product has in common stands here, the rest in a file of its name.

References:
    Del Vasto-Terrientes et al. 2025, Theorems 1 and 2 (composition).
"""

from collections.abc import Mapping, Sequence

from common.model.plan import Plan, is_trial
from common.model.products import Product
from common.words.linking import compared_as, missed_text
from common.words.masked import MaskedWords
from common.words.numbers import bound_text
from common.words.product import ProductWords
from common.words.synthetic import SyntheticWords
from common.words.worth import Worth

_WORDS: Mapping[Product, ProductWords] = {
    Product.MASKED: MaskedWords(),
    Product.SYNTHETIC: SyntheticWords(),
}


def words_of(plan: Plan) -> ProductWords:
    """Return the words of the product of a plan."""
    return _WORDS[plan.product]


def trial(plan: Plan) -> tuple[str, ...]:
    """Return the sentence that says that a release is a trial; none if it is not."""
    text = (
        "This is a trial: the owners made up every record from the declared domains. It says nothing about "
        "any person, and no budget is charged."
    )
    return (text,) if is_trial(plan.release) else ()


def worth_of(plan: Plan) -> Worth:
    """Judge by public numbers whether the result of a plan is worth its charge."""
    return words_of(plan).worth(plan)


def promises(plan: Plan) -> tuple[str, ...]:
    """Say what a release promises, one sentence or two per line, with the plan's numbers."""
    return (*trial(plan), *words_of(plan).promises(plan), *trusted(plan), _unit(plan), composition(plan))


def trusted(plan: Plan, owner: str = "") -> tuple[str, ...]:
    """Say whom a release trusts to follow the protocol, and what of an owner's records they could read.

    Args:
        owner: Owner id; empty for all owners of the release.
    """
    return words_of(plan).trusted(plan, owner)


def composition(plan: Plan) -> str:
    """Say by which rule the owners' and attributes' epsilons make the release's."""
    several = len(plan.tasks) > plan.n_groups
    return " ".join([
        *([_parallel(plan)] if several else []),
        words_of(plan).composition(plan),
        "Releases from the same data add up as well: every owner's ledger counts them for ever.",
    ])  # fmt: skip


def _parallel(plan: Plan) -> str:
    """Say how the epsilons of owners of the same attributes combine, and under which assumption."""
    shared = plan.linking.max_overlap
    if not plan.linking.tokens:
        return (
            "The owners of the same attributes assert that they hold different persons, which was not "
            "checked: so the largest of their ε counts and not the sum (parallel composition). For a person "
            "who is at two owners nevertheless, they add up."
        )
    how = compared_as(plan.identifier)
    if shared == 1:
        nobody = "No person was linked" if plan.passes else "No identifier is"
        return (
            f"{nobody} at two owners of the same attributes ({how}), so the largest of their ε "
            f"counts and not the sum (parallel composition). {missed_text(plan.identifier)}"
        )
    return (
        f"{'A person' if plan.passes else 'An identifier'} can be at up to {shared} owners of the same "
        f"attributes ({how}), so the ε of as many of them, the largest ones, add up (sequential "
        "composition); those of the others do not. "
        f"{missed_text(plan.identifier)}"
    )


def promise_as_linked(plan: Plan, multiples: Sequence[int]) -> str:
    """Say what linking found about persons at several owners, and the resulting ε.

    Args:
        multiples: By group: the largest number of owners that hold one person.
    """
    joint = plan.epsilon_joint_of_person(multiples)
    bound = "no bound, because there is none for one of them" if joint is None else f"ε = {bound_text(joint)}"
    table = plan.epsilon_table_of_person(multiples)
    if table is not None and plan.has_rank_noise:
        bound += f", and ε = {bound_text(table)} with who has which value included"
    if joint is not None:
        bound += words_of(plan).condition(plan)
    most = max(multiples)
    seen = (
        f"persons at up to {most} owners of the same attributes, and nobody at more"
        if most > 1
        else f"no {'person' if plan.passes else 'identifier'} at two owners of the same attributes"
    )
    return (
        f"Linking found {seen}. All attributes of one person together, as found: {bound}."
        f"{_charges(plan, multiples) if most > 1 else ''}"
    )


def _charges(plan: Plan, multiples: Sequence[int]) -> str:
    """Say how often the owners of each group are charged the planned share."""
    attributes = {task.group: task.names for task in plan.tasks}
    times = [
        f"{'once' if multiple == 1 else f'{multiple} times'} for {', '.join(attributes[group])} at "
        f"{', '.join(owners)}"
        for group, (owners, multiple) in enumerate(zip(plan.groups, multiples, strict=True))
    ]
    return (
        " An owner is charged its share of a group of attributes as often as owners of that group hold one "
        f"person: {'; '.join(times)}."
    )


def invariants(plan: Plan) -> tuple[str, ...]:
    """Say what no mechanism of a release hides, whatever ε is."""
    if plan.linking.unites:
        return (
            "The exact number of persons whom the owners have together.",
            "Every owner's number of records, rounded down to its leading digit, which it states before.",
            "That a person is at one of the owners: ε covers at which of them, and not that it is at any.",
            *words_of(plan).invariants(plan),
        )
    return (
        "The exact number of records, of the release and of every owner.",
        "That a record exists: the values of a record are protected, not its existence.",
        *words_of(plan).invariants(plan),
    )


def _unit(plan: Plan) -> str:
    if not plan.linking.tokens and len(plan.owners) == 1:
        return (
            "The unit of privacy is the record: no identifier is declared, so nothing is promised about "
            "several records of one person together."
        )
    if not plan.linking.tokens:
        return (
            "The unit of privacy is the record: no identifier was compared. The owners assert that no "
            "person has records at several owners: disjointness asserted, not checked."
        )
    g = plan.max_records_per_person
    held = "one record" if g == 1 else f"at most {g} records"
    asserted = ", which the owners assert and match keys do not check" if plan.passes else ""
    checks, made = [], words_of(plan).made
    if len(plan.tasks) > plan.n_groups:
        shared = plan.linking.max_overlap
        most = "at two owners" if shared == 1 else f"at more than {shared} owners"
        checks.append(f"that no {'person' if plan.passes else 'identifier'} is {most} of the same attributes")
    if plan.n_groups > 1 and not plan.linking.unites:
        checks.append(
            "that the owners of different attributes hold the same "
            f"{'persons' if plan.passes else 'identifiers'}"
            if not plan.linking.intersects
            else f"that the {made} persons are those whom the owners of all attributes hold"
            if plan.passes
            else f"that the {made} persons are those whose identifiers the owners of all attributes hold"
        )
    checked = " and ".join(checks)
    tokens_of = "match keys, which can miss a person or take two for one" if plan.passes else "identifiers"
    how = f"compared before anything is {made}, by keyed tokens of {tokens_of}; else there is no release"
    linked = f" {checked[:1].upper()}{checked[1:]} is {how}." if checks else ""
    whole = " An owner with several events of a person makes this record of all of them." if g == 1 else ""
    return f"The unit of privacy is the person: every person has {held} at an owner{asserted}.{whole}{linked}"
