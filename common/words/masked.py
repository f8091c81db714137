"""What a release of masked records promises and what it does not hide, in plain words, derived from its plan.

Individual differential privacy compares two data sets with the noise scales of the actual one (Soria-Comas et
al. 2017, Definition 5). Every sentence that states such a bound says so with `SCALES_GIVEN`.

References:
    Soria-Comas et al. 2017, Definition 5 and Proposition 5 (individual differential privacy).
    Soria-Comas et al. 2025, Propositions 8 (idp-ls) and 9 (idp-cbls).
    Sánchez et al. 2016, Lemma 1 (dp-ir).
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from common.model.mechanisms import (
    CLUSTERS,
    DRAWN,
    GLOBAL,
    INDIVIDUAL,
    MECHANISMS,
    QUANTILES,
    Carrier,
    follows_arbitrary_order,
)
from common.model.plan import Plan
from common.model.schema import CategoryOrder
from common.model.task import Assignment
from common.words.linking import INTERSECTED, unit_word
from common.words.numbers import bound_text
from common.words.product import ProductWords, derived
from common.words.ranks import rank_promises, without_rank_noise
from common.words.worth import Worth, largest_errors

SCALES_GIVEN = "with the size of the noise taken as given"
"""The condition of every bound of individual differential privacy."""


class MaskedWords(ProductWords):
    """The words of a release of masked records."""

    made = "masked"

    def promises(self, plan: Plan) -> tuple[str, ...]:
        """Say what is promised of every attribute, of all together, and of who has which value."""
        return (
            *_meanings(plan),
            *_attribute_promises(plan),
            *_counted_spikes(plan),
            *derived(plan.following),
            *_in_arbitrary_order(plan),
            _total(plan, self.condition(plan)),
            *rank_promises(plan, notions(plan)[0], self.condition(plan)),
        )

    def keeps(self, plan: Plan) -> str:
        """Say that values have noise, and that rank noise weakens relations."""
        weakened = (
            "Rank noise weakens relations between attributes, those of three or more most. "
            if plan.has_rank_noise
            else ""
        )
        return (
            f"{weakened}Values have noise, extremes and small groups most of all, so that usual standard "
            "errors are too small: release.estimates corrects what it can, with intervals."
        )

    def invariants(self, plan: Plan) -> tuple[str, ...]:
        """Say what is not hidden of owners, missing values, scales of noise, and clusters."""
        several = plan.n_groups > 1
        return (
            *_shown_of_owners(plan),
            "Which values are missing, where a record was left out or a missing value was kept.",
            *(["That the owners' attributes are about the same records."] if several else []),
            *([INTERSECTED] if plan.linking.intersects else []),
            *_shown_by_scales(plan),
            *_shown_of_values(plan),
        )

    def composition(self, plan: Plan) -> str:
        """Say that the ε of attributes add up."""
        elsewhere = ", also where different owners hold them" if plan.n_groups > 1 else ""
        return f"The ε of different attributes of one record add up (sequential composition){elsewhere}."

    def condition(self, plan: Plan) -> str:
        """Return that the size of the noise is taken as given, where the bound of an attribute needs it."""
        return f", {SCALES_GIVEN}" if INDIVIDUAL in notions(plan) else ""

    def leaves(self, plan: Plan, assignment: Assignment) -> tuple[str, ...]:
        """Say what values leave an owner."""
        names = ", ".join(assignment.names)
        return (
            f"one masked value of every attribute for every record ({names}), once all owners have masked",
        )

    def worth(self, plan: Plan) -> Worth:
        """Judge a plan by the expected errors of its attributes."""
        return Worth.of_errors(largest_errors(plan))


def _shown_by_lists(plan: Plan) -> str:
    """Say what is not hidden about which values a record has together."""
    if without_rank_noise(plan):
        return (
            "Which of its values a record has together: the bounds speak of each attribute's list of "
            "released values, not of the attachment of these values to records, and so not of the released "
            "table as a whole."
        )
    return (
        "Which of its values a record has together, and about how high they are: rank noise blurs small "
        "differences, not large ones. Anyone who knows the original numbers of many attributes of a person "
        "can still re-identify records. How many depends on the data: of the tens of thousands of records of "
        "the data set Adult, with ten known attributes, ε = 1 and the default mechanisms, it was 81 % "
        "without rank noise, 34 % with 0.03 and 3 % with 0.1; over four owners 51 % with 0.03. Of fewer "
        "records with continuous attributes it was most of them: 75 to 78 % with 0.03 (the data sets Census "
        "and Wine Quality). Each owner can measure it on its own data with `owner-node explore`, and with "
        "`owner-node show` before agreeing."
    )


_MOVED = "Because of the rank noise, the cluster of a record's original value can be another one."


class _Shown(NamedTuple):
    """What the released values of a carrier show of its clusters."""

    always: str
    without_rank_noise: str
    """What follows from it where records keep their ranks."""


_SHOWN_BY_CLUSTERS: Mapping[Carrier, _Shown] = {
    CLUSTERS: _Shown(
        "Which records share a cluster (k = {k}): they have equal released values.",
        "ε does not limit what that pattern of equal values shows. Anyone who knows the original numbers of "
        "a few attributes of a person can often re-identify that person's record by the pattern alone, "
        "whatever ε is (measured: 90 to 100 % of the records with two or three continuous attributes at "
        "k = 10).",
    ),
    QUANTILES: _Shown(
        "To which cluster a record was assigned (k = {k}): released values ascend from cluster to cluster, "
        "and so show a record's rank to the width of a cluster.",
        "ε does not limit what these ranks show. Anyone who knows the original numbers of many attributes of "
        "a person can often re-identify that person's record by them, whatever ε is (measured, with all "
        "attributes known and ε = 1: 81 % of the records of the data sets Census and Wine Quality).",
    ),
    DRAWN: _Shown(
        "Which records were in different clusters (k = {k}): those with different released categories.",
        "ε does not limit what that pattern shows.",
    ),
}


def _shown_by_clusters(plan: Plan) -> Iterator[str]:
    """Say what released values show of clusters, one text for each carrier that makes them."""
    planned = [attribute for task in plan.tasks for attribute in task.attributes]
    for carrier, shown in _SHOWN_BY_CLUSTERS.items():
        of_carrier = [attribute for attribute in planned if attribute.rules.carrier is carrier]
        ks = sorted({attribute.k for attribute in of_carrier if attribute.k is not None})
        if ks:
            k = str(ks[0]) if len(ks) == 1 else f"{ks[0]} to {ks[-1]}"
            moved = all(attribute.rank_noise for attribute in of_carrier)
            yield f"{shown.always.format(k=k)} {_MOVED if moved else shown.without_rank_noise}"


_CHANGE = (
    "replacing the attribute values of {records} by any others of their domains changes the probability of "
    "what is protected by a factor of at most exp(ε)."
)
_MEANING: Mapping[str, str] = {
    INDIVIDUAL: (
        f"Individual differential privacy: for the original data as they are, and {SCALES_GIVEN}, {_CHANGE} "
        "The noise is calibrated to these data and not to all conceivable data. With other values it would "
        "have another size, so the size of the noise can disclose something about a record that ε does not "
        "bound. This makes it a weaker promise than differential privacy."
    ),
    GLOBAL: (
        f"Differential privacy: whatever the original data are, {_CHANGE} The size of the noise follows from "
        "public numbers and does not depend on the values, so the promise includes it."
    ),
}


class _Kind(NamedTuple):
    """Attributes that get the same promise."""

    mechanism: str
    epsilon: Decimal
    joint: Decimal | None
    by_frequency: bool


def _in_arbitrary_order(plan: Plan) -> tuple[str, ...]:
    """Warn about categories that are treated as numbers in an order that means nothing."""
    tasks = (planned for task in plan.tasks for planned in task.attributes)
    names = dict.fromkeys(
        planned.name
        for planned in tasks
        if follows_arbitrary_order(plan.attribute(planned.name), planned.rules)
    )
    if not names:
        return ()
    averages = (
        f"The values of {', '.join(names)} are averages over an arbitrary order of its categories, because a "
        "mechanism for ordered values was asked for. A released category can differ from the original one in "
        "any way."
    )
    return (averages,)


def _shown_of_owners(plan: Plan) -> tuple[str, ...]:
    """Return what is known about the owner of a record."""
    if plan.owner_columns:
        names = ", ".join(f"`{column.name}`" for column in plan.owner_columns.values())
        return (f"Which owner a record came from: the release states it ({names}).",)
    if all(len(owners) == 1 for owners in plan.groups):
        return ("Which owner the values came from: the plan states it, attribute by attribute.",)
    inferred = (
        "Which owner a record came from: records are numbered in random order and no column names an owner, "
        "but the owner can often be inferred from the released values."
    )
    return (inferred,)


def _shown_by_scales(plan: Plan) -> tuple[str, ...]:
    """Return what noise scales that are calibrated to the data do not hide, with what was measured."""
    calibrated = [planned for task in plan.tasks for planned in task.attributes if planned.rules.individual]
    if not calibrated:
        return ()
    names = ", ".join(dict.fromkeys(planned.name for planned in calibrated))
    measured = dict.fromkeys(planned.rules.scales_show for planned in calibrated if planned.rules.scales_show)
    shown = (
        f"The size of the noise of {names}: it is calibrated to the original data. If a record had other "
        "values, the noise would have another size, and a release can show its size."
    )
    return (" ".join([shown, *measured]),)


def _shown_of_values(plan: Plan) -> tuple[str, ...]:
    """Return what released values show of clusters and of which values a record has together."""
    of_clusters = tuple(_shown_by_clusters(plan))
    together = (_shown_by_lists(plan),) if has_lists(plan) else ()
    if not of_clusters:
        return together
    return (*of_clusters, *together, "A larger k means less noise. It does not mean more privacy.")


def has_lists(plan: Plan) -> bool:
    """Whether any attribute has a list that is separate from its assignment to records."""
    return any(planned.rules.listed for task in plan.tasks for planned in task.attributes)


def notions(plan: Plan) -> list[str]:
    """Return the notions of privacy that the mechanisms of a plan give, the weaker first."""
    given = {planned.rules.notion for task in plan.tasks for planned in task.attributes}
    return [notion for notion in (INDIVIDUAL, GLOBAL) if notion in given]


def _meanings(plan: Plan) -> list[str]:
    g = plan.max_records_per_person
    records = "one record" if g == 1 else f"up to {g} records, all that one person has at an owner,"
    return [_MEANING[notion].format(records=records) for notion in notions(plan)]


def _attribute_promises(plan: Plan) -> list[str]:
    """Return one line for all attributes that the same owners mask in the same way."""
    kinds: dict[tuple[_Kind, str], list[str]] = {}
    for task in plan.tasks:
        for planned in task.attributes:
            by_frequency = plan.attribute(planned.name).order is CategoryOrder.FREQUENCY
            kind = _Kind(planned.mechanism, planned.epsilon, planned.epsilon_joint, by_frequency)
            kinds.setdefault((kind, planned.name), []).append(task.owner)
    lines: dict[tuple[_Kind, tuple[str, ...]], list[str]] = {}
    for (kind, name), owners in kinds.items():
        lines.setdefault((kind, tuple(owners)), []).append(name)
    return [_sentence(kind, names, owners) for (kind, owners), names in lines.items()]


def _sentence(kind: _Kind, names: list[str], owners: tuple[str, ...]) -> str:
    rules = MECHANISMS[kind.mechanism]
    promise = rules.sentence(frequency_order=kind.by_frequency)
    text = promise.format(notion=rules.notion, epsilon=bound_text(kind.epsilon), joint=bound_text(kind.joint))
    given = f" All of this {SCALES_GIVEN}." if rules.individual else ""
    return f"{', '.join(names)} of {', '.join(owners)} ({kind.mechanism}): {text}{given}"


def _counted_spikes(plan: Plan) -> Iterator[str]:
    """Say of every attribute with spikes that are counted what their counts cost."""
    epsilons: dict[str, set[Decimal]] = {}
    for task in plan.tasks:
        for each in task.attributes:
            if each.epsilon_spikes:
                epsilons.setdefault(each.name, set()).add(each.epsilon_spikes)
    for name, found in epsilons.items():
        attribute = plan.attribute(name)
        spikes = " and ".join(map(attribute.text, attribute.spikes))
        yield (
            f"{name}: how many released values are {spikes} comes from noisy counts of the records that have "
            f"them: {GLOBAL} with ε = {bound_text(max(found))}, which is part of the ε of the attribute."
        )


def _total(plan: Plan, condition: str) -> str:
    unit = unit_word(plan)
    if plan.epsilon_joint is None:
        return f"All attributes of one {unit} together: no bound, because there is none for one of them."
    protected = "the lists of released values of all attributes" if has_lists(plan) else "the released table"
    at_most = ", at most, as planned" if plan.linking.max_overlap > 1 else ""
    return (
        f"All attributes of one {unit} together{at_most}: {notions(plan)[0]} with ε = "
        f"{bound_text(plan.epsilon_joint)} for {protected}{condition}."
    )
