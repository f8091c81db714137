"""What every test with real processes leans on: that they are heard, and that they end."""

import signal
import subprocess
import tomllib
from contextlib import suppress
from datetime import date
from pathlib import Path

import psutil
import pytest

from common.errors import UsageError
from deploy.local_cluster import LocalCluster
from deploy.local_process import PROGRAMS, LocalProcessError, program_path
from deploy.local_setup import control_socket, dataset, make_setup, section

DATASET = dataset(
    {"name": "patients", "source": "patients.csv", "total_epsilon": "1"},
    {"age": {"type": "integer", "min": 0, "max": 120}},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an aggregator and one owner, without data."""
    make_setup(tmp_path, {"a": DATASET})
    return tmp_path


def test_killed_and_restarted(folder):
    """A killed daemon is gone at once, and after a restart it is connected again as another process."""
    with LocalCluster(folder) as cluster:
        cluster.start()
        owner = cluster.owner("a")
        first = owner.pid
        assert owner.kill() == -signal.SIGKILL
        assert not psutil.pid_exists(first)
        cluster.restart(owner)
        assert owner.running
        assert owner.pid != first
        cluster.restart(cluster.aggregator)
        assert cluster.cli("aggregator", "status", "--check").returncode == 0
    assert not cluster.aggregator.running
    assert not owner.running


def test_everything_ends(folder):
    """Leaving the block by an error ends a halted daemon and a command that is still running, and leaves no
    folder for a socket.
    """
    with suppress(ZeroDivisionError), LocalCluster(folder) as cluster:
        cluster.start()
        pids = [cluster.aggregator.pid, cluster.owner("a").pid]
        cluster.owner("a").signal(signal.SIGSTOP)
        # The halted owner does not answer, so this waits for its deadline.
        command = cluster.start_cli(
            *("aggregator", "release", "--dataset", "patients", "--layout", "horizontal", "--owners", "a"),
            *("--epsilon", "1", "--k", "5", "--yes", "--anyway"),
        )
        raise ZeroDivisionError
    assert command.returncode is not None
    assert not any(psutil.pid_exists(pid) for pid in [*pids, command.pid])
    assert not control_socket(folder / "aggregator").exists()


def test_end_before_ready(folder):
    """A daemon that cannot start is an error with the last words of its log, not a wait."""
    config = folder / "aggregator" / "aggregator.toml"
    config.write_text(config.read_text().replace('name = "central"', 'name = "other"'))
    with LocalCluster(folder) as cluster, pytest.raises(LocalProcessError) as caught:
        cluster.start()
    assert "ended before 'ready'" in caught.value.message
    assert "spiffe://demo.example/aggregator/central" in caught.value.hint


def test_silent_daemon(folder):
    """Waiting for what never comes ends, and says for what it waited."""
    with LocalCluster(folder) as cluster:
        cluster.aggregator.start()
        cluster.aggregator.wait_for("ready")
        with pytest.raises(LocalProcessError, match="waited 0 s before 'flown'"):
            cluster.aggregator.wait_for("flown", timeout=0.01)


def test_command_that_takes_too_long(folder):
    """A command past its time is ended, and the caller is told."""
    with LocalCluster(folder) as cluster, pytest.raises(subprocess.TimeoutExpired):
        cluster.cli("aggregator", "serve", timeout=0.5)


@pytest.mark.parametrize("owners", [["a", "b"], []])
def test_folder_without_configurations(folder, owners):
    """A folder that lacks an owner's configuration is a usage error."""
    with pytest.raises(UsageError):
        LocalCluster(folder, owners)


def test_written_settings():
    """What is written as TOML is read as the same values, awkward texts included."""
    values = {
        "text": 'a "b" \\ ü\n\t',
        "number": -3,
        "yes": True,
        "day": date(2026, 2, 28),
        "list": ["x", "]"],
    }
    assert tomllib.loads(section("[table]", values)) == {"table": values}
    with pytest.raises(TypeError):
        section("[table]", {"epsilon": 0.1})


def test_long_folder(tmp_path):
    """A checkout far down in the file system gets a socket with a path that systems accept."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    make_setup(deep, {"a": DATASET})
    with LocalCluster(deep) as cluster:
        cluster.start()
        assert control_socket(deep / "aggregator").exists()
        assert cluster.cli("aggregator", "status", "--check").returncode == 0
    assert not control_socket(deep / "aggregator").parent.exists()


def test_program_that_is_not_installed(tmp_path, monkeypatch):
    """Where a program is not installed that is said, with what to do, before a process is started."""
    monkeypatch.setenv(PROGRAMS, str(tmp_path))
    with pytest.raises(LocalProcessError) as raised:
        program_path("owner-node")
    assert "make setup" in raised.value.hint
