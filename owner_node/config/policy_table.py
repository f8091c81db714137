"""The shape of `[policy]` in `owner.toml`, and its way to `owner_node.config.PolicyConfig`."""

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from common.daemon.settings import Date, Epsilon, Names, Share
from common.model.privacy import MECHANISMS, SMALLEST_K
from common.settings import Contradictions, Section, nearest, shown
from owner_node.config import PolicyConfig

_LAYOUTS = PolicyConfig().layouts


def known(names: list[str], accepted: tuple[str, ...]) -> list[str]:
    """Return names if each is an accepted one.

    Raises:
        ValueError: Naming the first that is not, and the nearest that is.
    """
    for name in names:
        if name not in accepted:
            raise ValueError(f"{shown('', name)} is unknown; {nearest(name, accepted)}")
    return names


def _co_owners(entries: list[str]) -> list[str]:
    """Bring `ID` and `ID=FINGERPRINT` to one form; an id may have several fingerprints."""
    from common.trust.identity import NAME_RULE, is_name, parse_fingerprint

    found = []
    for entry in entries:
        owner, pinned, digits = entry.partition("=")
        if not is_name(owner):
            raise ValueError(f"{shown('', entry)}: an owner's id has {NAME_RULE}")
        try:
            found.append(f"{owner}={parse_fingerprint(digits)}" if pinned else owner)
        except ValueError:
            raise ValueError(
                f"{shown('', entry)}: expected ID or ID=FINGERPRINT, the 64 hexadecimal digits of its key"
            ) from None
    return found


class PolicyTable(Section):
    """The table `[policy]`: what the owner consents to, and when a person is asked."""

    max_epsilon_per_release: Epsilon | None = None
    min_k: int = Field(default=SMALLEST_K, ge=SMALLEST_K)
    mechanisms: Annotated[Names, AfterValidator(lambda names: known(names, tuple(MECHANISMS)))] = Field(
        default_factory=lambda: [*MECHANISMS]
    )
    layouts: Annotated[Names, AfterValidator(lambda names: known(names, _LAYOUTS))] = Field(
        default_factory=lambda: [*_LAYOUTS]
    )
    attributes: Names = Field(default_factory=list)
    aggregators: Names = Field(default_factory=list)
    purposes: Names = Field(default_factory=list)
    valid_from: Date | None = None
    valid_until: Date | None = None
    approval: Literal["auto", "manual"] = "auto"
    manual_above_epsilon: Epsilon | None = None
    co_owners: Annotated[Names, AfterValidator(_co_owners)] = Field(default_factory=list)
    accounting: Literal["joint", "per-centroid"] = "joint"
    max_zero_noise_share: Share | None = None
    max_unchanged_share: Share | None = None
    max_unchanged_record_share: Share | None = None
    max_overlap: int = Field(default=1, ge=1)
    allow_intersect: bool = False
    min_rank_noise: Share = Decimal(0)
    total_rank_loss: Epsilon | None = None

    @model_validator(mode="after")
    def _days(self) -> Self:
        if self.valid_from and self.valid_until and self.valid_from > self.valid_until:
            raise Contradictions(
                [("valid_until", f" = {self.valid_until}: before valid_from, {self.valid_from}")]
            )
        return self

    def section(self) -> PolicyConfig:
        """Return the run-time form."""
        return PolicyConfig(
            max_epsilon_per_release=self.max_epsilon_per_release,
            min_k=self.min_k,
            mechanisms=tuple(self.mechanisms),
            layouts=tuple(self.layouts),
            attributes=tuple(self.attributes),
            aggregators=tuple(self.aggregators),
            purposes=tuple(self.purposes),
            valid_from=self.valid_from,
            valid_until=self.valid_until,
            approval=self.approval,
            manual_above_epsilon=self.manual_above_epsilon,
            co_owners=tuple(self.co_owners),
            accounting=self.accounting,
            max_zero_noise_share=self.max_zero_noise_share,
            max_unchanged_share=self.max_unchanged_share,
            max_unchanged_record_share=self.max_unchanged_record_share,
            max_overlap=self.max_overlap,
            allow_intersect=self.allow_intersect,
            min_rank_noise=self.min_rank_noise,
            total_rank_loss=self.total_rank_loss,
        )
