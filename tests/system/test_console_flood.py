"""A flood of connections at the consoles of all daemons, with TLS and without, beside a release."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from common.errors import ExitCode
from common.web.guard import MOST_OF_PERSON
from deploy.development_ca import DevelopmentCa
from deploy.local_cluster import LocalCluster
from deploy.local_process import LocalDaemon, program_path
from deploy.local_setup import HOST, free_port, make_setup, section, share_linkage_key
from tests.benchmarks.daemon_memory import daemons, memory
from tests.consoles import Visitor, link_of
from tests.flood import flood
from tests.system.small_owners import answer_of, ask, declared, identifiers, people, start_release, write

OWNERS = ("a", "b")
CONNECTIONS = 1100
"""At each console; if it kept them all, its daemon would have more files open than it may."""
FILES = (1024, 2048)
"""Soft and hard limit of open files of every daemon."""
PAUSE = 2.0
"""Seconds until a closed connection is tried again: as many as ever are open, and fewer are made anew."""
MOST_LOG = 256 * 1024
MOST_MEMORY = 96 * 2**20
"""Bytes of log and of memory that a flood may cost a daemon."""

READ_SECONDS = 16.0
"""Within which slow readers lose their connections: 10 s, and what a busy machine takes more."""


def limited_programs(folder: Path) -> Path:
    """Return a folder of programs that may open as many files as most systems allow."""
    folder.mkdir()
    for program in ("aggregator", "owner-node"):
        script = folder / program
        soft, hard = FILES
        script.write_text(
            f'#!/bin/sh\nulimit -Hn {hard}\nulimit -Sn {soft}\nexec {program_path(program)} "$@"\n'
        )
        script.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """The port of each console."""
    return {party: free_port() for party in ("aggregator", *OWNERS)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, ports) -> Iterator[LocalCluster]:
    """All daemons serve pages, owner a over TLS, and may open few files."""
    folder = tmp_path_factory.mktemp("flood")
    listen = {party: {"listen": f"{HOST}:{port}"} for party, port in ports.items()}
    listen["a"] |= {"certificate": "console.pem", "key": "console.key"}
    for position, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(60 * position, 60), seed=position))
    make_setup(
        folder, {owner: section("[console]", listen[owner]) + declared("patients") for owner in OWNERS}
    )
    with (folder / "aggregator" / "aggregator.toml").open("a") as config:
        config.write(section("[console]", listen["aggregator"]))
    ca = DevelopmentCa("pages.test")
    ca.aggregator("pages", ["localhost", HOST]).write(folder / "owners" / "a", "console")
    (folder / "pages-ca.pem").write_bytes(ca.issued.certificate_pem)
    share_linkage_key(folder, OWNERS)
    programs = limited_programs(folder / "programs")
    with LocalCluster(folder) as running:
        for daemon in daemons(running):
            daemon.programs = programs
        running.start()
        # The first release and the first page load libraries.
        assert answer_of(start_release(running, "before", programs="own", k="5"))[0] == ExitCode.DONE
        yield running


def open_files(daemon: LocalDaemon) -> int:
    """Return how many files a process has open."""
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def cost(daemon: LocalDaemon) -> tuple[int, int]:
    """Return the bytes of a daemon's log, and of its memory at most so far."""
    return daemon.log_file.stat().st_size, memory(daemon, "VmHWM")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: ", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_a_release_beside_a_flood(cluster, ports, sent):
    """Commands, pages and a release work, and neither logs nor memory grow."""
    name = f"beside-{len(sent)}"
    visitor = Visitor(link_of(cluster, "aggregator"))
    visitor.sign_in()
    assert visitor.ask("GET", "/").status == 200
    before = {daemon.name: cost(daemon) for daemon in daemons(cluster)}
    with flood(list(ports.values()), CONNECTIONS, sent, PAUSE) as flooding:
        assert flooding.reached.wait(60)
        assert ask(cluster, "aggregator", "status")[0] == ExitCode.DONE
        for owner in OWNERS:
            assert ask(cluster, "owner-node", "status", owner=owner)[0] == ExitCode.DONE
        code, document = answer_of(start_release(cluster, name, programs="own", k="5"))
        assert (code, document["state"]) == (ExitCode.DONE, "published"), json.dumps(document)
        for _ in range(20):
            assert visitor.ask("GET", "/").status == 200
            assert over_tls(ports["a"], cluster.folder / "pages-ca.pem") == 401
        files = {daemon.name: open_files(daemon) for daemon in daemons(cluster)}
    after = {daemon.name: cost(daemon) for daemon in daemons(cluster)}
    print(files, before, after, flooding.opened)
    for daemon in daemons(cluster):
        (log, peak), (log_after, peak_after) = before[daemon.name], after[daemon.name]
        assert log_after - log < MOST_LOG
        assert peak_after - peak < MOST_MEMORY
        assert files[daemon.name] < FILES[0]


def over_tls(port: int, authority: Path) -> int:
    """Return the status that a stranger's request gets."""
    connection = HTTPSConnection(HOST, port, timeout=30, context=ssl.create_default_context(cafile=authority))
    connection.request("GET", "/")
    status = connection.getresponse().status
    connection.close()
    return status


def test_readers_that_take_a_little_now_and_then(cluster, ports):
    """As many as a person may have are closed in time, and the person's next page is answered."""
    visitor = Visitor(link_of(cluster, "owner-node", "b"))
    visitor.sign_in()
    assert visitor.ask("GET", "/").status == 200
    before = open_files(cluster.owner("b"))
    about = f"Host: {HOST}:{ports['b']}\r\nCookie: {visitor.cookie}\r\n"
    requests = f"GET /static/htmx.min.js HTTP/1.1\r\n{about}\r\n".encode() * 300
    with ExitStack() as stack:
        readers = [stack.enter_context(socket.socket()) for _ in range(MOST_OF_PERSON)]
        for reader in readers:
            # As little as on a line to another machine waits in the system.
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            reader.connect((HOST, ports["b"]))
            reader.sendall(requests)
            reader.setblocking(False)
        begun = time.monotonic()
        while kept := open_files(cluster.owner("b")) > before + MOST_OF_PERSON // 4:
            if time.monotonic() > begun + READ_SECONDS:
                break
            for reader in readers:
                with suppress(OSError):
                    reader.recv(3000)
            # Paced by the clock, not by a condition: slowness is what is tested.
            threading.Event().wait(1)
        assert not kept
        assert visitor.ask("GET", "/").status == 200
