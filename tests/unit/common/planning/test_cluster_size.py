"""The choice of k against its formula in plain arithmetic."""

from dataclasses import replace
from decimal import Decimal
from math import floor, log1p, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.mechanisms import MECHANISMS, PublicNumbers
from common.model.schema import Limits
from common.planning.attributes import smallest_accepted_k
from tests.fakes.protocol_peers import schema

EPSILONS = st.decimals("0.001", "10", places=3)


def chosen(mechanism: str, n: int = 10_000, v: int = 10**6, epsilon: str = "1", g: int = 1, least: int = 3):
    """The k of one attribute."""
    return MECHANISMS[mechanism].choose_k(PublicNumbers(n, v, Decimal(epsilon), g), least)


@given(n=st.integers(1000, 10**7), v=st.integers(2, 10**6), epsilon=EPSILONS)
def test_the_formulas(n, v, epsilon):
    """1.5 sqrt(n/ε) or V/ε for idp-joint, 2.2 sqrt(n/ε) for dp-ir and idp-ls, between the least k and n."""
    root = sqrt(n / float(epsilon))
    wanted = {"idp-joint": min(1.5 * root, v / float(epsilon)), "idp-ls": 2.2 * root, "dp-ir": 2.2 * root}
    for mechanism, value in wanted.items():
        found = chosen(mechanism, n, v, str(epsilon))
        # Doubles decide nothing but this comparison: they may be off by one at a whole number.
        assert abs(found - max(3, min(floor(value), n))) <= 1


@given(n=st.integers(100, 10**7), v=st.integers(2, 2000), epsilon=EPSILONS, g=st.integers(1, 3))
def test_the_formula_of_drawn_categories(n, v, epsilon, g):
    """3.2 ln(1 + nε/2)/ε whatever the number of categories, with ε/g for each of a person's records."""
    share = float(epsilon) / g
    found = chosen("exponential", n, v, str(epsilon), g=g)
    assert abs(found - max(3, min(floor(3.2 * log1p(n * share / 2) / share), n))) <= 1


def test_the_worked_numbers():
    """Exact at whole numbers, where a root in doubles could fall short."""
    assert chosen("idp-joint", 10_000) == 150
    assert chosen("idp-joint", 10_000, v=2) == 3
    assert chosen("idp-joint", 10_000, v=40) == 40
    assert chosen("idp-ls", 10_000) == 220
    assert chosen("dp-ir", 10_000, epsilon="0.25") == 440
    assert chosen("idp-joint", 10_000, g=4) == 300


@pytest.mark.parametrize("mechanism", ["idp-joint", "idp-ls", "dp-ir", "idp-cbls"])
def test_the_ends(mechanism):
    """Never above the number of records, never below what policies and mechanism need."""
    assert chosen(mechanism, 50, epsilon="0.001", least=3) in (3, 50)
    assert chosen(mechanism, 10_000, v=2, epsilon="10", least=500) == 500
    assert chosen(mechanism, 0, least=7) == 7


def test_what_takes_the_smallest_k_or_none():
    """idp-cbls is best with the smallest clusters; dp, idp and dp-hist have none."""
    assert chosen("idp-cbls") == 3
    assert chosen("idp-cbls", g=4) == 9
    unclustered = [each for each in MECHANISMS if not MECHANISMS[each].clustered]
    assert unclustered == ["dp", "idp", "dp-hist"]
    assert [chosen(each) for each in unclustered] == [None] * 3


def test_every_owners_policy_counts():
    """One k for a group's attribute at an owner is not below what another owner's policy wants."""
    stricter = replace(schema("x"), limits=Limits(min_k=25))
    assert smallest_accepted_k([schema("x"), stricter, schema("x")]) == 25
