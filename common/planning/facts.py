"""Facts that an operator states about the attributes of several owners: rules, and what is derived.

An owner's schema knows its own attributes alone. So a rule over attributes of two owners, and an attribute
that follows one of another owner, belong to the release. They are public knowledge, like a domain.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from common.canonical import OMITTED, Document
from common.errors import UsageError, did_you_mean
from common.model.schema import (
    Attribute,
    Derivation,
    Schema,
    derivable,
    excluded_codes,
    excluded_values,
)
from common.model.structural_zeros import MOST_RULES, StructuralZero, rules_of


@dataclass(frozen=True, slots=True)
class StatedDerivation(Derivation):
    """A derivation as an operator states it, with values as they were written."""

    name: str
    """Name of the attribute that is derived."""


@dataclass(frozen=True, slots=True)
class Facts(Document):
    """What an operator states. Attributes and values are compared with the owners' schemas in a plan."""

    structural_zeros: tuple[StructuralZero, ...] = field(default=(), metadata=OMITTED)
    """What no record is; an end of a range that is left out is ""."""
    following: tuple[StatedDerivation, ...] = field(default=(), metadata=OMITTED)
    """Attributes that follow others; no owner counts them."""


NO_FACTS = Facts()


def parse_facts(text: str) -> Facts:
    """Read facts from their canonical JSON; an empty text states none.

    Raises:
        UsageError: If it is another, or has fields that this version does not know.
    """
    if not text:
        return NO_FACTS
    try:
        facts = Facts.from_bytes(text.encode())
    except ValueError:
        raise _unreadable() from None
    if facts.ignored:
        raise _unreadable()
    return facts


def _unreadable() -> UsageError:
    return UsageError(
        "the request does not state facts in the form that this version reads",
        "state them with --facts FILE, by the version that the aggregator runs",
    )


@dataclass(frozen=True, slots=True)
class Held:
    """What facts are compared with: the attributes of a release, and what owners declare about them."""

    attributes: Mapping[str, Attribute]
    """All that owners hold, by name; those that facts derive included."""
    following: Mapping[str, Attribute]
    """Attributes of the release that follow others by a declaration of their owner, by name."""
    rules: Mapping[StructuralZero, str]
    """Declared rules about these attributes, each with an owner that declares it."""

    @classmethod
    def of(
        cls, attributes: Sequence[Attribute], schemas: Mapping[str, Schema], requested: Collection[str]
    ) -> "Held":
        """Return it for a release; `requested` names its attributes, none for all."""
        by_name = {each.name: each for each in attributes}
        return cls(
            by_name,
            {
                each.name: each
                for schema in schemas.values()
                for each in derivable(schema.following, by_name, requested)
            },
            {
                rule: owner
                for owner, schema in schemas.items()
                for rule in rules_of(schema.structural_zeros, by_name)
            },
        )

    def attribute(self, name: str, derived: Mapping[str, str]) -> Attribute:
        """Return an attribute that is counted.

        Args:
            derived: Names of the attributes that facts derive, with the names of those that they follow.

        Raises:
            ValueError: If no owner holds the attribute, or it is derived.
        """
        base = derived.get(name) or (self.following[name].base if name in self.following else "")
        if base:
            raise ValueError(f"{name} follows {base}: state the fact about that attribute")
        if name not in self.attributes:
            hint = did_you_mean(name, self.attributes) or f"it has {', '.join(self.attributes)}"
            raise ValueError(f"the release has no attribute {name!r}; {hint}")
        return self.attributes[name]


def resolve_facts(facts: Facts, held: Held) -> tuple[tuple[StructuralZero, ...], tuple[Attribute, ...]]:
    """Return stated facts in terms of a release's attributes: rules, and attributes that are derived.

    Raises:
        UsageError: Naming every fact that cannot be used.
    """
    rules, following, faults = dict[StructuralZero, int](), list[Attribute](), list[str]()
    derived = {each.name: each.base for each in facts.following}
    for each in facts.following:
        try:
            following.append(_following(each, held, derived))
        except ValueError as problem:
            faults.append(f"attributes.{each.name}: {problem}")
    for number, stated in enumerate(facts.structural_zeros, start=1):
        try:
            rule = _rule(stated, held, derived)
            if rule in rules:
                raise ValueError(f"is the same as structural_zeros[{rules[rule]}]: leave one out")
            if rule in held.rules:
                raise ValueError(f"owner {held.rules[rule]} declares the same rule: leave it out here")
            rules[rule] = number
        except ValueError as problem:
            faults.append(f"structural_zeros[{number}]: {problem}")
    if len(held.rules) + len(rules) > MOST_RULES:
        n_rules = len(held.rules) + len(rules)
        faults.append(f"structural_zeros: with those of the owners {n_rules} rules, at most {MOST_RULES}")
    if faults:
        raise UsageError(
            "".join(("the facts of the release cannot be used:", *(f"\n  {each}" for each in faults))),
            "correct the file of --facts; no owner was asked for its consent, and nothing is charged",
            {"facts": faults},
        )
    return tuple(rules), tuple(following)


def _following(stated: StatedDerivation, held: Held, derived: Mapping[str, str]) -> Attribute:
    """Return an attribute that follows another one by a stated fact.

    Raises:
        ValueError: If it cannot be derived, or an owner declares what would be lost.
    """
    others = {name: base for name, base in derived.items() if name != stated.name}
    attribute, base = held.attribute(stated.name, others), held.attribute(stated.base, derived)
    if other := next((each.name for each in held.following.values() if each.base == stated.name), None):
        raise ValueError(f"{other} follows it as its owner declares, and it is not counted: leave one out")
    for rule, owner in held.rules.items():
        if stated.name in rule.names:
            raise ValueError(
                f'owner {owner} declares the rule "{rule}": it cannot hold for an attribute that is derived'
            )
    derived_attribute = attribute.derive_from(base, dict(stated.values))
    derived_attribute.derived_units(base)
    return derived_attribute


def _rule(stated: StructuralZero, held: Held, derived: Mapping[str, str]) -> StructuralZero:
    """Return a stated rule with each value written in one way.

    Raises:
        ValueError: If it has other attributes or values than the release.
    """
    found = []
    for values in stated.values:
        attribute = held.attribute(values.attribute, derived)
        try:
            found.append(excluded_values(attribute, values.ranges))
            excluded_codes(found[-1], attribute)
        except ValueError as problem:
            raise ValueError(f"{values.attribute}: {problem}") from None
    return StructuralZero(tuple(found))
