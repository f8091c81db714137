"""The noise has the distribution it claims, and tests of it would see a wrong scale.

Draws come from fixed seeds, so a test passes always or never. A p-value is called bad below 1e-4; with a
wrong scale it must fall far below that.
"""

from decimal import Decimal

import numpy as np
import pytest
from scipy import stats

from common.model.schema import Attribute, AttributeType
from owner_node.masking import mechanisms as calibration
from owner_node.masking import noise as sampler
from owner_node.masking import noise as shared_scale
from owner_node.masking.clusters import Setting
from owner_node.masking.mechanisms import MECHANISMS, QuantileMechanism, SumMechanism
from owner_node.masking.noise import FEWEST_SHARED, LARGEST_NARROW_SCALE, Law, NoiseTable, discrete_laplace
from owner_node.masking.tasks import AttributeTask
from tests.fakes.bits import SeededBits
from tests.fakes.records import mask_attribute, statistics_of

BAD = 1e-4
HOPELESS = 1e-12
N_DRAWS = 200_000


def probability(x: int, scale: int) -> Decimal:
    """P(X = x) of the discrete Laplace distribution, to 28 digits."""
    q = (Decimal(-1) / scale).exp()
    return (1 - q) / (1 + q) * q ** abs(x)


def probability_above(x: int, scale: int) -> Decimal:
    """P(X > x) for x >= 0."""
    q = (Decimal(-1) / scale).exp()
    return q ** (x + 1) / (1 + q)


def chi_square_exact(draws: np.ndarray, scale: int) -> float:
    """P-value of draws against the exact probabilities; every value with 20 expected draws is a class."""
    reach = 0
    while reach < 200 and probability_above(reach, scale) * draws.size > 20:
        reach += 1
    inside = np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    tail = probability_above(reach, scale)
    expected = [tail, *(probability(x, scale) for x in range(-reach, reach + 1)), tail]
    return float(stats.chisquare(inside, [float(each * draws.size) for each in expected]).pvalue)


def standardised_p_value(noise: np.ndarray, scale: float) -> float:
    """P-value of draws of a large scale against the continuous Laplace distribution they approach."""
    return float(stats.kstest(noise / scale, stats.laplace.cdf).pvalue)


def by_integers(scale: int, bits: SeededBits) -> np.ndarray:
    """Draws as where scales are too large for doubles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "LARGEST_DOUBLE_SCALE", 0)
        return by_products(scale, bits)


def by_products(scale: int, bits: SeededBits) -> np.ndarray:
    """Draws as where elements have scales of their own, or are few."""
    size = FEWEST_SHARED // 2
    drawn = [discrete_laplace(np.full(size, scale), bits) for _ in range(N_DRAWS // size + 1)]
    return np.concatenate(drawn)[:N_DRAWS]


def all_together(scale: int, bits: SeededBits) -> np.ndarray:
    """Draws by tables, as where many elements share a scale."""
    return discrete_laplace(np.full(N_DRAWS, scale), bits)


def in_few_bits(scale: int, bits: SeededBits) -> np.ndarray:
    """Draws of 32 bits, as for positions, where the scale lets them."""
    if scale > LARGEST_NARROW_SCALE:
        return all_together(scale, bits)
    return sampler.shared_laplace(N_DRAWS, scale, bits, np.int32)


WAYS = pytest.mark.parametrize("draw", [by_integers, by_products, all_together, in_few_bits])


@WAYS
@pytest.mark.parametrize("scale", [1, 2, 3, 7, 20])
def test_draws_have_the_exact_probabilities(draw, scale):
    """Chi-square against probabilities computed to 28 digits, zero and the sign included."""
    assert chi_square_exact(draw(scale, SeededBits(scale)), scale) > BAD


@WAYS
@pytest.mark.parametrize(("scale", "claimed"), [(3, 2), (20, 21), (7, 8)])
def test_the_chi_square_sees_a_wrong_scale(draw, scale, claimed):
    """The test above would fail for a scale that is off by as little as five per cent."""
    assert chi_square_exact(draw(scale, SeededBits(scale)), claimed) < HOPELESS


@pytest.mark.parametrize(("scale", "low_bits", "claimed"), [(10, 3, 11), (5, 1, 6), (9, 2, 8)])
def test_low_parts_that_often_go_through_trials_have_the_exact_probabilities(scale, low_bits, claimed):
    """A table with more low bits than are good for it: in up to four of five draws trials decide."""
    drawn, again = sampler._signed(
        NoiseTable.of(Law(scale, low_bits), np.int64).draw(SeededBits(scale).take(N_DRAWS))
    )
    draws = np.delete(drawn, again)
    assert chi_square_exact(draws, scale) > BAD
    assert chi_square_exact(draws, claimed) < HOPELESS


@pytest.mark.parametrize(
    ("scale", "low_bits", "integer", "claimed"),
    [(12, 3, np.int32, 13), (40, 4, np.int64, 42), (5, 0, np.int32, 6)],
)
def test_draws_beyond_a_table_have_the_exact_probabilities(monkeypatch, scale, low_bits, integer, claimed):
    """A table that ends after one scale: beyond it high and low part are as independent as within. A third of
    all draws are beyond it; a scale that is five per cent off is seen.
    """
    monkeypatch.setattr(shared_scale, "REACH", 1)
    table = NoiseTable.of(Law(scale, low_bits), integer)
    assert table.law.size << low_bits < 2 * scale
    drawn, again = sampler._signed(table.draw(SeededBits(scale).take(N_DRAWS)))
    draws = np.delete(drawn, again)
    assert chi_square_exact(draws, scale) > BAD
    assert chi_square_exact(draws, claimed) < HOPELESS


@pytest.mark.parametrize("size", [400, N_DRAWS])
def test_every_element_has_its_own_scale(size):
    """Scales mixed within one call: each element's draws follow its own."""
    bits, scales = SeededBits(11), np.tile(np.array([1, 5, 2, 11]), size // 4)
    drawn = [discrete_laplace(scales, bits) for _ in range(N_DRAWS // size)]
    draws = np.concatenate(drawn).reshape(-1, 4)
    for column, scale in enumerate([1, 5, 2, 11]):
        assert chi_square_exact(draws[:, column], scale) > BAD


@WAYS
@pytest.mark.parametrize("scale", [50_000, 10**6, 12_000_000, 2**35, 2**35 + 1, 12_345_678_901_234, 2**56])
def test_large_scales_approach_the_laplace_distribution(draw, scale):
    """Scales as releases have them; off by six per cent they are seen."""
    draws = draw(scale, SeededBits(scale))
    assert standardised_p_value(draws, scale) > BAD
    assert standardised_p_value(draws, scale * 1.06) < HOPELESS


@WAYS
@pytest.mark.parametrize("scale", [2**20, 2**20 + 12345, 2**44 - 1])
def test_no_low_order_bit_depends_on_the_scale(draw, scale):
    """The remainder modulo 16 of a draw of a large scale is uniform: nothing hides in the low digits."""
    draws = draw(scale, SeededBits(scale))
    assert stats.chisquare(np.bincount(draws % 16, minlength=16)).pvalue > BAD


@WAYS
@pytest.mark.parametrize("scale", [50, 3000])
def test_neighbouring_draws_are_independent(draw, scale):
    """One element's draw tells nothing about the next one's."""
    draws = draw(scale, SeededBits(12))
    signs, large = draws > 0, np.abs(draws) > 0.7 * scale
    table = np.histogram2d(signs[:-1] * 2 + large[:-1], signs[1:] * 2 + large[1:], bins=4)[0]
    assert stats.chi2_contingency(table).pvalue > BAD


def opendp_draws(scale: int, n_draws: int) -> np.ndarray:
    """The same distribution by OpenDP, an implementation that shares no line with ours."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    return np.array(dp.m.make_laplace(*space, scale=float(scale))([0] * n_draws))


@pytest.mark.needs("opendp")
@pytest.mark.parametrize(("scale", "n_draws"), [(2, 40_000), (1000, 40_000)])
def test_two_samples_with_opendp(scale, n_draws):
    """Ours and OpenDP's draws are alike; with a scale off by a tenth they are not.

    OpenDP takes no seed: the first statement is wrong once in ten thousand million runs.
    """
    reference, cuts = opendp_draws(scale, n_draws), np.linspace(0, 1, 41)

    def alike(draws: np.ndarray) -> float:
        # Every edge is a draw: no cell is empty in both samples.
        edges = np.unique(np.quantile(np.concatenate([draws, reference]), cuts, method="inverted_cdf"))
        counts = [np.histogram(each, [-np.inf, *edges[1:-1], np.inf])[0] for each in (draws, reference)]
        return stats.chi2_contingency(np.array(counts)).pvalue

    assert alike(discrete_laplace(np.full(n_draws, scale), SeededBits(13))) > 1e-10
    wrong = scale + max(1, scale // 10)
    assert alike(discrete_laplace(np.full(n_draws, wrong), SeededBits(14))) < 1e-10


N_CLUSTERS = 400
COLUMN = np.repeat(np.arange(N_CLUSTERS), 25) * 2500 + np.tile(np.arange(25), N_CLUSTERS)


def sums_of(mechanism: str) -> SumMechanism:
    """The part of a mechanism that makes noisy sums."""
    chosen = MECHANISMS[mechanism]
    if isinstance(chosen, QuantileMechanism):
        return chosen.sums
    assert isinstance(chosen, SumMechanism)
    return chosen


def noisy_sums(mechanism: str, setting: Setting, seed: int) -> np.ndarray:
    """Y_C of the column."""
    return sums_of(mechanism).noisy_sums(COLUMN, setting, SeededBits(seed))


TRIMMED = {
    "dp-ir": 0,
    "dp-quantiles": 0,
    "idp-ls": 0,
    "idp-cbls": 1,
    "idp-joint": 1,
    "idp-quantiles": 0,
}
SCALES = {
    "dp-ir": calibration.domain_scales,
    "dp-quantiles": calibration.domain_scales,
    "idp-ls": calibration.local_scales,
    "idp-cbls": calibration.cluster_scales,
    "idp-joint": calibration.joint_scales,
    "idp-quantiles": calibration.smooth_scales,
}


def centroid_noise(mechanism: str, seed: int, epsilon: str = "1") -> tuple[np.ndarray, np.ndarray]:
    """The noise that left in Y_C, and the scales of epsilon 1, over 50 maskings of one column."""
    stated, f, h = Setting("pay", 10**6, Decimal(1), 25), 20, TRIMMED[mechanism]
    found = statistics_of(COLUMN, 25, h, tail=sums_of(mechanism).tail(stated, COLUMN.size))
    sums, _ = sums_of(mechanism).summed(found, h)
    scales = SCALES[mechanism](found, stated, h, f)
    used = Setting("pay", 10**6, Decimal(epsilon), 25)
    noisy = [noisy_sums(mechanism, used, seed + i) for i in range(50)]
    return np.concatenate([each - (sums << f) for each in noisy]), np.tile(scales, 50)


@pytest.mark.parametrize("mechanism", SCALES)
def test_noisy_sums_carry_the_noise_that_the_calibration_states(mechanism):
    """From sorted values to Y_C: the stated scales, no more and no less; a fifth less epsilon is seen."""
    noise, scales = centroid_noise(mechanism, 100)
    assert standardised_p_value(noise / scales, 1) > BAD
    wrong, scales = centroid_noise(mechanism, 200, "0.8")
    assert standardised_p_value(wrong / scales, 1) < HOPELESS


@pytest.mark.parametrize("mechanism", SCALES)
def test_the_noise_of_two_clusters_is_independent(mechanism):
    """One draw per cluster: its noise tells nothing about its neighbour's; one noise for two is seen."""
    noise, _ = centroid_noise(mechanism, 300)
    signs, far = noise > 0, np.abs(noise) > np.median(np.abs(noise))
    kinds = signs * 2 + far
    table = np.histogram2d(kinds[:-1], kinds[1:], bins=4)[0]
    assert stats.chi2_contingency(table).pvalue > BAD
    shared = np.repeat(kinds[::2], 2)
    assert stats.chi2_contingency(np.histogram2d(shared[:-1], shared[1:], bins=4)[0]).pvalue < HOPELESS


@pytest.mark.parametrize(("mechanism", "scale"), [("dp", 101), ("idp", 76)])
def test_records_released_by_themselves_carry_their_own_noise(mechanism, scale):
    """Without clusters every record has a draw of its own: of the domain's width, or of its farther end."""
    setting = Setting("age", 102, Decimal(1), 1)
    chosen = MECHANISMS[mechanism]
    assert isinstance(chosen, SumMechanism)
    column = np.full(50_000, 25)
    noise = chosen.noisy_sums(column, setting, SeededBits(16)) - (column << 20)
    assert standardised_p_value(noise, scale << 20) > BAD
    assert standardised_p_value(noise, (scale << 20) * 1.1) < HOPELESS


def released_errors(epsilon: str) -> np.ndarray:
    """Errors of released centroids away from the domain's ends, one cluster, idp-joint, 1000 maskings."""
    attribute = Attribute("pay", AttributeType.INTEGER, 0, 10**6)
    column = np.linspace(450_000, 550_000, 25).astype(np.int64)
    task = AttributeTask(attribute, Decimal(epsilon), 25, "idp-joint")
    bits = SeededBits(15)
    released = [mask_attribute(column, task, bits).released.values[0] for _ in range(1000)]
    return np.array(released) - 500_000


def test_released_centroids_carry_the_noise_that_is_promised():
    """From records to what leaves: scale Λ/ε around one cluster's centroid; twice the noise is seen."""
    column = np.linspace(450_000, 550_000, 25).astype(np.int64)
    scale = float(calibration.joint_sensitivity(statistics_of(column, 25, 1), 1)) / 20
    assert standardised_p_value(released_errors("20"), scale) > BAD
    assert standardised_p_value(released_errors("10"), scale) < HOPELESS
