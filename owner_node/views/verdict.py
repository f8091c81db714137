"""What a plan comes down to: its numbers against this organisation's limits, and the strongest attack."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from common.canonical import Document
from owner_node.config import PolicyConfig
from owner_node.risk.attacks import LINKING


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
    least: bool
    """Whether the limit is the least that is allowed; else it is the most."""

    @property
    def kept(self) -> bool | None:
        """Whether the plan keeps the limit; None without a limit or a number."""
        if self.limit is None or self.found is None:
            return None
        return self.found >= self.limit if self.least else self.found <= self.limit


_EXPECTED = (
    ("max_reidentified", "Persons re-identified by this release alone, as expected", "reidentified"),
    ("max_unchanged_share", "Values that leave unchanged", "unchanged_values"),
    ("max_unchanged_record_share", "Records that leave unchanged as a whole", "unchanged_records"),
    ("max_zero_noise_share", "Values without noise", "zero_noise"),
)


def limits_of(plan: Mapping[str, Any], policy: PolicyConfig) -> list[dict[str, Any]]:
    """Compare a plan with every limit of a policy that is a number.

    Args:
        plan: The plan, as `request_view` returns it.
        policy: The policy.

    Returns:
        The fields of `LimitLine` and `kept`, for each limit.
    """
    lines = [
        LimitLine(
            "max_epsilon_per_release", "Charge (ε)", "epsilon",
            policy.max_epsilon_per_release, plan["charge"], least=False,
        )
    ]  # fmt: skip
    forecast = plan["forecast"] or {}
    for rule, what, name in _EXPECTED:
        most: Decimal | None = getattr(policy, rule)
        # Attacks are tried before the decision only where the policy limits them.
        known = name in forecast and (name != "reidentified" or most is not None)
        lines.append(
            LimitLine(rule, what, "share", most, Decimal(forecast[name]) if known else None, least=False)
        )
    sizes = [each["k"] for each in plan["attributes"] if each["k"] is not None]
    noises = [each["rank_noise"] for each in plan["attributes"] if each["rank_noise"] is not None]
    if sizes:
        smallest = Decimal(min(sizes))
        lines.append(
            LimitLine("min_k", "Smallest cluster (k)", "number", Decimal(policy.min_k), smallest, least=True)
        )
    if noises:
        lines.append(
            LimitLine(
                "min_rank_noise", "Smallest rank noise", "share", policy.min_rank_noise or None, min(noises),
                least=True,
            )
        )  # fmt: skip
    return [{**each.to_document(), "kept": each.kept} for each in lines]


def strongest(found: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the attack that re-identifies most persons, by whichever intruder; None if none was tried.

    Args:
        found: The trial of a plan, as `preview_of` returns it.
    """
    tried = [each for each in (found or {}).get("risks", ()) if each["attack"] in LINKING]
    earlier = (found or {}).get("risk_with_earlier")
    return max([*tried, *filter(None, [earlier])], key=lambda each: each["rate"]["mean"], default=None)


def without_release(risk: Mapping[str, Any]) -> float:
    """Return how often an attack is right without the release: by guessing, or about people not in it."""
    return max(float(risk["baseline"]), float(risk["control"]["mean"]) if risk["control"] else 0.0)
