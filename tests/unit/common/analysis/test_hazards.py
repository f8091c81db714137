"""Survival and hazard ratios of a time and an event that were counted together: their intervals hold."""

from decimal import Decimal

import numpy as np
import pytest
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.nonparametric import kaplan_meier_estimator
from sksurv.util import Surv

from common.analysis.answers import COLUMNS
from common.analysis.calibration import linear_fit, logistic_fit
from common.analysis.estimates import read_formula
from common.analysis.hazards import Leaving, cox_fit, kaplan_meier, log_rank, log_survival, plain_cox_fit
from common.analysis.synthetic import SyntheticEstimates
from common.errors import UsageError
from common.model.schema import Attribute, AttributeType
from common.model.together import joint_of, modelled, to_codes
from common.synthesis.records import synthesise
from common.synthesis.schedule import Design
from tests.unit.common.analysis.test_noisy_counts import counted

N, NEVER = 8000, 0.9999
MONTHS = Attribute("months", AttributeType.INTEGER, 0, 119)
DIED = Attribute("died", AttributeType.BOOLEAN, 0, 1)
ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 40, 89),
    Attribute("sex", AttributeType.CATEGORY, 0, 1, categories=("f", "m")),
    Attribute("arm", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),
    MONTHS,
    DIED,
)
AT = (24.0, 60.0)


def people() -> dict[str, np.ndarray]:
    """Return values in units: hazards depend on age and sex, and not on the arm."""
    draw = np.random.default_rng(4)
    age, sex, arm = draw.integers(40, 90, N), draw.integers(0, 2, N), draw.choice(3, N, p=[0.5, 0.3, 0.2])
    dies = draw.exponential(150 * np.exp(-0.04 * (age - 65) - 0.5 * sex))
    ends = draw.uniform(30, 119, N)
    months = np.floor(np.minimum(dies, ends)).astype(np.int64)
    return {"age": age, "sex": sex, "arm": arm, "months": months, "died": (dies < ends).astype(np.int64)}


VALUES = people()
DEAD = VALUES["died"] == 1
TIMES = VALUES["months"].astype(float)
REGRESSORS = np.column_stack([VALUES["age"] - 65.0, VALUES["sex"]])


def released(epsilon: str, seed: int, together=(("months", "died"),), values=VALUES) -> SyntheticEstimates:
    """Return the estimates of a release of everybody."""
    attributes = modelled(ATTRIBUTES, together)
    design = Design(attributes, N, Decimal(epsilon), Decimal("0.000001"))
    counts = counted(design, to_codes(attributes, values), np.random.default_rng(seed))
    return SyntheticEstimates(counts, synthesise(counts.measured).codes)


@pytest.fixture(scope="module")
def release() -> SyntheticEstimates:
    """Return a release with moderate noise."""
    return released("3", 1)


def holds(table, truth) -> bool:
    """Return whether all intervals hold the truth."""
    return bool(((table["low"] <= truth) & (np.asarray(truth) <= table["high"])).all())


def test_plain_fits_agree_with_a_library():
    """What is said of the released records is what plain software says."""
    library = CoxPHSurvivalAnalysis(ties="breslow").fit(REGRESSORS, Surv.from_arrays(DEAD, TIMES)).coef_
    assert plain_cox_fit(REGRESSORS, TIMES, DEAD) == pytest.approx(library, abs=1e-4)
    times, shares = kaplan_meier_estimator(DEAD, TIMES)
    assert kaplan_meier(TIMES, DEAD, times) == pytest.approx(shares)


def test_fits_of_bins_approach_those_of_times():
    """With every month a bin, and leaving evenly within it, nothing but ties differs."""
    joint = joint_of(MONTHS, DIED)
    counts = counted(Design((joint,), N, Decimal(1)), [VALUES["died"] * 120 + VALUES["months"]])
    binning = counts.measured.binnings[0]
    leaving = Leaving.of(joint, binning, 1)
    assert leaving.shares.sum(axis=1) == pytest.approx(1)
    bins = binning.bins(VALUES["died"] * 120 + VALUES["months"])
    found, information = cox_fit(REGRESSORS, bins, np.ones(N), leaving)
    assert found == pytest.approx(plain_cox_fit(REGRESSORS, TIMES, DEAD), rel=0.05)
    assert (np.linalg.eigvalsh(information) > 0).all()


def test_survival_of_cells_is_that_of_kaplan_and_meier():
    """Cells of a month lose nothing."""
    events, others = (
        np.bincount(VALUES["months"][own], minlength=120).astype(float) for own in (DEAD, ~DEAD)
    )
    shares = np.exp(log_survival(events, others))
    expected = kaplan_meier(TIMES, DEAD, np.arange(100.0))
    assert shares[1:101] == pytest.approx(expected, abs=0.004)
    excess, chance = log_rank(np.stack([events, 2 * events]), np.stack([others, 2 * others]))
    assert excess == pytest.approx([0], abs=1e-6)
    assert chance > 0


def test_a_regressor_that_tells_apart_all_events_is_open():
    """No finite hazard ratio is the largest likelihood."""
    joint = joint_of(MONTHS, DIED)
    codes = VALUES["died"] * 120 + VALUES["months"]
    binning = counted(Design((joint,), N, Decimal(1)), [codes]).measured.binnings[0]
    leaving = Leaving.of(joint, binning, 1)
    found, _ = cox_fit(DEAD.astype(float)[:, None], binning.bins(codes), np.ones(N), leaving)
    assert np.isposinf(found).all()


def test_hazard_ratios_hold_the_originals(release):
    """Age, sex and a factor without effect; with the population, intervals are wider."""
    table = release.cox("months", "died", ["age", "sex"], confidence=NEVER)
    assert list(table.columns) == list(COLUMNS)
    assert list(table.index) == ["age", "sex: m (against f)"]
    truth = plain_cox_fit(REGRESSORS, TIMES, DEAD)
    assert holds(table, truth)
    assert table["standard_error"]["age"] < truth[0] / 2
    wider = release.cox("months", "died", ["age", "sex"], confidence=NEVER, population=True)
    assert (wider["standard_error"] > table["standard_error"]).all()
    factor = release.cox("months", "died", ["arm"], confidence=NEVER)
    assert list(factor.index) == ["arm: b (against a)", "arm: c (against a)"]
    assert holds(factor, 0.0)


def test_survival_holds_the_originals(release):
    """Of everybody, and by groups; the log-rank test finds what differs and not what does not."""
    truth = kaplan_meier(TIMES, DEAD, np.array(AT))
    whole = release.survival("months", "died", AT, confidence=NEVER)
    assert holds(whole, truth)
    assert (whole["high"] - whole["low"] < 0.2).all()
    groups = release.survival("months", "died", AT, by="sex", confidence=NEVER)
    assert list(groups.index.names) == ["sex", "months"]
    own = [
        kaplan_meier(TIMES[VALUES["sex"] == sex], DEAD[VALUES["sex"] == sex], np.array(AT)) for sex in (0, 1)
    ]
    assert holds(groups, np.concatenate(own))
    assert groups.attrs["log_rank"]["p_value"] < 0.001
    arms = release.survival("months", "died", by="arm").attrs["log_rank"]
    assert (arms["degrees"], arms["p_value"] > 0.001) == (2, True)


def test_interactions_hold_the_originals():
    """Of attributes that were counted together: coefficients are those of the products of their values."""
    # Age makes women die, and men live: without relations of three attributes it does neither.
    draw, slope = np.random.default_rng(7), 0.06 * (2 * VALUES["sex"] - 1)
    died = (draw.random(N) < 1 / (1 + np.exp(1 + slope * (VALUES["age"] - 65)))).astype(np.int64)
    of = released("4", 3, (("months", "died"), ("age", "sex")), VALUES | {"died": died})
    columns = np.column_stack([VALUES["age"], VALUES["sex"], VALUES["age"] * VALUES["sex"]]).astype(float)
    design, once = np.column_stack([np.ones(N), columns]), np.ones(N)
    names = ["age", "sex: m (against f)", "age × sex: m (against f)"]
    for table, truth in (
        (of.cox("months", "died", "age*sex", confidence=NEVER), plain_cox_fit(columns, TIMES, died == 1)),
        (of.regress("died", "age*sex", confidence=NEVER), linear_fit(design, died * 1.0, once)[1:]),
        (
            of.logistic("died", ["age", "sex", "age:sex"], confidence=NEVER),
            logistic_fit(design, died, once)[1:],
        ),
    ):
        assert list(table.index) == names
        assert holds(table, truth)
        assert table["estimate"].iloc[2] < -5 * table["standard_error"].iloc[2]
    assert not of.supports("Surv(months, died) ~ age*sex + arm")
    assert "--together" not in of.supports("died ~ age*sex")
    with pytest.raises(UsageError, match="'age' and 'arm'") as refused:
        of.regress("months", ["age:arm"])
    assert "--together age:arm" in refused.value.hint


def test_an_interaction_without_an_effect_and_of_labels():
    """Every pair of labels has a line against the first ones."""
    of = released("4", 5, together=(("arm", "sex"), ("months", "died")))
    table = of.cox("months", "died", "arm*sex", confidence=NEVER)
    assert list(table.index[3:]) == [
        f"arm: {label} (against a) × sex: m (against f)" for label in ("b", "c")
    ]  # fmt: skip
    b, c, sex = VALUES["arm"] == 1, VALUES["arm"] == 2, VALUES["sex"]
    assert holds(table, plain_cox_fit(np.column_stack([b, c, sex, b * sex, c * sex]) * 1.0, TIMES, DEAD))
    groups = of.survival("months", "died", AT, by="arm:sex", confidence=NEVER)
    assert groups.index.get_level_values(0).unique().tolist()[:2] == ["a, f", "b, f"]
    first = (VALUES["arm"] == 0) & (sex == 0)
    assert holds(groups.loc["a, f"], kaplan_meier(TIMES[first], DEAD[first], np.array(AT)))


def test_single_attributes_are_sums_of_what_was_counted(release):
    """Means, shares, quantiles and correlations of time and event hold as those of others do."""
    means = release.means(["months", "died", "age"], confidence=NEVER)
    assert holds(means, [TIMES.mean(), DEAD.mean(), VALUES["age"].mean()])
    assert holds(release.shares("died", confidence=NEVER), [1 - DEAD.mean(), DEAD.mean()])
    quantiles = release.quantiles("months", confidence=NEVER)
    assert holds(quantiles, np.quantile(TIMES, [0.25, 0.5, 0.75]))
    correlations = release.correlations(["age", "months", "died"], confidence=NEVER)
    assert list(correlations.index) == [("age", "months"), ("age", "died")]
    truth = [np.corrcoef(VALUES["age"], own)[0, 1] for own in (TIMES, DEAD)]
    assert holds(correlations, truth)
    assert holds(
        release.regress("months", ["died"], confidence=NEVER), [TIMES[DEAD].mean() - TIMES[~DEAD].mean()]
    )
    assert "died" in next(release.tables(["age", "died"]))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda of: of.crosstab("months", "sex"), "'months' was counted together with another attribute"),
        (lambda of: of.crosstab("sex", "sex"), "named twice"),
        (lambda of: of.crosstab("died", "months"), "'died' and 'months' were counted as one"),
        (lambda of: of.correlations(["months", "died"]), "'months' and 'died' were counted as one"),
        (lambda of: of.regress("age", []), "no regressor is named"),
        (lambda of: of.crosstab("sex", ["arm"]), "not the name of an attribute"),
        (lambda of: of.survival("months", "died", by=["sex"]), "not the name of an attribute"),
        (lambda of: of.cox("months", "died", ["months"]), "regressors are other attributes"),
        (lambda of: of.cox("months", "died", ["died"]), "other attributes than time and event"),
        (lambda of: of.cox("months", "died", ["age:sex"]), "interaction of 'age' and 'sex'"),
        (lambda of: of.regress("age", ["sex", "months:died:sex"]), "not an interaction of two"),
        (lambda of: of.regress("age", ["sex:sex"]), "not an interaction of two"),
        (lambda of: of.regress("age", ["age:sex"]), "other attributes than the response"),
        (lambda of: of.means("age:sex"), "only models have"),
        (lambda of: of.cox("months", "sex", ["age"]), "hazard ratios have no true intervals here"),
        (lambda of: of.cox("died", "months", ["age"]), "there is no survival"),
        (lambda of: of.survival("months", "died", by="died"), "together with another attribute|no groups"),
        (lambda of: of.survival("months", "died", by="age"), "can be groups"),
        (lambda of: of.survival("months", "died", 500), "a time is outside"),
        (lambda of: of.survival("months", "arm"), "there is no survival"),
    ],
)
def test_what_has_no_answer(release, ask, said):
    """Each is refused with its reason."""
    with pytest.raises(UsageError, match=said):
        ask(release)


def test_tables_of_both_are_asked_for_by_their_name(release):
    """Bins show time and event."""
    table = release.crosstab("months:died", "sex")
    assert table.index.names == ["months:died", "sex"]
    assert any(text.endswith(", true") for text, _ in table.index)


def test_without_both_together_it_says_what_would_do():
    """Operators can count them together in the next release; `supports` says so, too."""
    apart = released("3", 2, together=())
    for ask in (
        lambda: apart.cox("months", "died", "age"),
        lambda: apart.survival("months", "died", by="sex"),
    ):
        with pytest.raises(UsageError) as refused:
            ask()
        assert "--together months:died" in refused.value.hint
    said = apart.supports("Surv(months, died) ~ age + sex")
    assert "time, event and another" in said
    assert "--together months:died" in said
    for by in ("age:sex", "sex"):
        with pytest.raises(UsageError, match="survival by groups has no true intervals"):
            released("3", 2, together=(("age", "sex"),)).survival("months", "died", by=by)


def test_models_are_asked_for_as_formulas(release):
    """What cannot be read is said."""
    assert not release.supports("Surv(months, died) ~ age + sex")
    assert not release.supports("died ~ age + sex")
    assert read_formula(" Surv(months,died) ~ age+sex").event == "died"
    assert read_formula("a ~ b*c + d").regressors == ("b", "c", "b:c", "d")
    assert read_formula("a ~ c:b + b:c + b*c").regressors == ("c:b", "b", "c")
    assert read_formula("hours-per-week ~ v1.2 + Age (years)").regressors == ("v1.2", "Age (years)")
    for wrong in (
        "Surv(months) ~ age", "died", "~ age", "died ~ ", "Surv(a, b, c) ~ age", "a ~ b + ", "a ~ age - sex",
        "a ~ I(age^2)", "a ~ (age + sex)", "a ~ C(ward)", "a ~ .", "surv(months,died) ~ age", "a ~ age ~ sex",
        "a ~ age^2", "a ~ -1 + age",
    ):  # fmt: skip
        with pytest.raises(UsageError, match=r"is not a formula of names, \+, : and \*"):
            read_formula(wrong)
        assert "is not a formula" in release.supports(wrong)
    assert "attributes: age" in release.supports("died ~ height")
