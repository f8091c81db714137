"""Numbers and bounds as people read them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.words.numbers import about_text, bound_text, count_text, left_text, rounded_up


@given(st.decimals(min_value=0, max_value=10**18, places=12))
def test_never_less_than_what_holds(bound: Decimal) -> None:
    """A bound that is shown holds: it is the exact one or a little more, but for a billionth."""
    shown = rounded_up(bound)
    assert bound - Decimal("1e-9") < shown <= bound + Decimal("0.0001")
    assert bound == 0 or bound >= 1 or shown <= bound * Decimal("1.001")
    assert rounded_up(shown) == shown


def test_few_digits() -> None:
    """People read no fourteen digits, and none that are not needed."""
    exact = ("133.833333333334", "1066.666666666672", "0.033333333333", "0.5", "2", "402")
    shown = [bound_text(Decimal(each)) for each in exact]
    assert shown == ["133.8334", "1066.6667", "0.03334", "0.5", "2", "402"]
    assert bound_text(None) == "unbounded"


@pytest.mark.parametrize("exact", ["0.999999999996", "1.000000000004", "1"])
def test_a_sum_of_rounded_shares_is_the_number_that_people_wrote(exact: str) -> None:
    """Nobody reads twelve nines, neither in what is charged nor in what is left."""
    assert (bound_text(Decimal(exact)), left_text(Decimal(exact))) == ("1", "1")
    assert left_text(3 - Decimal(exact)) == "2"


def test_what_is_left_is_never_more() -> None:
    """Only what is a billionth away is rounded up."""
    shown = [left_text(Decimal(each)) for each in ("2.99999", "0.000000000004", "2.999999999996")]
    assert shown == ["2.9999", "0", "3"]


@pytest.mark.parametrize(
    ("share", "shown"),
    [("0.065", "about 1,170 of 18,000"), ("0", "none of 18,000"), ("0.00001", "fewer than 1 of 18,000")],
)
def test_persons_stand_beside_their_share(share: str, shown: str) -> None:
    """An estimate has three digits, and claims neither that nobody nor that somebody is found."""
    assert about_text(share, 18_000) == shown


def test_one_thing_is_not_written_in_the_plural() -> None:
    """Plans, questions and findings count as people do."""
    assert [count_text(n, "owner") for n in (0, 1, 2000)] == ["0 owners", "1 owner", "2,000 owners"]
    assert count_text(2, "pass") == "2 passes"
