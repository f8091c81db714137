"""Records of few values are counted: what they promise, and that each gets what is its own."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from operator import eq, lt
from threading import Event, current_thread, main_thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from common.model.privacy import rank_loss
from common.model.schema import Attribute, AttributeType, CategoryOrder
from owner_node.masking import engine, rank_noise
from owner_node.masking import order as module
from owner_node.masking import rank_noise as assignment
from owner_node.masking.noise import shared_laplace
from owner_node.masking.order import CountedRecords, SortedRecords, are_counted, count_with_random_ties
from owner_node.masking.rank_noise import noise_scale
from owner_node.masking.tasks import AttributeTask
from owner_node.values.taxonomy import Taxonomy
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute
from tests.properties.test_rank_noise import changes, largest_log_ratio

BAD = 1e-4
N_VALUES = 4
TABLES = st.lists(st.integers(0, N_VALUES - 1), min_size=2, max_size=12)
TIES = st.lists(st.sampled_from([0, 1, 255]), min_size=12, max_size=12)
LABELS = ("d", "a", "c", "b")
BY_FREQUENCY = Attribute(
    "kind", AttributeType.CATEGORY, 0, 3, categories=LABELS, order=CategoryOrder.FREQUENCY
)
BY_MEANING = Attribute("kind", AttributeType.CATEGORY, 0, 3, categories=LABELS, taxonomy="a" * 64)
MEANING = Taxonomy((("*", "x", "d"), ("*", "x", "y", "a"), ("*", "c"), ("*", "z", "b")))
AGE = Attribute("age", AttributeType.INTEGER, -20, -17)


def counted(values: Sequence[int], ties: np.ndarray) -> CountedRecords:
    """Records, counted with the given numbers."""
    attribute = Attribute("age", AttributeType.INTEGER, -3, N_VALUES - 4)
    left = iter(ties.tolist())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "tie_breakers", lambda n, _bits: np.array([next(left) for _ in range(n)]))
        patch.setattr(module, "RECORDS_PER_BLOCK", 5)
        return count_with_random_ties(np.array(values) - 3, attribute, SeededBits(1))


def middles(values: Sequence[int], ties: np.ndarray) -> Iterator[Decimal]:
    """The middle of the positions of all records with the key of each, by the definition."""
    keys = list(zip(values, ties.tolist(), strict=True))
    for key in keys:
        ahead, beside = (sum(which(other, key) for other in keys) for which in (lt, eq))
        yield ahead + Decimal(beside - 1) / 2


@settings(max_examples=50, deadline=None)
@given(TABLES, TIES)
def test_counted_records_share_the_middle_of_their_positions(values, drawn):
    """Those that agree in value and number; every value is counted."""
    ties = np.array(drawn[: len(values)], dtype=np.uint8)
    found = counted(values, ties)
    expected = [int(2 * middle) for middle in middles(values, ties)]
    assert found.positions(slice(0, len(values))).tolist() == expected
    assert found.counts.tolist() == [values.count(value) for value in range(N_VALUES)]


@settings(max_examples=25, deadline=None)
@given(TABLES, TIES, st.sampled_from(["0.03", "0.2", "1"]))
def test_the_loss_of_a_counted_record_is_twice_its_move(values, drawn, rank_noise):
    """Whatever is changed to whatever: exactly 2d/t, and never more than what is stated for all n."""
    n, ties = len(values), np.array(drawn[: len(values)], dtype=np.uint8)
    scale, stated = noise_scale(Decimal(rank_noise), n), rank_loss(Decimal(rank_noise), 1)
    before, places = counted(values, ties).positions(slice(0, n)), list(middles(values, ties))
    for (place,), changed in changes(values, 1):
        moved = abs(list(middles(changed, ties))[place] - places[place])
        after = counted(changed, ties).positions(slice(0, n))
        loss = largest_log_ratio(before, after, CountedRecords.steps * scale)
        assert abs(loss - 2 * moved / scale) < Decimal("1e-20")
        assert moved <= n - 1
        assert loss <= stated


@pytest.mark.parametrize(
    ("n_values", "n_records", "scale", "whether"),
    [
        (256, 2**16, 256, True),
        (256, 2**16, 255, False),
        (257, 10**7, 10**7, False),
        (4, 1024, 4, True),
        (4, 1023, 4, False),
        (256, 2**16 - 1, 256, False),
    ],
)
def test_what_is_counted_depends_on_public_numbers(n_values, n_records, scale, whether):
    """Values few enough for keys and counts, noise wide enough for what shares a position."""
    assert are_counted(n_values, n_records, scale) is whether


@pytest.mark.parametrize(("upper", "is_counted"), [(3, True), (4, False)])
@pytest.mark.parametrize("largest", [0, 3])
def test_values_do_not_decide_whether_records_are_counted(monkeypatch, upper, is_counted, largest):
    """The declared domain does, however few of its values there are."""
    called = []

    def spied(values: np.ndarray, attribute: Attribute, bits: SeededBits) -> CountedRecords:
        called.append(attribute)
        return count_with_random_ties(values, attribute, bits)

    monkeypatch.setattr(engine, "count_with_random_ties", spied)
    values = np.random.default_rng(2).integers(0, largest + 1, 1200)
    attribute = Attribute("age", AttributeType.INTEGER, 0, upper)
    task = AttributeTask(attribute, Decimal(1), 3, "idp-joint", rank_noise=Decimal("0.03"))
    mask_attribute(values, task, SeededBits(1))
    assert bool(called) is is_counted


@pytest.mark.parametrize("mechanism", ["dp-hist", "idp-joint"])
@pytest.mark.parametrize(
    ("attribute", "taxonomy"),
    [
        (AGE, None),
        (Attribute("code", AttributeType.INTEGER, 2**62 - 4, 2**62 - 1), None),
        (BY_FREQUENCY, None),
        (BY_MEANING, MEANING),
    ],
)
def test_counted_records_keep_their_values_where_there_is_next_to_no_noise(
    monkeypatch, attribute, taxonomy, mechanism
):
    """Counted block by block, in whatever order: what was counted under a record goes back to it."""
    for where in (rank_noise, assignment):
        monkeypatch.setattr(where, "POSITIONS_PER_BLOCK", 1000)
    monkeypatch.setattr(module, "RECORDS_PER_BLOCK", 1000)
    monkeypatch.setattr(engine, "are_counted", lambda *_: True)
    values = np.random.default_rng(4).choice(4, 10_007, p=[0.1, 0.6, 0.05, 0.25]) + attribute.lower
    k = None if mechanism == "dp-hist" else 3
    task = AttributeTask(
        attribute, Decimal(10**6), k, mechanism, taxonomy=taxonomy, rank_noise=Decimal("1e-9")
    )
    masked = mask_attribute(values, task, SeededBits(1)).by_record()
    assert np.count_nonzero(masked != values) < 100


@pytest.mark.parametrize("rare", [0, 1])
def test_counted_records_move_as_sorted_ones_do(monkeypatch, rare):
    """A rare value before a frequent one, or behind it, is as often lost; first positions would be seen."""
    n, w = 40_000, Decimal("0.01")
    values = np.full(n, 1 - rare)
    values[::100] = rare
    attribute = Attribute("b", AttributeType.BOOLEAN, 0, 1)
    task = AttributeTask(attribute, Decimal(10**5), None, "dp-hist", rank_noise=w)
    assert are_counted(2, n, noise_scale(w, n))
    lost = {}
    for way, whether in (("counted", True), ("sorted", False)):
        monkeypatch.setattr(engine, "are_counted", lambda *_, whether=whether: whether)
        masked = [mask_attribute(values, task, SeededBits(seed)).by_record() for seed in range(30)]
        lost[way] = np.mean([np.mean(each[::100] != rare) for each in masked])
    assert abs(lost["counted"] - lost["sorted"]) < 0.02, lost


def test_noise_that_another_thread_failed_to_draw_is_an_error(monkeypatch):
    """What stood in memory before is no noise."""
    monkeypatch.setattr(engine, "DRAWN_ASIDE", 1)
    monkeypatch.setattr(rank_noise, "DRAWS_PER_BLOCK", 10)
    failed = Event()

    def failing_aside(n: int, scale: int, bits: SeededBits, integer: type[np.int32]) -> np.ndarray:
        if current_thread() is main_thread():
            return shared_laplace(n, scale, bits, integer)
        failed.set()
        raise OSError("no random bits")

    def afterwards(values: np.ndarray, attribute: Attribute, bits: SeededBits) -> CountedRecords:
        assert failed.wait(30)
        return count_with_random_ties(values, attribute, bits)

    monkeypatch.setattr(rank_noise, "shared_laplace", failing_aside)
    monkeypatch.setattr(engine, "count_with_random_ties", afterwards)
    task = AttributeTask(AGE, Decimal(1), 3, "idp-joint", rank_noise=Decimal("0.03"))
    with pytest.raises(OSError, match="no random bits"):
        mask_attribute(np.full(2000, -20), task, SeededBits(1))


def test_every_counted_record_draws_a_number_of_its_own():
    """All 256 numbers as often, and those of neighbours have nothing to do with each other."""
    attribute = Attribute("a", AttributeType.INTEGER, 4, 4)
    keys = count_with_random_ties(np.full(2**16, 4), attribute, SeededBits(3)).keys
    assert stats.chisquare(np.bincount(keys, minlength=256)).pvalue > BAD
    for apart in (1, 8):
        steps = np.bincount((keys[apart:] - keys[:-apart]) % 256, minlength=256)
        assert stats.chisquare(steps).pvalue > BAD


def test_positions_of_the_largest_fragment():
    """Where it is sorted; no type is too narrow for them."""
    last = 2**28
    found = SortedRecords(np.arange(0)).positions(slice(last - 2, last))
    assert found.tolist() == [last - 2, last - 1]
