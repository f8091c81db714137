"""What an owner is told about its fragment before it consents, and what its policy says to that.

The numbers depend on the original data. They stay with the owner: in its session, its history and its
answers to its own commands; an aggregator hears at most that the policy refuses.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from common.canonical import canonical

if TYPE_CHECKING:
    from owner_node.config import PolicyConfig

DEVIATIONS = 4
"""How many standard errors an estimate has to be away from a limit to decide about it."""


def as_share(value: float) -> Decimal:
    """Return a computed number as it is kept and compared: a decimal with six significant digits."""
    return Decimal(format(Decimal(f"{value:.6g}"), "f"))


@dataclass(frozen=True, slots=True)
class AttributeForecast:
    """What is expected of one attribute."""

    name: str
    """Attribute name."""
    error: Decimal | None
    """Expected squared error as a share of that of its mean: from 1 on the mean would do as well. Of
    categories drawn from a taxonomy, distances from the category with the smallest such error count; None
    where all original values are equal."""
    unchanged: Decimal
    """Expected share of its values that leave unchanged."""
    zero_noise: Decimal
    """Share of its values that get no noise."""

    def to_document(self) -> dict[str, Any]:
        """Return the document of this attribute."""
        return {
            "name": self.name, "error": self.error, "unchanged": self.unchanged, "zero_noise": self.zero_noise
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of a fragment, before any of its noise is drawn."""

    attributes: tuple[AttributeForecast, ...]
    """Attribute by attribute, in the order of the task."""
    mean_sse: Decimal
    """Expected mean SSE; attributes without variation count 0."""
    unchanged_values: Decimal
    """Expected share of all values that leave unchanged."""
    unchanged_records: Decimal
    """Expected share of records of which every value leaves unchanged."""
    zero_noise: Decimal
    """Share of all values that get no noise."""
    deviation: Decimal
    """Standard error of `unchanged_values`; 0 where it is exact."""

    @property
    def mean_sse_of_means(self) -> Decimal:
        """About what the mean SSE is with every attribute replaced by its mean: 1/l where all vary."""
        n_varying = sum(each.error is not None for each in self.attributes)
        return as_share(n_varying / len(self.attributes) ** 2)

    @property
    def no_better_than_means(self) -> tuple[str, ...]:
        """Names of attributes whose mean would do as well."""
        return tuple(each.name for each in self.attributes if each.error is not None and each.error >= 1)

    @property
    def worth_less_than_means(self) -> bool:
        """Whether all attributes together would be as well replaced by their means."""
        errors = [each.error for each in self.attributes if each.error is not None]
        return bool(errors) and sum(errors) >= len(errors)

    def to_document(self) -> dict[str, Any]:
        """Return the document, all numbers as decimals."""
        return {
            "attributes": [each.to_document() for each in self.attributes],
            "mean_sse": self.mean_sse,
            "mean_sse_of_means": self.mean_sse_of_means,
            "unchanged_values": self.unchanged_values,
            "unchanged_records": self.unchanged_records,
            "zero_noise": self.zero_noise,
            "deviation": self.deviation,
        }

    def to_text(self) -> str:
        """Return it as it is kept in a session."""
        return canonical(self.to_document()).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read it from a session."""
        document = json.loads(text)
        attributes = tuple(
            AttributeForecast(
                each["name"],
                None if each["error"] is None else Decimal(each["error"]),
                Decimal(each["unchanged"]),
                Decimal(each["zero_noise"]),
            )
            for each in document["attributes"]
        )
        names = ("mean_sse", "unchanged_values", "unchanged_records", "zero_noise", "deviation")
        return cls(attributes, *(Decimal(document[name]) for name in names))


@dataclass(frozen=True, slots=True)
class _Limit:
    """One number of a forecast and the most that a policy allows."""

    key: str
    most: Decimal
    found: Decimal
    deviation: Decimal
    what: str

    @property
    def objection(self) -> str:
        return f"policy.{self.key} = {self.most}: {self.found} of {self.what}"


def objections(forecast: Forecast, policy: "PolicyConfig") -> tuple[str, ...]:
    """Return every limit of a policy that a forecast exceeds, in full, for the owner alone.

    What is judged is an expectation, never a fragment: refusing fragments by what was drawn would change the
    probabilities that the guarantee speaks of.
    """
    return tuple(limit.objection for limit in _limits(forecast, policy) if limit.found > limit.most)


def has_limits(policy: "PolicyConfig") -> bool:
    """Whether a policy limits anything that is foreseen, so that an acceptance says something of the data."""
    limits = (policy.max_zero_noise_share, policy.max_unchanged_share, policy.max_unchanged_record_share)
    return any(each is not None for each in limits)


def is_close(forecast: Forecast, policy: "PolicyConfig") -> bool:
    """Whether chance could have put a number of a forecast on the wrong side of a limit."""
    return any(
        abs(limit.found - limit.most) <= DEVIATIONS * limit.deviation and limit.deviation > 0
        for limit in _limits(forecast, policy)
    )


def _limits(forecast: Forecast, policy: "PolicyConfig") -> Iterator[_Limit]:
    zero_noise, values, records = (
        (forecast.zero_noise, Decimal(0), "the values would get no noise"),
        (forecast.unchanged_values, forecast.deviation, "the values are expected to leave unchanged"),
        (
            forecast.unchanged_records,
            # A share of whole records moves by at most about what the shares of all attributes move by.
            forecast.deviation * len(forecast.attributes),
            "the records are expected to leave unchanged as a whole",
        ),
    )
    for key, most, number in (
        ("max_zero_noise_share", policy.max_zero_noise_share, zero_noise),
        # It stands for records too: a record leaves unchanged with all its values, so no more of them can.
        ("max_unchanged_share", policy.max_unchanged_share, values),
        ("max_unchanged_record_share", policy.max_unchanged_record_share, records),
    ):
        if most is not None:
            yield _Limit(key, most, *number)
