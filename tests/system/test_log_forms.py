"""What daemons log where: lines for people on a terminal, one JSON object per line everywhere else."""

import json
import os
import pty
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_process import end_process, start_program
from deploy.local_setup import make_setup
from tests.system.small_owners import ATTRIBUTES, declared, identifiers, people, write

DAEMONS = pytest.mark.parametrize(("program", "verb"), [("aggregator", "serve"), ("owner-node", "run")])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Configurations of an aggregator and an owner."""
    folder: Path = tmp_path_factory.mktemp("logs")
    write(folder, "a", "patients", people(identifiers(0, 50), seed=0))
    make_setup(folder, {"a": declared("patients", attributes={"age": ATTRIBUTES["age"]})})
    with LocalCluster(folder) as made:
        yield made


def config(cluster: LocalCluster, program: str) -> Path:
    """Return the configuration of a program."""
    return (cluster.aggregator if program == "aggregator" else cluster.owner("a")).config


@DAEMONS
def test_on_a_terminal(cluster: LocalCluster, program: str, verb: str) -> None:
    """Whoever starts a daemon by hand reads time, level, event and what it speaks of."""
    ours, theirs = pty.openpty()
    path = config(cluster, program)
    process = start_program(program, [verb, "--config", path], path.parent, stderr=theirs)
    os.close(theirs)
    try:
        with os.fdopen(ours, encoding="utf-8", errors="replace") as terminal:
            line = terminal.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    finally:
        end_process(process)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d info +ready (aggregator=central address|owner=a version)=\S+\s*", line
    )


@DAEMONS
def test_elsewhere(cluster: LocalCluster, program: str, verb: str) -> None:
    """Whatever collects the logs reads objects, all with time, level, logger and event."""
    path = config(cluster, program)
    process = start_program(program, [verb, "--config", path], path.parent, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        out, rest = process.communicate(timeout=30)
    finally:
        end_process(process)
    entries = [first, *map(json.loads, rest.splitlines())]
    assert (entries[0]["event"], entries[-1]["event"], out) == ("ready", "stopped", "")
    for entry in entries:
        assert {"time", "level", "logger", "event"} <= entry.keys()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["time"])
        assert entry["level"] in ("debug", "info", "warning", "error")


def test_a_handshake_that_fails_adds_no_lines_of_a_library(cluster: LocalCluster) -> None:
    """Anybody on the network can fail one; whatever collects the logs still reads nothing but objects."""
    path = config(cluster, "aggregator")
    process = start_program("aggregator", ["serve", "--config", path], path.parent, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        host, _, port = json.loads(process.stderr.readline())["address"].rpartition(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with socket.create_connection((host, int(port)), 10) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            plain.recv(1)
        # Without a certificate: TLS 1.3 tells that with the first answer.
        with (
            suppress(ssl.SSLError, ConnectionError),
            socket.create_connection((host, int(port)), 10) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            secured.recv(1)
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=30)
    finally:
        end_process(process)
    assert all(line.startswith("{") for line in rest.splitlines()), rest
    assert json.loads(rest.splitlines()[-1])["event"] == "stopped"
