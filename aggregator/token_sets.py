"""Sets of tokens as sorted arrays: united, counted, compared. Nothing here knows of plans or errors."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.arrays import Int64Array, SortableArray


def distinct(tokens: SortableArray) -> SortableArray:
    """Return the distinct tokens of a sorted list."""
    found: SortableArray = tokens[_first(tokens)]
    return found


def union(lists: Sequence[SortableArray]) -> SortableArray:
    """Return the distinct tokens of sorted lists; the stable sort merges sorted runs instead of sorting."""
    return distinct(np.sort(np.concatenate(lists), kind="stable"))


def held(lists: Sequence[SortableArray]) -> tuple[SortableArray, Int64Array]:
    """Return the distinct tokens of sorted lists, and how many of the lists hold each.

    Args:
        lists: Each of shape (n_records,), with a token as often as there are records of that person.

    Returns:
        Tokens, sorted, of shape (n_persons,), and numbers of lists, of the same shape.
    """
    merged = np.sort(np.concatenate([distinct(each) for each in lists]), kind="stable")
    begins = np.flatnonzero(_first(merged))
    return merged[begins], np.diff(begins, append=len(merged)).astype(np.int64, copy=False)


def in_all(sets: Sequence[SortableArray]) -> SortableArray:
    """Return the tokens that all of several sets hold, sorted."""
    tokens, lists = held(sets)
    common: SortableArray = tokens[lists == len(sets)]
    return common


def among(tokens: SortableArray, wanted: SortableArray) -> NDArray[np.bool_]:
    """Return for each token whether it is in a sorted set; shape of `tokens`."""
    places = np.searchsorted(wanted, tokens)
    found: NDArray[np.bool_] = np.zeros(len(tokens), dtype=np.bool_)
    inside = places < len(wanted)
    found[inside] = wanted[places[inside]] == tokens[inside]
    return found


def shared_by_pairs(lists: Sequence[SortableArray]) -> dict[tuple[int, int], int]:
    """Return for every two lists that share persons how many they share, by their places.

    The sorted lists are merged once; a token that h lists hold appears h times in a row, so that all pairs
    are found by comparing with neighbours at distance 1, 2, … up to the longest such row.
    """
    sets = [distinct(tokens) for tokens in lists]
    merged = np.concatenate(sets)
    holder = np.repeat(np.arange(len(sets)), [len(each) for each in sets])
    order = np.argsort(merged, kind="stable")
    merged, holder = merged[order], holder[order]
    pairs: Counter[tuple[int, int]] = Counter()
    for distance in range(1, len(sets)):
        same = merged[distance:] == merged[:-distance]
        if not same.any():
            break
        codes = holder[:-distance][same] * len(sets) + holder[distance:][same]
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
            pairs[divmod(int(code), len(sets))] += int(count)
    return dict(sorted(pairs.items()))


def _first(tokens: SortableArray) -> NDArray[Any]:
    """Return where a sorted list has another token than before."""
    first = np.ones(len(tokens), dtype=np.bool_)
    first[1:] = tokens[1:] != tokens[:-1]
    return first
