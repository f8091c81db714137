"""The public half of every mechanism: its promise, its rule for k, its expected error and its sentence.

Everything here follows from public numbers, so an aggregator plans exactly what an owner verifies. What a
mechanism does to values is the private half, in `owner_node.masking.mechanisms`. A new mechanism is one entry
in each of the two files. Rules elsewhere ask the entry and never compare ids.

References:
    Sánchez et al. 2016; Soria-Comas et al. 2017; Soria-Comas et al. 2025; proofs in docs/guarantee.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import isqrt

from common.errors import UsageError
from common.model.largest import (
    PlannedNumbers,
    ScaleBound,
    Trim,
    cluster_scale_bound,
    domain_scale_bound,
    fits,
    joint_scale_bound,
    local_scale_bound,
    smooth_scale_bound,
    trim_changed,
    trim_none,
)
from common.model.privacy import NO_RANK_NOISE, SMALLEST_K, multiply, plain, rank_loss, share
from common.model.schema import Attribute, TaxonomyMethod, most_records

INDIVIDUAL = "individual differential privacy"
GLOBAL = "differential privacy"
MOST_HISTOGRAM_VALUES = 2**22
"""The largest number of possible values of an attribute that is counted."""
_SPIKES_PART = 10
"""The counts of spikes get one part in so many of ε (docs/decisions.md)."""
_SIX_DIGITS = Context(prec=6)
_TWENTY_DIGITS = Context(prec=20)


@dataclass(frozen=True, slots=True)
class PublicNumbers:
    """The public numbers that one attribute of one owner is planned from."""

    n_records: int
    """The owner's number of records, as rounded in its schema."""
    n_values: int
    """V, the number of values of the attribute's declared domain."""
    epsilon: Decimal
    """The attribute's share of the budget."""
    g: int = 1
    """The most records that one person has."""

    @property
    def epsilon_per_record(self) -> Fraction:
        """ε/g: noise grows with g, as for ε divided by g."""
        return Fraction(self.epsilon) / self.g


# --- carriers: kinds of lists ---------------------------------------------------------------------------

_DIFFERENT = (
    "How many different values there are says how clusters were made, not how many there were in the "
    "original data."
)


@dataclass(frozen=True, slots=True)
class Carrier:
    """How the released values of an attribute are made."""

    name: str
    """Name in plans, for people."""
    equal_values: str
    """What records with the same released value share, with `{names}` of attributes."""
    equal_values_moved: str = ""
    """The same with rank noise, where it differs."""
    clustered: bool = False
    """Whether it releases values of clusters of at least k records."""
    listed: bool = True
    """Whether it releases a list in rank order, separate from the assignment of records to its entries."""
    any_order: bool = False
    """Whether the list is the same in any order of the values, so that the declared order is used."""
    loses_spikes: bool = False
    """Whether it loses how many records have a declared spike, unless this is counted."""


RECORDS = Carrier(
    "every record by itself",
    "{names}: every record had noise of its own. That records have the same value says only that their noisy "
    "values came out equal.",
    listed=False,
)
CLUSTERS = Carrier(
    "clusters",
    "{names}: records of one owner that share a value were in the same cluster, or in clusters whose values "
    f"came out equal; records of different owners were in different ones. {_DIFFERENT}",
    "{names}: every released value is that of a cluster, or of several whose values came out equal. Because "
    f"of the rank noise the records that have it need not have been in it themselves. {_DIFFERENT}",
    clustered=True,
)
QUANTILES = Carrier(
    "quantiles",
    "{names}: the values are places of a list that rises evenly between the noisy means of clusters, and the "
    "records of a cluster got the places of their cluster at random. So a value discloses a record's rank to "
    f"the width of a cluster, and records with the same value had nearby places. {_DIFFERENT}",
    "{names}: the values are places of a list that rises evenly between the noisy means of clusters. Because "
    "of the rank noise and the random order within clusters, records with the same value need not have had "
    f"the same original one. {_DIFFERENT}",
    clustered=True,
    loses_spikes=True,
)
COUNTS = Carrier(
    "counts",
    "{names}: the values come from noisy counts, not from clusters. Records with the same value need not "
    "have had the same original one, and how often a value occurs is a noisy count.",
    any_order=True,
)
DRAWN = Carrier(
    "drawn from its taxonomy",
    "{names}: a category was drawn for every cluster, and several clusters can have drawn the same one. "
    "Records with the same category need not have shared a cluster.",
    clustered=True,
)


# --- rules for k ----------------------------------------------------------------------------------------
# A small k leaves much noise in every centroid, a large one puts unlike records together. isqrt of the whole
# part is the whole part of the root, so no double decides about a k.

_PLAIN = Fraction(11, 5)
"""24^(1/4): the within-cluster error (k/n)²/12 and the noise 2/(k·epsilon)² of the squared range balance."""
_MONOTONE = Fraction(3, 2)
"""Isotonic regression averages noise away, so smaller clusters do."""
_LINEAR = Fraction(5, 2)
"""A list that is linear between centroids loses less within clusters, so larger ones do better."""
_TAXONOMY = Decimal("3.2")
"""Measured on trees of 14 to 300 categories (docs/decisions.md)."""


def _k_as_small_as_possible(_public: PublicNumbers) -> int:
    return 0


def _k_of_balance(public: PublicNumbers) -> int:
    return isqrt(int(_PLAIN**2 * public.n_records / public.epsilon_per_record))


def _k_of_monotone_lists(public: PublicNumbers) -> int:
    return _k_up_to_values(_MONOTONE, public)


def _k_of_linear_lists(public: PublicNumbers) -> int:
    return _k_up_to_values(_LINEAR, public)


def _k_up_to_values(factor: Fraction, public: PublicNumbers) -> int:
    per_record = public.epsilon_per_record
    return min(isqrt(int(factor**2 * public.n_records / per_record)), int(public.n_values / per_record))


def _k_of_drawn_categories(public: PublicNumbers) -> int:
    """Return where drawing another category than most of a cluster's becomes rarer than mixing categories.

    A cluster of one category is drawn as another with a probability that falls by exp(-ε/2) with each record
    that it has, about; the clusters that hold two categories become more in proportion to k/n, whatever the
    number of categories. The sum is least where k grows with ln(n·ε)/ε.
    """
    with localcontext(_TWENTY_DIGITS):
        per_record = public.epsilon / public.g
        return int(_TAXONOMY * (public.n_records * per_record / 2 + 1).ln() / per_record)


def _k_of_any_release(_g: int) -> int:
    return SMALLEST_K


def _k_of_trimmed_means(g: int) -> int:
    """Return 2g + 1: g values at each end are trimmed, and one is left."""
    return max(SMALLEST_K, 2 * g + 1)


def _k_of_trimmed_tails(g: int) -> int:
    """Return 2g + 3: a single cluster has at least three values left where g are trimmed at each end."""
    return 2 * g + 3


# --- expected errors ------------------------------------------------------------------------------------
# Each is the expected squared error of the list as a share of the variance of a uniform attribute, from k (1
# without clusters), with six significant digits.


def _error_of_clusters(k: int, public: PublicNumbers) -> Decimal:
    """Return c² + 24·(g/(k·ε))², c the share of the records that a cluster has."""
    return _within_and_noise(_within(k, public), k, public)


def _error_of_own_scales(k: int, public: PublicNumbers) -> Decimal:
    """Return c² + 24·(g/(n·ε))².

    The local sensitivity of a cluster is about its own width, k/n of the domain's.
    """
    return _within_and_noise(_within(k, public), max(public.n_records, 1), public)


def _error_of_linear_lists(k: int, public: PublicNumbers) -> Decimal:
    """Return 2c² + 24·(g/(k·ε))²; c² with one cluster, whose list is constant.

    Two places of a cluster, chosen independently, differ by twice the variance within it.
    """
    within = _within(k, public)
    return _within_and_noise(within if within >= 1 else 2 * within, k, public)


def _within(k: int, public: PublicNumbers) -> Decimal:
    """Return c², c = 1/⌊n/k⌋: clusters of at least k records are larger where k does not divide n.

    It is the variance within a cluster as a share of the whole.
    """
    with localcontext(_SIX_DIGITS):
        return 1 / Decimal(max(public.n_records // k, 1)) ** 2


def _within_and_noise(within: Decimal, steadiness: int, public: PublicNumbers) -> Decimal:
    with localcontext(_SIX_DIGITS):
        noise = (public.g / (steadiness * public.epsilon)) ** 2
        return plain(within + 24 * noise)


_MIXED = Decimal(8)
_STEADINESS = Decimal("0.4")


def _error_of_drawn_categories(k: int, public: PublicNumbers) -> Decimal:
    """Return 1 - (1 - m)(1 - w), fitted to trees with equally frequent categories (docs/decisions.md).

    m = x/(x + 8), x = V·k/n, stands for categories that share a cluster; w = (V - 1)/(V - 1 + exp(0.4·k·ε/g))
    for another category drawn than most of a cluster's.
    """
    with localcontext(_SIX_DIGITS):
        others = public.n_values - 1
        mixed = Decimal(public.n_values * k) / max(public.n_records, 1)
        # Beyond e^99 nothing is left of the second term in six digits.
        steadiness = min(_STEADINESS * k * public.epsilon / public.g, Decimal(99))
        unmixed = 1 - mixed / (mixed + _MIXED)
        drawn = 1 - Decimal(others) / (others + steadiness.exp())
        return plain(1 - unmixed * drawn)


def _error_of_counts(_k: int, public: PublicNumbers) -> Decimal:
    """Return 12·max(0.8f, f²)/(V² - 1), e counted as 2e/(2 + e).

    Each boundary between two values is moved by f = 2g·V^(3/2)/(√3·ε·n) values, in quadratic mean; where that
    is below one, a share of the records is moved by one.
    """
    if public.n_values == 1:
        return Decimal(0)
    with localcontext(_SIX_DIGITS):
        values = Decimal(public.n_values)
        moved = 2 * public.g * values * (values / 3).sqrt() / (public.epsilon * max(public.n_records, 1))
        squared = max(Decimal("0.8") * moved, moved * moved)
        return plain(_up_to_random(12 * squared / (values * values - 1)))


def _up_to_random(error: Decimal) -> Decimal:
    """Return 2e/(2 + e): never above 2, the error of a value put at random."""
    return 2 * error / (2 + error)


# --- sentences: {notion}, {epsilon} and {joint} are filled in by `common.words.guarantee` ---------------

_PER_VALUE = (
    "{notion} with ε = {epsilon} for every released value by itself, taking as given which records it stands "
    "for"
)
_WHOLE_LIST = (
    "{notion} with ε = {epsilon} for the whole list of the attribute's released values, in order of size."
)
_RISES = "The list rises evenly between noisy means of clusters."
_WHOLE_LIST_JOINT = "for the whole list of the attribute's released values ε = {joint}"
_EVERY_RECORD = "{notion} with ε = {epsilon} for the released values of all records together"
_GROWS = "a bound that grows with the number of clusters."
_FREQUENCY_ORDER = (
    f"{_PER_VALUE} and in which order the categories are. They are ordered by how often they occur, "
    "and one record can change that order: there is no bound for the whole list of released values."
)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What a mechanism promises about one attribute, whatever the data, and how it is planned."""

    id: str
    """Name in plans, policies and manifests."""
    notion: str
    """`INDIVIDUAL` if its noise is calibrated to the data, `GLOBAL` if to the domain."""
    carrier: Carrier
    """How its released values are made."""
    promise: str
    """Its sentence for people."""
    why: str
    """Where `joint_factor` comes from."""
    list_error: Callable[[int, PublicNumbers], Decimal]
    """Expected error of its list, from k."""
    wanted_k: Callable[[PublicNumbers], int] = _k_as_small_as_possible
    """The best k, before any limit; not asked without clusters."""
    joint_factor: Decimal | None = Decimal(1)
    """epsilon_joint of the attribute's rank-ordered list of released values, as a multiple of epsilon; None
    where the multiple is the number of clusters."""
    by_values: bool = False
    """Whether the scale of its noise follows the spread of the values and not the width of the domain."""
    monotone: bool = False
    """Whether its released values ascend with the ranks, which noise alone would disturb."""
    needed_k: Callable[[int], int] = _k_of_any_release
    """The smallest k for g records per person; not asked without clusters."""
    trim: Trim = trim_none
    """How many values at each end of a cluster are trimmed."""
    scale_bound: ScaleBound | None = None
    """The largest scale of the noise on its sums; None if it adds none to sums."""
    scales_show: str = ""
    """A measurement of what its noise scales disclose, for people."""
    declared_by: TaxonomyMethod | None = None
    """The method by which owners declare attributes for it; no release can request such a mechanism."""

    @property
    def individual(self) -> bool:
        """Whether its notion is individual differential privacy."""
        return self.notion == INDIVIDUAL

    @property
    def clustered(self) -> bool:
        """Whether it makes clusters of at least k records."""
        return self.carrier.clustered

    @property
    def listed(self) -> bool:
        """Whether it releases a list in rank order."""
        return self.carrier.listed

    def goes_with(self, attribute: Attribute) -> bool:
        """Whether an attribute is declared for this mechanism, or for none and this needs no declaration."""
        declared = declared_mechanism(attribute)
        return declared == self.id or (declared is None and not self.declared_by)

    def epsilon_of_spikes(self, attribute: Attribute, epsilon: Decimal) -> Decimal:
        """Return the part of an attribute's ε that the noisy counts of its spikes get; 0 if none is needed.

        Raises:
            UsageError: If nothing is left of that part at 12 decimal places.
        """
        counted = bool(attribute.spikes) and self.carrier.loses_spikes
        return share(epsilon, _SPIKES_PART) if counted else Decimal(0)

    def smallest_k(self, g: int) -> int | None:
        """Return the smallest k: 3, or more where centroids are trimmed; None if it takes no k."""
        return self.needed_k(g) if self.clustered else None

    def choose_k(self, public: PublicNumbers, least: int) -> int | None:
        """Choose k for one attribute of one owner.

        Args:
            least: The smallest k that all policies accept.

        Returns:
            The minimum cluster size, from what mechanism and policies need to the number of records; None
            where the mechanism makes no clusters.
        """
        needed = self.smallest_k(public.g)
        return None if needed is None else max(min(self.wanted_k(public), public.n_records), needed, least)

    def expected_error(
        self, k: int | None, public: PublicNumbers, rank_noise: Decimal = NO_RANK_NOISE
    ) -> Decimal:
        """Return the expected squared error as a share of a uniform attribute's variance.

        Args:
            k: Minimum cluster size; None where the mechanism makes no clusters.
            public: The attribute's public numbers.
            rank_noise: w.

        Returns:
            `list_error`, and 24·w² for rank noise, twice the variance of its scale, e counted as 2e/(2 + e);
            with six significant digits.
        """
        of_list = self.list_error(k or 1, public)
        if not rank_noise:
            return of_list
        with localcontext(_SIX_DIGITS):
            return plain(of_list + _up_to_random(24 * rank_noise * rank_noise))

    def sums_fit(self, k: int | None, public: PublicNumbers) -> bool:
        """Whether its noisy sums fit into 63 bits, whatever the data are."""
        if self.scale_bound is None:
            return True
        numbers = PlannedNumbers(public.n_values, k or 1, public.g, Fraction(public.epsilon))
        return fits(numbers, self.trim, self.scale_bound)

    def is_ordered_by_data(self, *, frequency_order: bool) -> bool:
        """Whether an attribute is masked in an order that comes from the data, which one record can change.

        Args:
            frequency_order: Whether its categories are declared to be ordered by the data.
        """
        return frequency_order and not self.carrier.any_order

    def epsilon_joint(
        self, epsilon: Decimal, k: int | None, records_rounded: int, *, frequency_order: bool = False
    ) -> Decimal | None:
        """Return the bound on an attribute's whole rank-ordered list of released values.

        Args:
            epsilon: The attribute's share of the budget.
            k: Minimum cluster size; None where the mechanism makes no clusters.
            records_rounded: The owner's number of records, as rounded in its schema; the number of clusters
                is that of the most records it can stand for.
            frequency_order: Whether its categories are declared to be ordered by the data.

        Returns:
            The bound, or None where there is none.
        """
        if self.is_ordered_by_data(frequency_order=frequency_order):
            return None
        most_clusters = max(most_records(records_rounded) // (k or 1), 1)
        return multiply(Decimal(most_clusters) if self.joint_factor is None else self.joint_factor, epsilon)

    def rank_loss(self, rank_noise: Decimal, g: int, *, frequency_order: bool = False) -> Decimal | None:
        """Return the bound on the privacy loss of the record-to-rank assignment.

        Args:
            rank_noise: w; 0 for none.
            g: The most records that one person has.
            frequency_order: Whether its categories are declared to be ordered by the data.

        Returns:
            2g/w; 0 without rank noise; None where one record can change the order of the categories, and so
            move any number of records by any number of ranks.
        """
        if not rank_noise:
            return NO_RANK_NOISE
        return None if self.is_ordered_by_data(frequency_order=frequency_order) else rank_loss(rank_noise, g)

    def sentence(self, *, frequency_order: bool) -> str:
        """Return the sentence for people, with places for `notion`, `epsilon` and `joint`."""
        return _FREQUENCY_ORDER if self.is_ordered_by_data(frequency_order=frequency_order) else self.promise

    def equal_values(self, *, moved: bool) -> str:
        """Return what records with the same released value share; `moved` by rank noise or not."""
        return (moved and self.carrier.equal_values_moved) or self.carrier.equal_values


MECHANISMS: Mapping[str, Mechanism] = {
    mechanism.id: mechanism
    for mechanism in (
        Mechanism(
            "dp", GLOBAL, RECORDS, f"{_EVERY_RECORD}, and for which record has which.",
            "one record, one released value", _error_of_clusters,
            scale_bound=domain_scale_bound,
        ),
        Mechanism(
            "dp-ir", GLOBAL, CLUSTERS, _WHOLE_LIST,
            "the changes of all clusters telescope to the width of the domain",
            _error_of_clusters, _k_of_balance,
            scale_bound=domain_scale_bound,
        ),
        Mechanism(
            "dp-quantiles", GLOBAL, QUANTILES, f"{_WHOLE_LIST} {_RISES}",
            "the changes of all clusters telescope to the width of the domain",
            _error_of_linear_lists, _k_of_linear_lists, monotone=True,
            scale_bound=domain_scale_bound,
        ),
        Mechanism(
            "idp", INDIVIDUAL, RECORDS,
            f"{_EVERY_RECORD}, and for which record has which.",
            "one record, one released value", _error_of_clusters,
            scale_bound=local_scale_bound,
        ),
        Mechanism(
            "idp-ls", INDIVIDUAL, CLUSTERS, f"{_PER_VALUE}; {_WHOLE_LIST_JOINT}.",
            "supremum 1 + ln 2 over all data, stated as 2",
            _error_of_clusters, _k_of_balance, joint_factor=Decimal(2),
            scale_bound=local_scale_bound,
        ),
        Mechanism(
            "idp-cbls", INDIVIDUAL, CLUSTERS, f"{_PER_VALUE}; {_WHOLE_LIST_JOINT}, {_GROWS}",
            "every cluster may change, and each is calibrated to itself alone",
            _error_of_own_scales, joint_factor=None, by_values=True, needed_k=_k_of_trimmed_means,
            trim=trim_changed, scale_bound=cluster_scale_bound,
        ),
        Mechanism(
            "idp-joint", INDIVIDUAL, CLUSTERS, _WHOLE_LIST,
            "one scale for the whole list of centroids",
            _error_of_clusters, _k_of_monotone_lists, by_values=True, monotone=True,
            needed_k=_k_of_trimmed_means,
            scales_show=(
                "Measured for idp-joint at ε = 1: whether one record had the median or the end of the domain "
                "was inferred from an attribute's released list with a mean AUC of 0.93 on Wine Quality, "
                "where ε alone allows 0.52, and of 0.75 on Census; 0.5 is guessing."
            ),
            trim=trim_changed, scale_bound=joint_scale_bound,
        ),
        Mechanism(
            "idp-quantiles", INDIVIDUAL, QUANTILES, f"{_WHOLE_LIST} {_RISES}",
            "the changes of all clusters telescope to the width of the values without the tails",
            _error_of_linear_lists, _k_of_linear_lists, by_values=True, monotone=True,
            needed_k=_k_of_trimmed_tails,
            scales_show=(
                "For idp-quantiles one record changes that size by little, whatever the data are: by itself "
                "it lets no test infer a record with an AUC above 0.64; 0.5 is guessing. Measured with the "
                "best possible test at ε = 1, for records at the ends of the values: 0.53 on Wine Quality "
                "and 0.54 on Census, where ε alone allows 0.52 and 0.53; up to 0.64 on top-coded incomes."
            ),
            scale_bound=smooth_scale_bound,
        ),
        Mechanism(
            "dp-hist", GLOBAL, COUNTS,
            f"{_WHOLE_LIST} The list is made from noisy counts of the attribute's values.",
            "one changed record moves two counts by one, and the noise is calibrated to that",
            _error_of_counts, monotone=True,
        ),
        Mechanism(
            "exponential", GLOBAL, DRAWN,
            f"{_PER_VALUE}, a category drawn from the taxonomy; {_WHOLE_LIST_JOINT}, {_GROWS}",
            "every cluster may change", _error_of_drawn_categories, _k_of_drawn_categories,
            joint_factor=None, declared_by=TaxonomyMethod.EXPONENTIAL,
        ),
    )
}  # fmt: skip
REQUESTABLE = tuple(each.id for each in MECHANISMS.values() if each.declared_by is None)
"""Mechanisms that a release may request."""
EVALUATION_ONLY: Mapping[str, str] = {
    "ir": "it adds no noise to the means of clusters, so there is nothing that it promises"
}
"""Mechanisms of the papers that no release may use, with the reason."""
HISTOGRAM = "dp-hist"
AUTO = "auto"
"""Stands for the mechanism that `choose` finds, attribute by attribute."""
DEFAULT_MECHANISM = AUTO
_STRICTEST = "idp-quantiles"
"""The choice of "auto" that takes the largest k."""
_CROSSOVER = Fraction(8)
"""c: up to c·sqrt(n·ε/g) values are counted (docs/decisions.md has the measurements)."""
_FREE_OF_DATA = 500_000
"""From this n·ε/g on, noise that does not depend on the data costs next to nothing (docs/decisions.md)."""


def rules_of(name: str) -> Mechanism:
    """Return the entry whose rules hold for a mechanism that was requested by name.

    Args:
        name: A mechanism id. For "auto" the rules are the strictest of its choices: whatever they take, any
            choice takes. So are those of a name that is unknown here.
    """
    return MECHANISMS.get(name, MECHANISMS[_STRICTEST])


def fault_of_k(name: str, k: int | None, g: int) -> str | None:
    """Say why a mechanism cannot be used with a minimum cluster size.

    Args:
        name: A mechanism id, or "auto".
        k: Minimum cluster size; None for none.
        g: The most records that one person has.

    Returns:
        The fault, or None if it can.
    """
    rules = rules_of(name)
    least = rules.smallest_k(g)
    if least is None:
        return None if k is None else f"{name} makes no clusters and takes no k"
    if k is not None and k >= least:
        return None
    persons = f" with {g} records per person" if least != rules.smallest_k(1) else ""
    return f"{name} takes k of at least {least}{persons}"


def fault_of_rank_noise(name: str, rank_noise: Decimal | None) -> str | None:
    """Say why a mechanism cannot be used with rank noise; None if it can."""
    if not rank_noise or rules_of(name).listed:
        return None
    return f"{name} releases no list in rank order and takes no rank noise"


def declared_mechanism(attribute: Attribute) -> str | None:
    """Return the mechanism that an attribute is declared for; None if it is declared for none.

    Values that have no place among the others cannot be averaged, only counted.
    """
    if attribute.unplaced:
        return HISTOGRAM
    fitting = (each.id for each in MECHANISMS.values() if each.declared_by)
    return next((name for name in fitting if MECHANISMS[name].declared_by is attribute.method), None)


def resolve(attribute: Attribute, asked: str, public: PublicNumbers) -> Mechanism:
    """Return the mechanism of one attribute: as declared, else as requested, for "auto" by `choose`.

    Args:
        asked: A mechanism id, or "auto".
        public: Its public numbers at the owner with the fewest records, so that all owners use the same.

    Raises:
        UsageError: If it has too many possible values to be counted.
    """
    chosen = declared_mechanism(attribute) or (choose(attribute, public) if asked == AUTO else asked)
    if MECHANISMS[chosen].carrier is COUNTS and attribute.n_values > MOST_HISTOGRAM_VALUES:
        raise UsageError(
            f"attribute {attribute.name!r} has {attribute.n_values} possible values, too many for it",
            f"choose --mechanism {AUTO}, leave the attribute out, or declare fewer decimals",
            {"attribute": attribute.name, "values": attribute.n_values, "most": MOST_HISTOGRAM_VALUES},
        )
    return MECHANISMS[chosen]


def choose(attribute: Attribute, public: PublicNumbers) -> str:
    """Choose the mechanism of an attribute from public numbers.

    Categories without an order are never averaged. Counts carry few values best. For many values, noise that
    does not depend on the data is chosen where it costs next to nothing.
    """
    if has_no_order(attribute) or public.n_values <= most_counted_values(public):
        return HISTOGRAM
    return "dp-quantiles" if _records_times_epsilon(public) >= _FREE_OF_DATA else "idp-quantiles"


def has_no_order(attribute: Attribute) -> bool:
    """Whether an attribute's values have no order that means something: declared, or of a taxonomy."""
    return attribute.is_categorical and not attribute.ordered and not attribute.taxonomy


def follows_arbitrary_order(attribute: Attribute, mechanism: Mechanism) -> bool:
    """Whether a mechanism treats labels as numbers in an order that means nothing.

    Centroids and noise then lead from one label to whichever stands beside it in the list.
    """
    is_label = bool(attribute.categories) and has_no_order(attribute)
    return is_label and mechanism.carrier not in (COUNTS, DRAWN)


def _records_times_epsilon(public: PublicNumbers) -> Fraction:
    return public.n_records * public.epsilon_per_record


def most_counted_values(public: PublicNumbers) -> int:
    """Return c·sqrt(n·ε/g), the most values that noisy counts carry better than quantiles do."""
    return min(isqrt(int(_CROSSOVER**2 * _records_times_epsilon(public))), MOST_HISTOGRAM_VALUES)


CARRIER_RULE = (
    "One carrier per attribute, from public numbers: n records of the owner with the fewest, rounded down, "
    "ε the attribute's share, g records of a person at most. Categories without an order are counted. Other "
    f"values are counted up to {float(_CROSSOVER)}·√(n·ε/g) possible ones. From n·ε/g = {_FREE_OF_DATA:,} "
    "on, quantiles get noise that does not depend on the data."
)
"""Explains `carrier_reason`."""
_ARBITRARY_ORDER = "; its values are averages over an arbitrary order of its categories"


def carrier_reason(attribute: Attribute, name: str, public: PublicNumbers) -> str:
    """Say what carries the values of an attribute, what that promises, and why, from public numbers.

    Args:
        name: Its mechanism.
        public: Its public numbers at the owner with the fewest records.
    """
    rules = rules_of(name)
    carrier = f"{rules.carrier.name} ({rules.notion})"
    if follows_arbitrary_order(attribute, rules):
        return f"{carrier}, as asked for{_ARBITRARY_ORDER}"
    if rules.carrier not in (COUNTS, QUANTILES):
        return carrier
    if attribute.unplaced:
        return f"{carrier}: {attribute.unplaced} are kept, and they can only be counted"
    asked = "" if name == choose(attribute, public) else ", as asked for"
    if has_no_order(attribute):
        return f"{carrier}{asked}: its categories have no order"
    most = most_counted_values(public)
    spikes = "; its spikes are counted" if rules.epsilon_of_spikes(attribute, public.epsilon) else ""
    return f"{carrier}{asked}: {public.n_values} possible values, counts are better up to {most}{spikes}"
