"""Columns of unknown types, through `owner-node check`: they are named where they are declared."""

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.cli import console
from owner_node.cli import application
from tests.unit.owner_node.cli.test_check import OWNER

DATASET = """
[[dataset]]
name = "patients"
source = "{source}"
total_epsilon = 1
"""
AGE = '[dataset.attributes.age]\ntype = "integer"\nmin = 0\nmax = 9\n'
ODD = '[dataset.attributes.odd]\ntype = "category"\ncategories = ["a"]\n'


def stated(name: str, storage: Any, meta: str = "") -> pa.Table:
    """Return a table with a column that is stated to be of an extension type."""
    about = {"ARROW:extension:name": name, "ARROW:extension:metadata": meta}
    age, odd = pa.field("age", pa.int64()), pa.field("odd", storage.type, metadata=about)
    return pa.table([pa.array([1, 2]), storage], schema=pa.schema([age, odd]))


TEXTS, INTEGERS = pa.array(["a", "a"]), pa.array([1, 2])
STRUCTS = pa.array([{"metadata": b"a"}] * 2)
TABLES = {
    f"{name} of {storage.type}": (name, stated(name, storage, meta))
    for name, meta in (
        ("arrow.uuid", ""),
        ("arrow.bool8", "x"),
        ("arrow.fixed_shape_tensor", "{"),
        ("arrow.opaque", ""),
        ("vendor.unheard_of", "{}"),
    )
    for storage in (TEXTS, INTEGERS, STRUCTS)
}


def write_future(path: Path) -> None:
    """Write a column of a logical type that no version of Parquet has yet."""
    table = pa.table({"age": [1, 2], "odd": pa.array(['{"a": 1}'] * 2, pa.json_())})
    pq.write_table(table, path, store_schema=False)
    content = path.read_bytes()
    (size,) = struct.unpack("<i", content[-8:-4])
    footer = content[-8 - size : -8]
    # The field of the logical type (12: JSON) in a union; in Thrift's compact protocol 25 takes two bytes.
    assert footer.count(b"\xcc\0\0") == 1
    footer = footer.replace(b"\xcc\0\0", b"\x0c\x32\0\0")
    path.write_bytes(content[: -8 - size] + footer + struct.pack("<i", len(footer)) + b"PAR1")


def check(source: str, attributes: str) -> int:
    """Run the command and return its exit code."""
    declared = DATASET.format(source=source) + attributes
    Path("owner.toml").write_text(OWNER[: OWNER.index("[[dataset]]")] + declared)
    return console.run(application(), "owner-node", ["check", "--json"])


@pytest.mark.parametrize("kind", [*TABLES, "a type of the future"])
@pytest.mark.parametrize("source", ["x.parquet", "folder"])
def test_only_a_declared_column_has_to_be_known(tmp_path, monkeypatch, capsys, kind, source):
    """The others are read as if it were not there; where it is declared, its type is the problem."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    path = Path("x.parquet") if source == "x.parquet" else Path("folder/x.parquet")
    name, table = TABLES.get(kind, ("undefined", None))
    if table is None:
        write_future(path)
    else:
        pq.write_table(table, path)
    assert check(source, AGE) == 0
    assert json.loads(capsys.readouterr().out)["datasets"][0]["records"] == 2
    assert check(source, AGE + ODD) == 2
    (problem,) = json.loads(capsys.readouterr().out)["error"]["details"]["problems"]
    assert problem == {"column": "odd", "problem": f"values of type {name} cannot be read", "count": 2}


def test_other_types_are_kept_beside_it(tmp_path, monkeypatch, capsys):
    """Types that only Arrow's schema in the file states are kept: a length of time is no number."""
    monkeypatch.chdir(tmp_path)
    table = TABLES["arrow.uuid of string"][1].set_column(0, "age", pa.array([1, 2], pa.duration("s")))
    pq.write_table(table, "x.parquet")
    assert check("x.parquet", AGE) == 2
    assert "values of type duration cannot be read" in capsys.readouterr().out
