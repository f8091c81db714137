"""Building blocks of match keys: their meaning is fixed, and mistakes of people do not change them."""

import pyarrow as pa
import pytest

from owner_node.values.match_keys import BLOCKS, SUGGESTED, KeyColumns, MatchKey, make_block, parse_key


def made(block, *texts, **options):
    """What a building block makes of texts."""
    return make_block(block, pa.array(texts, pa.large_string()), **options).to_pylist()


@pytest.mark.parametrize(
    ("block", "text", "key"),
    [
        ("exact", " Ærø ", "Ærø"),
        ("upper", "de  la cruz", "DE LA CRUZ"),
        ("fold", "Müller-Lüdenscheidt", "MULLER LUDENSCHEIDT"),
        ("fold", "O'Neil", "ONEIL"),
        ("fold", "王小明", "WANGXIAOMING"),
        ("sorted", "Cruz, Maria de la", "CRUZ DE LA MARIA"),
        ("soundex", "Robert", "R163"),
        ("metaphone", "Thompson", "0MPSN"),
        ("nysiis", "Knuth", "NAT"),
        ("initial", "ålesund", "A"),
        ("first-3", "de la Cruz", "DEL"),
        ("district", "sw1a 1aa", "SW1A"),
        ("district", "10115", "101"),
        ("digits", "943 476 5919", "9434765919"),
        ("digits-luhn", "7992-7398-713", "79927398713"),
        ("digits-mod11", "943 476 5919", "9434765919"),
        ("digits-mod97", "GB 794", None),
        ("digits-mod97", "98", "98"),
        ("digits-luhn", "79927398714", None),
        ("digits-mod11", "943 476 5918", None),
        ("digits", "000", None),
        ("date", "19650304", "1965-03-04"),
        ("date", "1965-02-30", None),
        ("year-month", "1965-03-04", "1965-03"),
        ("year", "1965-03-04", "1965"),
        ("date-any-order", "1965-03-04", "1965-03-04"),
        ("date-any-order", "1965-04-03", "1965-03-04"),
        ("soundex", "1234", None),
        ("fold", "  ", None),
        ("fold", None, None),
    ],
)
def test_what_a_building_block_makes(block, text, key):
    """Golden values: a library that changed one of them would silently link nobody across versions."""
    assert made(block, text) == [key]


def test_dates_are_read_in_the_format_of_the_source():
    """Owners may write dates differently; the keys are the same."""
    assert made("date", "04.03.1965", date_format="%d.%m.%Y") == made("date", "1965-03-04")


def test_every_building_block_keeps_missing_values_missing():
    """A missing value gives no key, whatever is made of it."""
    for block in [*BLOCKS, "first-2"]:
        assert made(block, None, "") == [None, None], block


def test_keys_of_several_columns_need_all_of_them():
    """Names in any order are one key; a person without one of the names has none."""
    columns = KeyColumns({"a": pa.array(["Eva", "Berg", "Eva"]), "b": pa.array(["Berg", "Eva", " "])})
    first, second, third = columns.key(parse_key("a+b:sorted")).to_pylist()
    assert first == second == (8).to_bytes(8, "big") + b"BERG EVA"
    assert third is None


@pytest.mark.parametrize("text", ["", ":soundex", "a+:fold", "a:soundx", "a:first-0", " a", "a:"])
def test_keys_that_are_none(text):
    """A key that names no column or an unknown building block is refused."""
    with pytest.raises(ValueError, match=r"column|did you mean|building blocks"):
        parse_key(text)


def test_keys_have_one_form():
    """A key without a building block is folded; suggested passes are keys."""
    assert str(parse_key("surname")) == "surname:fold"
    assert parse_key("a+b:first-3") == MatchKey(("a", "b"), "first-3")
    assert all(str(parse_key(key)) == key for keys in SUGGESTED.values() for key in keys)
