"""Releases of owners whose data are a folder of Parquet files, on their disk or in an object store."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.object_server import ACCESS_KEY, SECRET_KEY, ObjectStore, object_store
from tests.system.small_owners import ATTRIBUTES, ask, declared, identifiers, people, policy, released

SIZE = 40
SOURCES = {
    "left-out": ["part-0.parquet", "part-1.parq", "_tmp.parquet", ".~tmp.parquet", "_SUCCESS"],
    "partitions": ["part-0.parquet", "year=2024/part-0.parquet"],
    "notes": ["part-0.parquet", "part-1.parquet", "notes.txt"],
}
"""Files of owner b, by the name of the data set; those of owner a are one plain file."""


def _write(folder: Path, owner: str, name: str, files: list[str]) -> str:
    """Write half of an owner's persons into each file, and declare the folder."""
    place = folder / "owners" / owner / name
    table = pa.Table.from_pandas(people(identifiers(ord(owner) * SIZE, SIZE), seed=1), preserve_index=False)
    for number, file in enumerate(files):
        path = place / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.startswith(".par"):
            half = SIZE // 2 * (number % 2)
            pa.parquet.write_table(table.slice(half, SIZE // 2), path)
        else:
            path.write_text("")
    attributes = {each: ATTRIBUTES[each] for each in ("age", "ward")}
    return declared(name, attributes=attributes, source=name, budget="people", total_epsilon="1000")


def _stored(folder: Path, store: ObjectStore) -> str:
    """Declare the files of owner b in a store, with a file of credentials."""
    _write(folder, "b", "stored", ["part-0.parquet", "part-1.parquet", "_SUCCESS"])
    (folder / "owners/b/stored").rename(store.folder / "registry/stored")
    secret = folder / "owners/b/store-credentials"
    secret.touch(0o600)
    secret.write_text(f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n")
    attributes = {each: ATTRIBUTES[each] for each in ("age", "ward")}
    about = {"source": store.address("s3://registry/stored"), "credentials_file": secret.name}
    return declared("stored", attributes=attributes, budget="people", total_epsilon="1000", **about)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Iterator[ObjectStore]:
    """An object store with an empty bucket."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "registry").mkdir()
    with object_store(folder) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, store) -> Iterator[LocalCluster]:
    """Two owners of different persons, both with a data set for each folder."""
    folder = tmp_path_factory.mktemp("folders")
    rules = dict.fromkeys("ab", policy())
    for name, files in SOURCES.items():
        rules["a"] += _write(folder, "a", name, ["part-0.parquet", "part-1.parquet"])
        rules["b"] += _write(folder, "b", name, files)
    rules["a"] += _write(folder, "a", "stored", ["part-0.parquet", "part-1.parquet"])
    rules["b"] += _stored(folder, store)
    make_setup(folder, rules)
    share_linkage_key(folder, "ab")
    with LocalCluster(folder) as running:
        running.start()
        yield running


def test_files_of_programs_are_no_records(cluster):
    """Files that are being written are not read, those with any other name are, and `check` agrees."""
    code, document = released(cluster, "left-out", dataset="left-out")
    assert code == 0, document
    assert pa.parquet.read_metadata(Path(document["directory"]) / "data.parquet").num_rows == 2 * SIZE
    code, document = ask(cluster, "owner-node", "check", "--dataset", "left-out", owner="b")
    assert code == 0, document


@pytest.mark.parametrize(
    ("name", "problem", "example"),
    [
        ("partitions", "a folder of partitions", "year=2024"),
        ("notes", "not readable as Parquet", "notes.txt"),
    ],
)
def test_a_folder_that_is_not_read_as_a_whole_is_refused(cluster, name, problem, example):
    """The release ends, its aggregator learns nothing of the file, and the owner's check names it."""
    code, document = released(cluster, name, dataset=name)
    assert code == 4, document
    assert example not in str(document)
    code, document = ask(cluster, "owner-node", "check", "--dataset", name, owner="b")
    assert code == 2
    (found,) = document["error"]["details"]["problems"]
    assert (found["problem"], found["examples"]) == (problem, [example])


def test_a_daemon_masks_what_lies_in_an_object_store(cluster, store):
    """A release of objects is one of files; while the store is away, `check` ends with exit 6."""
    code, document = released(cluster, "stored", dataset="stored")
    assert code == 0, document
    assert pa.parquet.read_metadata(Path(document["directory"]) / "data.parquet").num_rows == 2 * SIZE
    assert any(each.startswith("GET /registry/stored/part-1.parquet") for each in store.asked)
    store.fail("busy")
    code, document = ask(cluster, "owner-node", "check", "--dataset", "stored", owner="b")
    store.fail("")
    assert (code, document["error"]["code"]) == (6, "source_unreachable")
    assert SECRET_KEY not in str(document)
    assert SECRET_KEY not in "".join(path.read_text() for path in cluster.folder.rglob("*.log"))
