"""Linking by match keys: equal to the naive way, whatever the order; and what a stranger may send."""

import hashlib
import struct
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import common.matching.linking as module
from common.arrays import sortable
from common.errors import ProtocolError
from common.matching.linking import link_passes
from common.matching.lists import PassList, decode_lists, encode_lists
from common.matching.quality import match_quality
from common.model.match_quality import wilson_interval
from common.words.linking import pass_text
from tests.oracles import matching

N_PASSES = 3
key_value = st.one_of(st.none(), st.integers(0, 6))
owner_keys = st.lists(st.tuples(*[key_value] * N_PASSES), min_size=1, max_size=8)


def lists_of(own, order):
    """The token lists of an owner, its persons under the handles that `order` gives them."""
    lists = []
    for number in range(N_PASSES):
        values = [each[number] for each in own]
        sent = sorted(
            (hashlib.sha256(struct.pack("<qq", number, value)).digest()[:16], order[n])
            for n, value in enumerate(values)
            if value is not None and values.count(value) == 1
        )
        counts = [values.count(value) for value in set(values) - {None}]
        tokens = np.frombuffer(b"".join(token for token, _ in sent), np.uint8).reshape(-1, 16)
        lists.append(
            PassList(
                sortable(tokens),
                np.array([handle for _, handle in sent], np.uint32),
                sum(counts),
                counts.count(2),
            )
        )
    return lists


def persons_of(linked, owners, orders):
    """The linked persons as the oracle returns them."""
    first = 0
    found: dict[int, set[matching.Person]] = {}
    for owner, order in zip(owners, orders, strict=True):
        for n, handle in enumerate(order):
            found.setdefault(int(linked.person[first + handle]), set()).add((owner, n))
        first += len(order)
    return {frozenset(each) for each in found.values()}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(owner_keys, min_size=2, max_size=4), st.randoms(use_true_random=False), st.sampled_from([2, 64])
)
def test_linking_equals_the_oracle_in_any_order(people, random, at_a_time):
    """Persons, pairs and conflicts are those of dictionaries; no order matters."""
    owners = [f"o{number}" for number in range(len(people))]
    expected, pairs, conflicts = matching.linked(dict(zip(owners, people, strict=True)), N_PASSES)
    shuffled = random.sample(range(len(people)), len(people))
    orders = [random.sample(range(len(people[each])), len(people[each])) for each in shuffled]
    lists = [lists_of(people[each], order) for each, order in zip(shuffled, orders, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_IN_MEMORY", at_a_time)
        linked = link_passes(lists, [len(order) for order in orders])
    found = persons_of(linked, [owners[each] for each in shuffled], orders)
    assert found == expected
    assert all(len({owner for owner, _ in person}) == len(person) for person in found)
    assert [each.conflicts for each in linked.passes] == conflicts
    assert [len(each.pairs[0]) for each in linked.passes] == pairs
    quality = match_quality(["a", "b", "c"], lists, linked)
    assert [each.linked for each in quality.passes] == [len(each.pairs[0]) for each in linked.passes]
    type(quality).from_bytes(quality.to_bytes())


@given(owner_keys, st.randoms(use_true_random=False))
def test_lists_survive_the_wire(own, random):
    """What is encoded is decoded to the same, and a key value of two persons is in no list."""
    lists = lists_of(own, random.sample(range(len(own)), len(own)))
    blob = np.frombuffer(encode_lists(lists), np.uint8)
    for sent, read in zip(lists, decode_lists(blob, N_PASSES, len(own), "a"), strict=True):
        assert np.array_equal(sent.tokens, read.tokens)
        assert np.array_equal(sent.handles, read.handles)
        assert (sent.complete, sent.twice) == (read.complete, read.twice)
    sent = [len(each.tokens) for each in lists]
    values = [[each[number] for each in own] for number in range(N_PASSES)]
    assert sent == [sum(each is not None and column.count(each) == 1 for each in column) for column in values]


def pass_list(tokens, handles, complete=None, twice=0):
    """A list with tokens of one byte each."""
    padded = b"".join(bytes([each]) * 16 for each in tokens)
    found = sortable(np.frombuffer(padded, np.uint8).reshape(-1, 16))
    return PassList(found, np.array(handles, np.uint32), len(tokens) if complete is None else complete, twice)


@pytest.mark.parametrize(
    ("lists", "change", "complaint"),
    [
        ([pass_list([1, 1], [0, 1])], bytes, "repeat a token"),
        ([pass_list([2, 1], [0, 1])], bytes, "not sorted"),
        ([pass_list([1, 2], [1, 1])], bytes, "repeat a handle"),
        ([pass_list([1, 2], [0, 3])], bytes, "out of range"),
        ([pass_list([1, 2], [0, 1], complete=1)], bytes, "impossible"),
        ([pass_list([1, 2], [0, 1], complete=3, twice=1)], bytes, "impossible"),
        ([pass_list([1, 2], [0, 1], complete=2**63)], bytes, "impossible"),
        ([pass_list([1, 2], [0, 1])], lambda blob: blob[:-1], "another size"),
        ([pass_list([1, 2], [0, 1])], lambda blob: blob + bytes(20), "another size"),
        ([pass_list([1, 2], [0, 1])], lambda blob: blob[:10], "cut off"),
        ([pass_list([1, 2], [0, 1])], lambda blob: b"\xff" * 8 + blob[8:], "impossible"),
    ],
)
def test_malformed_lists_are_refused(lists, change, complaint):
    """Repeated or unsorted tokens, foreign handles, floods, overflows: the owner is named, nothing else."""
    blob = np.frombuffer(change(encode_lists(lists)), np.uint8)
    with pytest.raises(ProtocolError, match=complaint) as caught:
        decode_lists(blob, 1, 3, "evil")
    assert caught.value.details == {"owner": "evil"}


def chance_list(values):
    """The list of an owner whose persons have these values, under their places."""
    found, first, counts = np.unique(values, return_index=True, return_counts=True)
    tokens = np.zeros((len(found), 16), np.uint8)
    tokens[:, 8:] = (found.astype(">u8") + 2**56).view(np.uint8).reshape(-1, 8)
    alone = counts == 1
    handles = first[alone].astype(np.uint32)
    return PassList(sortable(tokens[alone]), handles, len(values), int(np.count_nonzero(counts == 2)))


@pytest.mark.parametrize(
    ("n_values", "rare", "n_common", "at_most"),
    [
        (40_000, 0.0, 1000, 1.5),
        (40_000, 0.0, 0, 1.5),
        # Values that many persons have: ambiguous ones hide how often different persons agree.
        (5_000, 0.0, 1000, 3.5),
        (5_000, 0.8, 1000, 4.0),
        (5_000, 0.8, 0, 1.0 + 1e-6),
    ],
)
def test_false_links_are_estimated_and_never_understated(n_values, rare, n_common, at_most):
    """Two owners, values by chance, three in ten written wrongly at one: it is known who is who.

    Args:
        rare: How unequal the values are: value n has a frequency in proportion to 1 / n^rare.
    """
    n, draw = 2_000, np.random.default_rng(18)
    frequencies = 1 / np.arange(1, n_values + 1) ** rare
    frequencies /= frequencies.sum()
    true, estimated, understated = 0, 0.0, 0
    for _ in range(20):
        values, wrong = draw.choice(n_values, (2, 2 * n - n_common), p=frequencies)
        at_second = np.arange(len(values))[n - n_common :]
        second = np.where(draw.random(n) < 0.3, wrong[at_second], values[at_second])
        lists = [[chance_list(values[:n])], [chance_list(second)]]
        linked = link_passes(lists, [n, n])
        (found,) = match_quality(["a"], lists, linked).passes
        truth = np.concatenate([np.arange(n), at_second])
        false = int(np.count_nonzero(truth != truth[linked.person]))
        true, estimated = true + false, estimated + float(found.false_links)
        understated += found.false_links_most < false
    assert understated <= 2
    assert 0.9 * true <= estimated <= at_most * true


@pytest.mark.parametrize(
    ("successes", "trials", "expected"),
    [
        (0, 0, ()),
        # Newcombe (1998), Statistics in Medicine 17, 857-872, table I, method 3.
        (81, 263, ("0.307985", "0.2553", "0.3662")),
        (15, 148, ("0.101351", "0.0624", "0.1605")),
        (0, 20, ("0", "0", "0.1611")),
        (1, 29, ("0.034483", "0.0061", "0.1718")),
        (20, 20, ("1", "0.8389", "1")),
    ],
)
def test_the_interval_of_an_agreement(successes, trials, expected):
    """As published, to four decimals; an agreement that does not follow from its counts is refused."""
    found = wilson_interval(successes, trials)
    assert len(found) == len(expected)
    assert all(
        abs(each - Decimal(value)) <= Decimal("0.00006") for each, value in zip(found, expected, strict=True)
    )


def test_an_agreement_that_was_made_up_is_refused():
    """Owners and readers decode what the aggregator states: it has to follow from the counts beside it."""
    people = [(n, n, n) for n in range(8)]
    lists = [lists_of(people, range(8)), lists_of([(n, 9, n % 7) for n in range(8)], range(8))]
    quality = match_quality(["a", "b", "c"], lists, link_passes(lists, [8, 8]))
    first = quality.passes[0]
    # The third pass tells six of the eight apart at the second owner.
    assert (first.linked, first.agreeing, first.disagreeing) == (8, 6, 0)
    assert "agreement of later passes 100.00 % (60.96 % to 100.00 %)" in pass_text(first)
    with pytest.raises(ValueError, match="does not follow from its counts"):
        replace(first, agreement=(Decimal(1), Decimal(1), Decimal(1)))
