import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from common.errors import ConfigurationError
from common.model.schema import Attribute, CategoryOrder
from owner_node.config import load
from owner_node.config.dataset import AttributeTable

HEAD = """
[owner]
id = "north"
trust_domain = "hospitals.example"
state_dir = "state"
[tls]
ca = "ca.pem"
cert = "north.pem"
key = "north.key"
[[dataset]]
name = "adult"
source = "adult.csv"
total_epsilon = 2
[dataset.attributes.x]
"""


def _attribute(folder: Path, text: str) -> Attribute:
    path = folder / "owner.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    return load(path).datasets[0].attributes[0]


def _attribute_problem(folder: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        _attribute(folder, text)
    assert all(problem.startswith("dataset[adult].attributes.x") for problem in caught.value.problems)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type = 'integer'\nmin = -3\nmax = '4'", (-3, 4, 0)),
        ("type = 'number'\nmin = -0.5\nmax = 1e1\ndecimals = 2", (-50, 1000, 2)),
        ("type = 'date'\nmin = 1970-01-02\nmax = '1970-01-11'", (1, 10, 0)),
        ("type = 'category'\ncategories = ['b', 'a', 'c']", (0, 2, 0)),
        ("type = 'boolean'", (0, 1, 0)),
        (f"type = 'integer'\nmin = -1\nmax = {2**63 - 3}", (-1, 2**63 - 3, 0)),
    ],
)
def test_domains_are_in_resolution_units(tmp_path, text, expected):
    """What is declared becomes the integers that masking works with, exactly."""
    attribute = _attribute(tmp_path, text)
    assert (attribute.lower, attribute.upper, attribute.decimals) == expected


def test_the_settings_of_attributes_are_kept(tmp_path):
    """Order and clamping, which owners of a group compare, are as declared."""
    text = "type = 'category'\ncategories = ['b', 'a']\nordered = true\norder = 'frequency'"
    attribute = _attribute(tmp_path, text)
    assert (attribute.categories, attribute.ordered) == (("b", "a"), True)
    assert attribute.order is CategoryOrder.FREQUENCY
    assert _attribute(tmp_path, "type = 'integer'\nmin = 0\nmax = 1\noutside = 'clamp'").outside == "clamp"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type = 'boolean'\nmissing = 'category'", '.missing: "category" does not go with type boolean'),
        (
            f"type = 'integer'\nmin = 1\nmax = {2**22}\nmissing = 'category'",
            '.missing: "category" goes with at most 4,194,303 possible values',
        ),
        ("type = 'integer'\nmin = 3\nmax = 1", ".min: 3 is above max, 1"),
        ("type = 'category'\ncategories = ['=1+1', 'b']", '.categories = "=1+1": starts like a formula'),
        ("type = 'integer'\nmin = 0.5\nmax = 1", ".min: '0.5' is not a whole number"),
        ("type = 'integer'\nmin = 0", ".max: missing; type integer needs it"),
        ("type = 'integer'\nmin = 0\nmax = inf", ".max: 'Infinity' is not a whole number"),
        ("type = 'integer'\nmin = 0\nmax = 1e999999999", ".max: '1E+999999999' has too many digits"),
        (f"type = 'integer'\nmin = -1\nmax = {2**63 - 2}", "more values than 64-bit integers can count"),
        (f"type = 'integer'\nmin = 0\nmax = {2**63}", "more values than 64-bit integers can count"),
        ("type = 'integer'\nmin = true\nmax = 1", ".min = true: expected a number or a date"),
        ("type = 'integer'\nmin = 0\nmax = 1\ndecimals = 1", ".decimals: goes with type number"),
        ("type = 'number'\nmin = 0.25\nmax = 1\ndecimals = 1", "'0.25' has more than 1 decimals"),
        (
            "type = 'number'\nmin = 0\nmax = 1.00000000000000000000000000000001\ndecimals = 1",
            "has too many digits",
        ),
        ("type = 'number'\nmin = 0\nmax = 1", ".decimals: missing; type number needs it"),
        ("type = 'number'\nmin = 0\nmax = 1\ndecimals = 19", ".decimals = 19: expected at most 18"),
        ("type = 'number'\nmin = 'a'\nmax = 1\ndecimals = 1", ".min: 'a' is not a number"),
        ("type = 'date'\nmin = 2026-01-01\nmax = '2026-02-30'", ".max: '2026-02-30' is not a date"),
        (
            "type = 'date'\nmin = 2026-01-01T00:00:00\nmax = 2026-02-01",
            ".min = 2026-01-01 00:00:00: expected",
        ),
        ("type = 'date'\nmin = 3\nmax = 2026-02-01", ".min: '3' is not a date"),
        ("type = 'number'\ncategories = ['a']\nmin = 0\nmax = 1\ndecimals = 0", "goes with type category"),
        ("type = 'category'", ".categories: missing; type category needs it"),
        ("type = 'category'\ncategories = []", ".categories = an empty list: expected at least one"),
        (
            "type = 'category'\ncategories = ['a', 'a']",
            ".categories: expected names that are not empty, each once",
        ),
        (
            "type = 'category'\ncategories = ['a', '']",
            ".categories: expected names that are not empty, each once",
        ),
        ("type = 'category'\ncategories = ['a', 1]", ".categories[2] = 1: expected a text in quotes"),
        (
            "type = 'category'\ncategories = ['a']\noutside = 'clamp'",
            '.outside: "clamp" goes with type integer',
        ),
        ("type = 'category'\ncategories = ['a']\nmethod = 'rank'", ".method: goes with a taxonomy"),
        ("type = 'boolean'\ntaxonomy = 'jobs.csv'", ".taxonomy: goes with type category, not with boolean"),
        ("type = 'category'\ntaxonomy = 'x.csv'", '.taxonomy = "x.csv": it cannot be read: No such file'),
        ("type = 'boolean'\nmin = 0", ".min: goes with type integer"),
        (
            "type = 'text'",
            '.type = "text": expected one of "integer", "number", "date", "category" or "boolean"',
        ),
        ("categories = ['a']", ".type: missing; one of"),
    ],
)
def test_attributes_that_contradict_themselves(tmp_path, text, expected):
    """A domain that cannot be meant is found before the data is read."""
    assert expected in _attribute_problem(tmp_path, text)


def test_all_problems_of_an_attribute_come_together(tmp_path):
    """A wrong value does not hide a missing one."""
    text = "type = 'number'\nmin = 0\ndecimals = 'two'\noutside = 'clip'\nordered = true"
    lines = _attribute_problem(tmp_path, text).split("\n")
    keys = [re.split("[ :]", line.split(".x.")[1])[0] for line in lines]
    assert keys == ["decimals", "outside", "ordered", "max"]


TABLE = TypeAdapter(AttributeTable)
BOUNDS = st.decimals(min_value=-(10**9), max_value=10**9, places=4)


@given(BOUNDS, BOUNDS, st.integers(0, 6))
def test_ends_of_a_domain_against_plain_arithmetic(lower, upper, decimals):
    """A domain is accepted exactly if its ends are in order and fit the decimals, and then it is exact."""
    table = {"type": "number", "min": lower, "max": upper, "decimals": decimals}
    units = [end * 10**decimals for end in (lower, upper)]
    if lower <= upper and all(unit % 1 == 0 for unit in units):
        attribute = TABLE.validate_python(table).attribute("x")
        assert [Decimal(attribute.lower), Decimal(attribute.upper)] == units
    else:
        with pytest.raises(ValidationError):
            TABLE.validate_python(table)


JOBS = "nurse;care;*\nmidwife;care;*\ncook;kitchen;*\n"


def test_a_taxonomy_brings_categories_and_a_digest(tmp_path):
    """Without a list the categories are the hierarchy's lines; the tree's digest does not depend on them."""
    (tmp_path / "jobs.csv").write_text(JOBS, encoding="utf-8")
    attribute = _attribute(tmp_path, "type = 'category'\ntaxonomy = 'jobs.csv'")
    assert attribute.categories == ("nurse", "midwife", "cook")
    text = "type = 'category'\ncategories = ['cook', 'midwife', 'nurse']\ntaxonomy = 'jobs.csv'"
    other = _attribute(tmp_path, text)
    assert other.categories == ("cook", "midwife", "nurse")
    assert other.taxonomy == attribute.taxonomy != ""
    assert Attribute.from_document(other.to_document()) == other


def test_a_taxonomy_knows_missing_values(tmp_path):
    """The category that stands for missing values has a place in the order: below the root."""
    (tmp_path / "jobs.csv").write_text(JOBS, encoding="utf-8")
    path = tmp_path / "owner.toml"
    head = HEAD.replace("total_epsilon = 2", "total_epsilon = 2\nmissing = 'category'")
    path.write_text(f"{head}type = 'category'\ntaxonomy = 'jobs.csv'", encoding="utf-8")
    assert load(path).datasets[0].taxonomies["x"].paths[-1] == ("*", "(missing)")


@pytest.mark.parametrize(
    ("hierarchy", "settings", "expected"),
    [
        (JOBS, "categories = ['nurse', 'midwife']", "but not declared as categories: 'cook'"),
        (JOBS, "categories = ['nurse', 'midwife', 'cook', 'pilot']", "not in the hierarchy: 'pilot'"),
        (JOBS, "order = 'frequency'", '.order: "frequency" does not go with a taxonomy'),
        (JOBS, "method = 'tree'", '.method = "tree": expected'),
        (f"{JOBS};kitchen;*", "", 'taxonomy = "jobs.csv": line 4: the category is missing'),
        (f"{JOBS}cook;kitchen;*", "", "line 4: category 'cook' is in an earlier line too"),
        ("", "", "it has no line with a category"),
        ("\udcff", "", "it is not encoded in UTF-8"),
    ],
)
def test_a_hierarchy_that_does_not_fit(tmp_path, hierarchy, settings, expected):
    """A malformed or foreign hierarchy is found when the configuration is read, long before a release."""
    (tmp_path / "jobs.csv").write_bytes(hierarchy.encode("utf-8", "surrogateescape"))
    text = f"type = 'category'\ntaxonomy = 'jobs.csv'\n{settings}"
    assert expected in _attribute_problem(tmp_path, text)
