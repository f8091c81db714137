"""The schema of a data set, without any of its values: attributes, domains, identifier rules.

Every value is an integer in *resolution units* (docs/guarantee.md): a number as steps of its grid, a
date as days since 1970-01-01, a category or boolean as its index in the declared list. `Domain` keeps the
lowest and highest of these integers, so that order, sums and sensitivities are exact from here on.
"""

import re
import string
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self
from unicodedata import category, normalize

from common.canonical import OMITTED, Document
from common.model.privacy import (
    LARGEST_COUNT,
    NO_RANK_NOISE,
    SMALLEST_K,
    Accounting,
    is_rank_noise,
    read_decimal,
)
from common.model.structural_zeros import (
    MOST_RANGES,
    MOST_RANGES_TOGETHER,
    MOST_RULES,
    ExcludedValues,
    StructuralZero,
)

NORMALISATION_VERSION = 1
MATCH_VERSION = 1
TEXTS_VERSION = 2
"""Newest version of the texts that persons are recognised by (`owner_node.sources.person_texts`)."""
PASS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
"""What a pass may be called: reports and policies name it."""
PASS_NAME_RULE = "letters, digits, '.', '-', '_' and '+', at most 64"
LONGEST_KEY = 200
"""Most characters of a key of a pass."""
MOST_PASSES = 32
"""Most passes of match keys: every one is compared between all owners."""
LARGEST_SCHEMA = 2 << 20
"""Most bytes of a schema that an owner sends, and of a schema file that an aggregator offers."""
_MOST_ATTRIBUTES = 10_000
_LONGEST_NAME = 256
_MOST_RECORDS = 2**34
"""Most records of one owner."""
_MOST_PER_PERSON = 2**20
_INT64 = 2**63
MISSING_CATEGORY = "(missing)"
MOST_FOLLOWED = 10_000
"""Most values of an attribute that others follow: each has a line in their tables."""
NO_SLOT = -1
"""The slot of an attribute that holds no event."""
MOST_SPIKES = 8
"""Most declared spikes of an attribute."""
RESERVED_NAMES = ("record", "token")
"""Names of columns that releases and fragments have in any case: no attribute can have them."""
MOST_DECIMALS = 18
"""Most decimal places that a number can declare."""
_MOST_DIGITS = 28
"""Digits that scaling a decimal keeps exactly; 64-bit integers have fewer."""
_SPIKES_APART = 2
_EPOCH = date(1970, 1, 1).toordinal()
_SHA256 = re.compile("[0-9a-f]{64}")


class AttributeType(StrEnum):
    """The attribute types of the configuration, and what distinguishes them.

    Their form in a release is in `common.release.values`, how they are read in `owner_node.sources.values`.
    """

    needs: tuple[str, ...]
    """Keys of the configuration that it needs."""
    accepted: str
    """What the ends of its domain are; empty for a type whose values are labels."""
    step: str
    """What one resolution unit is, of values that have one and cannot be added; empty for all others."""

    def __new__(cls, name: str, needs: tuple[str, ...] = (), accepted: str = "", step: str = "") -> Self:
        """Make a member."""
        member = str.__new__(cls, name)
        member._value_, member.needs, member.accepted, member.step = name, needs, accepted, step
        return member

    @property
    def is_quantity(self) -> bool:
        """Whether values can be added: the mean of some is one, too."""
        return bool(self.accepted) and not self.step

    INTEGER = "integer", ("min", "max"), "a whole number"
    NUMBER = "number", ("min", "max", "decimals"), "a number"
    DATE = "date", ("min", "max"), "a date such as 2026-12-31", "1 day"
    CATEGORY = "category", ("categories",)
    BOOLEAN = "boolean"


class CategoryOrder(StrEnum):
    """In which order categories become indices."""

    DECLARED = "declared"
    FREQUENCY = "frequency"


class TaxonomyMethod(StrEnum):
    """How categories with a taxonomy are masked (Sánchez et al. 2016, §3.4)."""

    RANK = "rank"
    EXPONENTIAL = "exponential"


def fault_of_cell(text: str) -> str | None:
    """Say why a label or name cannot stand in a cell of a released table; None if it can.

    Releases are read on terminals, in browsers and in spreadsheets. A label cannot steer them: it has no
    control or invisible characters (joiners aside, which scripts need), and does not start like a formula.
    Programs trim cells, remove quotes, and take wide signs for their usual forms, before they look for one.
    """
    if any(category(each) in _UNSEEN and each not in _JOINERS for each in text):
        return "has control, invisible or bidirectional characters"
    if _FORMULA.match(normalize("NFKC", text).strip(_TRIMMED)):
        return "starts like a formula, which spreadsheets would run"
    return None


_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"
_TRIMMED = string.whitespace + "\u00a0\u3000\"'`\u2018\u2019\u201c\u201d\u201e"
_FORMULA = re.compile(r"[=@]|[+-](?![0-9.,]*$)")
"""A sign alone, or before digits, is no formula."""


# --- properties ------------------------------------------------------------------------------------------
#
# A property is one object. A new one is a row of `PROPERTIES`, a field of `Attribute` and a key of
# `owner_node.config.dataset.AttributeTable`. Documents, features of plans, comparisons of owners, pages and
# codebooks follow from the row.


@dataclass(frozen=True, slots=True)
class Property:
    """A setting that attributes can have beside their type and domain, and all that its key means."""

    key: str
    """Its key in `owner.toml`, and in the documents of schemas and plans."""
    field: str
    """The field of `Attribute` that has its value."""
    types: tuple[AttributeType, ...]
    """Types that it goes with."""
    default: Any
    """The value of an attribute that does not declare it; None where every attribute of these types does."""
    parse: Callable[[Any], Any] = bool
    """Returns the value that a document states, or raises a ValueError."""
    word: str = ""
    """The word of files and documents for True."""
    fits: Callable[["Attribute"], object] = lambda _: True
    """True if an attribute can have its value."""
    rule: str = ""
    """Why not, as a format of the attribute."""
    alone: Callable[["Attribute"], tuple[int, ...]] = lambda _: ()
    """Returns the values, in resolution units, that are counted by themselves where it is set."""
    is_required: bool = False
    """True if documents state the default, too."""
    summary: str = ""
    """Shown to an owner where it is set: a format of the attribute."""
    of_domain: str = ""
    """Addition to the domain where it is set, for pages, plans and codebooks: a format."""
    feature: str = ""
    """The feature that a plan uses by it; empty for none (`common.model.compatibility`)."""
    since: str = "0.2.0"
    """The first version that knows this feature."""
    of_derived: bool = False
    """True if derived attributes use this feature, too."""
    unplaced: str = ""
    """Values that have no place in the order of the others and can only be counted, in words."""

    def is_set(self, attribute: "Attribute") -> bool:
        """Return True if an attribute declares it."""
        return attribute.type in self.types and bool(getattr(attribute, self.field) != self.default)

    def read(self, written: Any, _read: Mapping[str, Any]) -> Any:
        """Return the value that a document states; `_read` has type and earlier properties, by field.

        Raises:
            ValueError: If it is malformed.
        """
        return bool(_one_of(written, (self.word,))) if self.word else self.parse(written)

    def write(self, attribute: "Attribute") -> Any:
        """Return what a document states."""
        value = getattr(attribute, self.field)
        return self.word or (value if isinstance(value, bool) else str(value))

    def fault(self, attribute: "Attribute") -> str | None:
        """Say why an attribute cannot have its value; None if it can."""
        return None if self.fits(attribute) else self.rule.format(attribute)

    def difference(self, expected: "Attribute", seen: "Attribute") -> str:
        """Say how a declaration differs, so that "at OWNER" can follow; empty if it does not."""
        if getattr(expected, self.field) == getattr(seen, self.field):
            return ""
        if self.word:
            declared = "declared, but not" if self.is_set(seen) else "not declared, but"
            return f'{self.key} = "{self.word}" is {declared}'
        here, there = (str(self.write(each)).lower() for each in (seen, expected))
        return f"{self.key} is {here}, {there}"


class _Step(Property):
    def read(self, written: Any, read: Mapping[str, Any]) -> int:
        return _declared_units(written, read)

    def write(self, attribute: "Attribute") -> str:
        return attribute.resolution

    def difference(self, expected: "Attribute", seen: "Attribute") -> str:
        # It is in units of the last decimal.
        return Property.difference(self, expected, seen) if expected.decimals == seen.decimals else ""


class _Spikes(Property):
    def read(self, written: Any, read: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(sorted(_declared_units(each, read) for each in written))

    def write(self, attribute: "Attribute") -> list[str]:
        return [attribute.text(each) for each in attribute.spikes]

    def fault(self, attribute: "Attribute") -> str | None:
        spikes = attribute.spikes
        if not spikes:
            return None
        if attribute.is_categorical:
            return "labels have no spikes: each is counted"
        if len(spikes) > MOST_SPIKES:
            return f"{len(spikes)} spikes, at most {MOST_SPIKES} are possible"
        if not (attribute.lower <= spikes[0] and spikes[-1] <= attribute.upper):
            return f"a spike is outside the domain, {attribute.min} to {attribute.max}"
        # Between two spikes there is a value that has no spike.
        if any(after - before < _SPIKES_APART for before, after in pairwise(spikes)):
            return "spikes are in order, with at least one value between two"
        return None

    def difference(self, expected: "Attribute", seen: "Attribute") -> str:
        ours, theirs = (", ".join(self.write(each)) or "none" for each in (expected, seen))
        return "" if ours == theirs else f"spikes are {theirs}, {ours}"


class _Taxonomy(Property):
    def fault(self, attribute: "Attribute") -> str | None:
        if not attribute.taxonomy:
            return None
        if not (attribute.categories and _SHA256.fullmatch(attribute.taxonomy)):
            return "a taxonomy is the digest of categories' hierarchy"
        return "a taxonomy has an order of its own" if attribute.by_frequency else None

    def difference(self, expected: "Attribute", seen: "Attribute") -> str:
        ours, theirs = (
            f"the hierarchy with digest {each.taxonomy[:12]}" if each.taxonomy else "not declared"
            for each in (expected, seen)
        )
        return "" if ours == theirs else f"the taxonomy is {theirs}, {ours}"


class _Slot(Property):
    def fault(self, attribute: "Attribute") -> str | None:
        if attribute.slot <= 0:
            fits = attribute.slot in (NO_SLOT, 0)
            return None if fits else "the number of events is slot 0, and events are numbered from 1"
        if not attribute.name.endswith(f"_{attribute.slot}"):
            return "the name of a slot ends with its number"
        # A category's last label is that of `common.model.presence`.
        absent = attribute.keeps_missing or attribute.type is AttributeType.CATEGORY
        return None if absent else "a slot has a value for persons with fewer events"


class _Method(Property):
    def is_set(self, attribute: "Attribute") -> bool:
        return bool(attribute.taxonomy)


def _declared_units(text: str, read: Mapping[str, Any]) -> int:
    return to_units(read["type"], text, read.get("decimals", 0), read.get("step", 1))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text was expected")
    return value


def _one_of(value: Any, accepted: Sequence[str]) -> str:
    if value not in accepted:
        raise ValueError(f"one of {', '.join(accepted)} was expected")
    return str(value)


_RANGED = tuple(kind for kind in AttributeType if kind.accepted)
_QUANTITIES = tuple(kind for kind in AttributeType if kind.is_quantity)
_CATEGORY = (AttributeType.CATEGORY,)
PROPERTIES: tuple[Property, ...] = (
    # What a value means is read before properties that have values.
    Property(
        "decimals", "decimals", (AttributeType.NUMBER,), None, int, summary="decimals = {.decimals}"
    ),
    _Step(
        "step", "step", _QUANTITIES, 1,
        fits=lambda own: own.step == 1 or (own.step > 1 and own.type.is_quantity),
        rule="a step is above 0, and goes with numbers", summary="steps of {.resolution}",
        feature="steps", of_derived=True,
    ),
    Property(
        "outside", "outside", tuple(AttributeType), "error", partial(_one_of, accepted=("error", "clamp")),
        is_required=True, summary="clamps",
    ),
    Property(
        "missing", "keeps_missing", _RANGED, False, word="category",
        fits=lambda own: not (own.keeps_missing and own.is_categorical),
        rule="categories have a label for missing values", alone=lambda own: (own.highest,),
        summary="keeps missing values, by counts", of_domain=", or missing", feature="missing-values",
        unplaced="missing values",
    ),
    _Spikes(
        "spikes", "spikes", _RANGED, (), alone=lambda own: own.spikes, summary="spikes at {.spikes_text}",
        of_domain=", spikes at {.spikes_text}", feature="spikes",
    ),
    Property(
        "scale", "is_logarithmic", _QUANTITIES, False, word="log",
        fits=lambda own: not own.is_logarithmic or (own.type.is_quantity and 0 <= own.lower < own.upper),
        rule="a logarithmic scale goes with numbers, and min = 0 or more, below max; min is {.min}",
        summary="logarithmic scale", of_domain=", logarithmic", feature="scale",
    ),
    Property(
        "ordered", "ordered", _CATEGORY, False, is_required=True, summary="ordered", of_domain=", ordered"
    ),
    Property(
        "order", "order", _CATEGORY, CategoryOrder.DECLARED, CategoryOrder, is_required=True,
        summary="by frequency",
    ),
    _Taxonomy(
        "taxonomy", "taxonomy", _CATEGORY, "", _text, summary="taxonomy {0.taxonomy:.12} by {0.method}",
        feature="taxonomy", since="0.1.0",
    ),
    _Method(
        "method", "method", _CATEGORY, TaxonomyMethod.RANK, TaxonomyMethod,
        fits=lambda own: own.taxonomy or own.method is TaxonomyMethod.RANK,
        rule="the method {.method} needs a taxonomy",
    ),
    _Slot(
        "slot", "slot", tuple(AttributeType), NO_SLOT, int, summary="slot {.slot} of events",
        feature="events", since="0.2.0",
    ),
    Property(
        "value", "is_optional", _RANGED, False, word="optional",
        fits=lambda own: own.slot > 0 or not own.is_optional, rule="only values of events are optional",
        summary="an event can lack it",
    ),
)  # fmt: skip
"""Every property, in the order of texts about it."""


class MalformedProperty(ValueError):
    """An attribute that cannot have some of its properties: pairs of a key and what is wrong."""

    def __init__(self, name: str, *faults: tuple[str, str]) -> None:
        super().__init__(f"attribute {name!r}: {'; '.join(fault for _, fault in faults)}")
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Derivation(Document):
    """A public table by which another attribute determines values; documents have them as `attribute`."""

    base: str = field(metadata={"name": "follows"})
    """Name of the attribute that determines it."""
    values: tuple[tuple[str, str], ...]
    """Every value of that attribute, in its order, with the value that follows from it."""


@dataclass(frozen=True, slots=True)
class Attribute(Document):
    """One declared attribute and every setting that owners of a group have to agree on."""

    name: str
    """Column name at the owner and in the release."""
    type: AttributeType
    """Type of its values."""
    lower: int
    """Lowest value of the domain, in resolution units; 0 for categories and booleans."""
    upper: int
    """Highest value of the domain, in resolution units; V - 1 for categories and booleans."""
    decimals: int = 0
    """Decimal places of a number; 0 for every other type."""
    outside: str = "error"
    """What happens to a value outside the domain: "error" or "clamp"."""
    categories: tuple[str, ...] = ()
    """Labels in declared order; empty unless the type is category."""
    ordered: bool = False
    """Whether the declared order of the categories has a meaning."""
    order: CategoryOrder = CategoryOrder.DECLARED
    """The order that masking uses, unless there is a taxonomy, whose own order is used then."""
    taxonomy: str = ""
    """SHA-256 of the categories' hierarchy, lower-case hexadecimal; empty if there is none."""
    method: TaxonomyMethod = TaxonomyMethod.RANK
    """How masking uses the taxonomy."""
    keeps_missing: bool = False
    """Whether a missing number, integer or date is a value of its own: the one after `upper`."""
    spikes: tuple[int, ...] = ()
    """Values that many records are known to have, ascending; where values are averaged, each is counted."""
    step: int = 1
    """What one resolution unit of a number or integer is, in units of 10^-decimals."""
    is_logarithmic: bool = False
    """Whether its values are spread evenly in the logarithm, as amounts and laboratory values are: counts of
    a wide domain are then made in parts of equal ratio."""
    slot: int = NO_SLOT
    """The number of the event whose value it has; 0 for the number of events (`common.model.events`)."""
    is_optional: bool = False
    """True if an event can lack this value, which is then as that of persons with fewer events."""
    derivation: Derivation | None = None
    """The public table by which its values are derived from released ones of another attribute; None where it
    is masked or counted."""
    derived: ClassVar[tuple[str, ...]] = ("min", "max", "attribute")

    def __post_init__(self) -> None:
        if (self.type is AttributeType.CATEGORY) != bool(self.categories):
            raise ValueError(f"attribute {self.name!r}: categories go with type category, and only with it")
        if self.categories and (self.lower, self.upper) != (0, len(self.categories) - 1):
            raise ValueError(f"attribute {self.name!r}: the indices of {len(self.categories)} categories")
        if self.upper < self.lower:
            raise MalformedProperty(self.name, ("min", f"{self.min} is above max, {self.max}"))
        for key, fault in ((each.key, each.fault(self)) for each in PROPERTIES):
            if fault:
                raise MalformedProperty(self.name, (key, fault))

    @property
    def min(self) -> str:
        """Lowest value of the domain as it is declared; numbers, integers and dates only."""
        return self.text(self.lower)

    @property
    def max(self) -> str:
        """Highest value of the domain as it is declared; numbers, integers and dates only."""
        return self.text(self.upper)

    @property
    def n_values(self) -> int:
        """V, the number of values of the declared domain in units, with the one for missing values."""
        return self.highest - self.lower + 1

    @property
    def highest(self) -> int:
        """The largest integer that stands for a value: `upper`, or the one after it for a missing value."""
        return self.upper + self.keeps_missing

    @property
    def is_categorical(self) -> bool:
        """Whether values are indices into labels."""
        return not self.type.accepted

    @property
    def labels(self) -> tuple[str, ...]:
        """What values are indices into; empty unless they are."""
        return self.categories or (("false", "true") if self.is_categorical else ())

    @property
    def domain(self) -> str:
        """The declared values in words."""
        if self.categories:
            return f"{self.n_values} categories{self._of_domain}"
        if self.is_categorical:
            return ", ".join(self.labels)
        return f"{self.min} to {self.max}{self._of_domain}"

    @property
    def _of_domain(self) -> str:
        return "".join(each.of_domain.format(self) for each in PROPERTIES if each.is_set(self))

    @property
    def spikes_text(self) -> str:
        """The declared spikes in words."""
        return " and ".join(map(self.text, self.spikes))

    @property
    def settings(self) -> str:
        """Declared properties in words, without type and domain."""
        if self.derivation is not None:
            return f"follows {self.derivation.base}"
        return ", ".join(
            each.summary.format(self) for each in PROPERTIES if each.summary and each.is_set(self)
        )

    @property
    def alone(self) -> tuple[int, ...]:
        """The values, in resolution units, that are counted by themselves and have no neighbours."""
        return tuple(units for each in PROPERTIES if each.is_set(self) for units in each.alone(self))

    @property
    def unplaced(self) -> str:
        """Values that have no place in the order of the others, in words; empty if all have one."""
        return next((each.unplaced for each in PROPERTIES if each.unplaced and each.is_set(self)), "")

    @property
    def unit(self) -> Decimal:
        """What one resolution unit is as a number; 1 for dates and labels."""
        return Decimal(self.step).scaleb(-self.decimals)

    @property
    def resolution(self) -> str:
        """What one resolution unit is; empty for labels."""
        return f"{self.unit:f}" if self.type.is_quantity else self.type.step

    @property
    def by_frequency(self) -> bool:
        """Whether the data decide in which order the categories are."""
        return self.is_categorical and self.order is CategoryOrder.FREQUENCY

    def text(self, units: int) -> str:
        """Return a value or domain end, given in resolution units, as a person would write it."""
        if self.is_categorical:
            return self.labels[units]
        if self.keeps_missing and units == self.highest:
            return MISSING_CATEGORY
        if self.type is AttributeType.DATE:
            return date.fromordinal(units + _EPOCH).isoformat()
        if self.type is AttributeType.NUMBER:
            return format(Decimal(units * self.step).scaleb(-self.decimals), "f")
        return str(units * self.step)

    def units(self, text: str) -> int:
        """Return a declared value, as `text` writes it, in resolution units.

        Raises:
            ValueError: If it is malformed.
        """
        if self.is_categorical:
            return units_of(self, [text])[0]
        units = to_units(self.type, text, self.decimals, self.step)
        if not self.lower <= units <= self.upper:
            raise ValueError(f"{text} is outside the domain of {self.name!r}, {self.min} to {self.max}")
        return units

    def to_document(self) -> dict[str, Any]:
        """Return the canonical document of this attribute."""
        if self.derivation is not None:
            return {"attribute": self.without_derivation.to_document(), **self.derivation.to_document()}
        document: dict[str, Any] = {"name": self.name, "type": str(self.type)}
        if self.categories:
            document["categories"] = list(self.categories)
        elif not self.is_categorical:
            document |= {"min": self.min, "max": self.max}
        stated = (
            each for each in PROPERTIES if each.is_set(self) or (each.is_required and self.type in each.types)
        )
        return document | {each.key: each.write(self) for each in stated}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Attribute":
        """Read an attribute from its document.

        Raises:
            ValueError: If it is not the document of an attribute; KeyError if a field is absent.
        """
        if "attribute" in document:
            own = cls.from_document(document["attribute"])
            return replace(own, derivation=Derivation.from_document(document))
        kind = AttributeType(document["type"])
        read: dict[str, Any] = {"name": _text(document["name"]), "type": kind}
        readers = [
            (each.key, each.field, each.read)
            for each in PROPERTIES
            if kind in each.types and (each.is_required or each.key in document)
        ]
        ends = [("min", "lower", _declared_units), ("max", "upper", _declared_units)] if kind.accepted else []
        faults = []
        for key, name, reader in (*readers, *ends):
            try:
                read[name] = reader(document[key], read)
            except ValueError as problem:
                faults.append((key, str(problem)))
        if faults:
            raise MalformedProperty(read["name"], *faults)
        if kind.accepted:
            return cls(**read)
        if kind is AttributeType.BOOLEAN:
            return cls(lower=0, upper=1, **read)
        labels = tuple(_text(label) for label in document["categories"])
        if len(set(labels)) != len(labels):
            raise ValueError(f"attribute {read['name']!r}: a category is declared twice")
        return cls(lower=0, upper=len(labels) - 1, categories=labels, **read)

    def with_missing_label(self) -> "Attribute":
        """Return it with the label of missing values, the last one, if it has categories."""
        if not self.categories:
            return self
        return replace(self, categories=(*self.categories, MISSING_CATEGORY), upper=self.upper + 1)

    @property
    def base(self) -> str:
        """Name of the attribute that it is derived from; empty if it is masked or counted."""
        return "" if self.derivation is None else self.derivation.base

    @property
    def origin(self) -> str:
        """Where its released values come from, in words; empty if it is masked or counted."""
        return self.base and f"derived from {self.base}, by a public table"

    @property
    def without_derivation(self) -> "Attribute":
        """Its settings alone."""
        return replace(self, derivation=None)

    def derive_from(self, base: "Attribute", values: Mapping[str, str]) -> "Attribute":
        """Return it as derived from another one, with each value written in one way.

        Args:
            base: The attribute that determines it.
            values: Values of that attribute, each with the value that follows from it.

        Raises:
            ValueError: If one is no value of its attribute.
        """
        pairs = {unit_of(base, key): unit_of(self, value) for key, value in values.items()}
        texts = ((base.text(key), self.text(pairs[key])) for key in sorted(pairs))
        return replace(self, derivation=Derivation(base.name, tuple(texts)))

    def derived_units(self, base: "Attribute") -> tuple[int, ...]:
        """Return its value for every value of the attribute that determines it, in resolution units.

        Raises:
            ValueError: If the table is none for these attributes.
        """
        if base.n_values > MOST_FOLLOWED:
            raise ValueError(
                f"{base.name!r} has {base.n_values} values, at most {MOST_FOLLOWED} can be followed"
            )
        table = () if self.derivation is None else self.derivation.values
        expected, given = range(base.lower, base.highest + 1), dict(table)
        if [key for key, _ in table] != list(map(base.text, expected)):
            lacking = next((text for text in map(base.text, expected) if text not in given), None)
            if lacking is not None:
                raise ValueError(f"nothing follows from {lacking!r} of {base.name!r}")
            raise ValueError(f"it follows from other values than {base.name!r} has")
        return units_of(self, list(given.values()))


def to_units(kind: AttributeType, text: str, decimals: int = 0, step: int = 1) -> int:
    """Turn one declared value into resolution units.

    Raises:
        ValueError: If the text is no such value, has more decimal places than declared, or is between two
            steps.
    """
    if kind is AttributeType.DATE:
        try:
            return date.fromisoformat(text).toordinal() - _EPOCH
        except ValueError:
            raise ValueError(f"{text!r} is not {kind.accepted}") from None
    if not 0 <= decimals <= MOST_DECIMALS:
        raise ValueError(f"decimals must be from 0 to {MOST_DECIMALS}, not {decimals}")
    try:
        value = read_decimal(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {kind.accepted}") from None
    # Scaling rounds more digits, and a number with a huge exponent is long to write out.
    if len(value.as_tuple().digits) > _MOST_DIGITS or abs(value.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"{text!r} has too many digits")
    scaled = value.scaleb(decimals)
    if scaled != scaled.to_integral_value():
        what = f"has more than {decimals} decimals" if decimals else "is not a whole number"
        raise ValueError(f"{text!r} {what}")
    # No step at all is refused where an attribute is made.
    units, rest = divmod(int(scaled), max(step, 1))
    if rest:
        raise ValueError(f"{text!r} is not a multiple of {Decimal(step).scaleb(-decimals):f}")
    return units


def unit_of(attribute: Attribute, text: str) -> int:
    """Return a declared value, or the one for missing values where they are kept, in resolution units.

    Raises:
        ValueError: If it is malformed.
    """
    if attribute.keeps_missing and text == MISSING_CATEGORY:
        return attribute.highest
    return attribute.units(text)


def units_of(attribute: Attribute, texts: Sequence[str]) -> tuple[int, ...]:
    """Return the units of many values, as `unit_of` does.

    Raises:
        ValueError: If one is malformed.
    """
    if not attribute.is_categorical:
        return tuple(unit_of(attribute, text) for text in texts)
    # Not `Attribute.units`, which searches the labels: for many values that would be quadratic.
    codes = {label: code for code, label in enumerate(attribute.labels)}
    if (other := next((text for text in texts if text not in codes), None)) is not None:
        raise ValueError(f"{other!r} is not a value of {attribute.name!r}")
    return tuple(codes[text] for text in texts)


def fault_of_derived(derived: Sequence[Attribute], attributes: Sequence[Attribute]) -> str | None:
    """Say what is wrong with attributes that are derived from others; None if they can be."""
    by_name = {each.name: each for each in attributes}
    names = [each.name for each in derived]
    if len({*by_name, *names}) != len(by_name) + len(names):
        return "an attribute is declared twice"
    if other := next((each.name for each in attributes if each.base), None):
        return f"{other!r} is derived, and listed with those that are not"
    for each in derived:
        if each.base not in by_name:
            return f"{each.name!r} follows {each.base!r}, which is not there"
        try:
            each.derived_units(by_name[each.base])
        except ValueError as problem:
            return f"{each.name!r}: {problem}"
    return None


def derivable(
    derived: Sequence[Attribute], names: Collection[str], requested: Collection[str] | None = None
) -> tuple[Attribute, ...]:
    """Return the attributes that can be derived from released ones, as far as they are requested themselves.

    Args:
        derived: What an owner declares.
        names: The attributes that are released.
        requested: The names that are asked for or allowed; none for all.
    """
    return tuple(each for each in derived if each.base in names and (not requested or each.name in requested))


def with_derived(attributes: Sequence[Attribute], derived: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """Return attributes in the order of a release: after each those that are derived from it."""
    return tuple(
        each
        for attribute in attributes
        for each in (attribute, *(other for other in derived if other.base == attribute.name))
    )


@dataclass(frozen=True, slots=True)
class MatchPass(Document):
    """One pass of linking by match keys: two persons match if all its keys are equal."""

    name: str
    """Name of the pass, for reports and policies."""
    keys: tuple[str, ...]
    """Columns with their building blocks, such as "surname:soundex" (`owner_node.values.match_keys`)."""

    def __post_init__(self) -> None:
        if not PASS_NAME.fullmatch(self.name):
            raise ValueError(f"expected {PASS_NAME_RULE}")
        if not self.keys or len(set(self.keys)) != len(self.keys):
            raise ValueError("a pass has keys, and they differ")
        if not all(0 < len(key) <= LONGEST_KEY and fault_of_cell(key) is None for key in self.keys):
            raise ValueError("the key of a pass is one short line of visible characters")


@dataclass(frozen=True, slots=True)
class IdentifierRules(Document):
    """How persons are recognised, the same way at all owners of a release; never an identifier.

    Either by one exact identifier of one or several columns, or by passes of match keys.
    """

    n_columns: int = field(default=1, metadata={"name": "columns"})
    """Number of identifier columns, 0 with match keys; their names may differ between owners."""
    normalise: tuple[str, ...] = ()
    """Names of the declared normalisation steps of all columns, in the order they are applied."""
    version: int = NORMALISATION_VERSION
    """Version of the meaning of those names."""
    also: tuple[tuple[str, ...], ...] = field(default=(), metadata=OMITTED)
    """Further steps of each column, after those of all; empty if no column has any."""
    passes: tuple[MatchPass, ...] = field(default=(), metadata=OMITTED)
    """Passes of match keys in their order; empty where one exact identifier is compared."""
    texts: int = field(default=1, metadata=OMITTED, compare=False)
    """Version of the texts of numbers and timestamps; in a schema the newest that its owner knows, in a plan
    the newest that all of them know."""

    def __post_init__(self) -> None:
        if bool(self.passes) is bool(self.n_columns) or (self.passes and (self.normalise or self.also)):
            raise ValueError("persons are recognised by an identifier, or by match keys")
        if len(self.passes) > MOST_PASSES or len({each.name for each in self.passes}) != len(self.passes):
            raise ValueError("passes have different names, and there are not too many")
        if self.also and (len(self.also) != self.n_columns or not any(self.also)):
            raise ValueError("further steps are given for every column, or for none")
        if not all((*self.normalise, *(step for column in self.also for step in column))):
            raise ValueError("a step of normalisation has a name")


@dataclass(frozen=True, slots=True)
class Limits(Document):
    """Limits of an owner's policy that it states with its schema; a plan beyond them is refused unasked."""

    min_k: int = SMALLEST_K
    """Smallest k of a clustered mechanism."""
    max_epsilon_per_release: Decimal | None = None
    """Largest charge of one release; None: no limit but the budget."""
    mechanisms: tuple[str, ...] | None = None
    """Mechanisms that are allowed; None: all."""
    layouts: tuple[str, ...] | None = None
    """Layouts that are allowed; None: all."""
    min_rank_noise: Decimal = NO_RANK_NOISE
    """Smallest rank noise of a mechanism that releases a list."""
    accounting: Accounting = "joint"
    """What a charge is computed from."""
    passes: tuple[str, ...] | None = field(default=None, metadata=OMITTED)
    """Names of the passes of match keys that are allowed; None: all."""
    min_match_quality: Decimal = field(default=Decimal(0), metadata=OMITTED)
    """Smallest share of right links of match keys, by the lower end of its estimate."""
    products: tuple[str, ...] | None = field(default=None, metadata=OMITTED)
    """What may be made of the data; None: everything that the owner's version knows."""
    total_delta: Decimal = field(default=Decimal(0), metadata=OMITTED)
    """Largest sum of δ of all releases of a budget; 0: ε-differential privacy alone."""
    min_colluding: int = field(default=0, metadata=OMITTED)
    """Fewest co-owners that noise of several owners must allow to collude with the aggregator."""
    audit_days: int = field(default=0, metadata=OMITTED)
    """For how many days, at least, owners of a synthetic release must keep what an audit needs."""
    allow_intersect: bool = field(default=True, metadata=OMITTED)
    """True if groups whose persons differ may be intersected; stated where persons are identified."""
    linkage_key: bool = field(default=True, metadata=OMITTED)
    """No rule, but as decisive: False if the owner had no linkage key when it sent the schema."""


@dataclass(frozen=True, slots=True)
class Schema(Document):
    """What an owner discloses about a data set when it is invited."""

    attributes: tuple[Attribute, ...]
    """Attributes that the owner's policy admits, in declared order."""
    identifier: IdentifierRules | None = None
    """None: the unit of privacy is the record, and disjointness can only be asserted."""
    max_records_per_person: int = 1
    """g, the most records that one identifier may have."""
    records_rounded: int = 0
    """Number of records, rounded down to its leading digit."""
    limits: Limits = field(default_factory=Limits)
    """What the owner's policy refuses in any case."""
    rank_noise: Decimal | None = field(default=None, metadata=OMITTED)
    """The smallest rank noise that the owner's data need; None: it states none, and the default holds."""
    structural_zeros: tuple[StructuralZero, ...] = field(default=(), metadata=OMITTED)
    """What no record of a synthetic release is."""
    following: tuple[Attribute, ...] = field(default=(), metadata=OMITTED)
    """Attributes that releases derive from some of the others."""
    by_name: Mapping[str, Attribute] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {attribute.name: attribute for attribute in self.attributes}
        if len(by_name) != len(self.attributes):
            raise ValueError("an attribute is declared twice")
        if self.max_records_per_person < 1 or self.records_rounded < 0:
            raise ValueError("counts of records cannot be negative or, per person, zero")
        if max(self.max_records_per_person, self.records_rounded, self.limits.min_k) >= LARGEST_COUNT:
            raise ValueError("a count of records is larger than any data set")
        if self.rank_noise is not None and not is_rank_noise(self.rank_noise):
            raise ValueError("rank noise is a share of the ranks from 0 to 1")
        if fault := fault_of_derived(self.following, self.attributes):
            raise ValueError(fault)
        object.__setattr__(self, "by_name", by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the attributes in declared order."""
        return tuple(attribute.name for attribute in self.attributes)


def excesses(schema: Schema) -> Iterator[tuple[str, str]]:
    """Find what keeps a schema from being sent: owners check it before, and the aggregator on arrival.

    Yields:
        Pairs of what is wrong and what to do, without a label; none if it can be sent.
    """
    size = len(schema.to_bytes())
    if size > LARGEST_SCHEMA:
        longest = sorted(schema.attributes, key=lambda each: -len(str(each.categories)))[:3]
        lists = ", ".join(f"{each.name[:40]!r} ({len(each.categories):,} categories)" for each in longest)
        yield (
            f"the schema has {size:,} bytes, and a message holds one of at most {LARGEST_SCHEMA:,}",
            "declare fewer or shorter categories, or list fewer attributes in policy.attributes; longest: "
            + lists,
        )
    n_attributes = len(schema.attributes) + len(schema.following)
    if not 0 < n_attributes <= _MOST_ATTRIBUTES:
        yield (
            f"a schema of {n_attributes:,} attributes is not accepted",
            f"from 1 to {_MOST_ATTRIBUTES:,} are; list the needed ones in policy.attributes",
        )
    every = (*schema.attributes, *schema.following)
    if any(len(attribute.name) > _LONGEST_NAME for attribute in every):
        yield f"names of attributes have at most {_LONGEST_NAME} characters", "rename them in the source"
    if not all(attribute.name.isprintable() for attribute in every):
        yield "a name of an attribute is not printable", "rename it in the source"
    texts = (text for each in every for text in (each.name, *each.categories))
    if any(map(fault_of_cell, texts)):
        yield (
            "a label or name of an attribute could steer a terminal or a spreadsheet",
            "owner-node check names it; rename it in the source",
        )
    if schema.records_rounded > _MOST_RECORDS or schema.max_records_per_person > _MOST_PER_PERSON:
        counts = f"{schema.records_rounded} records, up to {schema.max_records_per_person} of a person"
        yield (
            f"{counts}, are not accepted",
            f"at most {_MOST_RECORDS} and {_MOST_PER_PERSON} are",
        )
    if not 0 <= schema.limits.min_k <= _MOST_RECORDS:
        yield "the smallest k that the owner accepts is none", "correct policy.min_k"
    if any(
        not -_INT64 <= end < _INT64
        for each in every
        for end in (each.lower * each.step, each.highest * each.step)
    ):
        yield "a domain is wider than 64-bit integers", "declare fewer decimals"
    if fault := fault_of_rules(schema.structural_zeros, schema.attributes):
        yield fault, "correct the structural_zeros of the data set"


def excluded_values(attribute: Attribute, ranges: Sequence[tuple[str, str]]) -> ExcludedValues:
    """Return what a rule excludes of an attribute, with the ends of its domain where it says none.

    Raises:
        ValueError: If a range of labels is given, or missing values that the attribute does not keep.
    """
    keeps_missing = attribute.keeps_missing or MISSING_CATEGORY in attribute.labels
    if not keeps_missing and any(each in ((MISSING_CATEGORY,) * 2, ("", "")) for each in ranges):
        kinds = "categories, numbers, integers and dates"
        raise ValueError(f'it keeps no missing values; {kinds} do with missing = "category"')
    if attribute.is_categorical:
        if any(first != last for first, last in ranges):
            raise ValueError('labels have no range: list them, such as ["yes", "no"]')
        present = [(label, label) for label in attribute.labels if label != MISSING_CATEGORY]
        ranges = [pair for each in ranges for pair in (present if each == ("", "") else [each])]
    filled = [(first or attribute.min, last or attribute.max) for first, last in ranges]
    # The same value is written in one way, so that owners can compare their rules.
    units = (
        [unit_of(attribute, first)] * 2 if first == last else [attribute.units(first), attribute.units(last)]
        for first, last in filled
    )
    written = (tuple(map(attribute.text, both)) for both in units)
    return ExcludedValues(attribute.name, tuple((first, last) for first, last in written))


def excluded_codes(values: ExcludedValues, attribute: Attribute) -> list[tuple[int, int]]:
    """Return ranges of an attribute's values in codes, from 0 to V - 1.

    Raises:
        ValueError: If they are no values of the attribute.
    """
    if not 0 < len(values.ranges) <= MOST_RANGES:
        raise ValueError(f"has {len(values.ranges)} values or ranges, from 1 to {MOST_RANGES} are possible")
    found, units = [], units_of(attribute, [text for ends in values.ranges for text in ends])
    for (first, last), *ends in zip(values.ranges, units[::2], units[1::2], strict=True):
        start, end = (each - attribute.lower for each in ends)
        if start > end or (attribute.is_categorical and start != end):
            raise ValueError(f"{first!r} to {last!r} is no range of its values")
        found.append((start, end))
    return found


def rule_codes(rule: StructuralZero, attributes: Sequence[Attribute]) -> dict[int, list[tuple[int, int]]]:
    """Return the ranges of codes that a rule excludes together, by the number of the attribute.

    Raises:
        ValueError: If an attribute is not there, or its values are no values of it.
    """
    places = {each.name: place for place, each in enumerate(attributes)}
    if lacking := [name for name in rule.names if name not in places]:
        raise ValueError(f"attribute {lacking[0]!r} is not declared")
    numbered = ((places[each.attribute], each) for each in rule.values)
    return {place: excluded_codes(each, attributes[place]) for place, each in numbered}


def fault_of_rules(rules: Sequence[StructuralZero], attributes: Sequence[Attribute]) -> str | None:
    """Say what is wrong with the rules of a schema; None if they can be used."""
    if len(rules) > MOST_RULES:
        return f"{len(rules)} structural zeros are declared, at most {MOST_RULES} can be"
    n_ranges = sum(len(each.ranges) for rule in rules for each in rule.values)
    if n_ranges > MOST_RANGES_TOGETHER:
        return (
            f"structural zeros have {n_ranges:,} values and ranges, at most {MOST_RANGES_TOGETHER:,} can be"
        )
    if len(set(rules)) != len(rules):
        return "a structural zero is declared twice"
    for number, rule in enumerate(rules, start=1):
        try:
            rule_codes(rule, attributes)
        except ValueError:
            return f"structural zero {number} has other attributes or values than are declared"
    return None


def round_to_leading_digit(n_records: int) -> int:
    """Round a number of records down to its leading digit (7,122 to 7,000), as invitations disclose it."""
    magnitude: int = 10 ** (len(str(n_records)) - 1)
    return n_records // magnitude * magnitude


def most_records(rounded: int) -> int:
    """Return the largest number of records that rounds down to this one (7,000 to 7,999)."""
    if rounded == 0:
        return 0
    step: int = 10 ** (len(str(rounded)) - 1)
    return rounded + step - 1
