"""The page on operations, followed on a machine that systemd has booted: installed, watched, restarted."""

import json
import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common import __version__
from deploy.wheel_environment import build_wheel
from tests.system.container_engine import BASE, KEPT, PROJECT, makes_base, prepare_base, run

pytestmark = [
    pytest.mark.needs("docker"),
    pytest.mark.skipif(not makes_base(), reason="no image with systemd can be made here (root, mmdebstrap)"),
    pytest.mark.timeout(900),
]
# A hierarchy of control groups of its own, which systemd takes for the whole machine's.
BOOT = """
mount -t cgroup2 cgroup2 /mnt
mkdir -p /mnt/$1
echo 0 > /mnt/$1/cgroup.procs
umount /mnt
exec unshare --cgroup --mount sh -c '
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    exec /sbin/init'
"""
PRIVILEGES = (
    *("--cap-add", "SYS_ADMIN", "--cap-add", "SYS_PTRACE", "--cap-add", "NET_ADMIN"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
)
OWNER = """
[owner]
id = "north"
trust_domain = "example.org"
state_dir = "/var/lib/tessera-owner/state"
[[aggregator]]
name = "central"
address = "localhost:8443"
[tls]
ca = "/var/lib/tessera-owner/tls/ca.pem"
cert = "/var/lib/tessera-owner/tls/own.pem"
key = "/var/lib/tessera-owner/tls/own.key"
[[dataset]]
name = "patients"
source = "/home/data/patients.csv"
total_epsilon = 3
[dataset.attributes.age]
type = "integer"
min = 0
max = 120
"""
NODE, AGGREGATOR = "tessera-owner-node", "tessera-aggregator"
AS_OWNER = "sudo -u tessera-owner /opt/tessera/bin/owner-node"
AS_AGGREGATOR = "sudo -u tessera-aggregator /opt/tessera/bin/aggregator"
OWNER_FILE = "--config /etc/tessera/owner.toml"
AGGREGATOR_FILE = "--config /var/lib/tessera-aggregator/aggregator.toml"
WAIT_SECONDS = 60.0


def documented() -> list[list[str]]:
    """Return the indented commands of the page up to "Services", and of each of its blocks."""
    page = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    part = page.split("\n## Install\n")[1].split("\nThe units remove")[0].replace("0.1.0", __version__)
    blocks: list[list[str]] = []
    before = ""
    for line in part.replace("\\\n", "").splitlines():
        if line.startswith("    "):
            if not before.startswith("    "):
                blocks.append([])
            blocks[-1].append(line.strip())
        before = line
    return blocks


class Machine:
    """A container that systemd has booted.

    Args:
        container: Its id.
    """

    def __init__(self, container: str) -> None:
        self._container = container

    def tried(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as root, in the folder that an operator copied the files to."""
        offline = ("--env", "PIP_NO_INDEX=1", "--env", "PIP_FIND_LINKS=/wheels")
        return run(
            *("docker", "exec", "--workdir", "/install", *offline, self._container, "sh", "-c", command),
            check=False,
        )

    def run(self, command: str) -> str:
        """Run a command that has to end well; returns what it printed."""
        ended = self.tried(command)
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        self.run(f"mkdir -p {Path(path).parent} && printf %s {shlex.quote(text)} > {path}")

    def wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds. systemd announces some of it only on its own bus."""
        until = time.monotonic() + WAIT_SECONDS
        while not holds():
            assert time.monotonic() < until, what + self.run(f"journalctl -u {NODE} -u {AGGREGATOR} -n 50")
            self.run("sleep 0.5")

    def property(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run(f"systemctl show {unit} --property={name} --value").strip()

    def journal(self, unit: str, *options: str) -> list[dict[str, Any]]:
        """Return the lines of a daemon in the journal."""
        of_daemon = f"_SYSTEMD_UNIT={unit}.service"
        lines = self.run(f"journalctl {of_daemon} -o cat --no-pager {' '.join(options)}").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which the page was followed for an aggregator and an owner."""
    prepare_base()
    folder = tmp_path_factory.mktemp("install")
    build_wheel(folder / "dist")
    shutil.copy(PROJECT / "requirements.lock", folder)
    (folder / "boot.sh").write_text(BOOT)
    name = f"tessera-booted-{uuid.uuid4().hex[:8]}"
    mounts = (
        "--tmpfs",
        "/run",
        "--tmpfs",
        "/tmp",
        "-v",
        f"{folder}:/install",
        "-v",
        f"{KEPT}/wheels:/wheels:ro",
    )
    started = ("--env", "container=docker", "--name", name, BASE, "sh", "-e", "/install/boot.sh", name)
    container = run("docker", "run", "--detach", *PRIVILEGES, *mounts, *started).stdout.strip()
    try:
        machine = Machine(container)
        machine.wait_until("booted", lambda: not machine.tried("systemctl is-system-running").returncode)
        follow(machine)
        yield machine
    finally:
        run("docker", "rm", "--force", container)
        for group in Path("/sys/fs/cgroup").glob(f"**/{name}"):
            run("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")


def follow(machine: Machine) -> None:
    """Run the page's commands in its order, and between them what the other side does."""
    install, aggregator, request, enrolled = documented()
    for command in (*install, *aggregator):
        machine.run(command.replace("aggregator.example.org", "localhost"))
    machine.write("/home/data/patients.csv", "age\n" + "".join(f"{age}\n" for age in range(20, 90)))
    machine.write("/install/owner.toml", OWNER)
    for command in request:
        machine.run(command)
    machine.run("install -o tessera-aggregator /var/lib/tessera-owner/north.csr /var/lib/tessera-aggregator/")
    approved = machine.run(
        f"cd /var/lib/tessera-aggregator && {AS_AGGREGATOR} enroll approve north.csr --yes "
        f"--out north.bundle {AGGREGATOR_FILE} --json && cp north.bundle /install"
    )
    for command in enrolled:
        machine.run(command.replace("FINGERPRINT", json.loads(approved)["ca_fingerprint"]))


def connected(machine: Machine) -> bool:
    """Tell whether the owner's check passes."""
    return machine.tried(f"{AS_OWNER} status --check {OWNER_FILE}").returncode == 0


@pytest.mark.parametrize("unit", [AGGREGATOR, NODE])
def test_the_page_works_in_its_order(machine: Machine, unit: str) -> None:
    """The daemons run at once, without a failed start, and will run after a reboot."""
    machine.wait_until("connected", lambda: connected(machine))
    assert machine.property(unit, "ActiveState") == "active"
    assert machine.property(unit, "NRestarts") == "0"
    assert machine.run(f"systemctl is-enabled {unit}").strip() == "enabled"
    assert machine.tried(f"journalctl -u {unit} --grep Failed").returncode == 1


def test_the_check_sees_data_as_the_daemon_does(machine: Machine) -> None:
    """Data in a home folder are reported as hidden, until the unit binds their folder."""
    warning = "hides /home/data/patients.csv from the daemon (ProtectHome=tmpfs)"
    for command in ("check", "doctor"):
        assert warning in machine.tried(f"{AS_OWNER} {command} {OWNER_FILE}").stdout
    machine.write(
        f"/etc/systemd/system/{NODE}.service.d/data.conf", "[Service]\nBindReadOnlyPaths=/home/data\n"
    )
    machine.run(f"systemctl daemon-reload && systemctl restart {NODE}")
    assert "hides" not in machine.run(f"{AS_OWNER} check {OWNER_FILE}")
    pid = machine.property(NODE, "MainPID")
    assert machine.run(f"ls /proc/{pid}/root/home/data").split() == ["patients.csv"]


@pytest.mark.parametrize(
    ("unit", "alive"),
    [
        (NODE, f"{AS_OWNER} status --alive {OWNER_FILE}"),
        (AGGREGATOR, f"{AS_AGGREGATOR} status --check {AGGREGATOR_FILE}"),
    ],
)
def test_a_daemon_that_hangs_is_restarted(machine: Machine, unit: str, alive: str) -> None:
    """A daemon is killed once its signs of life stay away, and started again."""
    machine.write(f"/etc/systemd/system/{unit}.service.d/watchdog.conf", "[Service]\nWatchdogSec=5s\n")
    machine.run(f"systemctl daemon-reload && systemctl restart {unit}")
    machine.run(alive)
    restarts = machine.property(unit, "NRestarts")
    # It stays well for longer than the watchdog waits.
    machine.run("sleep 7")
    assert machine.property(unit, "NRestarts") == restarts
    pid = machine.property(unit, "MainPID")
    machine.run(f"kill -STOP {pid}")
    machine.wait_until("restarted", lambda: machine.property(unit, "NRestarts") != restarts)
    machine.wait_until("alive", lambda: not machine.tried(alive).returncode)
    assert machine.property(unit, "MainPID") != pid


def test_the_journal_knows_priorities(machine: Machine) -> None:
    """`-p` filters what daemons log, and lines are the same JSON objects as elsewhere."""
    machine.run(f"systemctl stop {AGGREGATOR}")
    machine.wait_until("not connected", lambda: not connected(machine))
    machine.run(f"systemctl start {AGGREGATOR}")
    machine.wait_until("connected", lambda: connected(machine))
    everything, warnings = machine.journal(NODE), machine.journal(NODE, "-p", "warning")
    assert {entry["level"] for entry in warnings} == {"warning"}
    assert [entry for entry in everything if entry["level"] == "warning"] == warnings
    assert {"ready", "connected"} <= {entry["event"] for entry in everything}


def test_why_a_daemon_did_not_start_is_an_error_in_the_journal(machine: Machine) -> None:
    """Whoever looks for errors finds what is wrong with the configuration; systemd does not try again."""
    machine.run(f"systemctl stop {NODE} && mv /etc/tessera/owner.toml /etc/tessera/kept.toml")
    try:
        assert machine.tried(f"systemctl start {NODE}").returncode
        errors = machine.run(f"journalctl _SYSTEMD_UNIT={NODE}.service -p err -o cat -n 5")
        assert "error: " in errors
        assert "hint: " in errors
        assert machine.property(NODE, "ActiveState") == "failed"
    finally:
        machine.run(f"mv /etc/tessera/kept.toml /etc/tessera/owner.toml && systemctl start {NODE}")
