"""A folder of Parquet files: the same files are its data for every reader, or it is refused."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import DataError
from common.workspace import Workspace
from owner_node.config import DatasetConfig
from owner_node.config.engine import EngineKind
from owner_node.engines.pinned import pin
from owner_node.loading import count_records, load

TABLE = pa.table({"age": list(range(20)), "sex": ["female", "male"] * 10})
NOT_PARQUET = "not readable as Parquet"
FOLDERS: dict[str, tuple[list[str], int | str]] = {
    "two files": (["a.parquet", "b.parquet"], 40),
    "files of other names": (["a.parquet", "b.parq", "c.PQ", "d.snappy", "e"], 100),
    "temporary and hidden files": (["a.parquet", "_tmp.parquet", ".~tmp.parquet", ".b.parquet.crc"], 20),
    "files of Spark": (["part-0.parquet", "_SUCCESS", "_metadata", "_temporary/part-1.parquet"], 20),
    "a hidden folder": (["a.parquet", ".ipynb_checkpoints/a.parquet", "_delta_log/0.json"], 20),
    "partitions": (["year=2020/a.parquet", "year=2021/a.parquet"], "a folder of partitions"),
    "partitions beside a file": (["a.parquet", "year=2021/a.parquet"], "a folder of partitions"),
    "partitions of two levels": (["year=2020/month=1/a.parquet"], "a folder of partitions"),
    "a folder": (["a.parquet", "more/a.parquet"], "a folder in the folder"),
    "an empty folder in it": (["a.parquet", "more/"], "a folder in the folder"),
    "another file": (["a.parquet", "README.md"], NOT_PARQUET),
    "a CSV file": (["a.parquet", "b.csv"], NOT_PARQUET),
    "an empty file": (["a.parquet", "b.parquet.empty"], NOT_PARQUET),
    "a file that is being copied": (["a.parquet", "b.parquet.part"], NOT_PARQUET),
    "nothing": ([], "this is a folder without Parquet files"),
    "hidden files only": (["_a.parquet", ".b.parquet"], "this is a folder without Parquet files"),
}
OTHERS = {"md": b"read me", "csv": b"age,sex\n1,male\n", "json": b"{}", "crc": b"crc\0", "empty": b""}


def write(folder: Path, names: list[str]) -> None:
    """Write files; those that are not named as others are complete Parquet files."""
    folder.mkdir()
    for name in names:
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            continue
        suffix = path.suffix.removeprefix(".")
        if suffix in OTHERS or path.name == "_SUCCESS":
            path.write_bytes(OTHERS.get(suffix, b""))
        else:
            pq.write_table(TABLE, path)
        if suffix == "part":
            path.write_bytes(path.read_bytes()[:-20])


def check(settings: DatasetConfig, expected: int | str, scratch: Path) -> None:
    """Every way of reading a folder has the same answer."""
    workspace = Workspace(2 * 10**9, scratch, 2)
    ways = {
        "load": lambda: load(settings).n_records,
        "count": lambda: count_records(settings),
        "memory": lambda: pin(settings, None, EngineKind.MEMORY, workspace).n_records,
        "disk": lambda: pin(settings, None, EngineKind.DISK, workspace).n_records,
    }
    for way, read in ways.items():
        if isinstance(expected, int):
            assert read() == expected, way
        else:
            with pytest.raises(DataError, match=expected) as caught:
                read()
            assert caught.value.hint


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder(dataset, tmp_path, name):
    """Files of programs are left out, everything else is read or refused, whichever engine reads.

    `test_spark.py`, which has a session, lets Spark read the same folders.
    """
    names, expected = FOLDERS[name]
    write(tmp_path / "data", names)
    check(dataset(None, source=str(tmp_path / "data")), expected, tmp_path / "scratch")


def test_an_owner_who_asks_sees_which_files(dataset, tmp_path):
    """Names of files are shown to the owner alone."""
    write(tmp_path / "data", ["a.parquet", "notes.md", "year=2020/a.parquet", "old/a.parquet"])
    settings = dataset(None, source=str(tmp_path / "data"))
    with pytest.raises(DataError) as caught:
        load(settings, examples=True)
    assert [each["examples"] for each in caught.value.details["problems"]] == [
        ["year=2020"], ["old"], ["notes.md"],
    ]  # fmt: skip
    with pytest.raises(DataError) as caught:
        load(settings)
    assert "notes.md" not in f"{caught.value}{caught.value.details}"
