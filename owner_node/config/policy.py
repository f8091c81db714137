"""The table `[policy]` of `owner.toml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from common.daemon.settings import Duration, Names
from common.model.mechanisms import MECHANISMS
from common.model.plan import LARGEST_PLAN, Layout
from common.model.privacy import SMALLEST_K, Accounting
from common.model.products import Product
from common.model.schema import Limits
from common.settings import Contradictions, Section, value_text
from common.trust.identity import NAME_RULE, is_name, parse_fingerprint
from owner_node.config.key_types import Date, Epsilon, Share, one_of

_PRODUCTS = tuple(map(str, Product))
_LAYOUTS = tuple(map(str, Layout))


def _co_owners(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Bring `ID` and `ID=FINGERPRINT` to one form; an id may have several fingerprints."""
    normal = []
    for entry in entries:
        owner, pinned, digits = entry.partition("=")
        if not is_name(owner):
            raise ValueError(f"{value_text('', entry)}: an owner's id has {NAME_RULE}")
        try:
            normal.append(f"{owner}={parse_fingerprint(digits)}" if pinned else owner)
        except ValueError:
            raise ValueError(
                f"{value_text('', entry)}: expected ID or ID=FINGERPRINT, the 64 hexadecimal digits of its "
                "key"
            ) from None
    return tuple(normal)


def _not_empty(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("expected at least one; without this key all are allowed")
    return names


def _days(duration: timedelta) -> timedelta:
    if duration % timedelta(days=1):
        raise ValueError('expected whole days, such as "30d"')
    return duration


_LIMITS_ON_DATA = (
    "max_reidentified",
    "max_unchanged_share",
    "max_unchanged_record_share",
    "max_zero_noise_share",
)
_NEEDS_A_PERSON = (
    'needs approval = "manual": it depends on the data, so no automatic answer may depend on it. To keep a '
    "risk without a person, owner-node explore --max-reidentified writes a rank_noise, which is public and "
    "which every plan must keep"
)


@dataclass(frozen=True, slots=True)
class PolicyConfig(Section):
    """What the owner consents to, and when a person must approve.

    An empty tuple sets no limit, except for mechanisms and layouts, of which a policy names at least one.
    """

    max_epsilon_per_release: Epsilon | None = None
    """Largest charge of one release; without it only the budget limits a release."""
    min_k: Annotated[int, Field(ge=SMALLEST_K)] = SMALLEST_K
    """Smallest k of a clustered mechanism."""
    mechanisms: Annotated[Names, one_of(tuple(MECHANISMS)), AfterValidator(_not_empty)] = tuple(MECHANISMS)
    """Ids of the mechanisms that are allowed."""
    layouts: Annotated[Names, one_of(_LAYOUTS), AfterValidator(_not_empty)] = _LAYOUTS
    """Layouts that are allowed."""
    products: Annotated[Names, one_of(_PRODUCTS), AfterValidator(_not_empty)] = _PRODUCTS
    """What may be made of the data."""
    attributes: Names = ()
    """Attributes that may take part; empty for all."""
    aggregators: Names = ()
    """Names of aggregators whose releases are allowed; empty for all."""
    purposes: Names = ()
    """Exact texts of the allowed purposes; empty for any."""
    valid_from: Date | None = None
    """First day on which a release is accepted."""
    valid_until: Date | None = None
    """Last day on which a release is accepted."""
    co_owners: Annotated[Names, AfterValidator(_co_owners)] = ()
    """Other owners that may take part: ids, or `id=fingerprint` of their required key; empty for any."""
    approval: Literal["auto", "manual"] = "auto"
    """Whether the policy alone accepts, or a person must approve every plan."""
    manual_above_epsilon: Epsilon | None = None
    """Charge above which a person must approve."""
    approvers: Annotated[int, Field(ge=1, le=10)] = 1
    """How many different persons must approve a plan that needs a person's approval."""
    accounting: Accounting = "joint"
    """What the ledger charges: "joint" for epsilon_joint, "per-centroid" for the epsilon of each centroid."""
    max_zero_noise_share: Share | None = None
    """Largest share of a fragment's values that may get no noise."""
    max_unchanged_share: Share | None = None
    """Largest expected share of a fragment's values, and of its records, that may leave unchanged."""
    max_unchanged_record_share: Share | None = None
    """Largest expected share of a fragment's records that may leave unchanged as a whole."""
    max_reidentified: Share | None = None
    """Largest share of persons that an intruder may re-identify in a fragment."""
    known: Names = ()
    """Attributes that this intruder knows exactly of everybody; empty for all."""
    max_overlap: Annotated[int, Field(ge=1)] = 1
    """Most owners of the same attributes that may hold the same person."""
    allow_trials: bool = False
    """Whether this owner takes part in trials, with simulated records and without a charge."""
    allow_intersect: bool = False
    """Whether masking only the persons common to all groups of owners is allowed, if groups differ."""
    allow_owner_column: bool = True
    """Whether a release may state the owner of every record in a column."""
    passes: Names = ()
    """Names of the passes of match keys that may link persons; empty for all that are declared."""
    min_match_quality: Share = Decimal(0)
    """Smallest estimated share of right links of match keys, by the lower end of its interval (95 %)."""
    min_rank_noise: Share = Decimal(0)
    """Smallest rank noise of a mechanism that releases a list."""
    total_rank_loss: Epsilon | None = None
    """Largest privacy loss of the record-to-rank assignment over all charges to a budget."""
    total_delta: Share = Decimal(0)
    """Largest sum of δ over all charges to a budget; 0 for ε-differential privacy alone."""
    min_colluding: Annotated[int, Field(ge=0)] = 0
    """Fewest co-owners that the noise of a synthetic release must allow to collude with the aggregator; where
    a release has fewer, all of them."""
    require_audit: Annotated[Duration, AfterValidator(_days)] = timedelta(0)
    """How long after publication of a synthetic release all of its owners must keep what an audit needs."""

    max_attempts: Annotated[int, Field(ge=1)] = 10
    """Most linkings of one budget within 30 days that end without a charge; aggregators share them evenly,
    and each has at least one."""
    max_open_releases: Annotated[int, Field(ge=1)] = 40
    """Most open releases of one aggregator: each is stored, and the aggregator can repeat its work."""
    max_plan_bytes: Annotated[int, Field(ge=1)] = LARGEST_PLAN
    """Largest size of a plan in bytes."""

    def __post_init__(self) -> None:
        wrong = []
        if self.valid_from and self.valid_until and self.valid_from > self.valid_until:
            wrong.append(("valid_until", f" = {self.valid_until}: before valid_from, {self.valid_from}"))
        if self.approval != "manual":
            wrong += [(key, f" = {most}: {_NEEDS_A_PERSON}") for key, most in self.limits_on_data.items()]
        if wrong:
            raise Contradictions(wrong)

    @property
    def limits_on_data(self) -> Mapping[str, Decimal]:
        """The limits on a forecast for the owner's data, by their keys; only those that are set."""
        limits = {key: getattr(self, key) for key in _LIMITS_ON_DATA}
        return {key: most for key, most in limits.items() if most is not None}

    @property
    def limits(self) -> Limits:
        """What is stated with a schema, so that an aggregator does not ask in vain."""
        return Limits(
            self.min_k,
            self.max_epsilon_per_release,
            None if set(self.mechanisms) >= set(MECHANISMS) else self.mechanisms,
            None if set(self.layouts) >= set(_LAYOUTS) else self.layouts,
            self.min_rank_noise,
            self.accounting,
            self.passes or None,
            self.min_match_quality,
            None if set(self.products) >= set(_PRODUCTS) else self.products,
            self.total_delta,
            self.min_colluding,
            self.require_audit.days,
            self.allow_intersect,
        )

    @property
    def pins(self) -> Mapping[str, frozenset[str]]:
        """Allowed fingerprints of a co-owner's key, by the owner's id; empty if any key is allowed."""
        entries = [entry.partition("=") for entry in self.co_owners]
        owners = dict.fromkeys(owner for owner, _, _ in entries)
        return {
            owner_id: frozenset(pin for owner, _, pin in entries if owner == owner_id and pin)
            for owner_id in owners
        }
