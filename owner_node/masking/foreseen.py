"""The forecast of a fragment, as its owner sees it before it consents.

The numbers depend on the original data. They stay with the owner: in its session, its history and the
answers to its own commands. An aggregator learns at most that the policy refuses.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from common.canonical import Document
from common.errors import UsageError
from common.words.worth import BETTER, Worth


def as_share(value: float) -> Decimal:
    """Round a computed number to six significant digits, as forecasts store and compare it."""
    return Decimal(format(Decimal(f"{value:.6g}"), "f"))


@dataclass(frozen=True, slots=True)
class AttributeForecast(Document):
    """The forecast of one attribute."""

    name: str
    error: Decimal | None
    """Expected squared error relative to the error of replacing all values by their mean: from 1 on, the mean
    would be as good. For categories drawn from a taxonomy, the mean is the category with the smallest sum of
    squared distances. None if all original values are equal."""
    unchanged: Decimal
    """Expected share of its values that leave unchanged."""
    zero_noise: Decimal
    """Share of its values that get no noise."""


WORTH_HINT = f"{BETTER}: owner-node explore compares settings; add --anyway if you want this one"
MOSTLY_LOST = Decimal("0.5")
"""Error from which on at least half of an attribute's variation is lost."""


@dataclass(frozen=True, slots=True)
class Reidentification(Document):
    """The best attack of the intruder that a policy expects; every share is one of persons."""

    known: tuple[str, ...]
    """Masked attributes that the intruder knows of everybody."""
    attack: str
    """Name of the attack (`owner_node.risk.attacks`)."""
    share: Decimal
    """Share that it re-identifies."""
    low: Decimal
    high: Decimal
    """Ends of the 95 % confidence interval."""
    without: Decimal
    """Share that would be found without the release."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_document` returned."""
        shares = (Decimal(document[name]) for name in ("share", "low", "high", "without"))
        return cls(tuple(document["known"]), document["attack"], *shares)


@dataclass(frozen=True, slots=True)
class Forecast(Document):
    """The forecast of a fragment, before any of its noise is drawn."""

    attributes: tuple[AttributeForecast, ...]
    """In the order of the task."""
    mean_sse: Decimal
    """Expected mean SSE; attributes without variation count 0."""
    unchanged_values: Decimal
    """Expected share of all values that leave unchanged."""
    unchanged_records: Decimal
    """Expected share of records all of whose values leave unchanged."""
    zero_noise: Decimal
    """Share of all values that get no noise."""
    deviation: Decimal
    """Standard error of `unchanged_values`; 0 where it is exact."""
    reidentified: Decimal = Decimal(0)
    """Expected share of persons whose record the policy's intruder finds (`owner_node.risk`); 0 if nobody
    asked for it: neither a limit nor a person who decides."""
    intruder: Reidentification | None = None
    """The same in full; None where it was not tried, where no known attribute is masked, and in texts of
    older versions."""

    @property
    def mean_sse_of_means(self) -> Decimal:
        """Approximate mean SSE of replacing every attribute by its mean: 1/l if all attributes vary."""
        n_varying = sum(attribute.error is not None for attribute in self.attributes)
        return as_share(n_varying / len(self.attributes) ** 2)

    @property
    def worth(self) -> Worth:
        """What the result is worth to somebody who pays for it."""
        return Worth.of_errors({attribute.name: attribute.error for attribute in self.attributes})

    @property
    def no_better_than_means(self) -> tuple[str, ...]:
        """Names of attributes that would be represented as well by their mean."""
        return self.worth.lost

    @property
    def mostly_lost(self) -> tuple[AttributeForecast, ...]:
        """Attributes that lose at least half of their variation, the worst first."""
        errors = [
            (attribute.error, attribute) for attribute in self.attributes if attribute.error is not None
        ]
        errors.sort(key=lambda pair: -pair[0])
        return tuple(attribute for error, attribute in errors if error >= MOSTLY_LOST)

    @property
    def worthless(self) -> bool:
        """Whether the mean would do as well for half of the attributes that vary, or more."""
        return self.worth.worthless

    @property
    def loss(self) -> str:
        """What people read about attributes of which little is left; empty if there are none."""
        if self.worthless:
            return self.worth.text
        errors = [
            (attribute.name, attribute.error) for attribute in self.mostly_lost if attribute.error is not None
        ]
        names = ", ".join(
            f"{name} {f'{error:.2g}' if error < 10 else f'{error:,.0f}'}" for name, error in errors
        )
        return f"mostly lost: {names} (error 1 is that of the mean)" if errors else ""

    def check_worth(self, *, anyway: bool) -> None:
        """Check that a charge buys something.

        Args:
            anyway: Whether a person wants a worthless result.

        Raises:
            UsageError: If the result is expected to be worthless.
        """
        if self.worthless and not anyway:
            raise UsageError(
                f"{self.loss}; nothing was charged or approved",
                WORTH_HINT,
                {"attributes": list(self.no_better_than_means)},
            )

    def to_document(self) -> dict[str, Any]:
        """Return the document; all numbers are decimals."""
        return Document.to_document(self) | {"mean_sse_of_means": self.mean_sse_of_means}

    def to_text(self) -> str:
        """Return the text that a session stores."""
        return self.to_bytes().decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the text that a session stores."""
        return cls.from_document(json.loads(text))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read the document, whose numbers may be texts; a probability may have any number of digits."""
        attributes = tuple(
            AttributeForecast(
                entry["name"],
                None if entry["error"] is None else Decimal(entry["error"]),
                Decimal(entry["unchanged"]),
                Decimal(entry["zero_noise"]),
            )
            for entry in document["attributes"]
        )
        names = (
            "mean_sse", "unchanged_values", "unchanged_records", "zero_noise", "deviation", "reidentified",
        )  # fmt: skip
        numbers = {name: Decimal(document[name]) for name in names}
        intruder = document.get("intruder")
        reidentification = None if intruder is None else Reidentification.from_document(intruder)
        return cls(attributes=attributes, intruder=reidentification, **numbers)
