"""The table of kinds: everything that the program asks about a source, it asks the object."""

import re
from decimal import Decimal

import pyarrow as pa

from common.model.schema import Attribute, AttributeType
from owner_node import sources
from owner_node.config import DatasetConfig
from owner_node.config.dataset import misdeclared
from owner_node.config.engine import OwnerEngineSection
from owner_node.engines.choice import engine_of
from owner_node.loading import column_names, count_records, load, probe
from owner_node.sources.options import DATABASE_KEYS
from owner_node.sources.source import Reader, Source

AGE = Attribute("age", AttributeType.INTEGER, 0, 120)


class Ages(Reader):
    """Two columns of the numbers below ten."""

    names = ("age", "other")

    def batches(self, columns, findings):
        """Yield all of them."""
        yield [pa.array(range(10)) for _ in columns]


class Toy(Source):
    """A kind that no release of the program has."""

    begins = re.compile("toy:")
    refused = DATABASE_KEYS
    place = "toy"

    @classmethod
    def normal(cls, address, full):
        """Return the address."""
        return address

    def open(self, findings, progress):
        """Open it."""
        return Ages()


def test_a_new_kind_is_a_row_of_the_table(monkeypatch, tmp_path):
    """Configuration, loading, counting, checking and the choice of an engine need no other change."""
    monkeypatch.setattr(sources, "KINDS", (Toy, *sources.KINDS))
    toy = DatasetConfig(name="people", source="toy:1", total_epsilon=Decimal(1), attributes=(AGE,))
    assert load(toy).columns["age"].tolist() == list(range(10))
    assert (count_records(toy), column_names(toy)) == (10, ("age", "other"))
    probe(toy)
    assert (toy.origin.place, toy.origin.shown, toy.origin.files) == ("toy", "toy:1", ())
    engine = OwnerEngineSection()
    assert engine_of(toy, engine, engine.workspace(tmp_path)).table_bytes is None
    (problem,) = misdeclared({"source": "toy:1", "query": "select 1"})
    assert str(problem).startswith("query: goes with the URL of a database")
