"""What token lists say about a release: disjoint parts, equal groups, or who lacks how many.

One code path for every layout. Within a group, the parts of its owners must be disjoint (parallel
composition holds only then). Between groups, the records must be the same. A horizontal release has no
second group to compare, a vertical one no second part, a mixed one has both.

Only counts come out of here, never a token.

References:
    Del Vasto-Terrientes et al. 2025, §4.2.1 (disjoint records) and §4.2.2 (disjoint attributes).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from aggregator.matching import MOST_GROUPS, match_groups
from common.arrays import Int64Array, SortableArray, TokenArray, sortable
from common.errors import ConflictError, ProtocolError, UnusableDataError
from common.matches import Match, likely_cause, told
from common.plan import LinkingFound, Plan


@dataclass(frozen=True, slots=True)
class Linked:
    """What linking found; the content of the addendum."""

    kind: LinkingFound
    """Groups were compared: equal; only parts were: disjoint; nothing was: asserted."""
    records: Mapping[str, int]
    """Exact number of records by owner id."""
    matches: tuple[Match, ...] = ()
    """What every two groups have in common; empty where there is one group."""


def link(plan: Plan, records: Mapping[str, int], tokens: Mapping[str, TokenArray]) -> Linked:
    """Compare the token lists of a release.

    Args:
        plan: The plan.
        records: The number of records that each owner declared.
        tokens: Sorted token lists by owner id, each of shape (n_records, 16); empty where the plan wants
            none.

    Returns:
        What was found.

    Raises:
        ProtocolError: If an owner's list is absent, unsorted, repeats a token or has another length than
            declared.
        UnusableDataError: If an owner has fewer records than its largest k.
        ConflictError: If parts overlap or groups differ; lists every such pair and group.
    """
    _check_k(plan, records)
    if not plan.linking.tokens:
        return Linked(plan.expected_linking, {owner: records[owner] for owner in plan.owners})
    lists = {owner: _checked(plan, owner, tokens.get(owner), records) for owner in plan.owners}
    groups = {
        group: [(owner, lists[owner]) for owner in plan.owners_of(group)] for group in range(plan.n_groups)
    }
    overlaps = [found for group, parts in groups.items() for found in _overlaps(group, parts)]
    lacking = _lacking(groups)
    if overlaps or lacking:
        raise _conflict(overlaps, lacking, _matches(groups) if lacking else ())
    return Linked(
        plan.expected_linking, {owner: records[owner] for owner in plan.owners}, _all_match(plan, records)
    )


def _check_k(plan: Plan, records: Mapping[str, int]) -> None:
    short = []
    for owner in plan.owners:
        k = plan.assignment_of(owner).largest_k
        if records[owner] < k:
            short.append({"owner": owner, "records": records[owner], "k": k})
    if short:
        told = "; ".join(f"{each['owner']} has {each['records']} records, k = {each['k']}" for each in short)
        raise UnusableDataError(
            f"{told}: at least k are needed",
            "ask for a smaller k, or for a release without this owner; nothing was spent",
            {"owners": short},
        )


def _checked(plan: Plan, owner: str, tokens: TokenArray | None, records: Mapping[str, int]) -> SortableArray:
    """Return an owner's list as sortable elements, checked as if a stranger had sent it."""
    if tokens is None:
        raise _malformed(owner, "is absent")
    if len(tokens) != records[owner]:
        raise _malformed(owner, f"has {len(tokens)} tokens, {records[owner]} records were declared")
    view = sortable(tokens)
    if np.any(view[1:] < view[:-1]):
        raise _malformed(owner, "is not sorted")
    # Groups are aligned record by record, so there a token names one record whatever g is.
    g = plan.max_records_per_person if plan.n_groups == 1 else 1
    if np.any(view[g:] == view[: max(len(view) - g, 0)]):
        raise _malformed(owner, f"has a token more than {g} times")
    return view


def _malformed(owner: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"the token list of {owner} {what}",
        "the owner node must run a compatible version",
        {"owner": owner},
    )


def _overlaps(group: int, parts: list[tuple[str, SortableArray]]) -> list[dict[str, Any]]:
    """Return, for every pair of owners of a group that share persons, how many they share.

    The sorted lists are merged once; a token that h owners hold appears h times in a row, so that all
    pairs are found by comparing with neighbours at distance 1, 2, … up to the longest such row.
    """
    distinct = [_distinct(tokens) for _, tokens in parts]
    merged = np.concatenate(distinct)
    holder = np.repeat(np.arange(len(parts)), [len(each) for each in distinct])
    order = np.argsort(merged, kind="stable")
    merged, holder = merged[order], holder[order]
    pairs: Counter[tuple[int, int]] = Counter()
    for distance in range(1, len(parts)):
        same = merged[distance:] == merged[:-distance]
        if not same.any():
            break
        codes = holder[:-distance][same] * len(parts) + holder[distance:][same]
        for code, count in zip(*_counted(codes), strict=True):
            pairs[divmod(int(code), len(parts))] += int(count)
    return [
        {"group": group, "owners": [parts[first][0], parts[second][0]], "shared": count}
        for (first, second), count in sorted(pairs.items())
    ]


def _counted(codes: Int64Array) -> tuple[Int64Array, Int64Array]:
    values, counts = np.unique(codes, return_counts=True)
    return values, counts.astype(np.int64)


def _lacking(groups: Mapping[int, list[tuple[str, SortableArray]]]) -> list[dict[str, Any]]:
    """Return, for every group that lacks records of the union of all groups, how many it lacks."""
    sets = {group: _union([each for _, each in parts]) for group, parts in groups.items()}
    union = len(_union(list(sets.values())))
    return [
        {"group": group, "owners": [owner for owner, _ in groups[group]], "lacking": union - len(tokens)}
        for group, tokens in sets.items()
        if len(tokens) < union
    ]


def _matches(groups: Mapping[int, list[tuple[str, SortableArray]]]) -> tuple[Match, ...]:
    """Return what every two groups have in common."""
    return match_groups(
        {group: [(owner, _distinct(tokens)) for owner, tokens in parts] for group, parts in groups.items()}
    )


def _all_match(plan: Plan, records: Mapping[str, int]) -> tuple[Match, ...]:
    """Return the same of groups that were found equal, without comparing them once more."""
    owners = [plan.owners_of(group) for group in range(plan.n_groups)]
    return tuple(
        Match((first, second), sum(records[owner] for owner in first), dict.fromkeys((*first, *second), 0))
        for first, second in combinations(owners[:MOST_GROUPS], 2)
    )


def _union(lists: list[SortableArray]) -> SortableArray:
    """Return the distinct tokens of sorted lists; the stable sort merges sorted runs instead of sorting."""
    return _distinct(np.sort(np.concatenate(lists), kind="stable"))


def _distinct(tokens: SortableArray) -> SortableArray:
    """Return the distinct tokens of a sorted list."""
    first = np.ones(len(tokens), dtype=bool)
    first[1:] = tokens[1:] != tokens[:-1]
    distinct: SortableArray = tokens[first]
    return distinct


def _conflict(
    overlaps: list[dict[str, Any]], lacking: list[dict[str, Any]], matches: tuple[Match, ...]
) -> ConflictError:
    found = [f"{' and '.join(each['owners'])} share {each['shared']} persons" for each in overlaps]
    found += [
        f"{' and '.join(each['owners'])} {'lack' if len(each['owners']) > 1 else 'lacks'} "
        f"{each['lacking']} records that others have"
        for each in lacking
    ]
    if matches:
        found.append(told(matches))
    hints = []
    if overlaps:
        hints.append("remove shared persons from all owners but one: a person's budget holds for one part")
    if lacking:
        hints.append(likely_cause(matches))
    return ConflictError(
        "; ".join(found),
        "; ".join([*hints, "nothing was spent"]),
        {"overlaps": overlaps, "lacking": lacking, "matches": [match.to_document() for match in matches]},
    )
