"""What a policy says to a forecast, and a forecast kept in a session."""

from decimal import Decimal

import pytest

from owner_node.config import PolicyConfig
from owner_node.consent.data_limits import forecast_objections
from owner_node.masking.foreseen import AttributeForecast, Forecast

D = Decimal
FORECAST = Forecast(
    (
        AttributeForecast("age", D("0.25"), D("0.5"), D("0.2")),
        AttributeForecast("sex", D("1.5"), D("0.9"), D("0.1")),
        AttributeForecast("ward", None, D("1"), D("0")),
    ),
    mean_sse=D("0.19"),
    unchanged_values=D("0.8"),
    unchanged_records=D("0.3"),
    zero_noise=D("0.1"),
    deviation=D("0.002"),
)


def test_a_forecast_is_read_as_it_was_written():
    """Nothing of a forecast is lost or rounded between the session and its reader, an attribute without
    variation included.
    """
    assert Forecast.from_text(FORECAST.to_text()) == FORECAST
    assert FORECAST.mean_sse_of_means == D("0.222222")


def test_an_attribute_that_is_worth_less_than_its_mean():
    """From an error of 1 on its mean would do as well."""
    assert FORECAST.no_better_than_means == ("sex",)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("max_zero_noise_share", D("0.1")),
        ("max_unchanged_share", D("0.8")),
        ("max_unchanged_record_share", D("0.3")),
    ],
)
def test_limits(key, found):
    """A share may be as large as its limit and no larger; without a limit it may be any; the rule in full
    names key, limit and share.
    """
    assert forecast_objections(FORECAST, PolicyConfig(approval="manual", **{key: found})) == ()
    (rule,) = forecast_objections(FORECAST, PolicyConfig(approval="manual", **{key: found - D("0.0001")}))
    assert rule.startswith(f"policy.{key} = {found - D('0.0001')}: {found} of the ")
    assert forecast_objections(FORECAST, PolicyConfig()) == ()


def test_all_limits_that_are_exceeded_are_told():
    """The owner reads every reason at once."""
    policy = PolicyConfig(
        approval="manual",
        max_zero_noise_share=D(0),
        max_unchanged_share=D(0),
        max_unchanged_record_share=D(0),
    )
    assert len(forecast_objections(FORECAST, policy)) == 3
