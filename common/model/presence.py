"""Presence as a value: what owners count where a release is of everybody whom any of them holds.

Every attribute gets one more value, the last one, of persons whom its owners do not hold. A category has a
label for it; a number or date is missing then, as it is where its owner keeps missing values. So each group
of owners has an attribute that says who is present.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from common.model.schema import Attribute, AttributeType, CategoryOrder, Derivation, TaxonomyMethod

ABSENT = "(absent)"
"""The label of categories and booleans for persons whom their owners do not hold."""
_PREFIX = "at_"


def presence_attribute(owner: str) -> Attribute:
    """Return the attribute that says whether an owner holds a person."""
    return Attribute(_PREFIX + owner, AttributeType.BOOLEAN, 0, 1)


def with_absence(attribute: Attribute) -> Attribute:
    """Return an attribute with the value of persons who are absent, the last one."""
    if not attribute.is_categorical:
        return replace(attribute, keeps_missing=True)
    labels = (*attribute.labels, ABSENT)
    return replace(
        attribute, type=AttributeType.CATEGORY, categories=labels, upper=len(labels) - 1, taxonomy="",
        method=TaxonomyMethod.RANK, order=CategoryOrder.DECLARED,
    )  # fmt: skip


def derived_with_absence(
    derived: Iterable[Attribute], bases: Mapping[str, Attribute]
) -> tuple[Attribute, ...]:
    """Return derived attributes with that value, which follows from the one of what determines them.

    Args:
        bases: Attributes as their owners declare them, by name.
    """
    found = []
    for each in derived:
        own, base = with_absence(each), bases[each.base]
        absent = with_absence(base)
        if each.derivation is not None and absent.n_values > base.n_values:
            last = absent.text(absent.highest), own.text(own.highest)
            own = replace(own, derivation=Derivation(each.base, (*each.derivation.values, last)))
        found.append(own)
    return tuple(found)
