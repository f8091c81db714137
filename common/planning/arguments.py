"""The arguments of a release, read and checked in one place as far as possible without data.

Used by both command lines, the aggregator's daemon and notebooks.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from common.errors import UsageError
from common.model.mechanisms import (
    AUTO,
    DEFAULT_MECHANISM,
    EVALUATION_ONLY,
    MECHANISMS,
    REQUESTABLE,
    fault_of_k,
    fault_of_rank_noise,
    rules_of,
)
from common.model.plan import LONGEST_PURPOSE, ON_MISMATCH, RELEASE_ID, BudgetSplit, Layout, is_purpose
from common.model.privacy import (
    LARGEST_COUNT,
    NO_RANK_NOISE,
    SMALLEST_K,
    is_rank_noise,
    parse_epsilon,
    plain,
    read_decimal,
    read_whole_number,
    round_down,
)
from common.trust.identity import NAME_RULE, is_name

DEFAULT = Decimal("0.03")
"""Where neither operator nor owner states any: naming a mechanism does not remove this protection."""
_HINT = (
    "write a share of the ranks from 0 to 1 for all attributes, or for some by name: --rank-noise 0.03, "
    "--rank-noise age=0.1,ward=0"
)


@dataclass(frozen=True, slots=True)
class RankNoise:
    """The requested rank noise, for all attributes and for single ones."""

    everywhere: Decimal | None = None
    """w of all attributes that are not named; None: each owner's own, or else the default."""
    by_attribute: tuple[tuple[str, Decimal], ...] = ()
    """Attributes and their own w."""

    def of(self, attribute: str, mechanism: str, owners: Decimal | None = None) -> Decimal:
        """Return w of an attribute: the larger of the requested one and the owner's.

        Args:
            attribute: Its name.
            mechanism: Its mechanism; w is 0 if it releases no list.
            owners: What the owner of the data states; None for nothing.
        """
        if not rules_of(mechanism).listed:
            return NO_RANK_NOISE
        stated = [
            each
            for each in (dict(self.by_attribute).get(attribute, self.everywhere), owners)
            if each is not None
        ]
        return max(stated, default=DEFAULT)

    def check_names(self, attributes: Iterable[str]) -> None:
        """Check that only attributes are named that are there.

        Raises:
            UsageError: Naming those that are not.
        """
        known = list(attributes)
        unknown = [name for name, _ in self.by_attribute if name not in known]
        if unknown:
            raise UsageError(
                f"rank noise is given for attributes that are not released: {', '.join(unknown)}",
                f"released are {', '.join(known)}",
                {"unknown": unknown},
            )

    def to_texts(self) -> list[str]:
        """Return it as `parse_rank_noise` reads it."""
        named = [f"{name}={value:f}" for name, value in self.by_attribute]
        return named if self.everywhere is None else [f"{self.everywhere:f}", *named]


NONE = RankNoise(NO_RANK_NOISE)
"""No rank noise, as in the papers."""


def parse_rank_noise(texts: Sequence[str], mechanism: str = DEFAULT_MECHANISM) -> RankNoise:
    """Read rank noise as an operator wrote it.

    Args:
        texts: `w` for all attributes and `name=w` for single ones; empty for the default.
        mechanism: The mechanism that is requested with it.

    Raises:
        UsageError: If one is no rank noise, an attribute is named twice, or the mechanism takes none.
    """
    everywhere, named = None, dict[str, Decimal]()
    for text in texts:
        name, _, value = text.strip().rpartition("=")
        name, share = name.strip(), _share(text, value)
        if name in named or (not name and everywhere is not None):
            raise UsageError(f"rank noise of {name or 'all attributes'} is given twice", _HINT)
        if name:
            named[name] = share
        elif "=" in text:
            raise UsageError(f"{text!r} names no attribute", _HINT)
        else:
            everywhere = share
    fault = fault_of_rank_noise(mechanism, max([everywhere or NO_RANK_NOISE, *named.values()]))
    if fault:
        raise UsageError(f"mechanism {fault}", "leave --rank-noise out, or choose another mechanism")
    return RankNoise(everywhere, tuple(named.items()))


def _share(text: str, value: str) -> Decimal:
    try:
        share = read_decimal(value)
    except ValueError:
        raise UsageError(f"{text!r} is no rank noise", _HINT) from None
    if not share.is_finite() or not is_rank_noise(share):
        raise UsageError(f"{text!r} is no rank noise", _HINT)
    return plain(share)


def parse_id(text: str) -> str:
    """Check the id of a release.

    Raises:
        UsageError: If it cannot be one.
    """
    if not RELEASE_ID.fullmatch(text):
        raise UsageError(
            f"{text!r} cannot be the id of a release",
            "use a-z, 0-9, '.', '_' and '-', 64 characters at most, a letter or digit at both ends",
        )
    return text


def parse_mechanism(text: str, k: int | None = None) -> str:
    """Read a mechanism that may be requested.

    Args:
        text: A mechanism id; empty for the default.
        k: The minimum cluster size that is requested with it.

    Raises:
        UsageError: If there is none of that id, it makes no release, or it takes no k.
    """
    if text in MECHANISMS and text not in REQUESTABLE:
        raise UsageError(
            f"mechanism {text} cannot be requested: owners declare attributes for it",
            f'owners declare a taxonomy and method = "{MECHANISMS[text].declared_by}"',
        )
    if text in EVALUATION_ONLY:
        raise UsageError(
            f"mechanism {text} is for evaluation only and makes no release: {EVALUATION_ONLY[text]}",
            f"accepted: {', '.join((AUTO, *REQUESTABLE))}",
        )
    chosen = one_of("mechanism", text or DEFAULT_MECHANISM, (AUTO, *REQUESTABLE))
    fault = None if k is None else fault_of_k(chosen, k, 1)
    if fault:
        raise UsageError(f"mechanism {fault}", "leave --k out, or choose a mechanism that makes clusters")
    return chosen


def parse_k(text: str) -> int | None:
    """Read a minimum cluster size; None for an empty text or "auto".

    Raises:
        UsageError: If it is not a number that any mechanism takes.
    """
    if text.strip() in ("", "auto"):
        return None
    try:
        k = read_whole_number(text)
    except ValueError:
        raise UsageError(
            f"k must be a whole number or auto, not {text!r}", f"{SMALLEST_K} is the smallest"
        ) from None
    if k < SMALLEST_K:
        raise UsageError(f"k must be at least {SMALLEST_K}, not {k}", "a larger k means less noise")
    if k >= LARGEST_COUNT:
        raise UsageError("k is larger than any data set", "k is the smallest number of records of a cluster")
    return k


def parse_weights(texts: Sequence[str]) -> tuple[tuple[str, Decimal], ...]:
    """Read the weights of attributes, `name=weight` each.

    Raises:
        UsageError: If one is no weight, or an attribute has two.
    """
    pairs = [text.rpartition("=")[::2] for text in texts]
    distinct("weight of attribute", [name for name, _ in pairs])
    return tuple((name.strip(), _weight(name.strip(), weight)) for name, weight in pairs)


def _weight(name: str, text: str) -> Decimal:
    hint = "write weights as name=weight, each a positive decimal number: --weights age=2,income=0.5"
    try:
        weight = read_decimal(text)
    except ValueError:
        weight = Decimal(0)
    if not name or not weight.is_finite() or not 0 < weight <= 10**6 or round_down(weight) != weight:
        raise UsageError(f"{name}={text} is no weight of an attribute", hint)
    return plain(weight)


def one_of(what: str, text: str, accepted: Sequence[str] | Mapping[str, Any]) -> str:
    """Return a text after checking that it is accepted.

    Raises:
        UsageError: If it is another.
    """
    if text not in accepted:
        raise UsageError(f"{what} {text!r} is not known", f"accepted: {', '.join(accepted)}")
    return text


def distinct(what: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return names after checking that they are distinct.

    Raises:
        UsageError: If one is there twice.
    """
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise UsageError(f"{what} {', '.join(twice)} is named twice", "name each once")
    return tuple(names)


_COUNT = re.compile(r"[1-9][0-9]{0,11}")
"""From 1 on, up to more than there are people, or owners."""
FORMATS = ("parquet", "csv")
"""Formats that a release can be published in."""


@dataclass(frozen=True, slots=True)
class ReleaseArguments:
    """The arguments of a release, checked as far as possible without any owner.

    A masking that an owner makes for itself has the same arguments: one group with this owner alone.
    """

    release: str
    dataset: str
    layout: Layout
    groups: tuple[tuple[str, ...], ...]
    """Owner ids by attribute group: one group in horizontal, one owner each in vertical layout; in mixed
    layout an owner can be in several."""
    epsilon: Decimal
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
    rank_noise: RankNoise = RankNoise()
    max_overlap: int = 1
    """Most owners of one group that may hold the same person."""
    on_mismatch: str = "stop"
    """What happens if groups hold different persons (`common.model.plan.ON_MISMATCH`)."""
    min_common: int = 0
    """Fewest common persons to continue with where groups are intersected; 0: the largest k."""
    owner_column: bool = False
    """Whether the release states the owner of every record."""
    purpose: str = ""
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
        """Return the arguments as JSON-serialisable values."""
        document = asdict(self)
        del document["owners"]
        weights = [(name, format(weight, "f")) for name, weight in self.weights]
        plain = {"epsilon": format(self.epsilon, "f"), "rank_noise": self.rank_noise.to_texts()}
        return document | plain | {"weights": weights}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ReleaseArguments":
        """Read arguments that `to_document` wrote."""
        changed = {
            "layout": Layout(document["layout"]),
            "groups": tuple(tuple(group) for group in document["groups"]),
            "epsilon": Decimal(document["epsilon"]),
            "attributes": tuple(document["attributes"]),
            "budget_split": BudgetSplit(document["budget_split"]),
            "formats": tuple(document["formats"]),
            "weights": tuple((name, Decimal(weight)) for name, weight in document["weights"]),
            # Arguments from before rank noise existed have none.
            "rank_noise": parse_rank_noise(document["rank_noise"]) if "rank_noise" in document else NONE,
        }
        return cls(**{**document, **changed})


def parse_arguments(
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
    owner_column: bool = False,
    purpose: str = "",
    formats: Sequence[str] = (),
    out: str = "",
    dry_run: bool = False,
) -> ReleaseArguments:
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
        owner_column: Whether the release states the owner of every record.
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
    return ReleaseArguments(
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
        owner_column=_owner_column(owner_column, groups),
        purpose=purpose,
        formats=tuple(one_of("format", each, FORMATS) for each in distinct("format", formats)) or FORMATS,
        out=out,
        dry_run=dry_run,
    )


def parse_own_arguments(
    owner: str, release: str, dataset: str, *, weights: Sequence[str] = (), **asked: Any
) -> ReleaseArguments:
    """Read the arguments of what an owner makes for itself: a horizontal release of this owner alone.

    Args:
        owner: Owner id.
        release: Id of the work.
        dataset: Name of the data set.
        weights: Attributes with their weights, `name=weight` each; empty for equal shares.
        asked: Other arguments of `parse_arguments`.

    Raises:
        UsageError: As `parse_arguments` does.
    """
    return parse_arguments(
        release=release, dataset=dataset, layout=Layout.HORIZONTAL, groups=[[owner]],
        budget_split=BudgetSplit.WEIGHTS if weights else BudgetSplit.OWNER, weights=weights, **asked,
    )  # fmt: skip


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
            "a person can be at no more owners of a group than there are: give a smaller number",
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


def _owner_column(wanted: bool, groups: Sequence[Sequence[str]]) -> bool:  # noqa: FBT001 - as it was asked
    """Check that a column of owners has something to say."""
    if wanted and all(len(owners) == 1 for owners in groups):
        raise UsageError(
            "every attribute has one owner, which the plan states: a column of owners would add nothing",
            "leave --owner-column out",
        )
    return wanted


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


def split_names(text: str | None) -> list[str]:
    """Split a list of names at its commas; there are none in an option that is not given.

    Raises:
        UsageError: If the text is not empty and names nothing.
    """
    found = [name.strip() for name in (text or "").split(",") if name.strip()]
    if text and not found:
        raise UsageError(f"{text!r} names nothing", "separate names by commas: a,b")
    return found


def split_groups(layout: str, owners: str, groups: str) -> list[list[str]]:
    """Return owner ids by group from the two options that name owners.

    Args:
        layout: Layout; in a vertical one every owner of `owners` is a group.
        owners: Owner ids, `a,b,c`.
        groups: Owner ids by group, `a,b;c,d`.

    Raises:
        UsageError: Unless exactly one of the two is given.
    """
    if bool(owners) == bool(groups):
        raise UsageError("owners are named by --owners or by --groups", "for example: --owners a,b,c")
    if groups:
        return [split_names(group) for group in groups.split(";")]
    named = split_names(owners)
    return [[owner] for owner in named] if layout == Layout.VERTICAL else [named]
