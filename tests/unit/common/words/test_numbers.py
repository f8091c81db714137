"""Numbers and bounds as people read them."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from common.words.numbers import bound_text, counted, rounded_up


@given(st.decimals(min_value=0, max_value=10**18, places=12))
def test_never_less_than_what_holds(bound: Decimal) -> None:
    """A bound that is shown holds: it is the exact one or a little more."""
    shown = rounded_up(bound)
    assert bound <= shown <= bound + Decimal("0.0001")
    assert bound == 0 or bound >= 1 or shown <= bound * Decimal("1.001")
    assert rounded_up(shown) == shown


def test_few_digits() -> None:
    """People read no fourteen digits, and none that are not needed."""
    exact = ("133.833333333334", "1066.666666666672", "0.033333333333", "0.5", "2", "402")
    shown = [bound_text(Decimal(each)) for each in exact]
    assert shown == ["133.8334", "1066.6667", "0.03334", "0.5", "2", "402"]
    assert bound_text(None) == "unbounded"


def test_one_thing_is_not_written_in_the_plural() -> None:
    """Plans, questions and findings count as people do."""
    assert [counted(n, "owner") for n in (0, 1, 2000)] == ["0 owners", "1 owner", "2,000 owners"]
    assert counted(2, "pass") == "2 passes"
