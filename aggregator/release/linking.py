"""Linking by token lists: key checks, set operations, matches between groups, content of the addendum.

One code path serves every layout. Within a group, the parts of its owners must be disjoint (parallel
composition holds only then), or share persons as far as the plan allows and charges for. Between groups, the
persons must be the same, or are reduced to the common ones if the plan says so. A horizontal release has no
second group to compare, a vertical one no second part, a mixed one has both.

The sets of tokens are sorted arrays; the functions on them know nothing of plans. Lists of any length are
compared range by range of tokens, and what was counted is added up. Results contain only counts, and for each
owner which of its own records are common; never a token.

References:
    Del Vasto-Terrientes et al. 2025, §4.2.1 (disjoint records) and §4.2.2 (disjoint attributes).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from common.arrays import Int64Array, SortableArray, TokenArray, random_order, sortable
from common.errors import ConflictError, ProtocolError, UnusableDataError
from common.model.match_quality import MatchQuality
from common.model.matches import Match, describe_mismatches, likely_cause
from common.model.plan import LinkingFound, Plan
from common.runs import ArrayRun, Run, in_ranges
from common.synthesis.sample import MOST_RECORDS

LINKING_BYTES = 6 * 16
"""Bytes of memory that comparing takes per token, at most."""


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """What an owner reports about its linkage key."""

    value: str
    """Key-check value of the release, hexadecimal; equal for equal keys."""
    generation: int = 0
    """Generation of the key; 0 if an older version did not report it."""


def compare_key_checks(reported: Mapping[str, KeyCheck]) -> None:
    """Check that all owners used the same linkage key.

    Raises:
        ConflictError: Naming the owners and generation of each key, and who should export to whom: the others
            import the newest generation; of equal generations, the one that most owners have.
    """
    keys = {check.value: check.generation for check in reported.values()}
    if len(keys) <= 1:
        return
    camps = {key: sorted(owner for owner, check in reported.items() if check.value == key) for key in keys}
    ranked = sorted(camps, key=lambda key: (-keys[key], -len(camps[key]), camps[key]))
    newest, older = camps[ranked[0]], sorted(owner for key in ranked[1:] for owner in camps[key])
    listed = " | ".join(_text(camps[key], keys[key]) for key in ranked)
    raise ConflictError(
        f"the owners have different linkage keys: {listed}",
        f"give all owners one key: owner-node linkage-key export at {newest[0]}, then "
        f"linkage-key import --replace at {', '.join(older)}; nothing was spent",
        {
            "different": older,
            "same": [camps[key] for key in ranked],
            "generations": {owner: check.generation for owner, check in reported.items()},
        },
    )


def _text(owners: list[str], generation: int) -> str:
    names = ", ".join(owners)
    return f"{names} {'have' if len(owners) > 1 else 'has'} generation {generation}" if generation else names


def distinct(tokens: SortableArray) -> SortableArray:
    """Return the distinct tokens of a sorted list, without copying where all are distinct."""
    first = _first(tokens)
    unique: SortableArray = tokens if first.all() else tokens[first]
    return unique


def union(lists: Sequence[SortableArray]) -> SortableArray:
    """Return the distinct tokens of sorted lists."""
    return distinct(lists[0] if len(lists) == 1 else _merge(lists))


def _merge(lists: Sequence[SortableArray]) -> SortableArray:
    """Return all tokens of sorted lists, sorted; the stable sort merges sorted runs instead of sorting."""
    merged: SortableArray = np.concatenate(lists)
    merged.sort(kind="stable")
    return merged


def count_holders(lists: Sequence[SortableArray]) -> tuple[SortableArray, Int64Array]:
    """Return the distinct tokens of sorted lists, and how many of the lists hold each.

    Args:
        lists: Each of shape (n_records,), with a token as often as there are records of that person.

    Returns:
        Tokens, sorted, of shape (n_persons,), and numbers of lists, of the same shape.
    """
    merged = _merge([distinct(tokens) for tokens in lists])
    begins = np.flatnonzero(_first(merged))
    return merged[begins], np.diff(begins, append=len(merged)).astype(np.int64, copy=False)


def intersection(sets: Sequence[SortableArray]) -> SortableArray:
    """Return the tokens that all sets hold, sorted."""
    tokens, lists = count_holders(sets)
    common: SortableArray = tokens[lists == len(sets)]
    return common


def is_member(tokens: SortableArray, wanted: SortableArray) -> NDArray[np.bool_]:
    """Return for each token whether it is in a sorted set; shape of `tokens`."""
    places = np.searchsorted(wanted, tokens)
    members: NDArray[np.bool_] = np.zeros(len(tokens), dtype=np.bool_)
    inside = places < len(wanted)
    members[inside] = wanted[places[inside]] == tokens[inside]
    return members


def shared_by_pairs(lists: Sequence[SortableArray]) -> dict[tuple[int, int], int]:
    """Return the number of shared persons for every two lists that share any, by their positions.

    The sorted lists are merged once; a token that h lists hold appears h times in a row, so that all pairs
    are found by comparing with neighbours at distance 1, 2, … up to the longest such row.
    """
    sets = [distinct(tokens) for tokens in lists]
    merged = np.concatenate(sets)
    holder = np.repeat(np.arange(len(sets), dtype=np.int32), [len(tokens) for tokens in sets])
    order = np.argsort(merged, kind="stable")
    merged, holder = merged[order], holder[order]
    del order
    pairs: Counter[tuple[int, int]] = Counter()
    for distance in range(1, len(sets)):
        same = merged[distance:] == merged[:-distance]
        if not same.any():
            break
        codes = holder[:-distance][same].astype(np.int64) * len(sets) + holder[distance:][same]
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
            pairs[divmod(int(code), len(sets))] += int(count)
    return dict(sorted(pairs.items()))


def _first(tokens: SortableArray) -> NDArray[Any]:
    """Return a mask of the positions at which a sorted list has a new token."""
    first = np.ones(len(tokens), dtype=np.bool_)
    first[1:] = tokens[1:] != tokens[:-1]
    return first


MOST_GROUPS = 32
"""Most groups that are compared in pairs: the report grows with the square of their number."""


def match_groups(groups: Mapping[int, Sequence[tuple[str, SortableArray]]]) -> tuple[Match, ...]:
    """Compare every two groups of owners; one match per pair, in their order.

    The sorted lists are merged once and the persons numbered; the rest is counting.

    Args:
        groups: Owner ids with their distinct tokens, sorted, each of shape (n_persons,), by group.
    """
    chosen = sorted(groups)
    cells = [(group, owner) for group in chosen for owner, _ in groups[group]]
    person, cell = _number_persons([tokens for group in chosen for _, tokens in groups[group]])
    group_of = np.array([chosen.index(group) for group, _ in cells])[cell]
    members, lacking = [], []
    for place in range(len(chosen)):
        held = np.zeros(int(person[-1]) + 1 if len(person) else 0, dtype=np.bool_)
        held[person[group_of == place]] = True
        members.append(np.packbits(held))
        lacking.append(np.bincount(cell[~held[person]], minlength=len(cells)))
    return tuple(
        Match(
            (tuple(owner for owner, _ in groups[chosen[g]]), tuple(owner for owner, _ in groups[chosen[h]])),
            int(np.bitwise_count(members[g] & members[h]).sum()),
            {
                owner: int(lacking[h if group == chosen[g] else g][place])
                for place, (group, owner) in enumerate(cells)
                if group in (chosen[g], chosen[h])
            },
        )
        for g, h in combinations(range(len(chosen)), 2)
    )


def _number_persons(lists: Sequence[SortableArray]) -> tuple[Int64Array, Int64Array]:
    """Return the number of the person and of the list for every entry of all lists, shape (n_entries,)."""
    merged = np.concatenate(lists)
    order = np.argsort(merged, kind="stable")
    merged = merged[order]
    person = np.zeros(len(merged), dtype=np.int64)
    np.cumsum(merged[1:] != merged[:-1], out=person[1:])
    return person, np.repeat(np.arange(len(lists)), [len(tokens) for tokens in lists])[order]


@dataclass(frozen=True, slots=True)
class LinkingResult:
    """What linking found; the content of the addendum."""

    kind: LinkingFound
    """The result in one word."""
    records: Mapping[str, int]
    """Exact number of records that each owner masks or counts, by owner id."""
    matches: tuple[Match, ...] = ()
    """What every two groups have in common; empty where there is one group."""
    multiples: tuple[int, ...] = ()
    """By group: the largest number of owners that hold one person; empty where the plan allows one."""
    released: int | None = None
    """Number of records of the release, where the plan allows shared persons."""
    common: int | None = None
    """Number of persons that all groups hold, where records are left out for that."""
    selections: Mapping[str, bytes] = field(default_factory=dict)
    """By owner id, where records are left out: a bit per record in the order of its tokens, 1 to mask it; or
    where persons are numbered, the number of each in the order of their handles. Where owners count with
    partners, those of each follow (`with_partners`). Of everybody: a place for each record in the
    order of its tokens (`_unite`)."""
    match_quality: MatchQuality | None = None
    """What the passes of match keys linked; None where there are none."""


def link(plan: Plan, records: Mapping[str, int], tokens: Mapping[str, TokenArray]) -> LinkingResult:
    """Compare the token lists of a release that are in memory; see `link_runs`.

    Args:
        tokens: Sorted token lists by owner id, each of shape (n_records, 16); empty where the plan wants
            none.
    """
    runs = {owner: ArrayRun(sortable(owner_tokens)) for owner, owner_tokens in tokens.items()}
    return link_runs(plan, records, runs, sum(run.n_records for run in runs.values()))


def link_runs(
    plan: Plan,
    records: Mapping[str, int],
    runs: Mapping[str, Run],
    n_tokens: int,
    advance: Callable[[int], None] = lambda _n_tokens: None,
) -> LinkingResult:
    """Compare the token lists of a release, one range of tokens after the other.

    Args:
        runs: Sorted tokens of 16 bytes by owner id; empty where the plan wants none.
        n_tokens: About how many tokens of all lists are compared at once, `LINKING_BYTES` of memory each.
        advance: Called with a number of tokens that were read, once each time that they are.

    Raises:
        ProtocolError: If an owner's list is absent, unsorted, repeats a token or has another length than
            declared.
        UnusableDataError: If an owner has fewer records than its largest k.
        ConflictError: If parts overlap or groups differ more than the plan allows; lists every such pair and
            group. Or if fewer persons are common than agreed.
    """
    _check_k(plan, records)
    if not plan.linking.tokens:
        return LinkingResult("asserted", {owner: records[owner] for owner in plan.owners})
    for owner in plan.owners:
        _check_list(plan, owner, runs.get(owner), records[owner], n_tokens)
        advance(records[owner])
    ordered = [runs[owner] for owner in plan.owners]

    def ranges() -> Iterator[TokenLists]:
        for lists in in_ranges(ordered, n_tokens):
            yield dict(zip(plan.owners, lists, strict=True))
            advance(sum(map(len, lists)))

    return _compare(plan, ranges)


def link_persons(plan: Plan, records: Mapping[str, int], persons: "TokenLists") -> LinkingResult:
    """Compare the persons of a release that match keys linked; see `link_runs`."""
    _check_k(plan, records)
    return _compare(plan, lambda: iter([persons]))


TokenLists: TypeAlias = Mapping[str, SortableArray]
"""Sorted tokens by owner id: all that the owners have, or those in one range of tokens."""
_Ranges: TypeAlias = Callable[[], Iterator[TokenLists]]
"""Reads the lists of all owners, range by range, from the beginning."""


@dataclass(slots=True)
class _Tally:
    """What is counted range by range. No person is in two ranges, so that counts of ranges are added up."""

    records: Counter[str] = field(default_factory=Counter)
    """By owner."""
    persons: Counter[str] = field(default_factory=Counter)
    """By owner: distinct tokens, where not all groups are compared in pairs."""
    groups: Counter[int] = field(default_factory=Counter)
    """By group: persons."""
    everybody: int = 0
    """Persons of all groups."""
    common: int = 0
    """Persons that all groups hold."""
    shared: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """By group and the places of two of its owners: persons that both hold, where one owner is allowed."""
    too_many: Counter[int] = field(default_factory=Counter)
    """By group: persons at more owners than allowed, where several are."""
    multiples: Counter[int] = field(default_factory=Counter)
    """By group: the largest number of owners that hold one person, where several are allowed."""
    released: int = 0
    """Records of the release, where all groups hold the same persons."""


def _tally(plan: Plan, ranges: Iterable[TokenLists]) -> _Tally:
    tally = _Tally()
    for lists in ranges:
        for owner in plan.owners:
            tally.records[owner] += len(lists[owner])
            if plan.n_groups > MOST_GROUPS:
                tally.persons[owner] += len(distinct(lists[owner]))
        holders = [_count_group(plan, group, lists, tally) for group in range(plan.n_groups)]
        if plan.n_groups > 1:
            # With one group there is no other to compare with, so nobody needs the union of its parts.
            sets = [union([lists[owner] for owner in owners]) for owners in plan.groups]
            everybody = union(sets)
            tally.groups.update({group: len(tokens) for group, tokens in enumerate(sets)})
            tally.everybody += len(everybody)
            differ = any(len(tokens) < len(everybody) for tokens in sets)
            tally.common += len(intersection(sets)) if differ else len(everybody)
            if not differ and plan.linking.max_overlap > 1:
                # A person has as many records as the group that has most of it (`joining`).
                tally.released += int(np.maximum.reduce(holders).sum())
    return tally


def _count_group(plan: Plan, group: int, lists: TokenLists, tally: _Tally) -> Int64Array:
    """Count the owners of a group that hold the same persons.

    Returns:
        By person, how many owners hold it; empty where the plan allows one.
    """
    parts = [lists[owner] for owner in plan.groups[group]]
    if plan.linking.max_overlap == 1:
        tally.shared.update({(group, *pair): count for pair, count in shared_by_pairs(parts).items()})
        return np.empty(0, dtype=np.int64)
    holders = count_holders(parts)[1]
    tally.multiples[group] = max(tally.multiples[group], int(holders.max(initial=0)))
    tally.too_many[group] += int((holders > plan.linking.max_overlap).sum())
    return holders


def _compare(plan: Plan, ranges: _Ranges) -> LinkingResult:
    """Compare the sorted persons of all owners."""
    tally = _tally(plan, ranges())
    if plan.linking.unites:
        return _unite(plan, ranges, tally.everybody)
    overlaps = _overlaps(plan, tally)
    if plan.n_groups == 1:
        if overlaps:
            raise _conflict(plan, overlaps, [], (), 0)
        return _result(plan, tally, ())
    lacking = _lacking(plan, tally)
    if lacking and plan.linking.intersects:
        return _intersect(plan, ranges, tally)
    if overlaps or lacking:
        matches = _matches(plan, ranges, tally) if lacking else ()
        raise _conflict(plan, overlaps, lacking, matches, tally.common if lacking else 0)
    result = _result(plan, tally, _all_match(plan, tally.everybody))
    return replace(result, selections=with_partners(plan, {}, ranges)) if plan.has_partners else result


def with_partners(plan: Plan, selections: Mapping[str, bytes], ranges: _Ranges) -> dict[str, bytes]:
    """Return selections, each followed by the owners that have the persons of its owner, too.

    Args:
        selections: By owner; empty where nothing is selected.
        ranges: Of the persons that are counted.

    Returns:
        By owner, a byte for each person in the order of tokens and for each group: the number of the owner in
        the group that has that person.
    """
    places = [(group, place) for group, owners in enumerate(plan.groups) for place in range(len(owners))]
    groups, numbers = (np.array(column, dtype=np.uint8) for column in zip(*places, strict=True))
    names = [owner for owners in plan.groups for owner in owners]
    partners: dict[str, bytearray] = {owner: bytearray() for owner in names}
    for lists in ranges():
        person, holder = _number_persons([lists[owner] for owner in names])
        held = np.zeros((int(person[-1]) + 1 if person.size else 0, plan.n_groups), dtype=np.uint8)
        held[person, groups[holder]] = numbers[holder]
        # Those of each owner after each other, in the order of their tokens.
        order = np.argsort(holder, kind="stable")
        ends = np.cumsum([len(lists[owner]) for owner in names])[:-1]
        for owner, persons in zip(names, np.split(person[order], ends), strict=True):
            partners[owner] += held[persons].tobytes()
    return {owner: selections.get(owner, b"") + bytes(data) for owner, data in partners.items()}


def _unite(plan: Plan, ranges: _Ranges, n_persons: int) -> LinkingResult:
    """Give every person of any owner a place, in a random order that says nothing about tokens.

    Whoever has the linkage key can make the token of anybody. So by places in the order of tokens an owner
    could read from gaps between its own who is at no owner.
    """
    if n_persons > MOST_RECORDS:
        raise UnusableDataError(
            f"the owners have {n_persons:,} persons together, a synthetic release at most {MOST_RECORDS:,}",
            "make it of fewer owners or records; nothing was spent",
        )
    places, first = random_order(n_persons).astype(">u4"), 0
    sent = {owner: bytearray() for owner in plan.owners}
    for lists in ranges():
        everybody = union([lists[owner] for owner in plan.owners])
        for owner, tokens in lists.items():
            sent[owner] += places[first + np.searchsorted(everybody, tokens)].tobytes()
        first += len(everybody)
    found = {owner: bytes(data) for owner, data in sent.items()}
    return LinkingResult("united", dict.fromkeys(plan.owners, n_persons), selections=found)


def _intersect(plan: Plan, ranges: _Ranges, everything: _Tally) -> LinkingResult:
    """Reduce all owners to the persons that all groups hold."""
    matches, common = _matches(plan, ranges, everything), everything.common
    least = plan.linking.min_common
    if common < least:
        raise ConflictError(
            f"{common} persons are common to all groups, at least {least} are agreed; "
            f"{describe_mismatches(matches)}",
            f"{likely_cause(matches)}; nothing was spent",
            {"common": common, "min_common": least, "matches": [match.to_document() for match in matches]},
        )
    selections = {owner: _Bits() for owner in plan.owners}

    def selected(bits: Mapping[str, _Bits]) -> Iterator[TokenLists]:
        for lists in ranges():
            sets = [union([lists[owner] for owner in owners]) for owners in plan.groups]
            wanted = intersection(sets)
            chosen = {owner: is_member(tokens, wanted) for owner, tokens in lists.items()}
            for owner in bits:
                bits[owner].append(chosen[owner])
            yield {owner: tokens[chosen[owner]] for owner, tokens in lists.items()}

    tally = _tally(plan, selected(selections))
    _check_k(plan, tally.records, "common records")
    overlaps = _overlaps(plan, tally)
    if overlaps:
        raise _conflict(plan, overlaps, [], (), common)
    result = _result(plan, tally, matches)
    packed = {owner: bits.pack() for owner, bits in selections.items()}
    if plan.has_partners:
        packed = with_partners(plan, packed, lambda: selected({}))
    return replace(result, kind="intersected", common=common, selections=packed)


class _Bits:
    """Packs bits that come in pieces, the first one in the highest bit of the first byte."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._rest = np.zeros(0, dtype=np.bool_)

    def append(self, bits: NDArray[np.bool_]) -> None:
        """Add bits, shape (n_bits,)."""
        bits = np.concatenate([self._rest, bits])
        whole = len(bits) // 8 * 8
        self._bytes += np.packbits(bits[:whole]).tobytes()
        self._rest = bits[whole:]

    def pack(self) -> bytes:
        """Return all of them, filled up with zeros to a whole byte."""
        return bytes(self._bytes) + np.packbits(self._rest).tobytes()


def _result(plan: Plan, tally: _Tally, matches: tuple[Match, ...]) -> LinkingResult:
    """Return the result of linking where the token lists allow the release."""
    records = {owner: tally.records[owner] for owner in plan.owners}
    kind: LinkingFound = "equal" if plan.n_groups > 1 else "disjoint"
    if plan.linking.max_overlap == 1:
        return LinkingResult(kind, records, matches)
    multiples = tuple(tally.multiples[group] for group in range(plan.n_groups))
    released = tally.released
    if plan.n_groups == 1:
        released = sum(records.values())
        kind = "overlapping" if multiples[0] > 1 else "disjoint"
    return LinkingResult(kind, records, matches, multiples, released)


def _check_k(plan: Plan, records: Mapping[str, int], what: str = "records") -> None:
    short = []
    for owner, assignment in plan.assignments.items():
        k = assignment.largest_k
        if records[owner] < k:
            short.append({"owner": owner, "records": records[owner], "k": k})
    if short:
        short_text = "; ".join(
            f"{lack['owner']} has {lack['records']} {what}, k = {lack['k']}" for lack in short
        )
        raise UnusableDataError(
            f"{short_text}: at least k are needed",
            "ask for a smaller k, or for a release without this owner; nothing was spent",
            {"owners": short},
        )


def _check_list(plan: Plan, owner: str, run: Run | None, n_records: int, n_tokens: int) -> None:
    """Check an owner's list as untrusted input, reading some tokens at once."""
    if run is None:
        raise _list_error(owner, "is absent")
    if run.n_records != n_records:
        raise _list_error(owner, f"has {run.n_records} tokens, {n_records} records were declared")
    # Groups are aligned record by record, so there a token names one record whatever g is.
    g = plan.max_records_per_person if plan.n_groups == 1 else 1
    for start in range(0, n_records, max(n_tokens, 1)):
        # The tokens before, too, with which these are compared.
        view = run.read(max(start - g, 0), min(start + max(n_tokens, 1), n_records))
        if np.any(view[1:] < view[:-1]):
            raise _list_error(owner, "is not sorted")
        if np.any(view[g:] == view[: max(len(view) - g, 0)]):
            raise _list_error(owner, f"has a token more than {g} times")


def _list_error(owner: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"the token list of {owner} {what}",
        "the owner node must run a compatible version",
        {"owner": owner},
    )


def _overlaps(plan: Plan, tally: _Tally) -> list[dict[str, Any]]:
    """Return where more owners of a group hold a person than the plan allows.

    If the plan allows one owner: the number of shared persons for every pair of owners that share any.
    Otherwise, by group: the number of persons that too many owners hold.
    """
    overlaps: list[dict[str, Any]] = [
        {"group": group, "owners": [plan.groups[group][first], plan.groups[group][second]], "shared": count}
        for (group, first, second), count in sorted(tally.shared.items())
    ]
    for group, owners in enumerate(plan.groups):
        if tally.too_many[group]:
            most = tally.multiples[group]
            shared = tally.too_many[group]
            overlaps.append({"group": group, "owners": list(owners), "shared": shared, "holders": most})
    return overlaps


def _lacking(plan: Plan, tally: _Tally) -> list[dict[str, Any]]:
    """Return, for every group that lacks records of the union of all groups, how many it lacks."""
    return [
        {"group": group, "owners": list(owners), "lacking": tally.everybody - tally.groups[group]}
        for group, owners in enumerate(plan.groups)
        if tally.groups[group] < tally.everybody
    ]


def _matches(plan: Plan, ranges: _Ranges, tally: _Tally) -> tuple[Match, ...]:
    """Return what every two groups have in common; of too many groups, those with the fewest persons."""
    sizes = [sum(tally.persons[owner] for owner in owners) for owners in plan.groups]
    chosen = sorted(sorted(range(plan.n_groups), key=sizes.__getitem__)[:MOST_GROUPS])
    both: Counter[int] = Counter()
    only: dict[int, Counter[str]] = {}
    pairs: dict[int, Match] = {}
    for lists in ranges():
        groups = {g: [(owner, distinct(lists[owner])) for owner in plan.groups[g]] for g in chosen}
        for place, match in enumerate(match_groups(groups)):
            pairs[place] = match
            both[place] += match.both
            only.setdefault(place, Counter()).update(match.only)
    return tuple(
        Match(match.groups, both[place], dict(only[place])) for place, match in sorted(pairs.items())
    )


def _all_match(plan: Plan, n_persons: int) -> tuple[Match, ...]:
    """Return the matches of groups that are known to be equal, without comparing them again."""
    return tuple(
        Match((first, second), n_persons, dict.fromkeys((*first, *second), 0))
        for first, second in combinations(plan.groups[:MOST_GROUPS], 2)
    )


def _conflict(
    plan: Plan, overlaps: list[dict[str, Any]], lacking: list[dict[str, Any]], matches: tuple[Match, ...],
    common: int,
) -> ConflictError:  # fmt: skip
    texts = [_overlap_text(plan, overlap) for overlap in overlaps]
    texts += [
        f"{' and '.join(group['owners'])} {'lack' if len(group['owners']) > 1 else 'lacks'} "
        f"{group['lacking']} records that others have"
        for group in lacking
    ]
    if matches:
        texts.append(describe_mismatches(matches))
    hints = []
    if overlaps:
        # Pairs of owners tell no more than how many owners are in them.
        holding: dict[int, set[str]] = {}
        for each in overlaps:
            holding.setdefault(each["group"], set()).update(each["owners"])
        known = [each["holders"] for each in overlaps if "holders" in each]
        more = max(known or map(len, holding.values()))
        hints.append("remove shared persons from all owners but one: a person's budget holds for one part")
        # Groups that count together have each person at one owner, and all the same persons.
        if not plan.product.rules.in_rounds or (plan.n_groups == 1 and not plan.delta):
            hints.append(
                f"or, where every owner's policy allows it, charge them several times (--max-overlap {more})"
            )
    if lacking:
        hints.append(likely_cause(matches))
    if lacking and common:
        least = "1" if plan.product.rules.in_rounds else "the largest k"
        hints.append(
            f"or, where policies allow it, release only the {common} persons that all have: --on-mismatch "
            f"intersect; fewer than --min-common N, by default {least}, would end the release"
        )
    return ConflictError(
        "; ".join(texts),
        "; ".join([*hints, "nothing was spent"]),
        {"overlaps": overlaps, "lacking": lacking, "matches": [match.to_document() for match in matches]},
    )


def _overlap_text(plan: Plan, overlap: Mapping[str, Any]) -> str:
    owners = " and ".join(overlap["owners"])
    if "holders" not in overlap:
        return f"{owners} share {overlap['shared']} persons"
    most = plan.linking.max_overlap
    return f"{overlap['shared']} persons are at more than {most} of {owners}, up to {overlap['holders']}"
