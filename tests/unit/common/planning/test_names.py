"""Lists of names: one way of quoting in every option, whatever a column is called."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UsageError
from common.planning.arguments import parse_pairs, parse_rank_noise, parse_weights
from common.planning.names import join_names, split, split_names

ODD = ("pressure, systolic", "[a]", 'pipe 5"', '"quoted"', "a;b", "a:b", "a=b", "x", 'one, "two"', "größe")
"""Names of columns as exports have them."""


def test_lists_are_split_as_csv():
    """Quotes keep separators in a name; a doubled quote is one; a quote elsewhere is a letter."""
    assert split_names('a, "b, c" ,"say ""d"""') == ["a", "b, c", 'say "d"']
    assert split_names('pipe 5",x') == ['pipe 5"', "x"]
    assert split_names('"open,x') == ['"open', "x"]
    assert split_names("a,,b,") == ["a", "b"]
    assert split_names(None) == split_names("") == []
    assert split("a:", ":") == ["a", ""]
    with pytest.raises(UsageError, match="names nothing"):
        split_names(" , ")


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1))
def test_written_lists_are_read_again(names):
    """What a form joins is split into the same names, whatever they are."""
    assert split_names(join_names(names)) == [*names]


@pytest.mark.parametrize("name", ODD)
def test_every_option_quotes_alike(name):
    """Weights, rank noise and pairs take the name as the list of attributes writes it."""
    written = join_names([name, "other"])
    first, second = split(written, ",")
    assert split_names(written) == [name, "other"]
    stated = split_names(f"{first}=2,{second}=0.5")
    assert parse_weights(stated) == ((name, Decimal(2)), ("other", Decimal("0.5")))
    assert dict(parse_rank_noise(split_names(f"{first}=0.1")).by_attribute) == {name: Decimal("0.1")}
    for pair in ((first, second), (second, first)):
        (read,) = parse_pairs(split_names(":".join(pair)))
        assert set(read) == {name, "other"}
