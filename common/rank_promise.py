"""What rank noise promises and what it leaves, in plain words, derived from a plan (MECHANISMS §8).

The number for the whole table is large, and says little by itself. What protects is distance: a change that
moves a record by few ranks is hardly seen, one that moves it far is. The words say both, and no more.
"""

from decimal import ROUND_CEILING, Decimal

from common.plan import Plan
from common.privacy import MECHANISMS, is_ordered_by_data, rank_loss
from common.shown_bounds import bound_text
from common.task import PlannedAttribute

_NEAR, _FAR = Decimal("0.01"), Decimal("0.1")
_SMALL = Decimal(3)
"""Up to it a factor exp(x) is written out."""
_HARDLY = Decimal(1)
"""Up to it a factor exp(x) is called hardly telling: no result becomes three times as probable."""


def rank_promises(plan: Plan, notion: str) -> tuple[str, ...]:
    """Say what is promised about who has which value; nothing where no attribute has rank noise.

    Args:
        plan: The plan.
        notion: The notion of privacy that all its attributes together have.
    """
    if not plan.has_rank_noise:
        return ()
    return (
        (
            "Who has which value: a record's rank in an attribute is its place when all records of its owner "
            "are sorted by it. Before the values of the list are given to records, every rank is moved by "
            "random noise, and so a record gets the value of another one near it: rank noise "
            f"{_by_attribute(plan)}."
        ),
        *(_by_distance(share, plan.max_records_per_person) for share in _bounded_shares(plan)),
        *_unbounded(plan),
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
        "About which of its values a record has together, and about how high they are: rank noise blurs "
        "this, near by and not far away. Who knows the original numbers of many attributes of a person can "
        "still find records. How many depends on the data: of the tens of thousands of records of the data "
        "set Adult, with ten known attributes and ε = 1, it was 70 % without rank noise, 28 % with 0.03 and "
        "4 % with 0.1; of fewer records with continuous attributes it can be most of them. For its own data "
        "each owner sees it with `owner-node explore`, and with `owner-node show` before agreeing."
    )


def shown_by_clusters(plan: Plan, k: str) -> str:
    """Say what equal released values of records that share a cluster do not hide.

    Args:
        plan: The plan.
        k: The minimum cluster sizes.
    """
    if not without_rank_noise(plan):
        return (
            f"Which records share a cluster (k = {k}): they have equal released values. Because of the rank "
            "noise that need not be the cluster which their original values belong to."
        )
    return (
        f"Which records share a cluster (k = {k}): they have equal released values, and ε does not limit "
        "what that pattern of equal values shows. Who knows the original numbers of a few attributes of "
        "a person can often find that person's record by the pattern alone, whatever ε is (measured: 90 "
        "to 100 % of the records with two or three continuous attributes at k = 10)."
    )


def without_rank_noise(plan: Plan) -> tuple[str, ...]:
    """Return the attributes with a list at some owner that has no rank noise, each once."""
    return tuple(
        dict.fromkeys(
            each.name
            for task in plan.tasks
            for each in task.attributes
            if MECHANISMS[each.mechanism].listed and not each.rank_noise
        )
    )


def _noisy(plan: Plan) -> list[PlannedAttribute]:
    return [each for task in plan.tasks for each in task.attributes if each.rank_noise]


def _is_bounded(plan: Plan, planned: PlannedAttribute) -> bool:
    """Whether the bound on rank noise holds: not where one record can change the order of all."""
    by_frequency = plan.attribute(planned.name).by_frequency
    return not is_ordered_by_data(planned.mechanism, frequency_order=by_frequency)


def _bounded_shares(plan: Plan) -> list[Decimal]:
    return sorted({each.rank_noise for each in _noisy(plan) if _is_bounded(plan, each)})


def _ordered_by_data(plan: Plan) -> tuple[str, ...]:
    """Return the attributes whose rank noise has no bound at some owner, each once."""
    return tuple(dict.fromkeys(each.name for each in _noisy(plan) if not _is_bounded(plan, each)))


def _by_attribute(plan: Plan) -> str:
    """Return every rank noise with its attributes."""
    names: dict[Decimal, list[str]] = {}
    for each in sorted(_noisy(plan), key=lambda noisy: noisy.rank_noise):
        of_share = names.setdefault(each.rank_noise, [])
        if each.name not in of_share:
            of_share.append(each.name)
    return "; ".join(f"{share:f} of the number of records for {', '.join(of)}" for share, of in names.items())


def _by_distance(share: Decimal, g: int) -> str:
    whole = rank_loss(share, g)
    near, far = _factor(whole * _NEAR, then=","), _factor(whole * _FAR)
    records = "a record's value is" if g == 1 else f"the values of up to {g} records of a person are"
    return (
        f"Protection by distance, with rank noise {share:f}: if {records} replaced by one that is 1 % of "
        f"the ranks away, no result becomes more than {near} as probable or improbable, as far as it "
        f"depends on ranks; at 10 % {far}; whatever it is replaced by, {_factor(whole)}. "
        f"{_what_is_told(whole * _NEAR)}"
    )


def _what_is_told(near: Decimal) -> str:
    """Say which values the release tells apart, given the exponent for values 1 % of the ranks away."""
    if near > _HARDLY:
        return (
            "With so little rank noise the release can tell a value even from one that is 1 % of the ranks "
            "away."
        )
    return (
        "So the release hardly tells a value from its neighbours, and does tell it from very different ones."
    )


def _unbounded(plan: Plan) -> tuple[str, ...]:
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
    """Return exp of it; a small one as a number that is at least as large, and what closes the insertion."""
    written = f"exp({bound_text(exponent)})"
    if exponent > _SMALL:
        return f"{written} times"
    return f"{exponent.exp().quantize(Decimal('0.01'), rounding=ROUND_CEILING):f} times, {written}{then}"


def _table(plan: Plan, notion: str) -> str:
    unit = "person" if plan.linking.tokens else "record"
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
        f"{notion} with ε = {bound_text(plan.epsilon_table)}. It is the sum of the ε above and, for every "
        "attribute, of what can be told about ranks at most. Taken alone so large a number promises next to "
        "nothing; what it is worth is the protection by distance."
    )
