"""What differs between two declarations, in words."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from common.schema import Attribute, AttributeType, IdentifierRules


def differences(expected: Attribute, seen: Attribute) -> Iterator[str]:
    """Compare two declarations of one attribute.

    Args:
        expected: The declaration that others are compared with.
        seen: Another owner's.

    Yields:
        One text per setting that differs, ending so that "at OWNER" can follow.
    """
    if expected.type is not seen.type:
        yield f"type is {seen.type}, {expected.type}"
        return
    if expected.type is AttributeType.NUMBER and expected.decimals != seen.decimals:
        yield f"decimals is {seen.decimals}, {expected.decimals}"
    if expected.type is AttributeType.CATEGORY:
        yield from _category_differences(expected, seen)
    elif expected.type is not AttributeType.BOOLEAN:
        # Compared as values: 10.0 and 10.00 are the same end at different resolutions.
        for end, ours, theirs in (
            ("min", expected.lower, seen.lower),
            ("max", expected.upper, seen.upper),
        ):
            if Decimal(ours).scaleb(-expected.decimals) != Decimal(theirs).scaleb(-seen.decimals):
                yield f"{end} is {seen.text(theirs)}, {expected.text(ours)}"
    if expected.outside != seen.outside:
        yield f"outside is {seen.outside!r}, {expected.outside!r}"


def _category_differences(expected: Attribute, seen: Attribute) -> Iterator[str]:
    lacking = [label for label in expected.categories if label not in set(seen.categories)]
    more = [label for label in seen.categories if label not in set(expected.categories)]
    if lacking:
        yield f"categories {_listed(lacking)} are not declared, but"
    if more:
        yield f"categories {_listed(more)} are declared, but not"
    if not lacking and not more and expected.categories != seen.categories:
        yield "categories are in another order than"
    if expected.ordered != seen.ordered:
        yield f"ordered is {str(seen.ordered).lower()}, {str(expected.ordered).lower()}"
    if expected.order is not seen.order:
        yield f"order is {seen.order}, {expected.order}"
    if expected.taxonomy != seen.taxonomy:
        yield f"the taxonomy is {_digest_text(seen.taxonomy)}, {_digest_text(expected.taxonomy)}"
    elif expected.method is not seen.method:
        yield f"method is {seen.method}, {expected.method}"


def _digest_text(taxonomy: str) -> str:
    return f"the hierarchy with digest {taxonomy[:12]}" if taxonomy else "not declared"


def _listed(labels: list[str], most: int = 8) -> str:
    shown = ", ".join(repr(label) for label in labels[:most])
    return shown if len(labels) <= most else f"{shown} and {len(labels) - most} more"


def missing_identifiers(
    rules: Mapping[str, IdentifierRules | None], *, needed: bool
) -> Iterator[tuple[str, str, str]]:
    """Compare how the owners' identifiers become comparable.

    Args:
        rules: Identifier rules by owner id; None where no identifier is declared.
        needed: Whether records have to be aligned between groups.

    Yields:
        Owner, what differs, what would resolve it.
    """
    declared = {owner: each for owner, each in rules.items() if each is not None}
    if not declared and not needed:
        return
    reference = next(iter(declared), None)
    why = "records of different groups are aligned by it" if needed else f"{reference} declares one"
    for owner, each in rules.items():
        if each is None:
            yield owner, f"no identifier is declared, but {why}", "declare the identifier of the data set"
        elif reference is not None and each != declared[reference]:
            yield (
                owner,
                f"the identifier rules are {_told(each)}, {_told(declared[reference])} at {reference}",
                "declare as many columns, in the same order, with the same normalise steps everywhere",
            )


def _told(rules: IdentifierRules) -> str:
    steps = ", ".join(rules.normalise) or "no normalisation"
    for column, also in enumerate(rules.also, 1):
        steps += f", column {column} also {', '.join(also)}" if also else ""
    return f"{rules.n_columns} columns with {steps} (version {rules.version})"
