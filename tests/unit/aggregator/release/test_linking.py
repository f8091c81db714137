"""Linking: counts and verdicts against plain Python sets."""

import tracemalloc
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.api.answers import most_linked
from aggregator.drive import stages
from aggregator.release.linking import LINKING_BYTES, LinkingResult, link, link_runs
from common.arrays import sortable
from common.errors import ConflictError, ProtocolError, UnusableDataError, UsageError
from common.model.plan import Synthesis
from common.model.schema import most_records
from common.model.task import Modelled
from common.runs import ArrayRun, RunFile
from common.workspace import Workspace
from tests.fakes.releases import by_token, make_plan, random_tokens


def token_list(numbers):
    """Tokens made of numbers, with trailing zero bytes, sorted."""
    tokens = np.zeros((len(numbers), 16), dtype=np.uint8)
    for place, number in enumerate(numbers):
        tokens[place, 0], tokens[place, 1] = divmod(number, 256)
    return tokens[by_token(tokens)]


def grid(owners_per_group):
    """A plan of one attribute per group over a grid of owners named by group and place."""
    names = ["age", "income", "admitted"]
    return make_plan(
        [([names[g]], [f"g{g}o{o}" for o in range(m)]) for g, m in enumerate(owners_per_group)], k=3
    )


people = st.sets(st.integers(0, 14), min_size=3)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_link_finds_what_sets_find(data):
    """Overlaps per pair and lacking records per group equal the naive set oracle on any grid."""
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    plan = grid(shape)
    held = {(task.group, task.owner): data.draw(people) for task in plan.tasks}
    records = {owner: len(each) for (_, owner), each in held.items()}
    tokens = {owner: token_list(sorted(each)) for (_, owner), each in held.items()}

    shared = {}
    for (group, first), theirs in held.items():
        for (other, second), others in held.items():
            if group == other and first < second and theirs & others:
                shared[group, first, second] = len(theirs & others)
    union = set().union(*held.values())
    in_group = {g: set().union(*(e for (h, _), e in held.items() if h == g)) for g, _ in enumerate(shape)}
    lacking = {g: len(union - each) for g, each in in_group.items() if union - each}

    if not shared and not lacking:
        linked = link(plan, records, tokens)
        assert linked.kind == ("equal" if len(shape) > 1 else "disjoint")
        assert linked.records == records
        return
    with pytest.raises(ConflictError) as caught:
        link(plan, records, tokens)
    details = caught.value.details
    assert {(e["group"], *e["owners"]): e["shared"] for e in details["overlaps"]} == shared
    assert {e["group"]: e["lacking"] for e in details["lacking"]} == lacking


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_owners_that_count_together_learn_who_else_has_each_person(data):
    """Every owner gets, person by person in the order of tokens, the place of the owner in each group."""
    shape, size = data.draw(st.sampled_from([(2, 2), (1, 3), (3, 1, 2)])), data.draw(st.integers(9, 40))
    plan = synthetic_grid(shape)
    # Every owner has somebody.
    places = [
        [*range(m), *data.draw(st.lists(st.integers(0, m - 1), min_size=size - m, max_size=size - m))]
        for m in shape
    ]
    held = {
        task.owner: {i for i in range(size) if places[task.group][i] == int(task.owner[-1])}
        for task in plan.tasks
    }
    records = {owner: len(each) for owner, each in held.items()}
    tokens = {owner: token_list(sorted(each)) for owner, each in held.items()}
    runs = {owner: ArrayRun(sortable(each)) for owner, each in tokens.items()}
    linked = link_runs(plan, records, runs, data.draw(st.integers(1, 60)))
    assert linked.kind == "equal"
    for owner, each in held.items():
        assert linked.selections[owner] == bytes(of_group[i] for i in sorted(each) for of_group in places)


def synthetic_grid(shape):
    """The same grid for a synthetic release."""
    plan = grid(shape)
    tasks = tuple(
        replace(task, attributes=(), modelled=Modelled(task.names, plan.epsilon)) for task in plan.tasks
    )
    return replace(plan, tasks=tasks, synthesis=Synthesis(1, (Decimal("0.4"), Decimal("0.6"))))


def test_partners_are_those_of_the_common_persons():
    """Where groups are intersected, partners follow the bits, and speak of the selected persons alone."""
    plan = synthetic_grid((1, 2))
    plan = replace(plan, linking=replace(plan.linking, on_mismatch="intersect", min_common=1))
    persons = {"g0o0": [1, 2, 3, 4], "g1o0": [2, 9], "g1o1": [3, 4, 8]}
    lists = {owner: token_list(each) for owner, each in persons.items()}
    found = link(plan, {owner: len(each) for owner, each in persons.items()}, lists)
    assert (found.kind, dict(found.records)) == ("intersected", {"g0o0": 3, "g1o0": 1, "g1o1": 2})
    bits, partners = found.selections["g0o0"][:1], found.selections["g0o0"][1:]
    chosen = np.unpackbits(np.frombuffer(bits, np.uint8))[:4].astype(bool)
    selected = lists["g0o0"][chosen]
    assert {row.tobytes() for row in selected} == {row.tobytes() for row in token_list([2, 3, 4])}
    at_first = {token_list([2])[0].tobytes()}
    expected = [[0, 0 if row.tobytes() in at_first else 1] for row in selected]
    assert np.frombuffer(partners, np.uint8).reshape(3, 2).tolist() == expected
    assert [len(found.selections[owner]) for owner in ("g1o0", "g1o1")] == [1 + 2, 1 + 4]


@pytest.mark.parametrize("n_tokens", [1, 3, 1000])
def test_everybody_has_one_place_at_all_owners(n_tokens):
    """However few tokens are compared at once; places are in no order of tokens, which owners can make."""
    plan = synthetic_grid((1, 1, 1))
    plan = replace(plan, linking=replace(plan.linking, on_mismatch="union"))
    persons = {"g0o0": range(40), "g1o0": range(20, 70), "g2o0": [5, 69, 99]}
    lists = {owner: token_list(each) for owner, each in persons.items()}
    runs = {owner: ArrayRun(sortable(each)) for owner, each in lists.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("common.runs._FEWEST_RECORDS", 1)
        found = link_runs(plan, {owner: len(each) for owner, each in lists.items()}, runs, n_tokens)
    assert (found.kind, set(found.records.values()), found.matches) == ("united", {71}, ())
    places: dict[bytes, int] = {}
    for owner, tokens in lists.items():
        sent = np.frombuffer(found.selections[owner], ">u4")
        assert len(set(sent.tolist())) == len(tokens)
        for token, place in zip(tokens, sent.tolist(), strict=True):
            assert places.setdefault(token.tobytes(), place) == place
    assert sorted(places.values()) == list(range(71))
    assert [places[token] for token in sorted(places)] != list(range(71))


def test_too_many_persons_together_end_the_release(monkeypatch):
    """Owners' numbers say nothing about all together; nothing is spent."""
    monkeypatch.setattr("aggregator.release.linking.MOST_RECORDS", 5)
    plan = synthetic_grid((1, 1))
    plan = replace(plan, linking=replace(plan.linking, on_mismatch="union"))
    lists = {"g0o0": token_list([1, 2, 3]), "g1o0": token_list([4, 5, 6])}
    with pytest.raises(UnusableDataError, match="6 persons together"):
        link(plan, {"g0o0": 3, "g1o0": 3}, lists)


def test_link_compares_all_sixteen_bytes():
    """Tokens that differ only in trailing zero bytes or the last byte are different persons."""
    plan = grid([2])
    first = np.zeros((3, 16), dtype=np.uint8)
    first[:, 0] = (1, 2, 3)
    second = first.copy()
    second[:, 15] = 1
    linked = link(plan, {"g0o0": 3, "g0o1": 3}, {"g0o0": first, "g0o1": second})
    assert linked.kind == "disjoint"


def test_asserted_without_tokens():
    """Without an identifier nothing is compared, and the result says so."""
    plan = make_plan([(["age"], ["a", "b"])], tokens=False)
    assert link(plan, {"a": 3, "b": 4}, {}).kind == "asserted"


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        (None, "absent"),
        (token_list([1, 2]), "2 tokens, 3 records"),
        (token_list([1, 2, 3])[::-1], "not sorted"),
        (token_list([1, 2, 2]), "more than 1 times"),
    ],
)
def test_malformed_lists_are_refused(tokens, told):
    """A list that is absent, of another length, unsorted or repeating is the peer's fault, and named."""
    plan = grid([1])
    lists = {} if tokens is None else {"g0o0": tokens}
    with pytest.raises(ProtocolError, match=told) as caught:
        link(plan, {"g0o0": 3}, lists)
    assert caught.value.details == {"owner": "g0o0"}


def test_as_many_records_per_person_as_declared():
    """With g = 2 a token may come twice, not three times; between groups it still names one record."""
    plan = make_plan([(["age"], ["a"])], max_records_per_person=2)
    assert link(plan, {"a": 4}, {"a": token_list([1, 1, 2, 2])}).kind == "disjoint"
    with pytest.raises(ProtocolError, match="more than 2 times"):
        link(plan, {"a": 4}, {"a": token_list([1, 2, 2, 2])})
    vertical = make_plan([(["age"], ["a"]), (["income"], ["b"])], max_records_per_person=2)
    lists = {"a": token_list([1, 1, 2, 3]), "b": token_list([1, 1, 2, 3])}
    with pytest.raises(ProtocolError, match="more than 1 times"):
        link(vertical, {"a": 4, "b": 4}, lists)


def test_fewer_than_k_records():
    """Every owner with fewer records than its k is named before anything is spent."""
    plan = make_plan([(["age"], ["a", "b", "c"])], tokens=False, k=5)
    with pytest.raises(UnusableDataError, match="a has 4 records, k = 5; c has 0 records, k = 5") as caught:
        link(plan, {"a": 4, "b": 5, "c": 0}, {})
    assert [each["owner"] for each in caught.value.details["owners"]] == ["a", "c"]


def test_errors_hold_no_token():
    """The conflict names owners and counts, and no token in any spelling."""
    rng = np.random.default_rng(5)
    tokens = random_tokens(rng, 50)
    tokens = tokens[by_token(tokens)]
    plan = grid([2])
    with pytest.raises(ConflictError) as caught:
        link(plan, {"g0o0": 50, "g0o1": 40}, {"g0o0": tokens, "g0o1": tokens[:40]})
    text = f"{caught.value.message}{caught.value.hint}{caught.value.to_document()}"
    assert "g0o0 and g0o1 share 40 persons" in text
    assert not any(each.tobytes().hex()[:8] in text or repr(each.tobytes())[2:8] in text for each in tokens)


def test_intersecting_is_proposed_only_where_persons_are_common():
    """A hint that would end in another refusal is not given; where it helps, it names --min-common."""
    plan = make_plan([(["age"], ["a"]), (["income"], ["b"])])
    for other, proposed in (([4, 5, 6], False), ([3, 4, 5], True)):
        lists = {"a": token_list([1, 2, 3]), "b": token_list(other)}
        with pytest.raises(ConflictError) as caught:
            link(plan, {"a": 3, "b": 3}, lists)
        assert ("--on-mismatch intersect" in caught.value.hint) is proposed
        assert ("--min-common" in caught.value.hint) is proposed


@pytest.mark.parametrize(
    ("shape", "tokens", "proposed"),
    [
        ((2,), {"g0o0": [1, 2, 3], "g0o1": [3, 4, 5]}, "--max-overlap 2)"),
        ((3,), {"g0o0": [1, 2], "g0o1": [1, 2, 3], "g0o2": [2, 3]}, "--max-overlap 3)"),
        ((2, 1), {"g0o0": [1, 2, 3], "g0o1": [3, 4, 5], "g1o0": [1, 2, 3, 4, 5]}, ""),
        ((1, 1), {"g0o0": [1, 2, 3], "g1o0": [2, 3, 4]}, "--on-mismatch intersect"),
    ],
)
def test_nothing_is_proposed_that_a_synthetic_release_refuses(shape, tokens, proposed):
    """Groups count the same persons, each at one owner; one group of owners may share some and pay for it."""
    plan = synthetic_grid(shape)
    lists = {owner: token_list(each) for owner, each in tokens.items()}
    with pytest.raises(ConflictError) as caught:
        link(plan, {owner: len(each) for owner, each in tokens.items()}, lists)
    assert proposed in caught.value.hint
    for option in ("--max-overlap", "--on-mismatch"):
        assert (option in caught.value.hint) is (option in proposed)


@pytest.mark.parametrize("owners_per_group", [(2,), (4,), (1, 1), (2, 2)])
def test_memory_is_a_small_multiple_of_the_tokens(owners_per_group):
    """What linking takes beside the lists themselves is what it is planned with at most."""
    n = 20_000
    plan = grid(owners_per_group)
    numbers = np.random.default_rng(5)
    whole = random_tokens(numbers, n * max(owners_per_group))
    tokens: dict[str, np.ndarray] = {}
    for owners in plan.groups:
        parts = np.array_split(whole, len(owners))
        tokens |= {owner: part[by_token(part)] for owner, part in zip(owners, parts, strict=True)}
    records = {owner: len(each) for owner, each in tokens.items()}
    n_tokens = sum(records.values())
    link(plan, records, tokens)
    runs = {owner: ArrayRun(sortable(each)) for owner, each in tokens.items()}
    for at_once in (n_tokens, n_tokens // 8):
        tracemalloc.start()
        try:
            link_runs(plan, records, runs, at_once)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= LINKING_BYTES * at_once


def outcome(plan, records, runs, n_tokens):
    """What linking finds, or the words and details of its error."""
    try:
        return link_runs(plan, records, runs, n_tokens)
    except (ConflictError, ProtocolError, UnusableDataError) as error:
        return error.to_document()


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    owners_per_group=st.sampled_from([(1,), (3,), (1, 1), (2, 2), (1, 2, 1)]),
    n_persons=st.integers(3, 80),
    share=st.sampled_from([0.5, 0.95, 1.0]),
    max_overlap=st.integers(1, 2),
    intersects=st.booleans(),
    n_tokens=st.integers(1, 60),
)
def test_ranges_of_tokens_do_not_show(
    tmp_path_factory, seed, owners_per_group, n_persons, share, max_overlap, intersects, n_tokens
):
    """However few tokens are compared at once, from memory or from files, linking finds the same."""
    rng, plan = np.random.default_rng(seed), grid(owners_per_group)
    intersects = intersects and plan.n_groups > 1
    linking = replace(
        plan.linking,
        max_overlap=min(max_overlap, max(owners_per_group)),
        on_mismatch="intersect" if intersects else "stop",
        min_common=3 if intersects else 0,
    )
    plan, tokens = replace(plan, linking=linking), random_tokens(rng, n_persons)
    lists = {}
    for owners in plan.groups:
        # Most persons are at one owner of a group, some at several or at none.
        home = rng.integers(0, len(owners), n_persons)
        for place, owner in enumerate(owners):
            held = ((home == place) | (rng.random(n_persons) > share)) & (
                rng.random(n_persons) <= share + 0.4
            )
            lists[owner] = tokens[held][by_token(tokens[held])]
    records = {owner: len(each) for owner, each in lists.items()}
    runs = {owner: ArrayRun(sortable(each)) for owner, each in lists.items()}
    expected = outcome(plan, records, runs, 10**6)
    workspace = Workspace(1 << 20, tmp_path_factory.getbasetemp() / "scratch")
    with pytest.MonkeyPatch.context() as patch, workspace.file() as stream:
        patch.setattr("common.runs._FEWEST_RECORDS", 1)
        spool = RunFile(stream)
        on_disk = {owner: spool.append([run.records], run.records.dtype) for owner, run in runs.items()}
        assert outcome(plan, records, on_disk, n_tokens) == expected


@pytest.mark.parametrize("n_tokens", [1, 2, 5, 100])
def test_a_malformed_list_is_found_wherever_it_is_cut(n_tokens):
    """A list that is unsorted or repeats a token is refused, also if the fault is where a piece begins."""
    plan = grid([2])
    good = token_list(range(20))
    for place in range(19):
        swapped, repeated = good.copy(), good.copy()
        swapped[[place, place + 1]] = good[[place + 1, place]]
        repeated[place + 1] = good[place]
        for wrong, words in ((swapped, "is not sorted"), (repeated, "more than 1 times")):
            runs = {"g0o0": ArrayRun(sortable(wrong)), "g0o1": ArrayRun(sortable(good[:3]))}
            with pytest.raises(ProtocolError, match=words):
                link_runs(plan, {"g0o0": 20, "g0o1": 3}, runs, n_tokens)


def test_what_cannot_be_joined_here_ends_before_anything_is_spent(tmp_path, monkeypatch):
    """Memory and room on the disk are checked when linking has counted the records."""
    plan, linked = grid([2]), LinkingResult("disjoint", {"g0o0": 600_000, "g0o1": 600_000})
    stages._check_workspace(plan, linked, Workspace(10**8, tmp_path / "scratch"))
    with pytest.raises(UsageError, match="memory_limit allows 4 MB"):
        stages._check_workspace(plan, linked, Workspace(4 << 20, tmp_path / "scratch"))
    monkeypatch.setattr(Workspace, "free", lambda _: 1 << 20)
    stages._check_workspace(plan, linked, Workspace(10**9, tmp_path / "scratch"))
    with pytest.raises(UsageError, match=r"scratch is too small: joining writes .* 1 MB are free"):
        stages._check_workspace(plan, linked, Workspace(5 * 10**7, tmp_path / "scratch"))


def test_more_records_than_were_planned_are_bounded():
    """An owner that leaves out incomplete records may have more for some attributes, and not any number."""
    assignment = next(iter(grid((2,)).assignments.values()))
    assert assignment.most_records is None
    planned = most_records(assignment.records_rounded)
    assert planned <= most_linked(assignment) <= 100 * planned
