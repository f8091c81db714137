"""Noisy answers to single questions about one attribute: order statistics, counts, histograms.

Neighbouring data are defined as everywhere here: the attribute values of up to g records, all that one person
has, are replaced by any others of the domain. The answer is an integer or a vector of integers, and so is its
noise: discrete Laplace, calibrated to the local sensitivity of the data as they are.

*Order statistics.* Let v_1 <= … <= v_n be sorted, with v_j = L for j < 1 and v_j = U for j > n. Replacing
g records moves the j-th smallest to v_(j-g) at the lowest (the g largest become L) and to v_(j+g) at the
highest (the g smallest become U). So the local sensitivity is max(v_(j+g) - v_j, v_j - v_(j-g)); for a
median between two records it is that of their sum. For g = 1 these are the formulas of the paper.

*Counts.* A changed record moves the count of a range by one, and two counts of a histogram by one each, in
any data. The noise is calibrated to g and 2g, the global sensitivity, so this is differential privacy.

*Sums and means.* Changing g records moves the sum of an attribute by at most g (U - L), in any data. The
noise is calibrated to that, the global sensitivity. A mean is a sum divided by the number of records, which
is not protected.

*If the local sensitivity is 0*, the paper answers exactly, which its Definition 5 allows. Here the noise is
calibrated to a sensitivity of at least the smallest step of the answer. Otherwise an answer would be exact
and known to be exact, whatever ε is. It would also disclose that the values around the median are all equal,
which concerns more than g records and is not covered by any ε.

References:
    Soria-Comas et al. 2017, Definitions 5 and 6, Theorem 5, Section VI.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, log
from typing import Protocol, TypeAlias

import numpy as np

from common.errors import UnusableDataError
from common.model.largest import TAIL
from common.model.schema import Attribute
from owner_node.masking.arrays import BitSource, Int64Array
from owner_node.masking.clusters import Setting, fraction_bits
from owner_node.masking.lists import round_centroids
from owner_node.masking.noise import add_saturating, discrete_laplace
from owner_node.masking.questions import Question, QuestionKind

_DIGIT_BITS = 16
"""Bits of a value that are settled in one pass over all values."""


class StreamedValues(Protocol):
    """The values of an attribute that are not in memory; they can be read several times."""

    def __len__(self) -> int:
        """Return the number of records."""

    def __iter__(self) -> Iterator[Int64Array]:
        """Read the values by record number, some at a time."""


Values: TypeAlias = Int64Array | StreamedValues
"""One value per record in resolution units: an array `(n_records,)`, or a stream of arrays."""


@dataclass(frozen=True, slots=True)
class ExactAnswer:
    """The answer without noise, and the public numbers for rounding its noisy form."""

    sums: Int64Array
    """One integer, or one per range, at least 0: `parts` times the answer, above `offset`."""
    parts: int
    """1, or 2 for a median between two records."""
    n_values: int
    """Number of possible answers."""
    offset: int
    """The lowest possible answer."""
    sensitivity: int
    """The local L1-sensitivity of `sums` to g changed records; for counts, the global one."""

    def scale(self, epsilon: Decimal, f: int) -> int:
        """Return the scale of the noise on `sums`, in units of 2^-f, rounded up; sensitivity at least 1."""
        return ceil((max(self.sensitivity, 1) << f) / Fraction(epsilon))


def draw_answer(question: Question, values: Values, bits: BitSource) -> tuple[int, ...]:
    """Answer a question, once its charge is spent.

    Args:
        values: The attribute, in memory or streamed.

    Returns:
        A value in resolution units, within the domain; or one number of records per range, each from 0 to
        n_records.

    Raises:
        UnusableDataError: As `check_answerable` says.
    """
    f = check_answerable(question, len(values))
    exact = exact_answer(question, values)
    scales = np.full(exact.sums.size, exact.scale(question.epsilon, f))
    noise = discrete_laplace(scales, bits)
    bound = _scale_bound(question, len(values))
    noisy = add_saturating(exact.sums << f, noise, TAIL * bound << f)
    answers = round_centroids(noisy, np.full(exact.sums.size, exact.parts << f), exact.n_values)
    return tuple(int(answer) + exact.offset for answer in answers)


def check_answerable(question: Question, n_records: int) -> int:
    """Raise every error that would make `draw_answer` fail; call this before any budget is spent.

    Returns:
        f: noise is drawn on a grid of 2^-f. f follows from public numbers alone.

    Raises:
        UnusableDataError: If there are too few records, or the domain is too wide for exact sums.
    """
    if question.kind is QuestionKind.SECOND_MAXIMUM and n_records < 2:
        raise UnusableDataError(
            f"{n_records} records: a {question.kind} needs at least two",
            "ask for the maximum",
            {"attribute": question.attribute.name, "records": n_records},
        )
    attribute = question.attribute
    n_values = n_records + 1 if question.kind.counts else attribute.n_values
    if question.kind.adds:
        n_values = n_records * (attribute.n_values - 1) + 1
    setting = Setting(attribute.name, n_values, question.epsilon, 1, question.g)
    return fraction_bits(setting, _scale_bound(question, n_records))


def _scale_bound(question: Question, n_records: int) -> int:
    """Return the largest scale over all data, in units of the sum."""
    if question.kind.has_public_noise:
        widest = _moved(question)
    else:
        widest = len(_places(question, n_records)) * (question.attribute.n_values - 1)
    return ceil(max(widest, 1) / Fraction(question.epsilon))


def exact_answer(question: Question, values: Values) -> ExactAnswer:
    """Return the answer without noise; it must leave this process only with noise of its own scale."""
    blocks = (values,) if isinstance(values, np.ndarray) else values
    n_records, attribute = len(values), question.attribute
    if question.kind.counts:
        counts = np.zeros(len(question.ranges), dtype=np.int64)
        for block in blocks:
            inside = ((block >= bounds.first) & (block < bounds.end) for bounds in question.ranges)
            counts += [np.count_nonzero(marked) for marked in inside]
        return ExactAnswer(counts, 1, n_records + 1, 0, _moved(question))
    if question.kind.adds:
        total = np.array([sum(int((block - attribute.lower).sum()) for block in blocks)], dtype=np.int64)
        widest = n_records * (attribute.n_values - 1)
        return ExactAnswer(total, 1, widest + 1, n_records * attribute.lower, _moved(question))
    places = _places(question, n_records)
    low, middle, high = _shifted_sums(blocks, n_records, places, question.g, attribute)
    return ExactAnswer(
        np.array([middle - len(places) * attribute.lower], dtype=np.int64),
        len(places),
        attribute.n_values,
        attribute.lower,
        max(high - middle, middle - low),
    )


def _moved(question: Question) -> int:
    """Return how far g changed records move all counts, or a sum, together, in any data."""
    if question.kind.adds:
        return question.g * (question.attribute.n_values - 1)
    return question.g if question.kind is QuestionKind.COUNT else 2 * question.g


def error_95(question: Question) -> float | None:
    """Return how far noise moves 95 of 100 answers at most: the scale times ln 20.

    Returns:
        In records, or in resolution units of a sum; None where the scale depends on the data, which no ε
        covers.
    """
    if not question.kind.has_public_noise:
        return None
    return max(_moved(question), 1) / float(question.epsilon) * log(20)


def _places(question: Question, n_records: int) -> tuple[int, ...]:
    """Return the places, from 0, of the sorted values that a statistic is the mean of."""
    kind = question.kind
    if question.share is not None:
        return (max(0, ceil(question.share * n_records) - 1),)
    if kind is QuestionKind.MEDIAN:
        middle = n_records // 2
        return (middle,) if n_records % 2 else (middle - 1, middle)
    return (n_records - 1,) if kind is QuestionKind.MAXIMUM else (n_records - 2,)


def _shifted_sums(
    blocks: Iterable[Int64Array], n_records: int, places: tuple[int, ...], g: int, attribute: Attribute
) -> tuple[int, int, int]:
    """Return the sums of the sorted values at `places`, and g places before and after each."""
    wanted = {place + shift for place in places for shift in (-g, 0, g)}
    ordered = _values_at(blocks, {place for place in wanted if 0 <= place < n_records}, attribute)

    def value(place: int) -> int:
        if place < 0:
            return attribute.lower
        return ordered[place] if place < n_records else attribute.upper

    low, middle, high = (sum(value(place + shift) for place in places) for shift in (-g, 0, g))
    return low, middle, high


def _values_at(blocks: Iterable[Int64Array], places: set[int], attribute: Attribute) -> dict[int, int]:
    """Return the sorted values at some places, digit by digit, so that one block at a time is in memory."""
    prefixes = {place: (0, place) for place in places}
    """The leading digits of each value above the domain's lower end, and its place among those with them."""
    unknown = (attribute.n_values - 1).bit_length()
    while unknown:
        rest = max(0, unknown - _DIGIT_BITS)
        n_digits = 1 << (unknown - rest)
        counts = {leading: np.zeros(n_digits, dtype=np.int64) for leading, _ in prefixes.values()}
        for block in blocks:
            values = block - attribute.lower
            for leading in counts:
                digits = (values[values >> unknown == leading] >> rest) & (n_digits - 1)
                counts[leading] += np.bincount(digits, minlength=n_digits)
        for place, (leading, within) in prefixes.items():
            ends = np.cumsum(counts[leading])
            digit = int(np.searchsorted(ends, within, side="right"))
            before = int(ends[digit - 1]) if digit else 0
            prefixes[place] = (leading << (unknown - rest) | digit, within - before)
        unknown = rest
    return {place: value + attribute.lower for place, (value, _) in prefixes.items()}
