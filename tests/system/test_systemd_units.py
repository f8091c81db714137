"""The unit files: systemd understands them, they expose little, and daemons work under what they forbid."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_process import program_path
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.confined import settings, system_calls
from tests.system.small_owners import ATTRIBUTES, declared, identifiers, people, released, write

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
PROGRAM_OF = {"aggregator": "tessera-aggregator.service", "owner-node": "tessera-owner-node.service"}
WORST_EXPOSURE = 20
"""Tenths of systemd's measure, of which 100 is a service without any restriction."""
CONSOLE_OF = {
    "aggregator": "tessera-aggregator-console.service",
    "owner-node": "tessera-owner-console.service",
}
EVERY_UNIT = pytest.mark.parametrize("unit", sorted([*PROGRAM_OF.values(), *CONSOLE_OF.values()]))


@EVERY_UNIT
@pytest.mark.needs("systemd")
def test_systemd_understands_the_unit(unit: str, tmp_path: Path) -> None:
    """No setting is misspelt, and the programs are started with words that they know."""
    text = (UNITS / unit).read_text(encoding="utf-8").replace("/opt/tessera", sys.prefix)
    copy = tmp_path / unit
    copy.write_text(text, encoding="utf-8")
    checked = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


@EVERY_UNIT
@pytest.mark.needs("systemd")
def test_the_unit_exposes_little(unit: str) -> None:
    """By systemd's own measure each daemon may do little more than its work."""
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={WORST_EXPOSURE}"]
    judged = subprocess.run([*command, UNITS / unit], capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout


@EVERY_UNIT
def test_programs_and_users_are_those_of_the_page(unit: str) -> None:
    """Units, users and the page on operations speak of the same names."""
    says = settings(UNITS / unit)
    page = (UNITS.parents[1] / "docs" / "operations.md").read_text(encoding="utf-8")
    (user,), (state,) = says["User"], says["StateDirectory"]
    assert f"u {user} - " in (UNITS / "tessera.sysusers.conf").read_text(encoding="utf-8")
    assert unit.removesuffix(".service") in page
    assert f"/var/lib/{state}" in page
    assert user in page


@pytest.mark.needs("systemd", "spark")
def test_java_starts_where_the_unit_lets_it(tmp_path: Path) -> None:
    """The line of the unit that is for Spark is what Java needs, and nothing else."""
    unit = (UNITS / PROGRAM_OF["owner-node"]).read_text(encoding="utf-8")
    changed = tmp_path / "changed.service"
    changed.write_text(
        unit.replace("#MemoryDenyWriteExecute=no", "MemoryDenyWriteExecute=no"), encoding="utf-8"
    )
    confined, java = Path(__file__).with_name("confined.py"), shutil.which("java")
    assert java is not None
    codes = [
        subprocess.run([sys.executable, confined, each, java, "-version"], capture_output=True).returncode
        for each in (UNITS / PROGRAM_OF["owner-node"], changed)
    ]
    assert codes == [1, 0]


@pytest.mark.needs("systemd")
def test_what_a_filter_allows() -> None:
    """The filter that the next test works under is the units' own, and no empty one."""
    for unit in PROGRAM_OF.values():
        allowed = system_calls(settings(UNITS / unit)["SystemCallFilter"])
        assert {"read", "execve", "socket"} <= allowed
        assert not {"ptrace", "mount", "setpriority", "bpf", "init_module", "chown"} & allowed


class Manager:
    """Starts daemons as systemd would, restricted as their units say, and hears what they tell it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._place = folder / "notify"
        self._stack = stack
        self._heard = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._heard.bind(str(self._place))
        self._heard.settimeout(60)

    def start(self, program: str, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start a daemon, which the end of the test ends."""
        confined = Path(__file__).with_name("confined.py")
        process = subprocess.Popen(
            [sys.executable, confined, UNITS / PROGRAM_OF[program], program_path(program), *arguments],
            env=os.environ | {"NOTIFY_SOCKET": str(self._place)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def hears(self) -> str:
        """Return the next thing that a daemon tells."""
        return self._heard.recv(100).decode()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Configurations of an aggregator and two owners; nothing runs."""
    small = {name: ATTRIBUTES[name] for name in ("age", "ward")}
    for position, owner in enumerate("ab"):
        write(tmp_path, owner, "patients", people(identifiers(200 * position, 200), seed=position))
    make_setup(tmp_path, {owner: declared("patients", attributes=small) for owner in "ab"})
    share_linkage_key(tmp_path, ["a", "b"])
    with LocalCluster(tmp_path) as made:
        yield made


def wait_for(process: subprocess.Popen[str], event: str) -> dict[str, Any]:
    """Read a daemon's log up to an event."""
    assert process.stderr is not None
    for line in process.stderr:
        entry: dict[str, Any] = json.loads(line)
        if entry["event"] == event:
            return entry
    raise AssertionError(f"the log ended before {event!r}")


@pytest.mark.needs("systemd")
@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_daemons_work_under_the_restrictions(cluster: LocalCluster, tmp_path: Path) -> None:
    """A whole release goes through with what the units forbid forbidden; start and stop are told."""
    with ExitStack() as stack:
        manager = Manager(tmp_path, stack)
        daemons = [manager.start("aggregator", "serve", "--config", cluster.aggregator.config)]
        assert manager.hears() == "READY=1"
        for owner in cluster.owners.values():
            daemons.append(manager.start("owner-node", "run", "--config", owner.config))
            assert manager.hears() == "READY=1"
            wait_for(daemons[-1], "connected")
        status = Path(f"/proc/{daemons[0].pid}/status").read_text(encoding="utf-8")
        assert "Seccomp:\t2" in status
        code, document = released(cluster, "r1")
        assert (code, document.get("state")) == (0, "published"), document
        for daemon in reversed(daemons):
            daemon.terminate()
            assert manager.hears() == "STOPPING=1"
            assert daemon.wait(30) == 0
