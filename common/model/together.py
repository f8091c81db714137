"""Two attributes that are counted together: one attribute with a value for every combination of theirs.

A table of pairs of such a joint attribute and another one is a relation of three attributes. It is one
partition of the records, like every other table, so its sensitivity and its noise are the same. Codes of
combinations are blocks of the first attribute's codes, one after the other for each value of the second one:
time without event, then time with event. No part of the domain and no bin reaches into another block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from common.model.schema import Attribute, AttributeType

if TYPE_CHECKING:
    from common.arrays import Int64Array

MOST_BLOCKS = 16
"""Most values of the second attribute."""
MOST_LABELS = 4096
"""Most combinations of labels: each is counted by itself."""


@dataclass(frozen=True, slots=True)
class Joint(Attribute):
    """An attribute whose values are the combinations of two; it is counted, and never released."""

    parts: tuple[Attribute, ...] = ()
    """Both attributes; the second one has few values."""

    @property
    def first(self) -> Attribute:
        """The attribute whose codes are next to each other in a block."""
        return self.parts[0]

    @property
    def second(self) -> Attribute:
        """The attribute that has a block for each of its values."""
        return self.parts[1]

    @property
    def alone(self) -> tuple[int, ...]:
        """The first attribute's values that are counted by themselves, in each block."""
        own, size = [units - self.first.lower for units in self.first.alone], self.first.n_values
        return tuple(block * size + code for block in range(self.second.n_values) for code in own)

    def block_text(self, code: int) -> str:
        """Return the second attribute's value of a code in words."""
        return self.second.text(self.second.lower + code // self.first.n_values)

    def text(self, units: int) -> str:
        """Return a combination in words."""
        if self.categories:
            return self.categories[units]
        return self.first.text(self.first.lower + units % self.first.n_values)


def joint_name(names: Sequence[str]) -> str:
    """Return the name of a joint attribute in counts, plans and reports."""
    return ":".join(names)


def joint_of(first: Attribute, second: Attribute) -> Joint:
    """Return the joint attribute of two."""
    name, last = joint_name((first.name, second.name)), first.n_values * second.n_values - 1
    if first.is_categorical:
        labels = tuple(
            f"{own}, {second.text(units)}"
            for units in range(second.lower, second.highest + 1)
            for own in first.labels
        )
        return Joint(name, AttributeType.CATEGORY, 0, last, categories=labels, parts=(first, second))
    return Joint(
        name, AttributeType.INTEGER, 0, last, is_logarithmic=first.is_logarithmic, parts=(first, second)
    )


def modelled(attributes: Sequence[Attribute], together: Sequence[Sequence[str]]) -> tuple[Attribute, ...]:
    """Return the attributes that are counted: a joint one stands where its first attribute is."""
    by_name = {each.name: each for each in attributes}
    joints = {first: joint_of(by_name[first], by_name[second]) for first, second in together}
    seconds = {second for _, second in together}
    return tuple(joints.get(each.name, each) for each in attributes if each.name not in seconds)


def parts_of(attribute: Attribute) -> tuple[Attribute, ...]:
    """Return the attributes of a joint one, or the attribute itself."""
    return attribute.parts if isinstance(attribute, Joint) else (attribute,)


def modelled_names(attributes: Sequence[Attribute]) -> dict[str, str]:
    """Return the name of the counted attribute by the name of each that is released."""
    return {part.name: each.name for each in attributes for part in parts_of(each)}


def modelled_pairs(
    attributes: Sequence[Attribute], pairs: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """Return the pairs of counted attributes, in their order, that named pairs of released ones are in.

    Args:
        pairs: Names; empty for all.
    """
    of = modelled_names(attributes)
    named = {frozenset(of[name] for name in pair) for pair in pairs}
    every = combinations([each.name for each in attributes], 2)
    return tuple(pair for pair in every if not named or frozenset(pair) in named)


def joint_ranges(
    rule: Mapping[str, Sequence[tuple[int, int]]], attributes: Sequence[Attribute]
) -> dict[int, list[tuple[int, int]]]:
    """Return a rule in codes of counted attributes, by their number.

    Args:
        rule: Ranges of codes by the names of released attributes.
    """
    found = {}
    for place, attribute in enumerate(attributes):
        if not isinstance(attribute, Joint):
            if attribute.name in rule:
                found[place] = list(rule[attribute.name])
            continue
        if not any(part.name in rule for part in attribute.parts):
            continue
        size, n_blocks = attribute.first.n_values, attribute.second.n_values
        own = rule.get(attribute.first.name, [(0, size - 1)])
        blocks = rule.get(attribute.second.name, [(0, n_blocks - 1)])
        found[place] = [
            (block * size + start, block * size + end)
            for first, last in blocks
            for block in range(first, last + 1)
            for start, end in own
        ]
    return found


def fault_of_together(
    together: Sequence[Sequence[str]],
    attributes: Sequence[Attribute],
    group_of: Mapping[str, int],
    pairs: Sequence[Sequence[str]] = (),
) -> str:
    """Return why attributes cannot be counted together; empty if they can.

    Args:
        together: Names of two attributes each.
        attributes: All that are counted.
        group_of: The group of owners of each, by name.
        pairs: Names of the pairs whose tables are counted; empty for all.
    """
    by_name = {each.name: each for each in attributes}
    named = [name for pair in together for name in pair]
    if named and any(each.slot > 0 for each in attributes):
        return "where events are a table of their own, no attributes are counted together"
    if unknown := sorted({name for name in named if name not in by_name}):
        return (
            f"attributes that are not counted cannot be counted together: {', '.join(unknown)}; counted are "
            f"{', '.join(by_name)}, and what follows another attribute is derived"
        )
    if twice := sorted({name for name in named if named.count(name) > 1}):
        return f"attribute {twice[0]!r} can be counted together with one other attribute only"
    names = [joint_name(pair) for pair in together]
    if taken := sorted({name for name in names if name in by_name or names.count(name) > 1}):
        return f"two attributes would be named {taken[0]!r}"
    if both := [pair for pair in together if any(set(pair) == set(other) for other in pairs)]:
        first, second = both[0]
        return f"{first!r} and {second!r} are counted together, and are not a pair: leave it out of --pairs"
    faults = (_fault_of_two(by_name[first], by_name[second], group_of) for first, second in together)
    return next(filter(None, faults), "")


def _fault_of_two(first: Attribute, second: Attribute, group_of: Mapping[str, int]) -> str:
    both = f"{first.name!r} and {second.name!r}"
    if group_of[first.name] != group_of[second.name]:
        return f"{both} are at different owners, and cannot be counted together"
    if second.n_values > MOST_BLOCKS:
        return (
            f"{second.name!r} has {second.n_values:,} values: of two attributes that are counted "
            f"together, the second one has at most {MOST_BLOCKS}"
        )
    if not first.is_categorical:
        return ""
    if first.n_values * second.n_values > MOST_LABELS:
        return (
            f"{both} have {first.n_values * second.n_values:,} combinations of labels, at most "
            f"{MOST_LABELS:,} can be counted together"
        )
    labels = joint_of(first, second).categories
    if len(set(labels)) < len(labels):
        return f"two combinations of labels of {both} read alike, so they cannot be counted together"
    return ""


# --- records --------------------------------------------------------------------------------------------


def to_codes(attributes: Sequence[Attribute], units: "Mapping[str, Int64Array]") -> "list[Int64Array]":
    """Return codes of counted attributes, `(n_records,)` each.

    Args:
        attributes: Those that are counted.
        units: Values in resolution units by released attribute.
    """
    found = []
    for attribute in attributes:
        first, *others = (units[part.name] - part.lower for part in parts_of(attribute))
        found.append(first + others[0] * parts_of(attribute)[0].n_values if others else first)
    return found


def released_units(attributes: Sequence[Attribute], codes: "Sequence[Int64Array]") -> "dict[str, Int64Array]":
    """Return values in resolution units by released attribute: `to_codes` undone."""
    found = {}
    for attribute, own in zip(attributes, codes, strict=True):
        if isinstance(attribute, Joint):
            size = attribute.first.n_values
            found[attribute.first.name] = own % size + attribute.first.lower
            found[attribute.second.name] = own // size + attribute.second.lower
        else:
            found[attribute.name] = own + attribute.lower
    return found
