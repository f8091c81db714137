"""Questions about one attribute: their kinds, their text forms, and the promises about an answer.

References:
    Soria-Comas et al. 2017, Definition 5 and Section VI.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from itertools import pairwise

from common.errors import UsageError
from common.model.privacy import parse_epsilon
from common.model.schema import Attribute, unit_of


class QuestionKind(StrEnum):
    """Kinds of questions."""

    MEDIAN = "median"
    """For an even number of records: half-way between the two middle values."""
    MAXIMUM = "maximum"
    SECOND_MAXIMUM = "second-maximum"
    """If several records have the largest value, it is that value. If it is near the maximum, it has less
    noise: one changed record can move the maximum to the end of the domain, but not the second largest."""
    QUANTILE = "quantile"
    """The value that a stated share of the records does not exceed."""
    SUM = "sum"
    """The sum of a number, over all records."""
    MEAN = "mean"
    """The sum divided by the number of records, which is not protected."""
    COUNT = "count"
    """How many records have a value in a range."""
    HISTOGRAM = "histogram"
    """How many records have a value in each of the ranges that the domain is cut into."""

    @property
    def counts(self) -> bool:
        """Whether records are counted."""
        return self in (QuestionKind.COUNT, QuestionKind.HISTOGRAM)

    @property
    def adds(self) -> bool:
        """Whether values are added up."""
        return self in (QuestionKind.SUM, QuestionKind.MEAN)

    @property
    def has_public_noise(self) -> bool:
        """Whether the size of the noise is the same for all data, so that it can be stated."""
        return self.counts or self.adds


@dataclass(frozen=True, slots=True)
class Range:
    """Values from `first` up to, and not including, `end`, in resolution units."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one attribute."""

    kind: QuestionKind
    attribute: Attribute
    epsilon: Decimal
    """Charge of the whole answer."""
    g: int = 1
    """The most records that one person has."""
    ranges: tuple[Range, ...] = ()
    """The counted ranges: one for a count; for a histogram, all ranges of the domain."""
    share: Decimal | None = None
    """Which quantile, above 0 and below 1; None for other questions."""

    def __post_init__(self) -> None:
        attribute, kind = self.attribute, self.kind
        ordered = attribute.ordered or not attribute.is_categorical
        if not kind.counts and not ordered:
            raise UsageError(
                f"attribute {attribute.name!r} has no {kind}: its categories have no order",
                "ask for a count or a histogram, or declare the categories as ordered",
            )
        if kind.adds and not attribute.type.is_quantity:
            raise UsageError(
                f"attribute {attribute.name!r} has no {kind}: it is no number",
                "ask for its median or a histogram",
            )
        if not kind.counts and attribute.unplaced:
            raise UsageError(
                f"attribute {attribute.name!r} has no {kind}: "
                f"{attribute.unplaced} have no place in its order",
                'ask for a count or a histogram, or set missing = "drop" for it',
            )
        if (kind is QuestionKind.QUANTILE) != (self.share is not None and 0 < self.share < 1):
            raise UsageError("a quantile needs a share above 0 and below 1", "for example --share 0.9")
        whole = Range(attribute.lower, attribute.highest + 1)
        if kind is QuestionKind.COUNT and (len(self.ranges) != 1 or self.ranges[0] == whole):
            raise UsageError(
                "a count needs a condition: the number of all records is not protected",
                "add --equals, --at-least or --below",
            )
        if kind is QuestionKind.HISTOGRAM and len(self.ranges) < 2:
            if attribute.is_categorical:
                raise UsageError(
                    f"attribute {attribute.name!r} has no histogram: it has one label",
                    "the number of all records is not protected, and needs no question",
                )
            raise UsageError(
                f"a histogram of attribute {attribute.name!r} needs ranges", "cut its domain: --bins 20,40,60"
            )


def units_of(attribute: Attribute, text: str) -> int:
    """Parse a value of an attribute's domain as a person writes it.

    Raises:
        UsageError: If the text is no such value.
    """
    try:
        return unit_of(attribute, text)
    except ValueError:
        accepted = ", ".join(attribute.labels) or f"{attribute.min} to {attribute.max}"
        steps = f", in steps of {attribute.resolution}" if attribute.unit != 1 else ""
        raise UsageError(
            f"{text!r} is outside the domain of attribute {attribute.name!r}", f"accepted: {accepted}{steps}"
        ) from None


def counted_range(
    attribute: Attribute, equals: str | None, at_least: str | None, below: str | None
) -> tuple[Range, ...]:
    """Return the range that a count's conditions describe; empty without conditions.

    Raises:
        UsageError: If the conditions contradict each other or the attribute.
    """
    if equals is not None:
        if at_least is not None or below is not None:
            raise UsageError("--equals excludes --at-least and --below", "name one value, or a range")
        value = units_of(attribute, equals)
        return (Range(value, value + 1),)
    if at_least is None and below is None:
        return ()
    if attribute.is_categorical and not attribute.ordered:
        raise UsageError(f"the values of attribute {attribute.name!r} have no order", "use --equals")
    first = attribute.lower if at_least is None else units_of(attribute, at_least)
    end = attribute.upper + 1 if below is None else units_of(attribute, below)
    if first >= end:
        raise UsageError(
            "no value is in that range", "--at-least is its first value, --below is above its last"
        )
    return (Range(first, end),)


def histogram_ranges(attribute: Attribute, bins: Sequence[str]) -> tuple[Range, ...]:
    """Divide a domain into ranges: one per category, or at the given values.

    Args:
        bins: Where a range begins, ascending; the first range begins at the domain's lowest value.

    Raises:
        UsageError: If the values do not ascend within the domain, or are given for categories.
    """
    if attribute.is_categorical:
        if bins:
            raise UsageError(f"attribute {attribute.name!r} has a count per category", "leave --bins out")
        return tuple(Range(index, index + 1) for index in range(attribute.n_values))
    cuts = [units_of(attribute, text) for text in bins]
    edges = [attribute.lower, *(cut for cut in cuts if cut != attribute.lower), attribute.upper + 1]
    if any(first >= end for first, end in pairwise(edges)):
        raise UsageError("--bins must ascend", "name each value once, smallest first: --bins 20,40,60")
    if attribute.keeps_missing:
        edges.append(attribute.highest + 1)
    return tuple(Range(first, end) for first, end in pairwise(edges))


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in the words of a command line or a notebook, before its attribute is known."""

    statistic: str
    """One of `QuestionKind`."""
    epsilon: str
    share: str | None = None
    """Which quantile."""
    equals: str | None = None
    """The value that is counted."""
    at_least: str | None = None
    """The first of the values that are counted."""
    below: str | None = None
    """The first value above them."""
    bins: Sequence[str] = ()
    """Lower ends of the ranges of a histogram."""

    def about(self, attribute: Attribute, g: int) -> Question:
        """Return the question about an attribute of which one person has at most `g` records.

        Raises:
            UsageError: If there is no such question about this attribute.
        """
        try:
            kind = QuestionKind(self.statistic)
        except ValueError:
            known = ", ".join(QuestionKind)
            raise UsageError(f"there is no statistic {self.statistic!r}", f"one of {known}") from None
        ranges: tuple[Range, ...] = ()
        if kind is QuestionKind.COUNT:
            ranges = counted_range(attribute, self.equals, self.at_least, self.below)
        elif kind is QuestionKind.HISTOGRAM:
            ranges = histogram_ranges(attribute, self.bins)
        return Question(kind, attribute, parse_epsilon(self.epsilon), g, ranges, _share_of(self.share))


def _share_of(text: str | None) -> Decimal | None:
    """Return a share as a number; zero, which no question takes, if it is none."""
    if text is None:
        return None
    try:
        share = Decimal(text)
    except InvalidOperation:
        return Decimal(0)
    return share if share.is_finite() else Decimal(0)


def range_texts(question: Question) -> tuple[dict[str, str], ...]:
    """Return the counted ranges as documents."""
    attribute = question.attribute
    single = attribute.is_categorical and all(bounds.end == bounds.first + 1 for bounds in question.ranges)
    return tuple(
        {"equals": attribute.text(bounds.first)}
        if single or bounds.first > attribute.upper
        else {"first": attribute.text(bounds.first), "last": attribute.text(bounds.end - 1)}
        for bounds in question.ranges
    )


def _reach(question: Question) -> tuple[str, ...]:
    """Explain how large the noise of a maximum can be; the scale itself is data-dependent."""
    if question.kind is not QuestionKind.MAXIMUM:
        return ()
    return (
        (
            "One changed record can move a maximum to the end of the domain. If the largest value is far "
            "from there, the scale of the noise is that distance divided by ε, which may exceed the width of "
            "the domain; an answer outside the domain becomes its nearest end, and then has no information."
        ),
    )


def promises(question: Question) -> tuple[str, ...]:
    """Return in plain words what is promised about an answer, and what is not."""
    g = question.g
    records = "one record" if g == 1 else f"up to {g} records, all that one person has,"
    change = (
        f"replacing the attribute values of {records} by any others of their domains changes the "
        f"probability of the answer by a factor of at most exp(ε), ε = {question.epsilon:f}."
    )
    words: tuple[str, ...]
    if question.kind.has_public_noise:
        scale = {
            QuestionKind.COUNT: f"every count has a scale of {g}/ε records",
            QuestionKind.HISTOGRAM: f"every count has a scale of {2 * g}/ε records",
        }.get(
            question.kind, f"the sum has a scale of {'' if g == 1 else f'{g} times '}the domain's width / ε"
        )
        words = (
            f"Differential privacy: whatever the original data are, {change}",
            f"The noise of {scale}.",
        )
    else:
        words = (
            (
                "Individual differential privacy: for the original data as they are, and with the size of "
                f"the noise taken as given, {change} The noise is calibrated to these data and not to all "
                "conceivable data, which makes it a weaker promise than differential privacy."
            ),
            (
                "The scale of the noise depends on the data, so it is not reported. Many answers together "
                "disclose it, and no ε covers this disclosure."
            ),
            *_reach(question),
            f"Nothing is promised about more than {'one record' if g == 1 else f'{g} records'} together.",
        )
    return (
        *words,
        "That a record exists, and the exact number of records, are not protected.",
        "Answers add up: their ε, and those of releases of the same data, are counted for ever.",
    )
