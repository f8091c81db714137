"""The result of one attack over several draws."""

from collections.abc import Collection
from dataclasses import dataclass

from common.canonical import Document
from owner_node.risk.attacks import LINKING
from owner_node.risk.utility import Estimate


@dataclass(frozen=True, slots=True)
class Risk(Document):
    """The result of one attack; fields as in the document of `owner_node.explore.results`."""

    attack: str
    rate: Estimate
    baseline: float
    targets: int
    meaning: str
    control: Estimate | None = None
    attribute: str | None = None
    knows: str = ""

    @property
    def without_release(self) -> float:
        """The success rate without the release: by guessing, or for people who are not in it."""
        return max(self.baseline, self.control.mean if self.control else 0.0)

    @property
    def excess(self) -> float:
        """The part of the rate above the success rate without the release."""
        return max(0.0, self.rate.mean - self.without_release)


def reidentified(risks: Collection[Risk]) -> Risk | None:
    """Return the attack that links most persons to their records; None if none was tried."""
    linking = (risk for risk in risks if risk.attack in LINKING)
    return max(linking, key=lambda risk: risk.rate.mean, default=None)
