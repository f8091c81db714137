"""Programs that are started as forks: the same programs, children of the tests, and gone with them."""

import signal
import subprocess
import sys
from os import getpgid, getpid, getsid
from pathlib import Path

import psutil
import pytest

from deploy import local_process
from deploy.local_cluster import LocalCluster
from deploy.local_process import LAUNCH_WORDS, program_path, run_program
from deploy.local_setup import dataset, make_setup
from tests.preloaded import __file__ as preloaded

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are started as usual elsewhere")
DATASET = dataset(
    {"name": "patients", "source": "patients.csv", "total_epsilon": "1"},
    {"age": {"type": "integer", "min": 0, "max": 120}},
)
TESTS = f"""
import sys, time
from pathlib import Path
from deploy import local_process
from tests.preloaded import forking

programs, config = map(Path, sys.argv[1:])
with forking(programs, {LAUNCH_WORDS}) as local_process.POPEN:
    daemon = local_process.LocalDaemon("aggregator", "aggregator", config, config.with_name("log"))
    daemon.programs = programs
    daemon.start()
    daemon.wait_for("ready")
    print(daemon.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an aggregator and one owner, without data."""
    make_setup(tmp_path, {"a": DATASET})
    return tmp_path


def is_fork(pid: int) -> bool:
    """Return whether a process has the command line of the starter."""
    return preloaded in psutil.Process(pid).cmdline()


def test_a_fork_is_a_child_of_its_own(folder, monkeypatch):
    """It leads a session, is signalled, waited for and reported as any other child; a program that is to have
    another environment is no fork, since its libraries could read it when they are imported.
    """
    with LocalCluster(folder) as cluster:
        daemon, owner = cluster.aggregator, cluster.owner("a")
        daemon.start()
        daemon.wait_for("ready")
        assert is_fork(daemon.pid)
        assert psutil.Process(daemon.pid).ppid() == getpid()
        assert getsid(daemon.pid) == getpgid(daemon.pid) == daemon.pid
        files = Path(f"/proc/{daemon.pid}/fd")
        assert {name: (files / name).readlink().name[:5] for name in "01"} == {"0": "null", "1": "pipe:"}
        monkeypatch.setenv("TZ", "Asia/Kathmandu")
        owner.start()
        owner.wait_for("connected")
        assert not is_fork(owner.pid)
        assert owner.kill() == -signal.SIGKILL
        assert daemon.stop() == 0


@pytest.mark.parametrize("arguments", [["--version"], ["ledger", "--help"], ["status"], ["no-command"]])
def test_a_fork_says_what_the_program_says(arguments, tmp_path, monkeypatch):
    """Output, errors and exit code."""
    forked = run_program("owner-node", arguments, tmp_path)
    monkeypatch.setattr(local_process, "POPEN", subprocess.Popen)
    ordinary = run_program("owner-node", arguments, tmp_path)
    assert vars(forked) == vars(ordinary)


def test_nothing_outlives_killed_tests(folder):
    """A test process that is killed leaves neither a program nor the starter."""
    command = [
        sys.executable,
        "-c",
        TESTS,
        program_path("aggregator").parent,
        folder / "aggregator" / "aggregator.toml",
    ]
    with subprocess.Popen(
        command, cwd=Path(preloaded).parents[1], stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        daemon = int(tests.stdout.readline())
        children = psutil.Process(tests.pid).children(recursive=True)
        assert len(children) == 2
        assert daemon in {child.pid for child in children}
        assert is_fork(daemon)
        tests.kill()
    assert psutil.wait_procs(children, timeout=60)[1] == []
