"""A Docker engine for tests: what images are built from, and the compose demonstrations as one object each.

Where this runs as root and has mmdebstrap, no registry of images is needed and no package index inside a
build: the base image comes from Debian's packages, and the wheels of the lock file are downloaded here and
handed to the build. Elsewhere the images are built as a user builds them. What is made is kept in
build/containers and in the engine.
"""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from deploy.local_process import run_program
from deploy.local_setup import free_port

PROJECT = Path(__file__).parents[2]
KEPT = PROJECT / "build" / "containers"
SUITE = "trixie"
BASE = f"tessera-test/base:{SUITE}"
IMAGES = "tessera-test"
"""Prefix of the images that are built, so that nobody's own are replaced."""
_SILENCE_SECONDS = 5.0
# One Debian for all: what images are built from, and what systemd boots.
_PACKAGES = "python3,python3-venv,systemd,systemd-sysv,dbus,sudo"
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()
except OSError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
_CONTEXT = ("common", "aggregator", "owner_node", "tessera", "deploy")
_FILES = (".dockerignore", "pyproject.toml", "README.md", "LICENSE", "requirements.lock")


def run(
    *command: str | Path, check: bool = True, timeout: float = 300, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command; if it must end well and does not, what it printed is shown."""
    ended = subprocess.run(
        [str(each) for each in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )
    if check and ended.returncode:
        raise AssertionError(f"{' '.join(ended.args)}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
    return ended


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let one of several test processes make what all of them use."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def makes_base() -> bool:
    """Tell whether this machine can make a base image of its own."""
    return os.getuid() == 0 and shutil.which("mmdebstrap") is not None


def _debian() -> Path:
    """Return the root file system of a small Debian, made once."""
    folder = KEPT / "debian"
    done = folder / "complete"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # It takes less than half the time of debootstrap.
        made = ("mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}", SUITE, folder / "root")
        run(*made, timeout=600)
        done.touch()
    return folder / "root"


def prepare_base() -> dict[str, str]:
    """Make base image and wheels; returns what the compose files read from the environment."""
    if not makes_base():
        return {}
    with one_at_a_time():
        if run("docker", "image", "inspect", BASE, check=False).returncode:
            archive = ("tar", "-C", _debian(), "-c", ".")
            with subprocess.Popen(archive, stdout=subprocess.PIPE) as packed:
                taken = ["docker", "import", "-", BASE]
                subprocess.run(taken, stdin=packed.stdout, capture_output=True, check=True)
            assert packed.returncode == 0
        lock, complete = PROJECT / "requirements.lock", KEPT / "wheels-of.lock"
        if not complete.exists() or complete.read_bytes() != lock.read_bytes():
            version = "import sys; print('{}.{}'.format(*sys.version_info))"
            python = run("docker", "run", "--rm", BASE, "python3", "-c", version).stdout.strip()
            wheels = ("--no-deps", "--only-binary=:all:", f"--python-version={python}", "--require-hashes")
            fetch = (*wheels, "-r", lock, "--dest", KEPT / "wheels")
            run(sys.executable, "-m", "pip", "download", "--quiet", *fetch)
            shutil.copy(lock, complete)
    return {"TESSERA_BASE": BASE, "TESSERA_PIP_ARGS": "--no-index"}


@cache
def older_compose() -> tuple[str, ...]:
    """Return the command of docker-compose, or nothing."""
    return ("docker-compose",) if shutil.which("docker-compose") else ()


@cache
def newer_compose() -> tuple[str, ...]:
    """Return the command of Compose v2: the plugin, or the program of Debian's package, or nothing."""
    if run("docker", "compose", "version", check=False).returncode == 0:
        return ("docker", "compose")
    if not makes_base():
        return ()
    program = KEPT / "compose" / "usr" / "libexec" / "docker" / "cli-plugins" / "docker-compose"
    with one_at_a_time():
        if not program.exists():
            root = _debian()
            shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
            fetch = "apt-get update -qq && cd /tmp && apt-get download -qq docker-compose"
            run("chroot", root, "sh", "-c", fetch)
            (package,) = (root / "tmp").glob("docker-compose_*.deb")
            run("dpkg-deb", "-x", package, KEPT / "compose")
            package.unlink()
    return (str(program),)


def documented(name: str) -> list[list[str]]:
    """Return the compose commands that the documentation gives for a demonstration, in its order."""
    start = f"docker compose -f deploy/{name}/compose.yaml "
    lines = (PROJECT / "docs" / "containers.md").read_text().splitlines()
    found = [line.strip() for line in lines if line.strip().startswith(start)]
    return [shlex.split(line.removeprefix(start)) for line in found]


@contextmanager
def brought_up(demonstration: "Demonstration") -> Iterator["Demonstration"]:
    """Do what the documentation says, which makes a release `first`, and remove everything in the end."""
    *commands, removal = documented(demonstration.folder.name)
    assert (commands[0][0], removal) == ("up", ["down", "-v"])
    try:
        # Before the lock, which finding it may take, too.
        builder = older_compose() or newer_compose()
        with one_at_a_time():
            demonstration.build(builder)
        for verb, *arguments in commands:
            # There is no terminal, which docker-compose 1.29 has to be told for `exec`.
            terminal = ["-T"] if verb == "exec" else []
            demonstration.compose(verb, *terminal, *(each for each in arguments if each != "--build"))
        yield demonstration
    finally:
        demonstration.compose(*removal)
    assert demonstration.left() == []


def checkout(folder: Path) -> Path:
    """Return a copy of what a user checks out and images are built from, the wheels where they belong."""
    for name in _CONTEXT:
        ignored = shutil.ignore_patterns("__pycache__", "*.whl")
        shutil.copytree(PROJECT / name, folder / name, ignore=ignored)
    for name in _FILES:
        shutil.copy(PROJECT / name, folder / name)
    if makes_base():
        shutil.copytree(KEPT / "wheels", folder / "deploy" / "wheels", dirs_exist_ok=True)
    return folder


@contextmanager
def lines_of(command: Sequence[str]) -> Iterator[SimpleQueue[str]]:
    """Run a command that prints lines as things happen; yields them as they come."""
    lines: SimpleQueue[str] = SimpleQueue()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:

        def read() -> None:
            for line in process.stdout or ():
                lines.put(line)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield lines
        finally:
            process.kill()
            reader.join()


class Demonstration:
    """One compose file, brought up, asked, and removed without a trace.

    Args:
        command: docker-compose or Compose v2.
        top: The checkout.
        name: Folder of the compose file in deploy/.
        owners: Services that are owners.
        environment: What the compose file reads beside the port.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        top: Path,
        name: str,
        owners: Sequence[str],
        environment: Mapping[str, str],
        watched: str = "",
    ) -> None:
        self.folder, self.owners, port = top / "deploy" / name, tuple(owners), free_port()
        self.watched = watched
        self.project = f"tessera-test-{name}-{port}"
        files = ["-f", str(self.folder / "compose.yaml")]
        if watched:
            health = {"healthcheck": {"interval": "15s", "start_period": "1s", "retries": 1}}
            quick = self.folder / "quick-health.yaml"
            quick.write_text(json.dumps({"services": {watched: health}}))
            files += ["-f", str(quick)]
        self._containers: dict[str, str] = {}
        self._command, self._chosen = command, ("--project-name", self.project, *files)
        self.environment = {**os.environ, **environment}
        """Environment of the compose commands."""
        self.environment |= {"TESSERA_PORT": str(port), "TESSERA_IMAGES": IMAGES}

    def compose(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of compose to its end."""
        command = (*self._command, *self._chosen, *arguments)
        return run(*command, check=check, timeout=600, env=self.environment)

    def build(self, command: tuple[str, ...]) -> None:
        """Build its images by docker-compose or Compose v2.

        Compose v2 brings BuildKit, which takes a Dockerfile otherwise than docker-compose does in places. The
        two share no step, and each takes a minute for all.
        """
        kit = {"DOCKER_BUILDKIT": "0" if command == older_compose() else "1"}
        run(*command, *self._chosen, "build", timeout=600, env=self.environment | kit)

    def container(self, service: str) -> str:
        """Return the id of a service's container, which it keeps until it is removed."""
        if service not in self._containers:
            # Asking docker-compose 1.29 takes half a second.
            labels = [f"project={self.project}", f"service={service}"]
            chosen = (f"--filter=label=com.docker.compose.{label}" for label in labels)
            self._containers[service] = run("docker", "ps", "--quiet", "--no-trunc", *chosen).stdout.strip()
        return self._containers[service]

    def inspect(self, service: str) -> Any:
        """Return what the engine knows of a service's container."""
        return json.loads(run("docker", "inspect", self.container(service)).stdout)[0]

    def execute(self, service: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in a service's container."""
        return run("docker", "exec", self.container(service), *command, check=check)

    def release(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Make a release as the walk-through does."""
        return self.compose("run", "--rm", "-T", "release", *arguments, check=check)

    def verified(self) -> Path:
        """Check the release on the host, outside of every container, as a user of it does; returns it."""
        ca, folder = self.folder / "ca.pem", self.folder / "releases" / "first"
        ca.write_text(self.execute("aggregator", "cat", "tls/ca.pem").stdout)
        ended = run_program("aggregator", ["verify", folder, "--ca", ca], self.folder)
        assert ended.returncode == 0, ended.stderr
        return folder

    def reaches(self, service: str, host: str, port: int) -> bool:
        """Tell whether a connection can be made from a service's container."""
        return self.execute(service, "python", "-c", _CONNECT, host, str(port), check=False).returncode == 0

    def address(self, service: str) -> str:
        """Return the address of a service that stands in one network."""
        (network,) = self.inspect(service)["NetworkSettings"]["Networks"].values()
        address: str = network["IPAddress"]
        return address

    def wait_until(self, what: str, holds: Callable[[], bool], seconds: float = 240) -> None:
        """Look whether something holds whenever the aggregator logs a line, and fail when the time is up."""
        logs = ("docker", "logs", "--follow", "--tail", "1", self.container("aggregator"))
        self._look_after(logs, what, holds, seconds)

    def wait_health(self, health: str) -> None:
        """Wait until the engine calls the watched owner "healthy" or "unhealthy"."""
        container, began = self.container(self.watched), str(int(time.time()) - 1)
        chosen = ("--filter", f"container={container}", "--filter", "event=health_status")

        def holds() -> bool:
            said = run("docker", "inspect", "--format", "{{.State.Health.Status}}", container)
            return said.stdout.strip() == health

        events = ("docker", "events", "--since", began, *chosen)
        self._look_after(events, f"{self.watched} is {health}", holds, 240)

    def wait_connected(self) -> None:
        """Wait until the aggregator runs and has all owners."""

        def holds() -> bool:
            asked = self.execute("aggregator", "aggregator", "owners", "--json", check=False)
            return not asked.returncode and all(
                each["connected"] for each in json.loads(asked.stdout)["owners"]
            )

        self.wait_until("all owners are connected", holds)

    def _look_after(
        self, following: Sequence[str], what: str, holds: Callable[[], bool], seconds: float
    ) -> None:
        """Look whether something holds, and again after every line of a command that follows what happens."""
        until = time.monotonic() + seconds
        with lines_of(following) as lines:
            while not holds():
                left = until - time.monotonic()
                if left <= 0:
                    logs = self.compose("logs", "--tail=20", check=False)
                    raise AssertionError(f"waited {seconds} s for: {what}\n{logs.stdout}{logs.stderr}")
                with suppress(Empty):
                    # A line may be a moment ahead of what it tells, and the last one before silence.
                    lines.get(timeout=min(left, _SILENCE_SECONDS))
                    # All that have come are one reason to look.
                    while True:
                        lines.get_nowait()

    def left(self) -> list[str]:
        """Return what the engine still has of this demonstration, images aside."""
        label = f"label=com.docker.compose.project={self.project}"
        listed = [run("docker", "ps", "--all", "--quiet", "--filter", label)]
        listed += [run("docker", kind, "ls", "--quiet", "--filter", label) for kind in ("volume", "network")]
        return [line for each in listed for line in each.stdout.splitlines()]
