"""Masking whole columns and tables: shapes at the edge, and what is refused before anything is spent."""

from decimal import Decimal
from itertools import combinations

import numpy as np
import pytest

from common.errors import DataError, TesseraError, UnusableDataError, UsageError
from common.model.schema import Attribute, AttributeType, CategoryOrder
from owner_node.masking import mask
from owner_node.masking.arrays import SystemBits
from owner_node.masking.engine import DRAWN_ASIDE
from owner_node.masking.tasks import AttributeTask, check_table
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute, mask_table
from tests.oracles import masking as oracle

VERY_LARGE_EPSILON = Decimal(10**6)
MECHANISMS = pytest.mark.parametrize("mechanism", ["dp-ir", "idp-ls", "idp-cbls", "idp-joint"])


def integer(name="age", lower=0, upper=100):
    """An integer attribute."""
    return Attribute(name, AttributeType.INTEGER, lower, upper)


def task(attribute=None, epsilon=Decimal(1), k=3, mechanism="idp-joint", g=1):
    """A task with the parts that a test is about."""
    return AttributeTask(attribute or integer(), epsilon, k, mechanism, g)


@MECHANISMS
def test_almost_without_noise_every_record_gets_its_clusters_centroid(mechanism):
    """Record order is restored, all records of a cluster share one value, L is taken off and put back."""
    values = np.random.default_rng(4).integers(-500, -100, 1007)
    chosen = task(integer(lower=-500, upper=-100), VERY_LARGE_EPSILON, 50, mechanism)
    masked = mask_attribute(values, chosen, SeededBits(1)).by_record()
    cut = oracle.clusters(values.tolist(), 50)
    total = oracle.trimmed_sum if mechanism in ("idp-cbls", "idp-joint") else sum
    centroids = np.array([total(cluster) / len(cluster) for cluster in cut])
    expected = centroids[oracle.cluster_of_record(values.tolist(), 50)]
    assert np.abs(masked - expected).max() <= 0.5 + 1e-3


@MECHANISMS
@pytest.mark.parametrize(
    "values",
    [[7] * 3, [7] * 5, [7] * 100, [0, 100] * 50, [0] * 50 + [100] * 50, [0] * 3, [100] * 3, list(range(101))],
    ids=[
        "n = k",
        "n = 2k - 1",
        "all equal",
        "two values",
        "two halves",
        "lower end",
        "upper end",
        "all values",
    ],
)
def test_edges_of_shape_and_domain(mechanism, values):
    """Whatever the shape: integers within the domain, and every value shared by at least k records."""
    column = np.array(values)
    masked = mask_attribute(column, task(mechanism=mechanism), SeededBits(2)).by_record()
    assert masked.dtype == np.int64
    assert masked.size == column.size
    assert masked.min() >= 0
    assert masked.max() <= 100
    assert np.unique(masked, return_counts=True)[1].min() >= 3


@MECHANISMS
def test_a_single_category_stays_what_it_is(mechanism):
    """A domain of one value has nothing to protect and nothing to lose."""
    only = Attribute("ward", AttributeType.CATEGORY, 0, 0, categories=("A",))
    assert (
        mask_attribute(np.zeros(9, dtype=np.int64), task(only, mechanism=mechanism), SeededBits(3))
        .by_record()
        .tolist()
        == [0] * 9
    )


@MECHANISMS
def test_the_list_is_the_same_length_as_the_clusters_and_each_entry_given_as_often(mechanism):
    """The two products are kept apart: one value per cluster, one entry per record."""
    values = np.random.default_rng(5).integers(0, 101, 101)
    masked = mask_attribute(values, task(k=10, mechanism=mechanism), SeededBits(4))
    assert masked.released.values.size == 10
    assert int(masked.released.sizes.sum()) == 101
    assert np.array_equal(np.sort(masked.assignment), np.arange(101))


def test_idp_joint_releases_an_ascending_list():
    """Isotonic regression puts the noisy centroids into the order that the true ones have."""
    values = np.random.default_rng(6).integers(0, 101, 600)
    released = mask_attribute(values, task(epsilon=Decimal("0.1"), k=5), SeededBits(5)).released.values
    assert np.all(np.diff(released) >= 0)


@pytest.mark.parametrize("mechanism", ["dp", "idp"])
@pytest.mark.parametrize("values", [[7], [0, 100], [100] * 50, list(range(101))])
def test_without_clusters_every_record_has_a_value_of_its_own(mechanism, values):
    """A single record is enough; equal records do not share their noise, and all stay in the domain."""
    column = np.array(values)
    masked = mask_attribute(column, task(k=None, mechanism=mechanism), SeededBits(12))
    assert masked.by_record().size == column.size
    assert masked.by_record().min() >= 0
    assert masked.by_record().max() <= 100
    calm = task(epsilon=VERY_LARGE_EPSILON, k=None, mechanism=mechanism)
    assert np.abs(mask_attribute(column, calm, SeededBits(13)).by_record() - column).max() <= 1
    if column.size == 50:
        assert np.unique(masked.by_record()).size > 1


@pytest.mark.parametrize("mechanism", ["dp", "idp"])
def test_many_records_are_drawn_in_two_threads(mechanism):
    """All blocks have noise of their own, equal bits give equal values, and every record gets its own."""
    column = np.full(DRAWN_ASIDE, 50)
    wide = task(integer(upper=10**6), k=None, mechanism=mechanism)
    seeded = [mask_attribute(column, wide, SeededBits(12)).by_record() for _ in range(2)]
    assert np.array_equal(seeded[0], seeded[1])
    for masked in (seeded[0], mask_attribute(column, wide, SystemBits()).by_record()):
        inner = [part[(part > 0) & (part < 10**6)] for part in np.split(masked, 4)]
        for first, second in combinations(inner, 2):
            assert np.intersect1d(first, second).size < first.size / 2
    ramp = np.arange(column.size)
    calm = task(integer(upper=column.size), Decimal(10**8), None, mechanism)
    assert np.abs(mask_attribute(ramp[::-1], calm, SeededBits(13)).by_record() - ramp[::-1]).max() <= 1


def test_idp_cbls_leaves_tied_clusters_as_they_are():
    """S(C) = 0 means that no change of one record moves the trimmed sum: there is nothing to hide in it."""
    values = np.repeat([10, 40, 90], 5)
    assert mask_attribute(values, task(k=5, mechanism="idp-cbls"), SeededBits(14)).by_record().tolist() == [
        *[10] * 5, *[40] * 5, *[90] * 5,
    ]  # fmt: skip


@pytest.mark.parametrize("g", [1, 2, 5])
def test_k_of_twice_g_and_one(g):
    """The smallest clusters that g records per person allow, with the remainder in the last."""
    values = np.random.default_rng(10).integers(0, 101, 2 * (2 * g + 1) + 1)
    for mechanism in ("idp-cbls", "idp-joint"):
        masked = mask_attribute(values, task(k=2 * g + 1, mechanism=mechanism, g=g), SeededBits(15))
        assert masked.released.sizes.tolist() == [2 * g + 1, 2 * g + 2]


def test_ten_thousand_categories():
    """Sums of indices of a very long list of labels stay exact and within it."""
    labels = tuple(f"c{index}" for index in range(10_000))
    codes = Attribute("code", AttributeType.CATEGORY, 0, 9999, categories=labels)
    values = np.random.default_rng(11).integers(0, 10_000, 1000)
    for mechanism, k in (("dp", None), ("dp-ir", 10), ("idp-cbls", 10), ("idp-joint", 10)):
        masked = mask_attribute(values, task(codes, k=k, mechanism=mechanism), SeededBits(16)).by_record()
        assert 0 <= masked.min() <= masked.max() <= 9999


def test_frequency_order_is_internal():
    """Categories come and go as declared indices; with hardly any noise pure clusters keep their category."""
    labels = ("a", "b", "c", "d")
    column = np.repeat(np.array([0, 3, 2]), [10, 30, 20])[np.random.default_rng(7).permutation(60)]
    by_frequency = Attribute(
        "ward", AttributeType.CATEGORY, 0, 3, categories=labels, order=CategoryOrder.FREQUENCY
    )
    masked = mask_attribute(column, task(by_frequency, VERY_LARGE_EPSILON, 10), SeededBits(6)).by_record()
    assert masked.tolist() == column.tolist()


@pytest.mark.parametrize("fewest_in_threads", [0, 501])
def test_tables_keep_their_columns_and_need_no_source_of_bits(monkeypatch, fewest_in_threads):
    """Attributes masked one after the other or in threads land in their own columns, in task order."""
    monkeypatch.setattr(mask, "FEWEST_IN_THREADS", fewest_in_threads)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    generator = np.random.default_rng(8)
    names = [f"attribute {index}" for index in range(12)]
    columns = {
        name: generator.integers(index * 1000, index * 1000 + 101, 500) for index, name in enumerate(names)
    }
    tasks = [task(integer(n, i * 1000, i * 1000 + 100), VERY_LARGE_EPSILON) for i, n in enumerate(names)][
        ::-1
    ]
    masked = mask_table(columns, tasks)
    assert list(masked) == names[::-1]
    for name in names:
        assert np.abs(masked[name] - columns[name]).max() <= 5


def test_two_masks_of_a_table_differ():
    """The noise of a release is drawn from the operating system, never from a seed."""
    columns = {"age": np.arange(100)}
    chosen = [task(integer(upper=10**9), Decimal("0.1"))]
    assert mask_table(columns, chosen)["age"].tolist() != mask_table(columns, chosen)["age"].tolist()


def test_the_remainder_joins_the_last_cluster():
    """Almost without noise every record gets a value near its own, the last ones as well."""
    values = np.random.default_rng(9).permutation(53) * 10
    wide = integer(upper=10**4)
    masked = mask_attribute(values, task(wide, VERY_LARGE_EPSILON), SeededBits(7)).by_record()
    assert np.abs(masked - values).max() <= 30


COLUMN = {"age": np.arange(50)}


@pytest.mark.parametrize(
    ("columns", "tasks", "error", "words"),
    [
        ({"age": np.arange(9)}, [task(k=10)], UnusableDataError, "9 records, k = 10: at least 10 are needed"),
        ({"age": np.empty(0, dtype=np.int64)}, [task()], UnusableDataError, "0 records, k = 3"),
        (COLUMN, [task(k=2)], UsageError, "takes k of at least 3, k = 2 is given"),
        (COLUMN, [task(k=4, g=2)], UsageError, "takes k of at least 5"),
        (COLUMN, [task(k=4, g=2, mechanism="idp-cbls")], UsageError, "takes k of at least 5"),
        (COLUMN, [task(k=None)], UsageError, "no k is given"),
        (COLUMN, [task(mechanism="dp")], UsageError, "takes no k"),
        (
            {"age": np.empty(0, dtype=np.int64)},
            [task(k=None, mechanism="idp")],
            UnusableDataError,
            "0 records",
        ),
        (COLUMN, [task(integer(upper=2**60), k=None, mechanism="dp")], UnusableDataError, "63 bits"),
        (COLUMN, [task(integer(upper=2**58), mechanism="idp-cbls")], UnusableDataError, "63 bits"),
        (COLUMN, [task(mechanism="ir")], UsageError, "unknown mechanism 'ir'"),
        (COLUMN, [task(epsilon=Decimal(0))], UsageError, "epsilon must be positive"),
        (COLUMN, [task(epsilon=Decimal("NaN"))], UsageError, "epsilon must be positive"),
        (COLUMN, [task(mechanism="idp-most")], UsageError, "unknown mechanism 'idp-most'"),
        (COLUMN, [task(), task()], UsageError, "masked twice"),
        ({}, [task()], DataError, "no column for: age"),
        (COLUMN | {"pay": np.arange(49)}, [task(), task(integer("pay"))], DataError, "number of records"),
        ({"age": np.arange(50.0)}, [task()], DataError, "not a column of 64-bit integers"),
        ({"age": np.arange(103)}, [task()], DataError, "2 of 103 values are outside"),
        ({"age": np.arange(-3, 50)}, [task()], DataError, "3 of 53 values are outside"),
        (COLUMN, [task(integer(upper=2**62))], UnusableDataError, "do not fit into 63 bits"),
        (COLUMN, [task(epsilon=Decimal(1).scaleb(-19))], UnusableDataError, "do not fit into 63 bits"),
        (
            COLUMN,
            [task(epsilon=Decimal("1234567.123456789012345"), mechanism="idp-ls")],
            UsageError,
            "too many",
        ),
    ],
)
def test_what_can_be_foreseen_is_refused_before_anything_is_spent(columns, tasks, error, words):
    """Masking follows the spend, so every foreseeable reason to fail belongs to the check."""
    with pytest.raises(TesseraError, match=words) as caught:
        check_table(columns, tasks)
    assert type(caught.value) is error
