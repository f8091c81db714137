"""Where a source is, and what its columns are recognised by: copies in any plain form, and no chance hits."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from common.model.schema import Attribute, AttributeType
from owner_node.config import DatasetConfig
from owner_node.ledger.budget_terms import EVIDENCE, Column
from owner_node.ledger.columns import columns_of

KEY = b"k" * 32
N = 5000
NUMBER = Attribute("income", AttributeType.NUMBER, 0, 10**9, decimals=2)
WARD = Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("medicine", "surgery", "eye"))
BOOLEAN = Attribute("emergency", AttributeType.BOOLEAN, 0, 1)


def place_of(source: str, query: str | None = None) -> str:
    """Return the place of a source."""
    settings = DatasetConfig(
        name="d", source=source, query=query, budget="d", total_epsilon=Decimal(1), attributes=(NUMBER,)
    )
    return settings.origin.place


def recognised(attribute: Attribute, values: np.ndarray, key: bytes = KEY) -> Column:
    """Return what one column is recognised by."""
    (column,) = columns_of({attribute.name: values.astype(np.int64)}, [attribute], key)
    return column


@pytest.fixture
def incomes() -> np.ndarray:
    """Values with two decimals, every one a multiple of ten cents."""
    return np.random.default_rng(1).integers(0, 9000, N) * 10


def test_a_file_is_where_its_links_lead(tmp_path: Path) -> None:
    """A link, a detour and the file itself are one place; another file is another."""
    (tmp_path / "patients.csv").write_text("x")
    (tmp_path / "link.csv").symlink_to(tmp_path / "patients.csv")
    places = {
        place_of(str(path))
        for path in (
            tmp_path / "patients.csv",
            tmp_path / "link.csv",
            tmp_path / "." / ".." / tmp_path.name / "patients.csv",
        )
    }
    assert len(places) == 1
    assert place_of(str(tmp_path / "staff.csv")) not in places


def test_a_database_is_its_address_and_query() -> None:
    """Credentials, drivers and blanks make no other place of it; another query does, and shows no text."""
    query = "SELECT age FROM patients WHERE name <> 'Miller'"
    one = place_of("postgresql+psycopg://me@db.example:5432/clinic", query)
    same = place_of("postgresql://you@DB.example/clinic", query.replace(" ", "\n  "))
    assert one == same
    assert "Miller" not in one
    assert "me@" not in one
    assert place_of("postgresql://db.example/clinic", query + " AND age > 3") != one
    assert place_of("postgresql://db.example/other", query) != one


def test_order_and_decimals_do_not_hide_a_number(incomes: np.ndarray) -> None:
    """A sorted copy, and one declared with more or fewer decimals, has the same digests where it can."""
    first = recognised(NUMBER, incomes)
    assert recognised(NUMBER, np.sort(incomes)).values == first.values
    assert recognised(NUMBER, np.sort(incomes)).order != first.order
    for factor, decimals in ((10, 3), (1000, 5)):
        again = recognised(replace(NUMBER, decimals=decimals), incomes * factor)
        assert (again.values, again.order) == (first.values, first.order)
    tenths = recognised(replace(NUMBER, decimals=1), incomes // 10)
    assert (tenths.values, tenths.order) == (first.values, first.order)
    stepped = recognised(replace(NUMBER, step=5), incomes // 5)
    assert (stepped.values, stepped.order) == (first.values, first.order)
    assert recognised(replace(NUMBER, decimals=0), incomes).values != first.values


def test_labels_count_not_their_codes() -> None:
    """A copy whose categories are declared in another order is the same; booleans are labels, too."""
    codes = np.random.default_rng(2).integers(0, 3, N)
    first = recognised(WARD, codes)
    turned = replace(WARD, categories=("eye", "surgery", "medicine"))
    again = recognised(turned, 2 - codes)
    assert (again.values, again.order) == (first.values, first.order)
    flags = (codes > 0).astype(np.int64)
    written = replace(WARD, categories=("true", "false"), upper=1)
    assert recognised(BOOLEAN, flags).order == recognised(written, 1 - flags).order


def test_a_single_other_value_is_other_data(incomes: np.ndarray) -> None:
    """Every value counts, in both digests; so does every record."""
    first = recognised(NUMBER, incomes)
    changed = incomes.copy()
    changed[N // 2] += 10
    for other in (changed, incomes[:-1], np.append(incomes, 0)):
        again = recognised(NUMBER, other)
        assert again.values != first.values
        assert again.order != first.order


def test_digests_say_nothing_without_the_key(incomes: np.ndarray) -> None:
    """Under another key every digest is another: nobody can try out values against a ledger."""
    first, other = recognised(NUMBER, incomes), recognised(NUMBER, incomes, b"x" * 32)
    assert not {first.values, first.order} & {other.values, other.order}


def test_what_is_equal_by_chance_weighs_little() -> None:
    """Constants and serial numbers are no evidence, a coin's sides hardly any unless in the same order."""
    draw = np.random.default_rng(3)
    serial = recognised(NUMBER, np.arange(N))
    constant = recognised(NUMBER, np.full(N, 7))
    assert {serial.values_weight, serial.order_weight, constant.values_weight, constant.order_weight} == {0}
    coin = recognised(BOOLEAN, draw.integers(0, 2, N))
    assert coin.values_weight < EVIDENCE / 10
    assert coin.order_weight >= EVIDENCE
    sorted_coin = recognised(BOOLEAN, np.sort(draw.integers(0, 2, N)))
    assert sorted_coin.order_weight < EVIDENCE / 10
    incomes = recognised(NUMBER, draw.integers(0, 10**6, N))
    assert min(incomes.values_weight, incomes.order_weight) >= EVIDENCE
    assert recognised(NUMBER, draw.integers(0, 10**6, 10)).order_weight < EVIDENCE


def test_short_columns(incomes: np.ndarray) -> None:
    """One or two records are digested, and are no evidence."""
    for n in (1, 2):
        column = recognised(NUMBER, incomes[:n])
        assert (column.values_weight, column.order_weight) == (0, 0)


def test_identifiers_are_known_in_any_order() -> None:
    """Their digests follow the texts, letter by letter and key by key, and weigh what their numbers do."""
    names = [f"{number:x}-ü" for number in np.random.default_rng(1).integers(0, 2**40, 70_000)]

    def known(texts: list[str], key: bytes = KEY) -> Column:
        (column,) = columns_of({}, (), key, {"id": pa.array(texts)})
        return column

    first = known(names)
    assert known(names[::-1]).values == first.values
    assert known(names[::-1]).order != first.order
    sliced = pa.array(["x", *names]).slice(1)
    (column,) = columns_of({}, (), KEY, {"id": sliced})
    assert column == first
    for other in ([*names[:-1], names[-1] + "ü"], [names[0][::-1], *names[1:]]):
        assert known(other).values != first.values
    assert known(names, b"x" * 32).values != first.values
    assert min(first.values_weight, first.order_weight) >= EVIDENCE
    assert known([f"P-{number:05d}" for number in range(1000)]).values_weight == 0
    assert known([""] * 5).values_weight == 0
