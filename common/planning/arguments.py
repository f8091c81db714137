"""The arguments of a release, read and checked in one place as far as possible without data.

Used by both command lines, the aggregator's daemon and notebooks.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Annotated, Any, get_type_hints

from common.canonical import Document
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
from common.model.permit import DUO, LONGEST_PERMIT, duo_code
from common.model.plan import (
    LONGEST_PURPOSE,
    MOST_AUDIT_DAYS,
    ON_MISMATCH,
    RELEASE_ID,
    BudgetSplit,
    Layout,
    is_permit,
    is_purpose,
)
from common.model.privacy import (
    LARGEST_COUNT,
    NO_RANK_NOISE,
    SMALLEST_K,
    is_rank_noise,
    parse_delta,
    parse_epsilon,
    plain,
    read_decimal,
    read_whole_number,
    round_down,
)
from common.model.products import Product
from common.planning.facts import NO_FACTS, Facts, parse_facts
from common.planning.names import split, split_names, unquoted
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


def parse_rank_noise(texts: Sequence[str]) -> RankNoise:
    """Read rank noise as an operator wrote it.

    Args:
        texts: `w` for all attributes and `name=w` for single ones; empty for the default.

    Raises:
        UsageError: If one is no rank noise, or an attribute is named twice.
    """
    everywhere, named = None, dict[str, Decimal]()
    for text in texts:
        name, _, value = text.strip().rpartition("=")
        name, share = unquoted(name), _share(text, value)
        if name in named or (not name and everywhere is not None):
            raise UsageError(f"rank noise of {name or 'all attributes'} is given twice", _HINT)
        if name:
            named[name] = share
        elif "=" in text:
            raise UsageError(f"{text!r} names no attribute", _HINT)
        else:
            everywhere = share
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


def parse_mechanism(text: str) -> str:
    """Read a mechanism that may be requested.

    Args:
        text: A mechanism id; empty for the default.

    Raises:
        UsageError: If there is none of that id, or it makes no release.
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
    return one_of("mechanism", text or DEFAULT_MECHANISM, (AUTO, *REQUESTABLE))


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


def parse_colluding(text: str) -> int | None:
    """Read how many owners may collude with the aggregator; None for an empty text or "auto".

    Raises:
        UsageError: If it is not a number.
    """
    if text.strip() in ("", "auto"):
        return None
    try:
        return read_whole_number(text)
    except ValueError:
        raise UsageError(
            f"the number of colluding owners must be a whole number or auto, not {text!r}",
            "from 1 to one less than there are owners; 0 for one owner",
        ) from None


def parse_audit(text: str) -> int:
    """Read for how many days owners keep what an audit needs; 0 for an empty text.

    Raises:
        UsageError: If it is not a number of days.
    """
    days = int(text[:-1]) if _DAYS.fullmatch(text) else 0
    if text and not 0 < days <= MOST_AUDIT_DAYS:
        raise UsageError(
            f"an audit cannot be asked for {text!r}",
            f"write for how many days owners can be audited, from 1d to {MOST_AUDIT_DAYS}d: --audit 30d",
        )
    return days


_DAYS = re.compile(r"[0-9]{1,4}d")


def parse_pairs(texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Read pairs of attributes, `first:second` each.

    Raises:
        UsageError: If one is no pair, or is named twice.
    """
    found = []
    for text in texts:
        names = tuple(map(unquoted, split(text, ":")))
        if len(names) != len(_PAIR) or not all(names) or len(set(names)) != len(names):
            raise UsageError(f"{text!r} is no pair of attributes", "write pairs as age:income,age:ward")
        found.append(names)
    distinct("pair", [" and ".join(sorted(names)) for names in found])
    return tuple(found)


_PAIR = ("first", "second")


def parse_weights(texts: Sequence[str]) -> tuple[tuple[str, Decimal], ...]:
    """Read the weights of attributes, `name=weight` each.

    Raises:
        UsageError: If one is no weight, or an attribute has two.
    """
    pairs = [_weight(text) for text in texts]
    distinct("weight of attribute", [name for name, _ in pairs])
    return tuple(pairs)


def _weight(text: str) -> tuple[str, Decimal]:
    name, _, number = text.rpartition("=")
    name = unquoted(name)
    hint = "write weights as name=weight, each a positive decimal number: --weights age=2,income=0.5"
    try:
        weight = read_decimal(number)
    except ValueError:
        weight = Decimal(0)
    if not name or not weight.is_finite() or not 0 < weight <= 10**6 or round_down(weight) != weight:
        raise UsageError(f"{text!r} is no weight of an attribute", hint)
    return name, plain(weight)


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


def _dataset(text: str) -> str:
    if not text:
        raise UsageError("no data set is named", "name one with --dataset")
    return text


def _purpose(text: str) -> str:
    if not is_purpose(text):
        raise UsageError(
            "no owner accepts this purpose",
            f"write one line of at most {LONGEST_PURPOSE} printable characters, with single spaces",
        )
    return text


def _permit(text: str) -> str:
    if not is_permit(text):
        raise UsageError(
            "no owner accepts this permit", f"write its id in one line of at most {LONGEST_PERMIT} characters"
        )
    return text


def _duo(texts: Sequence[str]) -> tuple[str, ...]:
    try:
        return distinct("condition", [duo_code(text) for text in texts])
    except ValueError as problem:
        raise UsageError(str(problem), f"accepted: {', '.join(DUO)}") from None


def _tuples(groups: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(group) for group in groups)


def _count(option: str, usual: int, text: str) -> int:
    if text and not _COUNT.fullmatch(text):
        raise UsageError(f"--{option} {text!r} is no count", "write a whole number from 1 on")
    return int(text or usual)


class Kind(Enum):
    """What an operator states an argument by."""

    TEXT = "text"
    NAMES = "texts, separated by commas"
    FLAG = "yes or no"
    FOLDER = "folder"
    FILE = "file, whose text is read where it is stated"


@dataclass(frozen=True, slots=True)
class Argument:
    """How an operator states one argument: by an option, in the console's form, as a field of the request."""

    help: str
    read: Callable[[Any], Any] = str
    """Takes the field of the request, where an empty one means the default."""
    restore: Callable[[Any], Any] = lambda stored: tuple(stored) if isinstance(stored, list) else stored
    """Takes what `ReleaseArguments.to_document` wrote."""
    option: str = ""
    """Name of the option where it is not that of the argument."""
    metavar: str | None = None
    kind: Kind = Kind.TEXT
    default: str | None = ""
    """What the option is without being given; None if it must be given."""
    shown: str = ""
    """What an argument that is left out means, where `default` does not say it."""
    choices: tuple[str, ...] = ()
    """What is accepted, the usual choice first; empty if not only these are."""
    label: str = ""
    """Name of the field in the form."""
    hint: str = ""
    """What the form says below the field."""
    keyboard: str = "text"
    """`inputmode` of the field."""
    product: Product | None = None
    """The only product that it goes with; None: all."""

    def option_of(self, name: str) -> str:
        """Return the option of the argument of this name."""
        return self.option or f"--{name.replace('_', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseArguments:
    """The arguments of a release, checked as far as possible without any owner, and how each is stated.

    This is the table that the command line, the console's form, the request and the journal read, in the
    order of `--help`. A masking that an owner makes for itself has the same arguments: one group with this
    owner alone.
    """

    dataset: Annotated[
        str, Argument("Name of the data set, the same at every owner.", _dataset, default=None)
    ]
    layout: Annotated[
        Layout,
        Argument(
            "How owners hold the data: horizontal, vertical or mixed.",
            lambda text: Layout(one_of("layout", text, tuple(Layout))), Layout,
            default=None, choices=tuple(Layout), label="Layout",
            hint="horizontal: same attributes, other records. vertical: same records, other attributes.",
        ),
    ]  # fmt: skip
    epsilon: Annotated[
        Decimal,
        Argument(
            "Privacy budget for all attributes together, a decimal.", parse_epsilon, Decimal, default=None,
            label="ε for all attributes together", hint="A decimal, such as 1 or 0.5.", keyboard="decimal",
        ),
    ]  # fmt: skip
    product: Annotated[
        Product,
        Argument(
            "What is made: masked records, or records that agree with noisy counts (synthetic).",
            lambda text: Product(one_of("product", text or "masked", tuple(Product))), Product,
            default="masked", choices=tuple(Product), label="Product",
            hint="masked: every record, each value with noise. synthetic: records made of noisy counts.",
        ),
    ] = Product.MASKED  # fmt: skip
    delta: Annotated[
        Decimal,
        Argument(
            "With --product synthetic: δ of (ε, δ)-differential privacy, which needs less noise.",
            parse_delta, Decimal, default="", shown="0", label="δ, of synthetic records",
            hint="A small decimal, such as 0.000001; empty for none.", keyboard="decimal",
            product=Product.SYNTHETIC,
        ),
    ] = Decimal(0)  # fmt: skip
    colluding: Annotated[
        int | None,
        Argument(
            "With --product synthetic: most owners that may collude with the aggregator.", parse_colluding,
            metavar="auto|N", default="auto", shown="auto", label="Owners that may collude",
            hint="Of synthetic records: how many of the others no owner has to trust. Empty: one.",
            keyboard="numeric", product=Product.SYNTHETIC,
        ),
    ] = None  # fmt: skip
    """None for the default: all others of two owners, else one."""
    pairs: Annotated[
        tuple[tuple[str, ...], ...],
        Argument(
            "With --product synthetic: count only the tables of these pairs, with less noise each.",
            parse_pairs, _tuples, metavar="A:B,A:C", kind=Kind.NAMES, label="Pairs of attributes",
            hint="age:income,age:ward counts two tables; empty for those of all pairs.",
            product=Product.SYNTHETIC,
        ),
    ] = ()  # fmt: skip
    """Names of both attributes of each; empty for all pairs."""
    together: Annotated[
        tuple[tuple[str, ...], ...],
        Argument(
            "With --product synthetic: count two attributes as one, such as a time and its event.",
            parse_pairs, _tuples, metavar="A:B,C:D", kind=Kind.NAMES, label="Attributes counted together",
            hint="months:died allows survival by groups and hazard ratios. The second one has few values.",
            product=Product.SYNTHETIC,
        ),
    ] = ()  # fmt: skip
    """Names of both attributes of each."""
    facts: Annotated[
        Facts,
        Argument(
            "With --product synthetic: file of rules and tables that hold across owners, TOML.", parse_facts,
            Facts.from_document, metavar="FILE", kind=Kind.FILE, label="Facts across owners",
            hint="TOML: structural_zeros as in owner.toml, and [attributes.NAME] with follows and values.",
            product=Product.SYNTHETIC,
        ),
    ] = NO_FACTS  # fmt: skip
    """Public knowledge about attributes of several owners."""
    audit: Annotated[
        int,
        Argument(
            "With --product synthetic: how long owners keep what an audit of their messages needs.",
            parse_audit, metavar="30d", shown="not at all", label="Audit",
            hint="Of synthetic records: days after publication for which owners can be audited, such as 30d.",
            product=Product.SYNTHETIC,
        ),
    ] = 0  # fmt: skip
    """Days after publication; 0 for none."""
    k: Annotated[
        int | None,
        Argument(
            "Minimum cluster size; auto chooses it for every attribute.", parse_k, metavar="auto|N",
            default="auto", shown="auto", label="k, the smallest cluster",
            hint="Empty to have it chosen for every attribute.", product=Product.MASKED,
        ),
    ] = None  # fmt: skip
    """None to have it chosen for each owner and attribute."""
    owners: Annotated[tuple[str, ...], Argument("Ids of the owners that take part.", metavar="A,B,C")] = (
        field(init=False, compare=False)
    )
    """Owner ids, each once, group by group. An operator states them, or `groups`."""
    groups: Annotated[
        tuple[tuple[str, ...], ...],
        Argument(
            "Ids of the owners by group of attributes.", _tuples, _tuples, metavar="'A,B;C,D'",
            label="Owners by group, for layout mixed", hint="In place of the ticks above: a,b;c,d",
        ),
    ]  # fmt: skip
    """One group in horizontal, one owner each in vertical layout; in mixed an owner can be in several."""
    mechanism: Annotated[
        str,
        Argument(
            f"How values are masked: {', '.join((AUTO, *REQUESTABLE))}.", parse_mechanism, metavar="ID",
            shown="auto", choices=(AUTO, *REQUESTABLE), label="Mechanism", product=Product.MASKED,
        ),
    ] = DEFAULT_MECHANISM  # fmt: skip
    attributes: Annotated[
        tuple[str, ...],
        Argument(
            "Release only these attributes, in this order.", partial(distinct, "attribute"), metavar="A,B",
            kind=Kind.NAMES, label="Attributes",
            hint="Names separated by commas, in the order of the columns; empty for all.",
        ),
    ] = ()  # fmt: skip
    budget_split: Annotated[
        BudgetSplit,
        Argument(
            "How ε is split among owners and attributes.",
            lambda text: BudgetSplit(one_of("budget split", text or "owner", tuple(BudgetSplit))),
            BudgetSplit,
            metavar="owner|attribute|weights", default="owner", choices=tuple(BudgetSplit),
            label="How ε is split", product=Product.MASKED,
        ),
    ] = BudgetSplit.OWNER  # fmt: skip
    weights: Annotated[
        tuple[tuple[str, Decimal], ...],
        Argument(
            "Weight of every attribute in the split of ε.", parse_weights,
            lambda stored: tuple((name, Decimal(weight)) for name, weight in stored),
            metavar="A=2,B=1", kind=Kind.NAMES, label="Weights of attributes",
            hint="With weights: age=2,income=1.", product=Product.MASKED,
        ),
    ] = ()  # fmt: skip
    purpose: Annotated[
        str,
        Argument(
            "Purpose of the release, one line.", _purpose,
            label="Purpose", hint="One line, which every owner reads before it decides.",
        ),
    ] = ""  # fmt: skip
    permit: Annotated[
        str,
        Argument(
            "Id of the data permit that the release is made under.", _permit, metavar="ID",
            label="Data permit", hint="As the data access body wrote it; owners and readers see it.",
        ),
    ] = ""  # fmt: skip
    duo: Annotated[
        tuple[str, ...],
        Argument(
            "Conditions of use, as codes of the Data Use Ontology.", _duo, metavar="CODE,CODE",
            kind=Kind.NAMES, label="Conditions of use",
            hint="Codes of the Data Use Ontology, such as DUO:0000042,DUO:0000046.",
        ),
    ] = ()  # fmt: skip
    formats: Annotated[
        tuple[str, ...],
        Argument(
            "Formats of the data: parquet, csv or both.",
            lambda texts: tuple(one_of("format", each, FORMATS) for each in distinct("format", texts))
            or FORMATS,
            option="--format", metavar="LIST", kind=Kind.NAMES, default=",".join(FORMATS), choices=FORMATS,
        ),
    ] = FORMATS  # fmt: skip
    out: Annotated[str, Argument("Empty or absent folder for a copy of the release.", kind=Kind.FOLDER)] = ""
    release: Annotated[
        str,
        Argument(
            "Id of the release; default: chosen.", parse_id, option="--id", label="Id of the release",
            hint="The same id with the same fields continues the same release.",
        ),
    ]  # fmt: skip
    rank_noise: Annotated[
        RankNoise,
        Argument(
            "Noise on the ranks of records, as a share of all ranks.", parse_rank_noise, parse_rank_noise,
            metavar="W|A=W,B=W", kind=Kind.NAMES, shown=str(DEFAULT), label="Rank noise",
            hint="A share of all ranks, or by attribute: age=0.1,ward=0.", product=Product.MASKED,
        ),
    ] = RankNoise()  # fmt: skip
    max_overlap: Annotated[
        int,
        Argument(
            "Most owners of a group that may hold the same person.", partial(_count, "max-overlap", 1),
            metavar="M", default="1", shown="1", label="Most owners that hold the same person",
            keyboard="numeric",
        ),
    ] = 1  # fmt: skip
    on_mismatch: Annotated[
        str,
        Argument(
            "If groups hold different persons: stop, or release only the common ones, or all of them with "
            "presence as a value (synthetic).",
            lambda text: one_of("--on-mismatch", text or "stop", ON_MISMATCH), metavar="stop|intersect|union",
            default="stop", shown="stop", choices=ON_MISMATCH, label="If groups hold different persons",
        ),
    ] = "stop"  # fmt: skip
    min_common: Annotated[
        int,
        Argument(
            "With intersect: least number of common persons; default: the largest k, or 1.",
            partial(_count, "min-common", 0), metavar="N", label="Least number of common persons",
            hint="With intersect.", keyboard="numeric",
        ),
    ] = 0  # fmt: skip
    """0: the largest k."""
    owner_column: Annotated[
        bool,
        Argument(
            "Add a column with the owner of every record.", bool, kind=Kind.FLAG,
            label="A column with the owner of every record", product=Product.MASKED,
        ),
    ] = False  # fmt: skip
    anyway: Annotated[
        bool,
        Argument(
            "Go on although the result is expected to be worthless.", bool, kind=Kind.FLAG,
            label="Go on although the result is expected to be worthless",
        ),
    ] = field(default=False, compare=False)  # fmt: skip
    """Not part of what is released: the same id with or without it is the same release."""
    dry_run: bool = False
    """Whether the release ends with its plan."""

    def __post_init__(self) -> None:
        named = dict.fromkeys(owner for group in self.groups for owner in group)
        object.__setattr__(self, "owners", tuple(named))

    def to_document(self) -> dict[str, Any]:
        """Return the arguments as JSON-serialisable values."""
        document = {each.name: _stored(getattr(self, each.name)) for each in fields(self) if each.init}
        # The version before reads documents without these.
        for name in _LATER:
            if getattr(self, name) == DEFAULTS[name]:
                del document[name]
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ReleaseArguments":
        """Read arguments that `to_document` wrote."""
        # Arguments from before rank noise existed have none.
        stored = {"rank_noise": NONE.to_texts(), **document}
        known = {name: each.restore(stored.pop(name)) for name, each in ARGUMENTS.items() if name in stored}
        return cls(**known, **stored)


ARGUMENTS: Mapping[str, Argument] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(ReleaseArguments, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
"""How an operator states each argument, by its name."""
DEFAULTS: Mapping[str, Any] = {
    each.name: each.default for each in fields(ReleaseArguments) if each.default is not MISSING
}
"""What an argument is that is left out."""


_LATER = (
    "anyway", "product", "delta", "colluding", "pairs", "together", "facts", "audit", "permit", "duo"
)  # fmt: skip


def _stored(value: Any) -> Any:
    if isinstance(value, RankNoise):
        return value.to_texts()
    if isinstance(value, Document):
        return value.to_document()
    if isinstance(value, tuple):
        return [_stored(each) for each in value]
    return format(value, "f") if isinstance(value, Decimal) else value


def parse_arguments(**sent: Any) -> ReleaseArguments:
    """Read the arguments of a release as an operator wrote them.

    Args:
        sent: Fields of a request by name: texts, lists of texts, booleans. One that is empty or absent means
            the default; release, dataset, layout, groups and epsilon are required.

    Raises:
        UsageError: Saying which argument cannot be used and what is accepted.
    """
    # Weights that nobody may give are not judged one by one.
    split = ARGUMENTS["budget_split"].read(sent.get("budget_split", ""))
    if sent.get("weights") and split is not BudgetSplit.WEIGHTS:
        raise UsageError(f"weights go with another budget split than {split}", "add --budget-split weights")
    known = {name: each.read(sent.pop(name)) for name, each in ARGUMENTS.items() if name in sent}
    asked = ReleaseArguments(**known, **sent)
    _check_groups(asked.layout, asked.groups)
    _check_product(asked)
    if asked.budget_split is BudgetSplit.WEIGHTS and not asked.weights:
        raise UsageError("a budget split by weights needs weights", "add --weights age=2,income=1")
    _check_mechanism(asked)
    _check_linking(asked)
    return asked


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


def _check_groups(layout: Layout, groups: Sequence[Sequence[str]]) -> None:
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


def _check_product(asked: ReleaseArguments) -> None:
    """Check that nothing is stated that goes with another product."""
    stated = {
        name: each
        for name, each in ARGUMENTS.items()
        if name in DEFAULTS and getattr(asked, name) != DEFAULTS[name]
    }
    if asked.weights:
        del stated["budget_split"]  # they imply it
    for product in Product:
        options = [each.option_of(name) for name, each in stated.items() if each.product is product]
        if options and product is not asked.product:
            raise of_product(product, options)
    if asked.on_mismatch == "union" and asked.product is not Product.SYNTHETIC:
        raise of_product(Product.SYNTHETIC, ["--on-mismatch union"])
    if asked.product.rules.in_rounds:
        # Other products need no libraries for data at the start of a command.
        from common.planning.synthetic import check_countable

        check_countable(asked.groups, asked.max_overlap)


def of_product(product: Product, options: Sequence[str]) -> UsageError:
    """Return the error that says which product options go with."""
    them = "it" if len(options) == 1 else "them"
    return UsageError(
        f"{', '.join(options)}: only with --product {product}",
        f"choose --product {product}, or leave {them} out",
    )


def _check_mechanism(asked: ReleaseArguments) -> None:
    """Check that the mechanism takes the requested k and rank noise."""
    fault = None if asked.k is None else fault_of_k(asked.mechanism, asked.k, 1)
    if fault:
        raise UsageError(f"mechanism {fault}", "leave --k out, or choose a mechanism that makes clusters")
    noise = asked.rank_noise
    most = max([noise.everywhere or NO_RANK_NOISE, *dict(noise.by_attribute).values()])
    if fault := fault_of_rank_noise(asked.mechanism, most):
        raise UsageError(f"mechanism {fault}", "leave --rank-noise out, or choose another mechanism")


def _check_linking(asked: ReleaseArguments) -> None:
    """Check what linking may find, and a column of owners, against the groups."""
    largest = max(len(group) for group in asked.groups)
    if asked.max_overlap > largest:
        raise UsageError(
            f"--max-overlap {asked.max_overlap} is more than the owners of any group, {largest} at most",
            "a person can be at no more owners of a group than there are: give a smaller number",
        )
    if asked.min_common and asked.on_mismatch != "intersect":
        raise UsageError("--min-common goes with groups that are intersected", "add --on-mismatch intersect")
    if asked.on_mismatch != "stop" and len(asked.groups) == 1:
        raise UsageError(
            "one group of owners has nothing to be intersected or united with",
            "leave --on-mismatch out, or name several groups",
        )
    if asked.owner_column and largest == 1:
        raise UsageError(
            "every attribute has one owner, which the plan states: a column of owners would add nothing",
            "leave --owner-column out",
        )


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
        return [split_names(group) for group in split(groups, ";")]
    named = split_names(owners)
    return [[owner] for owner in named] if layout == Layout.VERTICAL else [named]
