"""Linking of persons by match keys: pass by pass, one to one, greedy in the declared order.

Within an owner every token of a pass stands for one person. So a token that several owners sent says that
their persons are the same. A pass joins persons as follows. The persons known so far and the tokens that
they share form a graph. Each of its connected parts becomes one person, unless it would hold two persons of
the same owner: then this pass joins none of them, and the tokens count as conflicts. What an earlier pass
joined stays.

The result does not depend on the order of owners or records. Memory for tokens is bounded: sorted lists are
merged in ranges of token values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.arrays import Int64Array
from common.errors import UsageError
from common.matching.lists import MOST_PERSONS, PassList

Int32Array = NDArray[np.int32]
NOT_SENT = -1
"""Token number of a person for whom a pass has no token."""
ALONE = -2
"""Token number of a person whose token no other owner sent."""
_IN_MEMORY = 1 << 22
"""Tokens that are merged at a time."""


@dataclass(frozen=True, slots=True)
class SharedTokens:
    """The tokens of one pass that several owners sent."""

    persons: Int32Array
    """Persons in the order of their tokens, shape (n_entries,)."""
    starts: Int64Array
    """Where each token's persons begin, shape (n_tokens,)."""
    numbers: Int32Array
    """Token number of every person, or `NOT_SENT` or `ALONE`; shape (n_persons,)."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass joined."""

    pairs: tuple[Int32Array, Int32Array]
    """Pairs of persons that it joined, each of shape (n_pairs,): one less than persons for each token."""
    joined: Int64Array
    """Entries of the tokens that joined them, by owner; shape (n_owners,)."""
    open: Int64Array
    """Persons that it compared and who were not yet linked at every owner, by owner; shape (n_owners,)."""
    conflicts: int
    """Tokens that would have joined two persons of one owner."""


@dataclass(frozen=True, slots=True)
class LinkedEntries:
    """The result of all passes."""

    person: Int32Array
    """For every entry the smallest entry of the same person; shape (n_entries,)."""
    passes: tuple[PassResult, ...]
    numbers: tuple[Int32Array, ...]
    """Token numbers of every pass, as in `SharedTokens`."""


def link_passes(
    lists: Sequence[Sequence[PassList]],
    n_records: Sequence[int],
    advance: Callable[[int], None] = lambda _n_records: None,
) -> LinkedEntries:
    """Link the persons of several owners.

    Args:
        lists: By owner, then by pass; all owners have the same passes.
        n_records: Number of persons of each owner; handles are below it.
        advance: Called after every pass with the number of persons.

    Returns:
        Which entries are one person. Entries are numbered owner by owner, each in the order of its handles.
    """
    n_persons = sum(n_records)
    if n_persons > MOST_PERSONS:
        raise UsageError(
            f"{n_persons:,} persons cannot be linked at once, at most {MOST_PERSONS:,} can",
            "release fewer owners at a time; nothing was spent",
        )
    firsts = np.cumsum([0, *n_records])[:-1]
    owner = np.repeat(np.arange(len(n_records), dtype=np.int32), n_records)
    person = np.arange(n_persons, dtype=np.int32)
    results, numbers = [], []
    for of_owners in zip(*lists, strict=True):
        shared = shared_tokens(of_owners, firsts, n_persons)
        results.append(_link_pass(person, owner, len(n_records), shared))
        numbers.append(shared.numbers)
        advance(n_persons)
    return LinkedEntries(person, tuple(results), tuple(numbers))


def shared_tokens(lists: Sequence[PassList], firsts: Int64Array, n_persons: int) -> SharedTokens:
    """Find the tokens of one pass that several owners sent.

    Args:
        firsts: Number of each owner's first person.
    """
    numbers = np.full(n_persons, NOT_SENT, dtype=np.int32)
    persons: list[Int32Array] = []
    sizes: list[Int64Array] = []
    n_tokens = 0
    parts = 1 + sum(len(of_owner.tokens) for of_owner in lists) // _IN_MEMORY
    ends = np.array([(part << 32) // parts for part in range(parts)], dtype=">u4").view("S4")
    places = np.array([[*np.searchsorted(of_owner.tokens, ends), len(of_owner.tokens)] for of_owner in lists])
    for part in range(parts):
        ranges = [slice(*row) for row in places[:, part : part + 2]]
        tokens = np.concatenate([of_owner.tokens[rows] for of_owner, rows in zip(lists, ranges, strict=True)])
        entries = np.concatenate(
            [
                of_owner.handles[rows].astype(np.int32) + np.int32(first)
                for of_owner, rows, first in zip(lists, ranges, firsts, strict=True)
            ]
        )
        # The stable sort merges sorted runs instead of sorting.
        order = np.argsort(tokens, kind="stable")
        tokens, entries = tokens[order], entries[order]
        numbers[entries] = ALONE
        begins = np.flatnonzero(np.concatenate([[True], tokens[1:] != tokens[:-1]])[: len(tokens)])
        size = np.diff(begins, append=len(tokens))
        several = size > 1
        shared = entries[np.repeat(several, size)]
        size = size[several]
        numbers[shared] = np.repeat(np.arange(n_tokens, n_tokens + len(size), dtype=np.int32), size)
        n_tokens += len(size)
        persons.append(shared)
        sizes.append(size)
    size = np.concatenate(sizes)
    return SharedTokens(np.concatenate(persons), np.cumsum(size) - size, numbers)


def _link_pass(person: Int32Array, owner: Int32Array, n_owners: int, shared: SharedTokens) -> PassResult:
    """Join persons in place by the shared tokens of one pass.

    Args:
        person: For every entry the smallest entry of the same person so far, shape (n_persons,).
        owner: The owner of every entry, same shape.
    """
    held = np.bincount(person, minlength=len(person)) if n_owners > 1 else np.zeros(0, dtype=np.int64)
    compared = np.flatnonzero((shared.numbers != NOT_SENT) & (held[person] < n_owners))
    n_open = np.bincount(owner[compared], minlength=n_owners)
    entries, token = _undecided_entries(person, shared)
    if not len(entries):
        none = np.zeros(0, dtype=np.int32)
        return PassResult((none, none), np.zeros(n_owners, dtype=np.int64), n_open, 0)
    merged = _merge(person, owner, n_owners, entries, token)
    consistent = merged.consistent[token]
    entries, token = entries[consistent], token[consistent]
    joined = np.bincount(owner[entries], minlength=n_owners)
    # Entries that are one person already are next to each other: the number of pairs has no order of owners.
    order = np.lexsort((person[entries], token))
    entries, token, before = entries[order], token[order], person[entries[order]]
    pair = np.flatnonzero((token[1:] == token[:-1]) & (before[1:] != before[:-1]))
    pairs = entries[pair], entries[pair + 1]
    person[merged.entries] = merged.person
    return PassResult(
        pairs,
        joined,
        n_open,
        int(np.count_nonzero(~merged.consistent)),
    )


def _undecided_entries(person: Int32Array, shared: SharedTokens) -> tuple[Int32Array, Int64Array]:
    """Return the entries of tokens whose entries are not one person yet.

    Returns:
        Entries by token, and for every entry its token from 0; each of shape (n_entries,).
    """
    if not len(shared.starts):
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    known = person[shared.persons]
    undecided = np.minimum.reduceat(known, shared.starts) != np.maximum.reduceat(known, shared.starts)
    size = np.diff(shared.starts, append=len(known))
    entries = shared.persons[np.repeat(undecided, size)]
    size = size[undecided]
    return entries, np.repeat(np.arange(len(size)), size)


@dataclass(frozen=True, slots=True)
class _Merged:
    consistent: NDArray[np.bool_]
    """Whether each token joins at most one person of every owner, shape (n_tokens,)."""
    entries: Int64Array
    """Entries of all persons that the tokens touch, shape (n_touched,)."""
    person: Int32Array
    """Their persons after the pass, same shape."""


def _merge(
    person: Int32Array, owner: Int32Array, n_owners: int, entries: Int32Array, token: Int64Array
) -> _Merged:
    """Join the connected parts of the graph that hold at most one entry of every owner."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Marks and counts instead of sorting: an entry is a place in arrays of all entries.
    touched_persons = np.zeros(len(person), dtype=np.bool_)
    touched_persons[person[entries]] = True
    known = np.flatnonzero(touched_persons).astype(np.int32)
    number = np.full(len(person), -1, dtype=np.int32)
    number[known] = np.arange(len(known), dtype=np.int32)
    place = number[person[entries]]
    n_tokens = int(token[-1]) + 1
    n_nodes = len(known) + n_tokens
    graph = coo_array((np.ones(len(token), np.int8), (place, len(known) + token)), shape=(n_nodes, n_nodes))
    n_parts, part = connected_components(graph, directed=False)
    part_of_known, part_of_token = part[: len(known)], part[len(known) :]
    touched = np.flatnonzero(number[person] >= 0)
    which = number[person[touched]]
    held = np.sort(part_of_known[which].astype(np.int64) * n_owners + owner[touched])
    consistent = np.ones(n_parts, dtype=np.bool_)
    consistent[held[1:][held[1:] == held[:-1]] // n_owners] = False
    # `known` is sorted: the last that is written, in reverse, is the smallest of its part.
    smallest = np.zeros(n_parts, dtype=np.int32)
    smallest[part_of_known[::-1]] = known[::-1]
    after = np.where(consistent[part_of_known], smallest[part_of_known], known)
    return _Merged(consistent[part_of_token], touched, after[which])
