"""How many records two groups of owners have in common: only counts, for addenda and errors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from common.canonical import Document
from common.model.plan import Plan

MOST_NAMED = 3
"""Most pairs that a sentence names; the details have all of them."""


@dataclass(frozen=True, slots=True)
class Match(Document):
    """What the token lists of two groups of owners have in common."""

    groups: tuple[tuple[str, ...], tuple[str, ...]]
    """Owner ids of the one group and of the other; in a vertical layout one each."""
    both: int
    """Number of persons that are in both groups."""
    only: Mapping[str, int]
    """By owner id: how many of its persons the other group lacks."""

    def __post_init__(self) -> None:
        if not all(self.groups):
            raise ValueError("a match is between two groups of owners")
        if set(self.only) != {owner for group in self.groups for owner in group}:
            raise ValueError("a match counts the records of its own owners")
        if min(self.both, *self.only.values()) < 0:
            raise ValueError("a count was expected")

    @property
    def complete(self) -> bool:
        """Whether the two groups have the same persons."""
        return not any(self.only.values())

    def text(self) -> str:
        """Return the counts in words."""
        first, second = (", ".join(group) for group in self.groups)
        matching = {0: "no record matches", 1: "1 record matches"}.get(
            self.both, f"{self.both} records match"
        )
        rest = [f"{count} only at {owner}" for owner, count in self.only.items() if count]
        return f"{first} against {second}: {', '.join([matching, *rest])}"


def describe_mismatches(matches: Sequence[Match]) -> str:
    """Describe the pairs that match worst; empty if all match."""
    wrong = sorted((each for each in matches if not each.complete), key=lambda match: match.both)
    texts = [each.text() for each in wrong[:MOST_NAMED]]
    more = len(wrong) - len(texts)
    return "; ".join([*texts, f"and {more} more pairs"] if more else texts)


def likely_cause(matches: Iterable[Match]) -> str:
    """Return the probable cause and the remedy where groups do not have the same persons."""
    strangers = [each for each in matches if not each.both]
    if strangers:
        first, second = (" and ".join(group) for group in strangers[0].groups)
        return (
            f"no record of {first} is at {second}: their identifiers are probably written differently. "
            'Compare the identifier columns there, their order, and normalise: "007" against 7 needs '
            '"strip-leading-zeros", upper and lower case "casefold", two ways to write é "nfkc"'
        )
    halves = [owner for each in matches for owner, count in each.only.items() if count > each.both]
    if halves:
        return (
            f"most records of {halves[0]} match nothing: either other persons are in the data, or part of "
            "the identifiers is written differently; compare the identifier columns and normalise"
        )
    return "bring the data sets to the same persons before the release"


def fit(matches: Sequence[Match], plan: Plan, records: Mapping[str, int]) -> bool:
    """Whether matches are possible under a plan.

    Args:
        matches: The matches of every two groups, as the aggregator states them.
        records: Exact number of records by owner id, as the addendum has them.

    Returns:
        False if they name other groups, name a pair twice, or do not cover all records where groups must have
        the same persons.
    """
    first: dict[tuple[str, ...], int] = {}
    last: dict[tuple[str, ...], int] = {}
    for number, owners in enumerate(plan.groups):
        first.setdefault(owners, number)
        last[owners] = number
    pairs = [match.groups for match in matches]
    # The same owners can be several groups. Every pair of groups would be the square of their number.
    known = all(one in first and other in last and first[one] < last[other] for one, other in pairs)
    if len(set(pairs)) != len(pairs) or not known:
        return False
    if plan.linking.on_mismatch != "stop" or plan.linking.max_overlap != 1:
        return True
    return all(
        match.complete and match.both == sum(records[owner] for owner in match.groups[0]) for match in matches
    )
