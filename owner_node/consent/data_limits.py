"""Limits of a policy on what a fragment is expected to be: which they are, and whether a plan keeps them.

The limits apply to an expectation, never to a fragment: refusing fragments by their noise would change the
probabilities that the guarantee is about.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from common.canonical import Document
from owner_node.consent.judge import refuse_for
from owner_node.masking.foreseen import Forecast

if TYPE_CHECKING:
    from owner_node.config import PolicyConfig


@dataclass(frozen=True, slots=True)
class LimitLine(Document):
    """A limit of the policy, and what the plan has there."""

    rule: str
    """Key of the policy."""
    what: str
    """What it limits, in words."""
    unit: str
    """"share" of 1, "epsilon" or "number"."""
    limit: Decimal | None
    """The limit; None if the policy sets none."""
    found: Decimal | None
    """What the plan has; None where that is not known, or unbounded."""
    least: bool = False
    """Whether the limit is the least that is allowed; else it is the most."""

    @property
    def kept(self) -> bool | None:
        """Whether the plan keeps the limit; None without a limit or a number."""
        if self.limit is None or self.found is None:
            return None
        return self.found >= self.limit if self.least else self.found <= self.limit


def reidentified_line(policy: "PolicyConfig", share: Decimal | None) -> LimitLine:
    """Return the limit of re-identified persons beside the share of them; None if that is not known."""
    most = policy.max_reidentified
    return LimitLine("max_reidentified", "persons re-identified", "share", most, share)


def data_limits(forecast: Forecast | None, policy: "PolicyConfig") -> tuple[LimitLine, ...]:
    """Return every limit on data, set or not, and what is expected; nothing is known without a forecast."""
    if forecast is None:
        reidentified, values, records, zero_noise = (None,) * 4
    else:
        values, records = forecast.unchanged_values, forecast.unchanged_records
        zero_noise, reidentified = forecast.zero_noise, forecast.reidentified
        # Attacks are tried only for a limit, or for a person who decides.
        if policy.max_reidentified is None and forecast.intruder is None:
            reidentified = None
    return (
        reidentified_line(policy, reidentified),
        # It also bounds records: a record is unchanged only with all its values.
        LimitLine(
            "max_unchanged_share", "values that leave unchanged", "share", policy.max_unchanged_share, values
        ),
        LimitLine(
            "max_unchanged_record_share", "records that leave unchanged as a whole", "share",
            policy.max_unchanged_record_share, records,
        ),
        LimitLine(
            "max_zero_noise_share", "values without noise", "share", policy.max_zero_noise_share, zero_noise
        ),
    )  # fmt: skip


_EXPECTED = {
    "max_zero_noise_share": "the values would get no noise",
    "max_unchanged_share": "the values are expected to leave unchanged",
    "max_unchanged_record_share": "the records are expected to leave unchanged as a whole",
    "max_reidentified": "the persons would be re-identified by an intruder who knows",
}


def forecast_objections(forecast: Forecast, policy: "PolicyConfig") -> tuple[str, ...]:
    """Return every limit of a policy that a forecast exceeds, in full, for the owner only."""
    objections = []
    for line in data_limits(forecast, policy):
        if line.kept is False:
            known = f" {', '.join(policy.known) or 'all attributes'}" * (line.rule == "max_reidentified")
            objections.append(
                f"policy.{line.rule} = {line.limit}: {line.found} of {_EXPECTED[line.rule]}{known}"
            )
    return tuple(objections)


def check_forecast(forecast: Forecast, policy: "PolicyConfig") -> None:
    """Check the forecast of local work against the policy's limits.

    Raises:
        RefusedError: With every limit that is exceeded.
    """
    refuse_for(forecast_objections(forecast, policy))
