"""What an operator asked for, checked as far as it can be without any owner."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from common.errors import UsageError
from common.model.plan import LONGEST_PURPOSE, ON_MISMATCH, BudgetSplit, Layout, is_purpose
from common.model.privacy import DEFAULT_MECHANISM, parse_epsilon
from common.planning.arguments import (
    NONE,
    RankNoise,
    distinct,
    one_of,
    parse_id,
    parse_k,
    parse_mechanism,
    parse_rank_noise,
    parse_weights,
)
from common.trust.identity import NAME_RULE, is_name

_COUNT = re.compile(r"[1-9][0-9]{0,11}")
"""From 1 on, up to more than there are people, or owners."""
FORMATS = ("parquet", "csv")
"""Formats that a release can be published in."""


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of a release. Two requests are the same if all of them are."""

    release: str
    """Release id."""
    dataset: str
    """Name of the data set at every owner."""
    layout: Layout
    """Layout."""
    groups: tuple[tuple[str, ...], ...]
    """Owner ids by attribute group: one group in horizontal, one owner each in vertical layout; in mixed
    layout an owner can be in several."""
    epsilon: Decimal
    """The release's epsilon."""
    k: int | None = None
    """Minimum cluster size of every attribute; None to have it chosen for each owner and attribute."""
    mechanism: str = DEFAULT_MECHANISM
    """Mechanism id, or "auto"."""
    attributes: tuple[str, ...] = ()
    """Attributes to release, in the order of the columns; empty for all."""
    budget_split: BudgetSplit = BudgetSplit.OWNER
    """How epsilon is divided among groups and attributes."""
    weights: tuple[tuple[str, Decimal], ...] = ()
    """Attributes and their weights, for a budget split by weights; empty for any other."""
    rank_noise: RankNoise = RankNoise()  # noqa: RUF009 - frozen
    """Rank noise of the attributes."""
    max_overlap: int = 1
    """Most owners of one group that may hold the same person."""
    on_mismatch: str = "stop"
    """What happens if groups hold different persons (`common.model.plan.ON_MISMATCH`)."""
    min_common: int = 0
    """Fewest common persons to go on with where groups are intersected; 0: the largest k."""
    purpose: str = ""
    """What the release is for."""
    formats: tuple[str, ...] = FORMATS
    """Data formats of the release folder."""
    out: str = ""
    """Folder for a finished copy; empty for none."""
    dry_run: bool = False
    """Whether the release ends with its plan."""
    owners: tuple[str, ...] = field(init=False, compare=False)
    """Owner ids, each once, group by group."""

    def __post_init__(self) -> None:
        named = dict.fromkeys(owner for group in self.groups for owner in group)
        object.__setattr__(self, "owners", tuple(named))

    def to_document(self) -> dict[str, Any]:
        """Return the request as JSON-serialisable values."""
        document = asdict(self)
        del document["owners"]
        weights = [(name, format(weight, "f")) for name, weight in self.weights]
        plain = {"epsilon": format(self.epsilon, "f"), "rank_noise": self.rank_noise.to_texts()}
        return document | plain | {"weights": weights}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Request":
        """Read a request that `to_document` wrote."""
        changed = {
            "layout": Layout(document["layout"]),
            "groups": tuple(tuple(group) for group in document["groups"]),
            "epsilon": Decimal(document["epsilon"]),
            "attributes": tuple(document["attributes"]),
            "budget_split": BudgetSplit(document["budget_split"]),
            "formats": tuple(document["formats"]),
            "weights": tuple((name, Decimal(weight)) for name, weight in document["weights"]),
            # What was asked for before there was rank noise had none.
            "rank_noise": parse_rank_noise(document["rank_noise"]) if "rank_noise" in document else NONE,
        }
        return cls(**{**document, **changed})


def parse_request(
    *,
    release: str,
    dataset: str,
    layout: str,
    groups: Sequence[Sequence[str]],
    epsilon: str,
    k: str = "",
    mechanism: str = "",
    attributes: Sequence[str] = (),
    budget_split: str = "",
    weights: Sequence[str] = (),
    rank_noise: Sequence[str] = (),
    max_overlap: str = "",
    on_mismatch: str = "",
    min_common: str = "",
    purpose: str = "",
    formats: Sequence[str] = (),
    out: str = "",
    dry_run: bool = False,
) -> Request:
    """Read the arguments of a release as an operator wrote them.

    Args:
        release: Release id.
        dataset: Name of the data set.
        layout: Layout.
        groups: Owner ids by group.
        epsilon: Decimal text.
        k: An integer as text; empty or "auto" to have it chosen.
        mechanism: A mechanism id; empty for the default.
        attributes: Attribute names; empty for all.
        budget_split: How epsilon is divided; empty for the default.
        weights: Attributes with their weights, `name=weight` each; only for a split by weights.
        rank_noise: `w` for all attributes, `name=w` for single ones; empty for the default.
        max_overlap: How many owners of a group may hold the same person, as text; empty for one.
        on_mismatch: "stop" or "intersect"; empty for stop.
        min_common: Fewest common persons, as text; only with "intersect"; empty for the largest k.
        purpose: What the release is for, as `common.model.plan.is_purpose` wants it.
        formats: Data formats; empty for all.
        out: Folder for a copy; empty for none.
        dry_run: Whether to stop at the plan.

    Raises:
        UsageError: Saying which argument cannot be used and what is accepted.
    """
    parse_id(release)
    if not dataset:
        raise UsageError("no data set is named", "name one with --dataset")
    if not is_purpose(purpose):
        raise UsageError(
            "no owner accepts this purpose",
            f"write one line of at most {LONGEST_PURPOSE} printable characters, with single spaces",
        )
    kind = Layout(one_of("layout", layout, tuple(Layout)))
    split = BudgetSplit(one_of("budget split", budget_split or "owner", tuple(BudgetSplit)))
    size = parse_k(k)
    chosen = parse_mechanism(mechanism, size)
    mismatch = one_of("--on-mismatch", on_mismatch or "stop", ON_MISMATCH)
    return Request(
        release=release,
        dataset=dataset,
        layout=kind,
        groups=_groups(kind, groups),
        epsilon=parse_epsilon(epsilon),
        k=size,
        mechanism=chosen,
        attributes=distinct("attribute", attributes),
        budget_split=split,
        weights=_weights(split, weights),
        rank_noise=parse_rank_noise(rank_noise, chosen),
        max_overlap=_overlap(max_overlap, groups),
        on_mismatch=mismatch,
        min_common=_common(min_common, mismatch, groups),
        purpose=purpose,
        formats=tuple(one_of("format", each, FORMATS) for each in distinct("format", formats)) or FORMATS,
        out=out,
        dry_run=dry_run,
    )


def _groups(layout: Layout, groups: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    owners = [owner for group in groups for owner in group]
    if not owners or not all(groups):
        raise UsageError("no owners are named", "name them with --owners a,b,c")
    for owner in owners:
        if not is_name(owner):
            raise UsageError(f"{owner!r} cannot be the id of an owner", NAME_RULE)
    for named in groups if layout is Layout.MIXED else [owners]:
        distinct("owner", named)
    if layout is Layout.MIXED:
        _check_mixed(groups)
    if layout is Layout.HORIZONTAL and len(groups) != 1:
        raise UsageError("a horizontal release has one group of owners", "name them with --owners a,b,c")
    if layout is Layout.VERTICAL and len(owners) == 1:
        raise UsageError(
            "a vertical release joins the attributes of several owners, and one is named",
            "name more owners; one owner's records are released with --layout horizontal",
        )
    if layout is Layout.VERTICAL and len(groups) != len(owners):
        raise UsageError("in a vertical release every owner is a group", "name them with --owners a,b,c")
    return tuple(tuple(group) for group in groups)


def _check_mixed(groups: Sequence[Sequence[str]]) -> None:
    """Check groups that an owner may be in several of.

    Raises:
        UsageError: If there is one group alone, or two have the same owners.
    """
    if len(groups) == 1:
        raise UsageError(
            "a mixed release has several groups of owners, and one is named",
            "separate them: --groups 'a,b;c,d'; one group is released with --layout horizontal",
        )
    if len({frozenset(group) for group in groups}) < len(groups):
        raise UsageError(
            "two groups have the same owners, and attributes belong to the group of those that hold them",
            "name each set of owners once",
        )


def _overlap(text: str, groups: Sequence[Sequence[str]]) -> int:
    """Read how many owners of a group may hold the same person."""
    found = _count("max-overlap", text or "1")
    largest = max(len(group) for group in groups)
    if found > largest:
        raise UsageError(
            f"--max-overlap {found} is more than the owners of any group, {largest} at most",
            "a person can be at no more owners of a group than there are: ask for less",
        )
    return found


def _common(text: str, mismatch: str, groups: Sequence[Sequence[str]]) -> int:
    """Read how many persons have to be common; 0 if that is left to k."""
    if mismatch == "stop":
        if text:
            raise UsageError(
                "--min-common goes with groups that are intersected", "add --on-mismatch intersect"
            )
        return 0
    if len(groups) == 1:
        raise UsageError(
            "one group of owners has nothing to be intersected with",
            "leave --on-mismatch out, or name several groups",
        )
    return _count("min-common", text) if text else 0


def _count(option: str, text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise UsageError(f"--{option} {text!r} is no count", "write a whole number from 1 on")
    return int(text)


def _weights(split: BudgetSplit, texts: Sequence[str]) -> tuple[tuple[str, Decimal], ...]:
    if split is not BudgetSplit.WEIGHTS and texts:
        raise UsageError(f"weights go with another budget split than {split}", "add --budget-split weights")
    if split is BudgetSplit.WEIGHTS and not texts:
        raise UsageError("a budget split by weights needs weights", "add --weights age=2,income=1")
    return parse_weights(texts)
