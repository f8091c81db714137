"""What a release of masked records promises and what it does not hide, in plain words, derived from its plan.

Individual differential privacy compares two data sets with the noise scales of the actual one (Soria-Comas et
al. 2017, Definition 5). Every sentence that states such a bound says so with `SCALES_GIVEN`.

With rank noise, the number for the whole table is large and says little by itself. What protects is distance:
a change that moves a record by few ranks is hardly visible, one that moves it far is. The words say both, and
no more.

References:
    Soria-Comas et al. 2017, Definition 5 and Proposition 5 (individual differential privacy).
    Soria-Comas et al. 2025, Propositions 8 (idp-ls) and 9 (idp-cbls).
    Sánchez et al. 2016, Lemma 1 (dp-ir).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
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
from common.model.privacy import rank_loss
from common.model.schema import CategoryOrder
from common.model.task import Assignment, PlannedAttribute
from common.words.linking import unit_word
from common.words.numbers import bound_text
from common.words.product import ProductWords, derived
from common.words.synthetic import alternative
from common.words.worth import Worth, largest_errors

_MOST_NAMES = 5
"""Most names of attributes that a sentence lists."""


SCALES_GIVEN = "with the size of the noise taken as given"
"""The condition of every bound of individual differential privacy."""


_NEAR, _FAR = Decimal("0.01"), Decimal("0.1")


_SMALL = Decimal(3)
"""Up to this exponent, the factor exp(x) is written out."""


_HARDLY = Decimal(1)
"""Up to this exponent, values are called hardly distinguished: no result becomes three times as probable."""


_FAR_APART = 3
"""From this factor on, it is said how well neighbouring values are distinguished."""


_MOST_FEW = 128
"""Most values of an attribute for which that is computed."""


def rank_promises(plan: Plan, notion: str) -> tuple[str, ...]:
    """Say what is promised about who has which value; nothing where no attribute has rank noise."""
    if not plan.has_rank_noise:
        return ()
    return (
        (
            "Who has which value: a record's rank in an attribute is its place when all records of its owner "
            "are sorted by it. Before the values of the list are given to records, every rank is moved by "
            "random noise, and so a record gets the value of another one near it: rank noise "
            f"{_by_attribute(plan)}. {_moves(plan)}"
        ),
        *(_by_distance(plan, share) for share in _bounded_shares(plan)),
        *_without_bound(plan),
        _table(plan, notion),
    )


def shown_by_lists(plan: Plan) -> str:
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


def shown_by_clusters(plan: Plan) -> Iterator[str]:
    """Say what released values show of clusters, one text for each carrier that makes them."""
    planned = [attribute for task in plan.tasks for attribute in task.attributes]
    for carrier, shown in _SHOWN_BY_CLUSTERS.items():
        of_carrier = [attribute for attribute in planned if attribute.rules.carrier is carrier]
        ks = sorted({attribute.k for attribute in of_carrier if attribute.k is not None})
        if ks:
            k = str(ks[0]) if len(ks) == 1 else f"{ks[0]} to {ks[-1]}"
            moved = all(attribute.rank_noise for attribute in of_carrier)
            yield f"{shown.always.format(k=k)} {_MOVED if moved else shown.without_rank_noise}"


def without_rank_noise(plan: Plan) -> tuple[str, ...]:
    """Return the attributes with a list at some owner that has no rank noise, each once."""
    return tuple(
        dict.fromkeys(
            planned.name
            for task in plan.tasks
            for planned in task.attributes
            if planned.rules.listed and not planned.rank_noise
        )
    )


def _noisy(plan: Plan) -> list[PlannedAttribute]:
    return [planned for task in plan.tasks for planned in task.attributes if planned.rank_noise]


def _is_bounded(plan: Plan, planned: PlannedAttribute) -> bool:
    """Whether the bound on rank noise holds: not where one record can change the order of all."""
    by_frequency = plan.attribute(planned.name).by_frequency
    return not planned.rules.is_ordered_by_data(frequency_order=by_frequency)


def _bounded_shares(plan: Plan) -> list[Decimal]:
    return sorted({planned.rank_noise for planned in _noisy(plan) if _is_bounded(plan, planned)})


def _ordered_by_data(plan: Plan) -> tuple[str, ...]:
    """Return the attributes whose rank noise has no bound at some owner, each once."""
    return tuple(dict.fromkeys(planned.name for planned in _noisy(plan) if not _is_bounded(plan, planned)))


def _by_attribute(plan: Plan) -> str:
    """Return every rank noise with its attributes, and with its owners where others have another one."""
    owners: dict[tuple[Decimal, str], list[str]] = {}
    for task in plan.tasks:
        for planned in task.attributes:
            owners.setdefault((planned.rank_noise, planned.name), []).append(task.owner)
    n_shares = Counter(name for _, name in owners)
    names: dict[tuple[Decimal, tuple[str, ...]], list[str]] = {}
    for (share, name), holders in sorted(owners.items(), key=lambda item: item[0][0]):
        if share:
            names.setdefault((share, tuple(holders) if n_shares[name] > 1 else ()), []).append(name)
    return "; ".join(
        f"{share:f} of the number of records for {', '.join(of)}"
        + (f" of {', '.join(whose)}" if whose else "")
        for (share, whose), of in names.items()
    )


def _moves(plan: Plan) -> str:
    # Here and below, as numpy would take a quarter of the start of every command.
    from common.model.ranks import mean_move

    shares = sorted({planned.rank_noise for planned in _noisy(plan)})
    by_share = [f"{100 * mean_move(share):.2g} % with {share:f}" for share in shares[:_MOST_NAMES]]
    return f"So a record's rank changes by this share of all ranks, on average: {', '.join(by_share)}."


def _by_distance(plan: Plan, share: Decimal) -> str:
    g = plan.max_records_per_person
    whole = rank_loss(share, g)
    near, far = _factor(whole * _NEAR, then=","), _factor(whole * _FAR)
    records = "a record's value is" if g == 1 else f"the values of up to {g} records of a person are"
    return (
        f"Protection by distance, with rank noise {share:f}: if {records} replaced by one that is 1 % of "
        f"the ranks away, no result becomes more than {near} as probable or improbable, as far as it "
        f"depends on ranks, whose noise has a public size; at 10 % {far}; whatever it is replaced by, "
        f"{_factor(whole)}. "
        f"{_distinction(whole * _NEAR)}{_few_values(plan, share)}"
    )


def _distinction(near: Decimal) -> str:
    """Say which values the release distinguishes, given the exponent for values 1 % of the ranks away."""
    if near > _HARDLY:
        return (
            "With so little rank noise the release can distinguish a value even from one that is 1 % of the "
            "ranks away."
        )
    return (
        "So the release hardly distinguishes a record from those near it in rank, but does distinguish it "
        "from those far away."
    )


def _few_values(plan: Plan, share: Decimal) -> str:
    """Say how well the release distinguishes neighbouring values of attributes that have few."""
    from common.model.ranks import odds_of_next

    names = dict.fromkeys(
        planned.name for planned in _noisy(plan) if planned.rank_noise == share and _is_bounded(plan, planned)
    )
    numbers = {name: plan.attribute(name).n_values for name in names}
    few = {name: n for name, n in numbers.items() if 1 < n <= _MOST_FEW and n * share <= 1}
    odds = {name: odds_of_next(n, share) for name, n in few.items()}
    apart = sorted((name for name in few if odds[name] > _FAR_APART), key=lambda name: few[name])
    if not apart:
        return ""
    listed = ", ".join(f"{odds[name]:.2g} for {name} ({few[name]} values)" for name in apart[:_MOST_NAMES])
    more = f", at most as many for {len(apart) - _MOST_NAMES} more" if len(apart) > _MOST_NAMES else ""
    return (
        " Where an attribute has few values, the next value is far away in ranks: if its values are equally "
        "frequent, a released value is so many times as probable for a record that has it as for one that "
        f"has the next one: {listed}{more}. With other frequencies it can be several times as many."
    )


def _without_bound(plan: Plan) -> tuple[str, ...]:
    names = ", ".join(_ordered_by_data(plan))
    if not names:
        return ()
    return (
        (
            f"Protection by distance of {names}: not bounded, the order depends on the data. The categories "
            "are in the order of how often they occur, and one record can make two of them change places, "
            "and so move every record that has either. Rank noise blurs who has which value; no number says "
            "how much."
        ),
    )


def _factor(exponent: Decimal, then: str = "") -> str:
    """Return exp(exponent) as text; a small one also as a number, rounded up, and followed by `then`."""
    written = f"exp({bound_text(exponent)})"
    if exponent > _SMALL:
        return f"{written} times"
    return f"{exponent.exp().quantize(Decimal('0.01'), rounding=ROUND_CEILING):f} times, {written}{then}"


def _table(plan: Plan, notion: str) -> str:
    unit = unit_word(plan)
    if plan.epsilon_table is None:
        reasons = {
            "no rank noise": without_rank_noise(plan), "the order depends on the data": _ordered_by_data(plan)
        }  # fmt: skip
        whys = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items() if names]
        why = "; ".join(whys) or "there is none for the list of one of them"
        return f"For the released table as a whole, who has which value included, there is no bound ({why})."
    at_most = ", at most, as planned" if plan.linking.max_overlap > 1 else ""
    return (
        f"The released table as a whole, all attributes of one {unit} and who has which value included"
        f"{at_most}: "
        f"{notion} with ε = {bound_text(plan.epsilon_table)}{_condition(plan)}. It is the sum of the ε above "
        "and, for every attribute, of the bound on the privacy loss of ranks. Taken alone, so large a number "
        "promises next to nothing; its worth is the protection by distance."
    )


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


def _promise_in_short(plan: Plan) -> str:
    unit = unit_word(plan)
    if plan.epsilon_joint is None:
        return (
            f"Promised to one {unit}: nothing about whole lists of released values, only about single values."
        )
    protected = "the lists of all released values" if _has_lists(plan) else "the released table"
    bound = bound_text(plan.epsilon_joint)
    return f"Promised to one {unit}: {_notions(plan)[0]} with ε = {bound} for {protected}{_condition(plan)}."


def _ranks_in_short(plan: Plan) -> str:
    if not _has_lists(plan):
        return "This promise includes who has which value."
    shares, without = _bounded_shares(plan), (*without_rank_noise(plan), *_ordered_by_data(plan))
    sentences = []
    if shares:
        loss = rank_loss(shares[0], plan.max_records_per_person)
        near, far = _factor(loss * _NEAR, then=","), _factor(loss * _FAR)
        sentences.append(
            f"Who has which value, with rank noise {shares[0]:f}: at most {near} as probable for a value 1 % "
            f"of the ranks away, {far} for 10 %."
        )
    if without:
        named = f"{len(without)} attributes" if len(without) > 1 else without[0]
        sentences.append(f"Who has which value of {named} is not protected by any bound.")
    return " ".join(sentences)


def _not_hidden_in_short(plan: Plan) -> str:
    size = ", the size of the noise" if INDIVIDUAL in _notions(plan) else ""
    known = "; anyone who knows many original values of a person can often re-identify its record"
    return (
        f"Not hidden: numbers of records, {'' if plan.owner_column else 'often '}their owner, missing "
        f"values{size}"
        f"{known if _has_lists(plan) else ''}."
    )


_INTERSECTED = (
    "That a person is in the data of every group of owners, where only such persons are released: each owner "
    "learns which of its own these are."
)


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


def _shown_by_clusters(plan: Plan) -> tuple[str, ...]:
    """Return what released values show of clusters and of which values a record has together."""
    of_clusters = tuple(shown_by_clusters(plan))
    together = (shown_by_lists(plan),) if _has_lists(plan) else ()
    if not of_clusters:
        return together
    return (*of_clusters, *together, "A larger k means less noise. It does not mean more privacy.")


def _has_lists(plan: Plan) -> bool:
    """Whether any attribute has a list that is separate from its assignment to records."""
    return any(planned.rules.listed for task in plan.tasks for planned in task.attributes)


def _notions(plan: Plan) -> list[str]:
    """Return the notions of privacy that the mechanisms of a plan give, the weaker first."""
    given = {planned.rules.notion for task in plan.tasks for planned in task.attributes}
    return [notion for notion in (INDIVIDUAL, GLOBAL) if notion in given]


def _condition(plan: Plan) -> str:
    """Return the condition of a bound over all attributes, where one of them needs it."""
    return f", {SCALES_GIVEN}" if INDIVIDUAL in _notions(plan) else ""


def _meanings(plan: Plan) -> list[str]:
    g = plan.max_records_per_person
    records = "one record" if g == 1 else f"up to {g} records, all that one person has at an owner,"
    return [_MEANING[notion].format(records=records) for notion in _notions(plan)]


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


def _total(plan: Plan) -> str:
    unit = unit_word(plan)
    if plan.epsilon_joint is None:
        return f"All attributes of one {unit} together: no bound, because there is none for one of them."
    protected = "the lists of released values of all attributes" if _has_lists(plan) else "the released table"
    at_most = ", at most, as planned" if plan.linking.max_overlap > 1 else ""
    return (
        f"All attributes of one {unit} together{at_most}: {_notions(plan)[0]} with ε = "
        f"{bound_text(plan.epsilon_joint)} for {protected}{_condition(plan)}."
    )


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
            _total(plan),
            *rank_promises(plan, _notions(plan)[0]),
        )

    def essentials(self, plan: Plan) -> tuple[str, ...]:
        """Say the promise, who has which value and what is not hidden, in a line or two each."""
        common = f"Only persons of all groups are masked, at least {plan.linking.min_common}."
        return (
            *([common] if plan.linking.intersects else []),
            _promise_in_short(plan),
            _ranks_in_short(plan),
            _not_hidden_in_short(plan),
            *alternative(plan),
        )

    def invariants(self, plan: Plan) -> tuple[str, ...]:
        """Say what is not hidden of owners, missing values, scales of noise, and clusters."""
        several = plan.n_groups > 1
        return (
            *_shown_of_owners(plan),
            "Which values are missing, where a record was left out or a missing value was kept.",
            *(["That the owners' attributes are about the same records."] if several else []),
            *([_INTERSECTED] if plan.linking.intersects else []),
            *_shown_by_scales(plan),
            *_shown_by_clusters(plan),
        )

    def composition(self, plan: Plan) -> str:
        """Say that the ε of attributes add up."""
        elsewhere = ", also where different owners hold them" if plan.n_groups > 1 else ""
        return f"The ε of different attributes of one record add up (sequential composition){elsewhere}"

    def condition(self, plan: Plan) -> str:
        """Return the condition of a bound over all attributes, where one of them needs it."""
        return _condition(plan)

    def leaves(self, plan: Plan, assignment: Assignment) -> tuple[str, ...]:
        """Say what values leave an owner."""
        names = ", ".join(assignment.names)
        return (
            f"one masked value of every attribute for every record ({names}), once all owners have masked",
        )

    def worth(self, plan: Plan) -> Worth:
        """Judge a plan by the expected errors of its attributes."""
        return Worth.of_errors(largest_errors(plan))
