"""Any grid of owners and persons, from token lists to the released table, against plain Python sets."""

from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aggregator.release.linking import LinkingResult, link
from common.arrays import random_order
from common.canonical import digest
from common.errors import ConflictError, UnusableDataError
from common.model.fragment import Addendum, contradictions, n_records
from common.model.plan import Linking, Plan
from owner_node.release.product import read_selection
from tests.fakes.releases import by_token, joined, make_plan, small_workspace, through_file

NAMES = ("age", "income", "dose")
PERSONS = range(16)
OWNERS = "abcd"


@dataclass(frozen=True)
class Grid:
    """A plan, and which persons every owner holds."""

    plan: Plan
    held: dict[str, frozenset[int]]

    def holders(self, group: int, person: int) -> list[str]:
        """Return the owners of a group that hold a person, in the plan's order."""
        return [owner for owner in self.plan.owners_of(group) if person in self.held[owner]]

    def n_holders(self, group: int, persons: set[int]) -> list[int]:
        """Return how many owners of a group hold each of some persons."""
        return [len(self.holders(group, person)) for person in persons]

    def persons_of(self, group: int) -> set[int]:
        """Return everybody whom a group holds."""
        return set().union(*(self.held[owner] for owner in self.plan.owners_of(group)))

    @property
    def common(self) -> set[int]:
        """Everybody whom all groups hold."""
        return set.intersection(*(self.persons_of(group) for group in range(self.plan.n_groups)))


@st.composite
def grids(draw: Any) -> Grid:
    """Groups of owners that may be in several; often the same persons everywhere, often not."""
    owner_sets = st.sets(st.sampled_from(OWNERS), min_size=1, max_size=3).map(sorted)
    groups = draw(st.lists(owner_sets, min_size=1, max_size=3, unique_by=tuple))
    most = draw(st.integers(1, max(map(len, groups))))
    intersects = len(groups) > 1 and draw(st.booleans())
    plan = make_plan([([NAMES[index]], owners) for index, owners in enumerate(groups)])
    linking = Linking(True, most, *(("intersect", draw(st.integers(1, 6))) if intersects else ()))
    everybody = draw(st.sets(st.sampled_from(PERSONS), min_size=3))
    held = {}
    for owner in plan.owners:
        if draw(st.booleans()):
            held[owner] = frozenset(everybody)
        else:
            held[owner] = frozenset(draw(st.sets(st.sampled_from(PERSONS), min_size=3)))
    return Grid(replace(plan, linking=linking), held)


def token(person: int) -> bytes:
    """Return a person's token; some end in zeros."""
    return bytes([person * 7 % 16, person]).ljust(16, b"\0")


def token_list(persons: Any) -> np.ndarray[Any, Any]:
    """Return tokens in the order of the persons."""
    return np.frombuffer(b"".join(map(token, persons)), dtype=np.uint8).reshape(-1, 16)


def linked(grid: Grid) -> LinkingResult:
    """Link a grid as its owners' lists say."""
    lists = {owner: token_list(sorted(held, key=token)) for owner, held in grid.held.items()}
    return link(grid.plan, {owner: len(held) for owner, held in grid.held.items()}, lists)


def value(owner: str, name: str, person: int) -> int:
    """Return what an owner holds of a person."""
    return (OWNERS.index(owner) * 5 + NAMES.index(name)) * 16 % 100 + person % 16


@settings(max_examples=120, deadline=None)
@given(grids())
def test_what_linking_finds_is_what_sets_find(grid: Grid) -> None:
    """Verdict, counts, multiples, common persons and selections are those of a naive oracle, on any grid."""
    plan, groups = grid.plan, range(grid.plan.n_groups)
    same = all(grid.persons_of(group) == grid.persons_of(0) for group in groups)
    wanted = grid.common if plan.linking.intersects else set().union(*map(grid.persons_of, groups))
    stops = not same and not plan.linking.intersects
    stops |= not same and len(wanted) < plan.linking.min_common
    multiples = tuple(max(grid.n_holders(group, wanted), default=0) for group in groups)
    kept = {owner: held & wanted for owner, held in grid.held.items()}
    if not stops and min(map(len, kept.values())) < 3:
        with pytest.raises(UnusableDataError, match="k = 3"):
            linked(grid)
        return
    if stops or max(multiples) > plan.linking.max_overlap:
        with pytest.raises(ConflictError):
            linked(grid)
        return
    found = linked(grid)
    assert found.records == {owner: len(held) for owner, held in kept.items()}
    assert found.multiples == (multiples if plan.linking.max_overlap > 1 else ())
    assert found.common == (None if same else len(wanted))
    for owner, bits in found.selections.items():
        chosen = np.unpackbits(np.frombuffer(bits, np.uint8))[: len(grid.held[owner])]
        persons = sorted(grid.held[owner], key=token)
        assert {person for person, bit in zip(persons, chosen, strict=True) if bit} == kept[owner]
    assert bool(found.selections) is not same
    assert list(contradictions(plan, addendum(plan, found))) == []


def addendum(plan: Plan, found: LinkingResult) -> Addendum:
    """Return what linking found as it is signed."""
    return Addendum(
        plan.release, plan.digest, found.kind, dict(found.records), found.matches, found.multiples,
        found.released, found.common, {owner: digest(bits) for owner, bits in found.selections.items()},
    )  # fmt: skip


def _exact(value: object) -> object:
    """Return the number that a double of a release stands for."""
    return Decimal(repr(value)) if isinstance(value, float) else value


@settings(max_examples=40, deadline=None)
@given(grids(), st.integers(0, 2**32), st.sampled_from([500, 1 << 30]))
def test_join_is_the_inverse_of_fragmenting(
    tmp_path_factory: Any, grid: Grid, seed: int, memory: int
) -> None:
    """Every person is released with what its owners hold, as often as the group with most of it holds it.

    The memory does not show in what is released.
    """
    try:
        found = linked(grid)
    except (ConflictError, UnusableDataError):
        assume(False)
    plan, rng = grid.plan, np.random.default_rng(seed)
    stated, folder = addendum(plan, found), tmp_path_factory.mktemp("grid")
    parts = {owner: fragment(folder, grid, owner, found, stated, rng) for owner in plan.owners}
    table = joined(plan, parts, n_records(plan, stated), small_workspace(folder, memory))
    names = [each.name for each in plan.attributes]
    columns = ([_exact(value) for value in table.column(name).to_pylist()] for name in names)
    got = Counter(zip(*columns, strict=True))
    assert got == Counter(tuple(record[name] for name in names) for record in expected(grid, found))


def fragment(
    folder: Any, grid: Grid, owner: str, found: LinkingResult, stated: Addendum, rng: np.random.Generator
) -> Any:
    """Return an owner's decoded fragment, its records in any order, those selected that linking selected."""
    persons = [int(each) for each in rng.permutation(sorted(grid.held[owner]))]
    if found.selections:
        order = sorted(persons, key=token)
        bits = read_selection(
            found.selections[owner], len(order), stated.records[owner], stated.selections[owner]
        )
        chosen = {person for person, bit in zip(order, bits, strict=True) if bit}
        persons = [person for person in persons if person in chosen]
    plan, own = grid.plan, grid.plan.assignment_of(owner)
    columns = {
        each.name: np.array([value(owner, each.name, person) for person in persons], dtype=np.int64)
        for each in own.attributes
    }
    tokens = token_list(persons) if plan.n_groups > 1 else None
    order_of = by_token(tokens) if tokens is not None else random_order(len(persons))
    return through_file(folder / owner, plan, own, columns, order_of, tokens)


def expected(grid: Grid, found: LinkingResult) -> list[dict[str, Any]]:
    """Return the released records, person by person."""
    plan, records = grid.plan, []
    persons = grid.common if plan.n_groups > 1 else grid.persons_of(0)
    for person in persons:
        holders = [grid.holders(group, person) for group in range(plan.n_groups)]
        for index in range(max(map(len, holders))):
            record: dict[str, Any] = {}
            for task in (task for task in plan.tasks):
                of_group = holders[task.group]
                if task.owner == of_group[index % len(of_group)]:
                    name = task.attributes[0].name
                    units = value(task.owner, name, person)
                    record[name] = units if name == "age" else _decimal(name, units)
            records.append(record)
    return records


def _decimal(name: str, units: int) -> Any:
    return Decimal(units).scaleb(-{"income": 3, "dose": 9}[name])
