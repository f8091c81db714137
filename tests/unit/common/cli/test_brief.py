"""One page for a decision: it fits a terminal whatever is on it, and says what it leaves out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.cli.plan_text import brief
from common.cli.brief import LINES, WIDTH, clip, list_items, page, rows, text
from common.model.plan import Linking
from common.model.schema import Attribute, AttributeType
from tests.fakes.releases import make_plan

NAMES = st.text("abcdefghij_- é", min_size=1, max_size=60).map(str.strip).filter(bool)


@given(
    st.lists(NAMES, min_size=1, max_size=80, unique=True),
    st.lists(NAMES, min_size=2, max_size=80, unique=True),
    st.text("word ", max_size=400),
)
def test_every_plan_fits_a_terminal(attributes, owners, purpose):
    """However many owners and attributes a plan has: 25 lines of 80 characters."""
    declared = [Attribute(name, AttributeType.INTEGER, 0, 9) for name in attributes]
    plan = make_plan([(attributes, owners)], attributes=declared)
    plan = replace(plan, purpose=" ".join(purpose.split()), linking=Linking(tokens=True, max_overlap=2))
    lines = brief(plan)
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    assert any(plan.digest in line for line in lines)


def test_what_matters_is_on_the_page():
    """Who, how many, ε and charge, the error as a word and a number, promise and what is not hidden."""
    shown = " ".join(brief(make_plan([(["age", "income"], ["north", "south"])])))
    for wanted in (
        "north  ≥ 1000   0.2     0.2  3  idp-joint",
        "age large 0.25, income   large 0.25",
        "ε = 0.2",
        "taken as",
        "Not hidden",
        "--details",
    ):
        assert wanted in shown


def test_what_is_left_out_is_counted():
    """A list that is cut says how many of its items are missing, and where they are."""
    (*_, last) = list_items("names", (f"attribute_{i}" for i in range(300))).within(3)
    n_left = int(last.split(" and ")[1].split()[0])
    shown = " ".join(list_items("names", (f"attribute_{i}" for i in range(300))).within(3))
    assert shown.count("attribute_") == 300 - n_left
    table = rows(("owner", "records"), [(f"o{i}", i) for i in range(10)]).within(4)
    assert table[-1] == "… and 8 more (--details)"
    assert len(table) == 4


def test_sentences_are_never_cut():
    """A page gives up items of its lists, never words of a sentence."""
    sentence = "every word of this stays " * 20
    lines = page(
        [clip("purpose", "x " * 200), text(sentence), list_items("names", ["name"] * 200)], [text("end")]
    )
    assert " ".join(lines).count("every word of this stays") == 20
    assert "--details" in " ".join(lines)


@pytest.mark.parametrize("cell", ["a" * 500, "\x1b[2J", "two\nlines"])
def test_texts_of_others_stay_in_their_place(cell):
    """No cell is wider than the page, and no control character reaches the terminal."""
    lines = rows(("owner", "k"), [(cell, 3), ("b", 4)]).whole
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) == 3
    assert all(line.isprintable() for line in (*lines, *list_items("n", [cell]).whole, *text(cell).whole))


def test_a_list_whose_name_takes_two_lines_is_cut_no_further():
    """It stays at its name, however many lines the sentences take."""
    name = "leaves, with the expected error (of attributes that are spread evenly over their domain)"
    items = [f"attribute {number}" for number in range(30)]
    sentences = [text(f"sentence {number}") for number in range(LINES)]
    lines = page([list_items(name, items), *sentences])
    assert lines[1].endswith(" more (--details)")
    assert lines[2:] == [f"sentence {number}" for number in range(LINES)]
