"""Linking by match keys: persons from token lists of several passes, and how good the links are.

What the passes make of the owners' persons is compared as tokens of an identifier are (`linking`). Groups are
aligned on numbers of persons, which are handed to the owners: they are random, and say nothing about handles,
passes, or who holds a person.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.release.linking import (
    LinkingResult,
    intersection,
    is_member,
    link_persons,
    union,
    with_partners,
)
from common.arrays import Int64Array
from common.errors import ConflictError, UsageError
from common.matching.linking import link_passes
from common.matching.lists import decode_lists
from common.matching.quality import match_quality
from common.model.match_quality import MatchQuality
from common.model.plan import Plan
from common.words.linking import quality_text

_LEFT_OUT = 2**32 - 1
_BYTES_OF_PERSON = 128
_BYTES_OF_PASS = 4


def link_by_passes(
    plan: Plan,
    records: Mapping[str, int],
    blobs: Mapping[str, NDArray[np.uint8]],
    shuffled: Callable[[int], Int64Array],
    advance: Callable[[int], None] = lambda _n_records: None,
) -> LinkingResult:
    """Link the persons of a release by match keys.

    Args:
        blobs: Token lists by owner id (`common.matching.lists`), each of shape (size,).
        shuffled: Returns a permutation of so many numbers from secure randomness.
        advance: Called after every pass with the number of records of all owners.

    Returns:
        What was found. Where groups are aligned, `selections` has the numbers of each owner's persons.

    Raises:
        ProtocolError: If an owner's lists are malformed.
        UnusableDataError: If an owner has fewer records than its largest k.
        ConflictError: As `linking.link_runs`; or if the estimated quality of the links is below what the plan
            asks for.
    """
    names = [key_pass.name for key_pass in plan.passes]
    lists = [decode_lists(blobs[owner], len(names), records[owner], owner) for owner in plan.owners]
    linked = link_passes(lists, [records[owner] for owner in plan.owners], advance)
    quality = match_quality(names, lists, linked)
    _check_quality(plan, quality)
    ends = np.cumsum([records[owner] for owner in plan.owners])[:-1]
    # In the order of their handles.
    persons: dict[str, NDArray[Any]] = dict(zip(plan.owners, np.split(linked.person, ends), strict=True))
    ordered = {owner: np.sort(owner_persons) for owner, owner_persons in persons.items()}
    result = replace(link_persons(plan, records, ordered), match_quality=quality)
    if not plan.numbers_persons:
        return result
    kept = intersection([union([ordered[owner] for owner in owners]) for owners in plan.groups])
    numbers = shuffled(len(kept))
    sent = {owner: _numbers(owner_persons, kept, numbers) for owner, owner_persons in persons.items()}
    if plan.has_partners:
        numbered = {owner: np.frombuffer(data, dtype=">u4").astype(np.int64) for owner, data in sent.items()}
        ordered = {owner: np.sort(each[each != _LEFT_OUT]) for owner, each in numbered.items()}
        sent = with_partners(plan, sent, lambda: iter([ordered]))
    return replace(result, selections=sent)


def check_memory(plan: Plan, n_records: int, memory: int) -> None:
    """Check, before any memory is taken, that linking so many records fits into it."""
    needed = n_records * (_BYTES_OF_PERSON + _BYTES_OF_PASS * len(plan.passes))
    if needed > memory:
        raise UsageError(
            f"linking {n_records:,} records by match keys takes {needed >> 20:,} MB of memory, [engine] "
            f"memory_limit allows {memory >> 20:,} MB",
            "raise it in aggregator.toml, or release fewer owners at a time; nothing was spent",
            {"needed": needed, "memory_limit": memory},
        )


def _check_quality(plan: Plan, quality: MatchQuality) -> None:
    least = plan.linking.min_match_quality
    if quality.quality_least < least:
        raise ConflictError(
            f"the links of match keys are not good enough: {quality_text(quality)}; {least:f} is agreed",
            "leave out the passes with many estimated false links, or add keys to them, at every owner "
            "(owner-node link-check tries them); nothing was spent",
            {"match_quality": json.loads(quality.to_bytes()), "min_match_quality": f"{least:f}"},
        )


def _numbers(persons: NDArray[Any], kept: NDArray[Any], numbers: Int64Array) -> bytes:
    """Return the numbers of an owner's persons, in their order, as they are sent."""
    sent = np.full(len(persons), _LEFT_OUT, dtype=">u4")
    inside = is_member(persons, kept)
    sent[inside] = numbers[np.searchsorted(kept, persons[inside])]
    return sent.tobytes()
