"""Joining: the inverse of fragmenting, whatever the grid, the types and the order."""

import os
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise, permutations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from aggregator.release.assembly import needed_on_disk
from aggregator.release.joining import align, stack
from aggregator.release.records import fragment_type, joined_type, pack
from common.arrays import random_order
from common.errors import IntegrityError
from common.model.schema import Attribute, AttributeType
from common.release.table import release_schema
from common.release.values import from_units, release_type, to_units
from common.runs import ArrayRun
from common.workspace import Workspace
from tests.fakes.releases import (
    ATTRIBUTES,
    by_token,
    joined,
    make_plan,
    random_columns,
    random_tokens,
    small_workspace,
    through_file,
)

EPOCH = date(1970, 1, 1)


def naive(attribute, units):
    """What a person expects to read for a value in resolution units."""
    match attribute.type:
        case AttributeType.NUMBER:
            return float(Decimal(units).scaleb(-attribute.decimals))
        case AttributeType.DATE:
            return EPOCH + timedelta(days=units)
        case AttributeType.CATEGORY:
            return attribute.categories[units]
        case AttributeType.BOOLEAN:
            return bool(units)
        case _:
            return units


def unshuffled(plan, parts, at_once=10**6):
    """The joined records before they are shuffled."""
    packed = {
        owner: np.concatenate(
            [np.empty(0, fragment_type(plan, own)), *pack(plan, own, parts[owner].to_batches())]
        )
        for owner, own in plan.assignments.items()
    }
    if plan.n_groups == 1:
        return np.concatenate([*stack(plan, {owner: [each] for owner, each in packed.items()})])
    runs = {owner: ArrayRun(each) for owner, each in packed.items()}
    return np.concatenate([*align(plan, runs, at_once)])


def fragmented(tmp_path, rng, n, groups, owners_per_group):
    """A table, its plan, and the decoded fragments of all owners."""
    columns, tokens = random_columns(rng, ATTRIBUTES, n), random_tokens(rng, n)
    grid = [(names, [f"g{g}o{o}" for o in range(owners_per_group[g])]) for g, names in enumerate(groups)]
    plan = make_plan(grid)
    parts = {}
    for _, owners in grid:
        pieces = np.array_split(rng.permutation(n), len(owners))
        for owner, rows in zip(owners, pieces, strict=True):
            assignment = plan.assignment_of(owner)
            own = {a.name: columns[a.name][rows] for a in assignment.attributes}
            keyed = tokens[rows] if len(groups) > 1 else None
            order = by_token(keyed) if keyed is not None else random_order(len(rows))
            path = tmp_path / f"{owner}.arrow"
            parts[owner] = through_file(path, plan, assignment, own, order, keyed)
    return columns, plan, parts


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(4, 300),
    cuts=st.sets(st.integers(1, 5), max_size=3),
    owners=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    memory=st.sampled_from([1500, 20_000, 1 << 20]),
)
def test_join_undoes_fragmenting(tmp_path_factory, seed, n, cuts, owners, memory):
    """On any grid, with any memory, the released records are exactly the fragmented ones, each once."""
    rng = np.random.default_rng(seed)
    names = [each.name for each in ATTRIBUTES]
    ends = [0, *sorted(cuts), len(names)]
    groups = [names[start:stop] for start, stop in pairwise(ends)]
    folder = tmp_path_factory.mktemp("join")
    columns, plan, parts = fragmented(folder, rng, n, groups, owners)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("common.runs._FEWEST_RECORDS", 1 if memory < 1 << 20 else 256)
        table = joined(plan, parts, n, small_workspace(folder, memory))
    table.validate(full=True)
    assert list(folder.glob("scratch/*")) == []
    assert table.schema == release_schema(plan)
    assert table.column("record").to_pylist() == list(range(1, n + 1))
    released = list(zip(*(table.column(each.name).to_pylist() for each in ATTRIBUTES), strict=True))
    expected = [tuple(naive(each, int(columns[each.name][row])) for each in ATTRIBUTES) for row in range(n)]
    assert sorted(released, key=repr) == sorted(expected, key=repr)
    for each in ATTRIBUTES:
        back = to_units(each, table.column(each.name)).to_pylist()
        assert [naive(each, units) for units in back] == table.column(each.name).to_pylist()


def test_the_order_of_owners_does_not_show(tmp_path):
    """Where groups are aligned, the order is that of the tokens, whoever held which part."""
    rng = np.random.default_rng(3)
    n = 40
    columns, tokens = random_columns(rng, ATTRIBUTES[:2], n), random_tokens(rng, n)
    released = []
    for shuffled in (np.arange(n), rng.permutation(n)):
        plan = make_plan([(["age"], ["a", "b"]), (["income"], ["c"])])
        rows = {"a": shuffled[:15], "b": shuffled[15:], "c": rng.permutation(n)}
        parts = {}
        for task in plan.tasks:
            own = {name: columns[name][rows[task.owner]] for name in columns}
            keyed = tokens[rows[task.owner]]
            path = tmp_path / f"{task.owner}.arrow"
            assignment = plan.assignment_of(task.owner)
            parts[task.owner] = through_file(path, plan, assignment, own, by_token(keyed), keyed)
        released.append(unshuffled(plan, parts))
    assert np.array_equal(released[0], released[1])


def test_groups_that_differ_are_refused(tmp_path):
    """Fragments that hold other tokens than each other, or one twice, never become a release."""
    rng = np.random.default_rng(4)
    plan = make_plan([(["age"], ["a", "b"]), (["income"], ["c"])])
    columns, tokens = random_columns(rng, ATTRIBUTES[:2], 30), random_tokens(rng, 30)

    def parts(**rows):
        made = {}
        for task in plan.tasks:
            chosen = np.asarray(rows[task.owner])
            own = {name: columns[name][chosen] for name in columns}
            keyed = tokens[chosen]
            path = tmp_path / f"{task.owner}.arrow"
            assignment = plan.assignment_of(task.owner)
            made[task.owner] = through_file(path, plan, assignment, own, by_token(keyed), keyed)
        return made

    def join(plan, parts, n):
        return joined(plan, parts, n, small_workspace(tmp_path))

    assert join(plan, parts(a=range(10), b=range(10, 20), c=range(20)), 20).num_rows == 20
    with pytest.raises(IntegrityError, match="do not hold the same records"):
        join(plan, parts(a=range(10), b=range(10, 20), c=range(1, 21)), 20)
    with pytest.raises(IntegrityError, match="appears twice in group 0"):
        join(plan, parts(a=range(10), b=range(9, 19), c=range(20)), 20)
    for wrong in (19, 21):
        with pytest.raises(IntegrityError, match="number of records that linking found"):
            join(plan, parts(a=range(10), b=range(10, 20), c=range(20)), wrong)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    persons=st.integers(3, 60),
    at_once=st.integers(1, 50),
)
def test_ranges_do_not_show(tmp_path_factory, seed, persons, at_once):
    """Groups are aligned in the same way, persons with several records too, whatever is held at once."""
    rng = np.random.default_rng(seed)
    plan = make_plan([(["age"], ["a", "b"]), (["income"], ["c", "d"])])
    plan = replace(plan, linking=replace(plan.linking, max_overlap=2))
    tokens, folder = random_tokens(rng, persons), tmp_path_factory.mktemp("ranges")
    parts = {}
    for first, second in (("a", "b"), ("c", "d")):
        at_first = rng.random(persons) < 0.7
        for owner, held in ((first, at_first), (second, ~at_first | (rng.random(persons) < 0.3))):
            rows = np.flatnonzero(held)
            own = plan.assignment_of(owner)
            columns = random_columns(rng, [plan.attribute(each.name) for each in own.attributes], len(rows))
            keyed = tokens[rows]
            parts[owner] = through_file(folder / owner, plan, own, columns, by_token(keyed), keyed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("common.runs._FEWEST_RECORDS", 1)
        in_pieces = unshuffled(plan, parts, at_once)
    assert np.array_equal(in_pieces, unshuffled(plan, parts))


def test_a_record_takes_as_many_bytes_as_its_domains_need(tmp_path):
    """What goes to the scratch folder is counted beforehand: narrow records, and runs of several groups."""
    names = [each.name for each in ATTRIBUTES]
    one, two = make_plan([(names, ["a"])]), make_plan([(names[:1], ["a"]), (names[1:], ["b"])])
    assert joined_type(one).itemsize == 1 + 4 + 2 + 1 + 1 + 4
    assert fragment_type(two, two.assignment_of("a")).itemsize == 16 + 1
    enough, little = Workspace(1 << 30, tmp_path), Workspace(1000, tmp_path)
    assert needed_on_disk(two, {"a": 100, "b": 100}, 100, enough) == 0
    assert needed_on_disk(one, {"a": 100}, 100, little) == 1300
    assert needed_on_disk(two, {"a": 100, "b": 100}, 100, little) == 1300 + 100 * (32 + 13)


def test_types_are_exact():
    """Every attribute type has the release type that users rely on; precision holds the whole domain."""
    schema = release_schema(make_plan([([each.name for each in ATTRIBUTES], ["a"])]))
    assert schema.names[0] == "record"
    assert [field.type for field in schema] == [
        pa.int64(),
        pa.int64(),
        pa.float64(),
        pa.date32(),
        pa.dictionary(pa.int32(), pa.string(), ordered=True),
        pa.bool_(),
        pa.float64(),
    ]
    assert not any(field.nullable for field in schema)
    share = Attribute("share", AttributeType.NUMBER, -5, 5, decimals=3)
    assert release_type(share) == pa.float64()
    wide = Attribute("wide", AttributeType.NUMBER, -(2**63), 2**63 - 1, decimals=18)
    assert release_type(wide) == pa.decimal128(19, 18)
    units = np.array([-(2**63), -1, 0, 2**63 - 1])
    back = to_units(wide, pa.chunked_array([from_units(wide, units)]))
    assert back.to_pylist() == units.tolist()


def test_random_order_is_a_fresh_permutation():
    """Every position comes once, and two calls do not give the same order."""
    for n_records in (0, 1, 2, 1000):
        assert np.array_equal(np.sort(random_order(n_records)), np.arange(n_records))
    assert not np.array_equal(random_order(1000), random_order(1000))


def test_every_order_is_equally_likely_whatever_keys_are_equal(monkeypatch):
    """Keys of one bit are equal most of the time; what decides between them is as random as the keys."""
    draw = os.urandom
    monkeypatch.setattr(
        "common.arrays.os.urandom",
        lambda n: (np.frombuffer(draw(n), dtype=np.uint64) & np.uint64(1 << 63)).tobytes(),
    )
    n_draws = 3000
    found = Counter(tuple(random_order(3).tolist()) for _ in range(n_draws))
    assert set(found) == set(permutations(range(3)))
    assert chisquare(list(found.values())).pvalue > 1e-6
