"""What an operator asked for, checked as far as it can be without any owner."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from common.errors import UsageError
from common.identity import NAME_RULE, is_name
from common.plan import RELEASE_ID, BudgetSplit, Layout
from common.privacy import (
    DEFAULT_MECHANISM,
    EVALUATION_ONLY,
    EXPONENTIAL,
    MECHANISMS,
    REQUESTABLE,
    SMALLEST_K,
    parse_epsilon,
    plain,
    round_down,
)

FORMATS = ("parquet", "csv")
"""Formats that a release can be published in."""
_LATER = "not supported by this version"


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
    """Owner ids by attribute group: one group in horizontal, one owner each in vertical layout."""
    epsilon: Decimal
    """The release's epsilon."""
    k: int | None = None
    """Minimum cluster size of every attribute; None to have it chosen for each owner and attribute."""
    mechanism: str = DEFAULT_MECHANISM
    """Mechanism id."""
    attributes: tuple[str, ...] = ()
    """Attributes to release, in the order of the columns; empty for all."""
    budget_split: BudgetSplit = BudgetSplit.OWNER
    """How epsilon is divided among groups and attributes."""
    weights: tuple[tuple[str, Decimal], ...] = ()
    """Attributes and their weights, for a budget split by weights; empty for any other."""
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
        object.__setattr__(self, "owners", tuple(owner for group in self.groups for owner in group))

    def to_document(self) -> dict[str, Any]:
        """Return the request as JSON-serialisable values."""
        document = asdict(self)
        del document["owners"]
        weights = [(name, format(weight, "f")) for name, weight in self.weights]
        return document | {"epsilon": format(self.epsilon, "f"), "weights": weights}

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
        purpose: What the release is for.
        formats: Data formats; empty for all.
        out: Folder for a copy; empty for none.
        dry_run: Whether to stop at the plan.

    Raises:
        UsageError: Saying which argument cannot be used and what is accepted.
    """
    if not RELEASE_ID.fullmatch(release):
        raise UsageError(
            f"{release!r} cannot be the id of a release",
            "use a-z, 0-9, '.', '_' and '-', 64 characters at most, a letter or digit at both ends",
        )
    if not dataset:
        raise UsageError("no data set is named", "name one with --dataset")
    kind = _layout(layout)
    split = BudgetSplit(_one_of("budget split", budget_split or "owner", tuple(BudgetSplit)))
    chosen = _mechanism(mechanism or DEFAULT_MECHANISM)
    size = _k(k)
    if size is not None and not MECHANISMS[chosen].clustered:
        raise UsageError(
            f"mechanism {chosen} makes no clusters and takes no k",
            "leave --k out, or choose a mechanism that makes clusters",
        )
    return Request(
        release=release,
        dataset=dataset,
        layout=kind,
        groups=_groups(kind, groups),
        epsilon=parse_epsilon(epsilon),
        k=size,
        mechanism=chosen,
        attributes=_distinct("attribute", attributes),
        budget_split=split,
        weights=_weights(split, weights),
        purpose=purpose,
        formats=tuple(_one_of("format", each, FORMATS) for each in _distinct("format", formats)) or FORMATS,
        out=out,
        dry_run=dry_run,
    )


def _layout(text: str) -> Layout:
    layout = Layout(_one_of("layout", text, tuple(Layout)))
    if layout is Layout.MIXED:
        raise UsageError(f"the mixed layout is {_LATER}", "use horizontal or vertical")
    return layout


def _groups(layout: Layout, groups: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    owners = [owner for group in groups for owner in group]
    if not owners or not all(groups):
        raise UsageError("no owners are named", "name them with --owners a,b,c")
    for owner in owners:
        if not is_name(owner):
            raise UsageError(f"{owner!r} cannot be the id of an owner", NAME_RULE)
    _distinct("owner", owners)
    if layout is Layout.HORIZONTAL and len(groups) != 1:
        raise UsageError("a horizontal release has one group of owners", "name them with --owners a,b,c")
    if layout is Layout.VERTICAL and len(groups) != len(owners):
        raise UsageError("in a vertical release every owner is a group", "name them with --owners a,b,c")
    return tuple(tuple(group) for group in groups)


def _mechanism(text: str) -> str:
    if text == EXPONENTIAL:
        raise UsageError(
            f"mechanism {text} cannot be asked for: it goes with attributes that their owners declare so",
            'owners declare a taxonomy and method = "exponential"',
        )
    if text in EVALUATION_ONLY:
        raise UsageError(
            f"mechanism {text} is for evaluation only and makes no release: {EVALUATION_ONLY[text]}",
            f"accepted: {', '.join(REQUESTABLE)}",
        )
    return _one_of("mechanism", text, REQUESTABLE)


def _weights(split: BudgetSplit, texts: Sequence[str]) -> tuple[tuple[str, Decimal], ...]:
    if split is not BudgetSplit.WEIGHTS and texts:
        raise UsageError(f"weights go with another budget split than {split}", "add --budget-split weights")
    if split is BudgetSplit.WEIGHTS and not texts:
        raise UsageError("a budget split by weights needs weights", "add --weights age=2,income=1")
    pairs = [text.rpartition("=")[::2] for text in texts]
    _distinct("weight of attribute", [name for name, _ in pairs])
    return tuple((name.strip(), _weight(name.strip(), weight)) for name, weight in pairs)


def _weight(name: str, text: str) -> Decimal:
    hint = "write weights as name=weight, each a positive decimal number: --weights age=2,income=0.5"
    try:
        weight = Decimal(text.strip())
    except InvalidOperation:
        weight = Decimal(0)
    if not name or not weight.is_finite() or not 0 < weight <= 10**6 or round_down(weight) != weight:
        raise UsageError(f"{name}={text} is no weight of an attribute", hint)
    return plain(weight)


def _k(text: str) -> int | None:
    if text.strip() in ("", "auto"):
        return None
    try:
        k = int(text)
    except ValueError:
        raise UsageError(
            f"k must be a whole number or auto, not {text!r}", f"{SMALLEST_K} is the smallest"
        ) from None
    if k < SMALLEST_K:
        raise UsageError(f"k must be at least {SMALLEST_K}, not {k}", "a larger k means less noise")
    if k >= 2**31:
        raise UsageError("k is larger than any data set", "k is the smallest number of records of a cluster")
    return k


def _one_of(what: str, text: str, accepted: Sequence[str] | Mapping[str, Any]) -> str:
    if text not in accepted:
        raise UsageError(f"{what} {text!r} is not known", f"accepted: {', '.join(accepted)}")
    return text


def _distinct(what: str, names: Sequence[str]) -> tuple[str, ...]:
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise UsageError(f"{what} {', '.join(twice)} is named twice", "name each once")
    return tuple(names)
