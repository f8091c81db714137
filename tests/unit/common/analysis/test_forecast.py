"""Widths of coefficients that a plan states, against those of simulated releases."""

from decimal import Decimal

import numpy as np
import pytest

from common.analysis.estimates import read_formula
from common.analysis.forecast import forecasts
from common.analysis.synthetic import SyntheticEstimates
from common.model.together import modelled, to_codes
from common.synthesis.records import synthesise
from common.synthesis.schedule import Design
from tests.unit.common.analysis.test_hazards import ATTRIBUTES
from tests.unit.common.analysis.test_noisy_counts import counted

RUNS, DELTA = 2, Decimal("0.000001")
TOGETHER = (("age", "sex"), ("months", "died"))
LINES = {"age": "age", "arm": "arm: b (against a)", "age:sex": "age × sex: m (against f)"}


def people(n_records: int) -> dict[str, np.ndarray]:
    """Return values in units; survival and months depend a little on what a model has."""
    draw = np.random.default_rng(4)
    age = np.clip(np.rint(draw.normal(65, 10, n_records)), 40, 89)
    sex, arm = draw.integers(0, 2, n_records), draw.choice(3, n_records, p=[0.5, 0.3, 0.2])
    dies = draw.exponential(300 * np.exp(-0.02 * (age - 65) - 0.2 * sex))
    ends = draw.uniform(30, 119, n_records)
    months, died = np.floor(np.minimum(dies, ends)), dies < ends
    values = {"age": age, "sex": sex, "arm": arm, "months": months, "died": died}
    return {name: own.astype(np.int64) for name, own in values.items()}


@pytest.mark.parametrize("n_records", [4000, 16_000])
@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_a_planned_width_is_that_of_releases_within_a_factor_of_two(n_records, epsilon):
    """Of linear, logistic and Cox regressions, and of an interaction; nothing but public numbers are used."""
    attributes, values = modelled(ATTRIBUTES, TOGETHER), people(n_records)
    design = Design(attributes, n_records, Decimal(epsilon), DELTA)
    codes, releases = to_codes(attributes, values), list[SyntheticEstimates]()
    for seed in range(RUNS):
        counts = counted(design, codes, np.random.default_rng(seed))
        releases.append(SyntheticEstimates(counts, synthesise(counts.measured).codes))
    spread = {"age": values["age"].std(), "age:sex": values["age"].std(), "arm": 1.0}
    for formula, unit in (
        ("months ~ age*sex + arm", values["months"].std()),
        ("died ~ age*sex + arm", 1.0),
        ("Surv(months, died) ~ age*sex + arm", 1.0),
    ):
        model, widths = read_formula(formula), []
        for of in releases:
            on = list(model.regressors)
            if model.event:
                table = of.cox(model.response, model.event, on)
            else:
                table = (of.logistic if model.response == "died" else of.regress)(model.response, on)
            widths.append(table["high"] - table["low"])
        for each in forecasts(design, model):
            if each.regressor in LINES:
                realised = np.median([own[LINES[each.regressor]] for own in widths])
                realised *= spread[each.regressor] / unit
                assert 0.5 < each.width / realised < 2, (formula, each.regressor)


def test_less_noise_is_narrower_and_what_is_not_counted_has_no_interval():
    """Width falls with ε and the records; the sampling interval does not depend on ε."""
    model = read_formula("died ~ age*sex + arm")

    def planned(n_records, epsilon, together=TOGETHER, delta=DELTA, pairs=()):
        design = Design(modelled(ATTRIBUTES, together), n_records, Decimal(epsilon), delta, named_pairs=pairs)
        return forecasts(design, model)

    wide, narrow, many = planned(5000, 1), planned(5000, 4), planned(50_000, 1)
    for each, better, more in zip(wide, narrow, many, strict=True):
        assert max(better.width, more.width) < each.width
        assert each.width / each.times_sampling == pytest.approx(better.width / better.times_sampling)
    assert planned(5000, 1, delta=Decimal(0))[0].width > wide[0].width
    assert [each.at_means for each in wide] == [(), ("age",), (), ()]
    assert [each.is_answered for each in planned(5000, 1, together=())] == [True, True, False, True]
    # Of the pairs, only that of the arm and the time with its event.
    assert [each.is_answered for each in planned(5000, 1, pairs=((1, 2),))] == [False, False, False, True]
