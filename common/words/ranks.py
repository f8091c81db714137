"""What is promised about who has which value, in plain words: the words of rank noise.

With rank noise, the number for the whole table is large and says little by itself. What protects is distance:
a change that moves a record by few ranks is hardly visible, one that moves it far is. The words say both, and
no more.
"""

from collections import Counter
from decimal import ROUND_CEILING, Decimal

from common.model.plan import Plan
from common.model.privacy import rank_loss
from common.model.task import PlannedAttribute
from common.words.linking import unit_word
from common.words.numbers import bound_text

_NEAR, _FAR = Decimal("0.01"), Decimal("0.1")
_SMALL = Decimal(3)
"""Up to this exponent, the factor exp(x) is written out."""
_HARDLY = Decimal(1)
"""Up to this exponent, values are called hardly distinguished: no result becomes three times as probable."""
_FAR_APART = 3
"""From this factor on, it is said how well neighbouring values are distinguished."""
_MOST_FEW = 128
"""Most values of an attribute for which that is computed."""
_MOST_NAMES = 5
"""Most names of attributes that a sentence lists."""


def rank_promises(plan: Plan, notion: str, condition: str) -> tuple[str, ...]:
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
        _table(plan, notion, condition),
    )


def ranks_in_short(plan: Plan) -> str:
    """Say in a line or two what protects who has which value, of attributes with lists."""
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


def _table(plan: Plan, notion: str, condition: str) -> str:
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
        f"{notion} with ε = {bound_text(plan.epsilon_table)}{condition}. It is the sum of the ε above "
        "and, for every attribute, of the bound on the privacy loss of ranks. Taken alone, so large a number "
        "promises next to nothing; its worth is the protection by distance."
    )
