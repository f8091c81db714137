"""Masks and queries on every engine: the same bytes and the same answers as in memory."""

import errno
import json
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from common.cli import console
from owner_node.cli import application
from tests.fakes.bits import SeededBits
from tests.fakes.owner_folder import ask_mask, make_owner_folder, spends

N_RECORDS = 3000
QUESTIONS = (
    ("median", "income"),
    ("maximum", "age"),
    ("second-maximum", "admitted"),
    ("quantile", "income", "--share", "0.9"),
    ("sum", "income"),
    ("mean", "age"),
    ("count", "ward", "--equals", "medicine"),
    ("histogram", "age", "--bins", "0,20,50"),
)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An owner's folder, and the place of work; noise follows from the number of the key."""
    monkeypatch.chdir(tmp_path)
    return make_owner_folder(tmp_path, n_records=N_RECORDS)


@pytest.fixture
def known_keys(monkeypatch) -> Any:
    """Let all keys of the noise be known; returns what lets them begin anew."""

    def again() -> None:
        numbers = count()
        for place in ("masking.mask", "local.mask", "local.query"):
            monkeypatch.setattr(f"owner_node.{place}.SystemBits", lambda: SeededBits(next(numbers)))

    return again


def choose(folder: Path, kind: str) -> None:
    """Write the engine into owner.toml, in place of an earlier one."""
    path = folder / "owner.toml"
    engine = f'\n[engine]\nkind = "{kind}"\nmemory_limit = "256MB"\nthreads = 2\n'
    path.write_text(path.read_text().partition("\n[engine]")[0] + engine)


@pytest.mark.parametrize("out", ["masked.csv", "masked.parquet"])
def test_a_mask_has_the_same_bytes(folder, capsys, monkeypatch, known_keys, out):
    """On disk, batches of a few records give the file that memory writes, and scratch is cleared."""
    monkeypatch.setattr("owner_node.local.masked_tables._GROUP_RECORDS", 700)
    made = {}
    for kind in ("memory", "disk"):
        choose(folder, kind)
        known_keys()
        code, document = ask_mask(capsys, "--out", f"{kind}-{out}", "--id", kind, "--k", "20")
        assert (code, document["report"]["records"]) == (0, str(N_RECORDS))
        made[kind] = Path(f"{kind}-{out}").read_bytes()
    assert made["memory"] == made["disk"]
    assert len(spends(folder)) == 2
    assert pq.ParquetFile(folder / "state" / "masked" / "disk.parquet").num_row_groups == 5
    assert not list((folder / "state" / "scratch").iterdir())
    assert sorted(path.name for path in (folder / "state" / "masked").glob("*fragment*")) == []


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each[0])
def test_a_query_has_the_same_answer(folder, capsys, known_keys, question):
    """Order statistics, sums and counts are computed from a streamed column as from an array."""
    kind, attribute, *more = question
    found = []
    for engine in ("memory", "disk"):
        choose(folder, engine)
        known_keys()
        command = ["query", kind, "--dataset", "patients", "--attribute", attribute, "--epsilon", "0.5"]
        assert console.run(application(), "owner-node", [*command, *more, "--yes", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["answer"])
    assert found[0] == found[1]
    assert not list((folder / "state" / "scratch").iterdir())


def test_a_mask_that_fails_leaves_no_fragment(folder, capsys, monkeypatch):
    """A disk that is full stays so if what filled it is kept; the same id then draws anew, charged once."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    choose(folder, "disk")
    with monkeypatch.context() as failing:
        failing.setattr("owner_node.local.masked_tables.in_pieces", full)
        assert ask_mask(capsys, "--out", "masked.csv", "--id", "one", "--k", "20")[0] != 0
    assert [path.name for path in (folder / "state" / "masked").iterdir() if "fragment" in path.name] == []
    assert ask_mask(capsys, "--out", "masked.csv", "--id", "one", "--k", "20")[0] == 0
    assert len(spends(folder)) == 1
