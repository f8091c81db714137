"""The demonstration for real, from its first file to its last process."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import UsageError
from deploy.demo import MARKER, fresh_folder
from deploy.demo_data import (
    CLINIC,
    HOSPITAL_ATTRIBUTES,
    HOSPITALS,
    N_OVERLAP,
    N_PEOPLE,
    REGISTRY,
    OwnerData,
    departments,
    hospitals,
    overlap,
)

PROJECT = Path(__file__).parents[2]
N_DAEMONS = 6
ENDING_SECONDS = 30
FORKING = """
import sys
from deploy import demo, local_process
from tests.preloaded import forking
programs = local_process.program_path("aggregator").parent
with forking(programs, local_process.LAUNCH_WORDS) as local_process.POPEN:
    code = demo.main(sys.argv[1:])
sys.exit(code)
"""
"""A demonstration whose programs start as forks of one that has imported them."""


class Demo:
    """A running demonstration.

    Args:
        forking: Whether its programs are forks; else they start as users start them.
    """

    def __init__(self, folder: Path, *arguments: str, forking: bool) -> None:
        self.folder = folder
        demo = ("-c", FORKING) if forking else ("-m", "deploy.demo")
        self.process = subprocess.Popen(
            [sys.executable, *demo, "--out", str(folder), *arguments],
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, words: str) -> list[psutil.Process]:
        """Read what it notes until the words appear; returns the processes that it has started."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return psutil.Process(self.process.pid).children(recursive=True)
        raise AssertionError(f"the demonstration ended before {words!r}")

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; returns exit code and what it printed."""
        out, err = self.process.communicate(timeout=500)
        return self.process.returncode, out, err

    def left(self) -> list[psutil.Process]:
        """Return the processes that speak of the folder, or work in it, as forks do."""
        found = []
        for process in psutil.process_iter(["cmdline", "cwd"]):
            words = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
            if any(str(self.folder) in word for word in words):
                found.append(process)
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts demonstrations in the test's folder, and ends those that a failed test leaves."""
    started = []

    def start(*arguments: str, forking: bool = False) -> Demo:
        started.append(Demo(tmp_path / "demo", *arguments, forking=forking))
        return started[-1]

    yield start
    for demo in started:
        if demo.process.poll() is None:
            demo.process.kill()
        demo.process.communicate()


def holes(released: pa.Table, owners: Sequence[OwnerData]) -> list[tuple[str, int]]:
    """Return bins that a histogram of the originals fills and one of the released values does not.

    Of twenty bins of an attribute, those with a twentieth of the records; a third of them has to be there.
    """
    originals = pd.concat([pd.read_csv(BytesIO(each.csv)) for each in owners])
    numbers = originals.select_dtypes("number").columns.intersection(released.column_names)
    assert len(numbers) > 2
    found = []
    for name in numbers:
        shares, edges = np.histogram(originals[name].dropna(), 20)
        values = released[name].to_pandas().dropna().astype(float)
        here, _ = np.histogram(values.clip(edges[0], edges[-1]), edges)
        wanted = shares >= 0.05 * shares.sum()
        found += [
            (name, int(place))
            for place in np.flatnonzero(wanted & (here / len(values) * 3 < shares / shares.sum()))
        ]
    return found


@pytest.mark.timeout(600)
def test_three_releases(run, tmp_path):
    """All releases are published with every record and attribute, the noisy number of persons at both is
    near the true one, folders are printed, every owner's check is done, an earlier demonstration is replaced,
    and no process is left.
    """
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / MARKER).touch()
    (tmp_path / "demo" / "of-before").touch()
    demo = run("--epsilon", "2", forking=True)
    code, out, err = demo.end()
    assert code == 0, err
    assert not (tmp_path / "demo" / "of-before").exists()
    for owner, n_records in HOSPITALS.items():
        assert re.search(rf"^{owner} +{n_records} +2 +\d+ +published$", out, re.MULTILINE)
    attributes = {
        "hospitals": HOSPITAL_ATTRIBUTES,
        "hospitals-synthetic": HOSPITAL_ATTRIBUTES,
        "overlap": (*CLINIC, *REGISTRY, "at_clinic", "at_registry"),
    }
    for release, names in attributes.items():
        folder = tmp_path / "demo" / "releases" / release
        assert f"release folder: {folder}" in out
        table = pq.read_table(folder / "data.parquet")
        assert table.num_rows == (N_OVERLAP if release == "overlap" else N_PEOPLE)
        assert set(table.column_names) == {"record", *names}
        assert json.loads((folder / "manifest.json").read_text())["release"] == release
        if release == "overlap":
            at_both = np.logical_and(table["at_clinic"], table["at_registry"]).sum()
            assert abs(at_both - N_OVERLAP * 3 / 5) < N_OVERLAP / 20
        else:
            assert holes(table, hospitals(1)) == []
    assert "release hospitals-synthetic (horizontal, δ 0.000001): published" in out
    assert out.count(f"verified by the aggregator and by {', '.join(HOSPITALS)}") == 2
    assert "verified by the aggregator and by clinic, registry" in out
    assert "Traceback" not in err
    assert demo.left() == []
    # The last lines, as they are printed.
    lines = [line.strip() for line in out.splitlines()[-3:]]
    read = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=PROJECT, capture_output=True, text=True
    )
    assert read.stdout.startswith("<release hospitals: 10,000 records"), read.stderr
    assert "identities checked" in read.stdout


STARTING, CONNECTED = "starting an aggregator", "all owners are connected"


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGINT, 130, CONNECTED),
        # They have one handler, and what it raises ends the same block as Ctrl-C.
        (signal.SIGTERM, 143, STARTING),
        (signal.SIGHUP, 129, STARTING),
        pytest.param(
            signal.SIGKILL,
            -signal.SIGKILL,
            CONNECTED,
            marks=pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent"),
        ),
    ],
)
def test_interrupted(run, number, code, words):
    """Ctrl-C, SIGTERM, a closed terminal and even SIGKILL while the daemons start or run leave no process
    behind.
    """
    demo = run("--keep-running")
    children = demo.until(words)
    assert words == STARTING or len(children) >= N_DAEMONS
    demo.process.send_signal(number)
    ended, _, err = demo.end()
    assert (ended, "Traceback" in err) == (code, False)
    # A command may have been started after the daemons; it ends with its parent, too.
    assert psutil.wait_procs([*children, *demo.left()], timeout=ENDING_SECONDS)[1] == []
    assert demo.left() == []


def test_failure(run):
    """A release that the owners' policy refuses ends the demonstration with the release's exit code, says
    what to do, and leaves no process behind.
    """
    demo = run("--epsilon", "7", forking=True)
    code, _, err = demo.end()
    assert (code, "Traceback" in err) == (4, False)
    assert "error: " in err
    assert demo.left() == []


def test_folder_of_something_else(tmp_path):
    """A folder that is not an earlier demonstration is never removed."""
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter").touch()
    with pytest.raises(UsageError):
        fresh_folder(folder)
    assert (folder / "chapter").exists()


def test_data_of_a_seed():
    """The same seed gives the same bytes, another seed other people; hospitals share no patient, departments
    share all, each in an order of its own, a clinic and a registry three fifths.
    """
    first, again, other = hospitals(3), hospitals(3), hospitals(4)
    assert [owner.csv for owner in first] == [owner.csv for owner in again]
    assert first[0].csv != other[0].csv
    assert [len(owner.table) for owner in first] == list(HOSPITALS.values())
    ids = [set(owner.table["patient_id"]) for owner in first]
    assert len(set.union(*ids)) == N_PEOPLE == sum(map(len, ids))
    columns = [owner.table["patient_id"].str.upper().tolist() for owner in departments(3)]
    assert len({frozenset(column) for column in columns}) == 1
    assert columns[0] != columns[1] != columns[2]
    clinic, registry = (frozenset(owner.table["patient_id"]) for owner in overlap(3))
    assert (len(clinic | registry), len(clinic & registry)) == (N_OVERLAP, N_OVERLAP * 3 // 5)
