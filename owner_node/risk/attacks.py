"""Attacks on a release, each with a baseline: the success rate without the release.

An intruder is assumed to know some attributes of everybody, exactly or approximately. The release contains
most records; people who were left out of it show how much an attack discloses about anybody at all. Beside
linkage, the attacks measure whether the neighbourhood of a value is disclosed, whether unknown values can be
inferred, whether somebody is in the release, and whose the extreme values are.

References:
    Domingo-Ferrer and Torra 2001 (record linkage); Fellegi and Sunter 1969 (likelihoods).
    Mateo-Sanz, Sebé, Domingo-Ferrer 2004, "Outlier protection in continuous microdata masking" (intervals).
    Giomi et al. 2023, "A unified framework for quantifying privacy risk in synthetic data" (people who are
    not in the release as the control of an inference).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

import numpy as np

from owner_node.masking.arrays import Float64Array, Int64Array, PositionArray
from owner_node.risk.likelihood import Known, linked_by_likelihood
from owner_node.risk.links import (
    Candidates,
    chance_above,
    codes,
    linked,
    linked_by_equality,
    match_rate,
    middle_ranks,
    nearest_kind,
)
from owner_node.risk.measures import Scale
from owner_node.risk.relations import Component, components

WINDOW = 0.05
"""Largest error of a correct guess, as a share of the ranks to either side."""


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbourhoods of values among the original values, as closed intervals of places."""

    low: Float64Array
    """Lower ends, `(n,)`."""
    high: Float64Array
    """Upper ends, `(n,)`."""

    @classmethod
    def around(cls, places: Float64Array, ascending: Float64Array, share: float = WINDOW) -> "Window":
        """Return the neighbourhoods of some places, up to a share of the ranks to either side.

        Args:
            places: The places, `(n,)`.
            ascending: Original places in order, `(n_records,)`.
        """
        n_records = ascending.size
        first = np.searchsorted(ascending, places, side="left")
        last = np.searchsorted(ascending, places, side="right") - 1
        reach = int(share * n_records)
        # A place between two original values has the ranks of both: `last` is the lower one.
        lower = ascending[np.clip(np.minimum(first, last) - reach, 0, n_records - 1)]
        upper = ascending[np.clip(np.maximum(first, last) + reach, 0, n_records - 1)]
        return cls(np.minimum(lower, places), np.maximum(upper, places))

    @classmethod
    def exactly(cls, places: Float64Array) -> "Window":
        """Return neighbourhoods that contain only the place itself, for categories."""
        return cls(places, places)

    def holds(self, places: Float64Array) -> Float64Array:
        """Return 1 for each place that is in its own neighbourhood, else 0, `(n,)`."""
        return ((self.low <= places) & (places <= self.high)).astype(np.float64)

    def chance(self, ascending: Float64Array) -> float:
        """Return the mean share of original values that are in a neighbourhood."""
        within = np.searchsorted(ascending, self.high, side="right")
        within = within - np.searchsorted(ascending, self.low, side="left")
        return float(within.mean()) / ascending.size

    def best_guess(self) -> float:
        """Return the largest share of neighbourhoods that contain the same place."""
        starts, ends = np.sort(self.low), np.sort(self.high)
        opened = np.arange(1, starts.size + 1) - np.searchsorted(ends, starts, side="left")
        return float(opened.max()) / starts.size


def inferred(
    targets: Float64Array, truth: Window, candidates: Candidates, released: Float64Array
) -> Float64Array:
    """Return the probability that an attribute is inferred from the records nearest in the other attributes.

    Args:
        targets: Known places of the targets, `(n_targets, n_known)`.
        truth: Neighbourhoods of the true places of the inferred attribute, `n_targets`.
        released: Released places of the inferred attribute, `(n_records,)`.

    Returns:
        Among the records equal to the nearest one, the share near the truth, `(n_targets,)`.
    """
    kinds = nearest_kind(targets, candidates)
    places, code = np.unique(released, return_inverse=True)
    width = places.size + 1
    keys = np.sort(candidates.kind_of * width + code)
    from_low = np.searchsorted(keys, kinds * width + np.searchsorted(places, truth.low, side="left"))
    to_high = np.searchsorted(keys, kinds * width + np.searchsorted(places, truth.high, side="right"))
    shares: Float64Array = (to_high - from_low) / candidates.counts[kinds]
    return shares


UNCHANGED, LINKAGE, LIKELIHOOD, STRUCTURE, INTERVAL, INFERENCE, MEMBERSHIP, EXTREMES, SCALES = (
    "unchanged", "linkage", "likelihood", "structure", "interval", "inference", "membership", "extremes",
    "scales",
)  # fmt: skip
ATTACKS = (UNCHANGED, LINKAGE, LIKELIHOOD, STRUCTURE, INTERVAL, INFERENCE, MEMBERSHIP, EXTREMES, SCALES)
"""The attacks that can be requested."""
LINKING = (LINKAGE, LIKELIHOOD, STRUCTURE)
"""Attacks that re-identify: they link persons to their records."""
UNCHANGED_VALUES, UNCHANGED_RECORDS = "unchanged-values", "unchanged-records"


@dataclass(frozen=True, slots=True)
class AttackWords:
    """What an attack is, for people."""

    name: str
    """Its name."""
    meaning: str
    """What holds if it is always right."""
    better: str
    """What it means if it is right more often than without the release."""


WORDS: Mapping[str, AttackWords] = MappingProxyType(
    {
        UNCHANGED_VALUES: AttackWords(
            "values that leave unchanged",
            "every value leaves as it is",
            "these values leave as they are, more of them than by chance",
        ),
        UNCHANGED_RECORDS: AttackWords(
            "records that leave unchanged as a whole",
            "every record leaves as it is, with all its values",
            "these records leave as they are, so that anyone who knows the person recognises them",
        ),
        LINKAGE: AttackWords(
            "re-identified by the nearest record",
            "everybody's record is the nearest one to what is known of them",
            "the released record nearest to what is known of these persons is theirs",
        ),
        LIKELIHOOD: AttackWords(
            "re-identified by the likeliest record",
            "everybody's record is the likeliest one, from everybody's ranks and the noise on them",
            "the ranks of these persons' values point to their record through the noise",
        ),
        STRUCTURE: AttackWords(
            "re-identified by equal values and their order",
            "everybody's record is linked by equality and order of released values alone",
            "which released values are equal, and their order, point to these persons' records",
        ),
        INTERVAL: AttackWords(
            "values known nearly",
            "every original value is near its released one, within 5 % of the ranks",
            "anyone who has found a person's record knows these values nearly, within 5 % of the ranks",
        ),
        INFERENCE: AttackWords(
            "value guessed from a person's other values:",
            "everybody's value is what the record nearest to them in the other attributes says",
            "anyone who knows a person's other values guesses this one better with the release",
        ),
        MEMBERSHIP: AttackWords(
            "whether a person is in the data",
            "of a person in the release and one who was left out, it is always known which is which",
            "the release betrays who is in it: 50 % is guessing, 100 % is certainty",
        ),
        EXTREMES: AttackWords(
            "whose the smallest and largest values are",
            "the records with the smallest and largest values are those of the people who have them",
            "the record with an extreme value is often that of the person who has it",
        ),
        SCALES: AttackWords(
            "whether somebody has the largest value",
            "the noise of a list discloses whether somebody has the largest value that there can be",
            "the size of the noise betrays an extreme value: 50 % is guessing, 100 % is certainty",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Crowd:
    """The people whose records were released, and some who were left out."""

    scales: tuple[Scale, ...]
    """How each attribute's values are compared."""
    columns: tuple[Int64Array, ...]
    """Original values of the released records by attribute, `(n_records,)` each."""
    places: Float64Array
    """The same values as places, `(n_records, n_attributes)`."""
    ascending: Float64Array
    """Each column of places, sorted separately, `(n_records, n_attributes)`."""
    ranks: Float64Array
    """Ranks as shares, `(n_records, n_attributes)`."""
    units: Float64Array
    """Standard deviation of each column of places, 1 if it is 0, `(n_attributes,)`."""
    outside: Float64Array
    """Places of the people who were left out, `(n_outside, n_attributes)`."""

    @classmethod
    def of(
        cls, scales: Sequence[Scale], released: Sequence[Int64Array], outside: Sequence[Int64Array]
    ) -> "Crowd":
        """Prepare attacks on releases of some records.

        Args:
            released: Original values of the released records by attribute, `(n_records,)` each.
            outside: The same of the people who were left out.
        """
        places = places_of(scales, released)
        spread = places.std(axis=0)
        return cls(
            tuple(scales),
            tuple(released),
            places,
            np.sort(places, axis=0),
            np.column_stack([middle_ranks(column) for column in places.T]),
            np.where(spread > 0, spread, 1.0),
            places_of(scales, outside),
        )

    def window(self, attribute: int, places: Float64Array) -> Window:
        """Return the neighbourhoods of places of one attribute: the guesses that count as correct."""
        if not self.scales[attribute].is_ordered:
            return Window.exactly(places)
        return Window.around(places, self.ascending[:, attribute])


@dataclass(frozen=True, slots=True)
class Ascending:
    """How an attribute was carried whose released values ascend with the noisy ranks of its records."""

    rank_noise: Decimal
    """Scale of rank noise, as a share of the ranks."""
    as_declared: bool = False
    """Whether categories ascend in declared order, although they are compared in another order."""
    shuffled: Int64Array | None = None
    """Sizes of the parts of the list that are handed out in random order; None if none is."""


@dataclass(frozen=True, slots=True)
class MaskedRecords:
    """Masked records, in the order of the original ones."""

    columns: tuple[Int64Array, ...]
    """Values by attribute, `(n_records,)` each."""
    places: Float64Array
    """The same as places, `(n_records, n_attributes)`."""
    ks: tuple[int | None, ...]
    """Minimum cluster size of each attribute."""
    carriers: tuple[Ascending | None, ...]
    """How each attribute was carried; None if released values need not ascend with ranks."""


@dataclass(frozen=True, slots=True)
class AttackResult:
    """The result of one attack on one draw."""

    attack: str
    rate: float
    """Share of targets for which the attack was right."""
    baseline: float
    """The success rate without the release."""
    targets: int
    control: float | None = None
    """The success rate for people who were left out."""
    outside: int = 0
    """Number of people who were left out."""
    attribute: str | None = None


@dataclass(frozen=True, slots=True)
class Intruder:
    """The intruder's knowledge, targets, and the attributes to infer."""

    known: PositionArray
    """Numbers of the attributes that the intruder knows about everybody."""
    errors: Float64Array | None
    """Errors of this knowledge, of ranks as shares, each at most `WINDOW`, `(n_people, n_known)`, people who
    were left out last; None for exact knowledge."""
    wanted: PositionArray
    """Numbers of the attributes that are to be inferred."""
    targets: PositionArray
    """Positions of the attacked records."""
    persons: PositionArray
    """A smaller part of the targets, for attacks that take longer: by likelihood and by inference."""
    others: PositionArray
    """Positions of people in random order, to estimate how likely a record is for anybody."""


def places_of(scales: Sequence[Scale], columns: Sequence[Int64Array]) -> Float64Array:
    """Return values of several attributes as places, `(n_records, n_attributes)`."""
    return np.column_stack([scale.places(column) for scale, column in zip(scales, columns, strict=True)])


def attack(
    names: Sequence[str], crowd: Crowd, release: MaskedRecords, intruder: Intruder
) -> Iterator[AttackResult]:
    """Try attacks on a release, one after another.

    Args:
        names: Which of `ATTACKS`.
    """
    wanted = [name for name in _BY_NAME if name in names or (name == LIKELIHOOD and MEMBERSHIP in names)]
    for name in wanted:
        for result in _BY_NAME[name](crowd, release, intruder):
            if result.attack not in (LIKELIHOOD, MEMBERSHIP) or result.attack in names:
                yield result


def _unchanged_values(crowd: Crowd, release: MaskedRecords, _intruder: Intruder) -> Iterator[AttackResult]:
    n_records = len(crowd.places)
    pairs = list(zip(crowd.columns, release.columns, strict=True))
    same = np.column_stack([original == masked for original, masked in pairs])
    by_chance = [match_rate(codes([original]), codes([masked])) for original, masked in pairs]
    yield AttackResult(UNCHANGED_VALUES, float(same.mean()), float(np.mean(by_chance)), n_records)
    whole = match_rate(codes(list(crowd.columns)), codes(list(release.columns)))
    yield AttackResult(UNCHANGED_RECORDS, float(same.all(axis=1).mean()), whole, n_records)


def _linkage(crowd: Crowd, release: MaskedRecords, intruder: Intruder) -> Iterator[AttackResult]:
    units = crowd.units[intruder.known]
    candidates = Candidates.of(release.places[:, intruder.known] / units)
    known = crowd.places[np.ix_(intruder.targets, intruder.known)] / units
    right = linked(known, intruder.targets, candidates)
    yield AttackResult(LINKAGE, float(right.mean()), 1 / len(crowd.places), right.size)


def _likelihood(crowd: Crowd, release: MaskedRecords, intruder: Intruder) -> Iterator[AttackResult]:
    """Link by likelihood; how sure the intruder is of a link also says who is in the release.

    Relations with attributes that the intruder does not know help in some data and not in others: the better
    of both attempts counts.
    """
    known = list(known_attributes(crowd, release, intruder))
    if not known:
        return
    n_records, n_inside = len(crowd.places), intruder.persons.size
    n_outside = min(len(crowd.outside), n_inside)
    people = np.concatenate([intruder.persons, n_records + np.arange(n_outside)])
    links = linked_by_likelihood(known, people, intruder.others)
    rate = float(links.right[:n_inside].mean())
    released = dict(enumerate(release.places.T))
    exact = intruder.errors is None
    if exact and (related := related_attributes(crowd, released, intruder.known.tolist())):
        by_relations = linked_by_likelihood(known, intruder.persons, intruder.others, related)
        rate = max(rate, float(by_relations.right.mean()))
    yield AttackResult(LIKELIHOOD, rate, 1 / n_records, n_inside)
    if n_outside:
        inside, outside = np.split(links.surest, [n_inside])
        yield AttackResult(MEMBERSHIP, chance_above(inside, outside), 0.5, n_outside)


def known_attributes(crowd: Crowd, release: MaskedRecords, intruder: Intruder) -> Iterator[Known]:
    """Return what an intruder knows about the attributes whose released values ascend with ranks."""
    for number, attribute in enumerate(intruder.known):
        carrier = release.carriers[attribute]
        if carrier is not None:
            errors = None if intruder.errors is None else intruder.errors[:, number]
            yield known_attribute(crowd, attribute, release.columns[attribute], carrier, errors)


def related_attributes(
    crowd: Crowd, released: Mapping[int, Float64Array], known: Collection[int]
) -> list[Component]:
    """Return what exactly known attributes of one release say about its others.

    Args:
        released: Released places by number of the attribute, `(n_records,)` each.
        known: Numbers of the known attributes.
    """
    ordered = [number for number in released if crowd.scales[number].is_ordered]
    everybody = np.concatenate([crowd.places, crowd.outside])
    return components(
        [(everybody[:, number], released[number]) for number in ordered if number in known],
        [released[number] for number in ordered if number not in known],
    )


def known_attribute(
    crowd: Crowd, attribute: int, masked: Int64Array, carrier: Ascending, errors: Float64Array | None = None
) -> Known:
    """Return what an intruder knows about one attribute.

    Args:
        masked: Its released values, `(n_records,)`.
        errors: Errors of ranks, as in `Intruder`, `(n_people,)`; ignored for categories without an order.
    """
    scale = crowd.scales[attribute]
    original, outside = crowd.places[:, attribute], crowd.outside[:, attribute]
    released = scale.places(masked)
    if carrier.as_declared:
        original, outside = scale.values(original), scale.values(outside)
        released = masked.astype(np.float64)
    return Known(
        original,
        released,
        float(carrier.rank_noise),
        carrier.shuffled,
        errors if scale.is_ordered else None,
        WINDOW,
        outside,
    )


def _extremes(crowd: Crowd, release: MaskedRecords, _intruder: Intruder) -> Iterator[AttackResult]:
    """Take the record with the smallest or largest released value for the person who has that original."""
    rates = []
    for attribute, scale in enumerate(crowd.scales):
        if not scale.is_ordered:
            continue
        original, released = crowd.places[:, attribute], release.places[:, attribute]
        for end in (np.min, np.max):
            (own,) = np.nonzero(original == end(original))
            if own.size == 1:
                extreme = released == end(released)
                rates.append(float(extreme[own[0]]) / extreme.sum())
    if rates:
        yield AttackResult(EXTREMES, float(np.mean(rates)), 1 / len(crowd.places), len(rates))


def _structure(crowd: Crowd, release: MaskedRecords, intruder: Intruder) -> Iterator[AttackResult]:
    """Take the better of the two attacks: an intruder would notice which one distinguishes records."""
    known, targets = intruder.known, intruder.targets
    ranks = np.column_stack([middle_ranks(release.places[:, number]) for number in known])
    by_order = linked(crowd.ranks[np.ix_(targets, known)], targets, Candidates.of(ranks))
    original, released = crowd.places[:, known].T, release.places[:, known].T
    ks = [release.ks[number] for number in known]
    by_equality = linked_by_equality(list(original), list(released), ks)[targets]
    rate = max(float(by_order.mean()), float(by_equality.mean()))
    yield AttackResult(STRUCTURE, rate, 1 / len(crowd.places), targets.size)


def _interval(crowd: Crowd, release: MaskedRecords, _intruder: Intruder) -> Iterator[AttackResult]:
    rates, by_chance = [], []
    for attribute, masked in enumerate(release.places.T):
        window = crowd.window(attribute, masked)
        rates.append(float(window.holds(crowd.places[:, attribute]).mean()))
        by_chance.append(window.chance(crowd.ascending[:, attribute]))
    yield AttackResult(INTERVAL, float(np.mean(rates)), float(np.mean(by_chance)), len(crowd.places))


def _inference(crowd: Crowd, release: MaskedRecords, intruder: Intruder) -> Iterator[AttackResult]:
    for wanted in intruder.wanted:
        known = intruder.known[intruder.known != wanted]
        if not known.size:
            continue
        units, released = crowd.units[known], release.places[:, wanted]
        candidates = Candidates.of(release.places[:, known] / units)
        inside = crowd.places[intruder.persons]
        rates = [
            float(
                inferred(
                    people[:, known] / units, crowd.window(wanted, people[:, wanted]), candidates, released
                ).mean()
            )
            for people in (inside, crowd.outside)
            if len(people)
        ]
        guess = crowd.window(wanted, crowd.places[:, wanted]).best_guess()
        name = crowd.scales[wanted].attribute.name
        control = rates[1] if len(crowd.outside) else None
        yield AttackResult(INFERENCE, rates[0], guess, len(inside), control, len(crowd.outside), name)


_BY_NAME: Mapping[str, Callable[[Crowd, MaskedRecords, Intruder], Iterator[AttackResult]]] = MappingProxyType(
    {
        UNCHANGED: _unchanged_values,
        LINKAGE: _linkage,
        LIKELIHOOD: _likelihood,
        STRUCTURE: _structure,
        INTERVAL: _interval,
        INFERENCE: _inference,
        EXTREMES: _extremes,
    }
)
