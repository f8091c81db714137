"""The metrics of real daemons, over HTTP, as Prometheus reads them, before and after a release."""

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path

import grpc
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aggregator.protocol.states import State as ReleaseState
from common.errors import ExitCode
from common.wire.v1 import owner_pb2 as wire
from deploy.local_cluster import LocalCluster
from deploy.local_process import READY_SECONDS, LocalDaemon
from deploy.local_setup import make_setup, section, share_linkage_key
from owner_node.state.session import SessionState
from tests.fakes.scripted_owner import ScriptedOwner
from tests.system.small_owners import (
    ATTRIBUTES,
    ask,
    declared,
    fragment_path,
    identifiers,
    logs,
    people,
    released,
    write,
)

SIZE = 200
PURPOSE = "quality of care in the west"
METRICS = section("[metrics]", {"listen": "127.0.0.1:0"})
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """An aggregator and an owner with metrics, an owner without, and a release of both."""
    folder: Path = tmp_path_factory.mktemp("metrics")
    for position, owner in enumerate(("a", "b")):
        write(folder, owner, "patients", people(identifiers(SIZE * position, SIZE), seed=position))
    data = declared("patients", attributes={"age": ATTRIBUTES["age"]}, total_epsilon="2.5", budget="people")
    make_setup(folder, {"a": METRICS + data, "b": data})
    with (folder / "aggregator" / "aggregator.toml").open("a", encoding="utf-8") as config:
        config.write(METRICS)
    share_linkage_key(folder, ["a", "b"])
    with LocalCluster(folder) as running:
        running.start()
        yield running


def fetch(daemon: LocalDaemon) -> str:
    """Return what a GET brings."""
    host, _, port = daemon.wait_for("metrics")["address"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("Content-Type", "").startswith("text/plain")
        return answer.read().decode()
    finally:
        connection.close()


def samples(text: str) -> Samples:
    """Return every sample by its name and labels, as Prometheus reads them."""
    return {
        (each.name, frozenset(each.labels.items())): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def of(found: Samples, name: str, **labels: str) -> float:
    """Return one sample."""
    return found[name, frozenset(labels.items())]


@pytest.fixture(scope="module")
def before(cluster: LocalCluster) -> dict[str, Samples]:
    """What was told before the release."""
    until = time.monotonic() + READY_SECONDS
    found = samples(fetch(cluster.aggregator))
    # An owner's own word for being connected comes a moment before its first poll, which counts here.
    while of(found, "tessera_aggregator_connected_owners") < 2 and time.monotonic() < until:
        found = samples(fetch(cluster.aggregator))
    return {"aggregator": found, "a": samples(fetch(cluster.owner("a")))}


@pytest.fixture(scope="module")
def after(cluster: LocalCluster, before: dict[str, Samples]) -> dict[str, str]:
    """What is told after it."""
    code, document = released(cluster, "r1", epsilon="0.3", purpose=PURPOSE)
    assert code == 0, document
    cluster.owner("a").wait_for("concluded", release="r1")
    return {"aggregator": fetch(cluster.aggregator), "a": fetch(cluster.owner("a"))}


def test_an_idle_aggregator(before: dict[str, Samples]) -> None:
    """Who is connected, until when certificates are valid, and every state, with nothing in it."""
    found = before["aggregator"]
    assert of(found, "tessera_aggregator_connected_owners") == 2
    assert of(found, "tessera_aggregator_known_owners") == 2
    assert of(found, "tessera_aggregator_owner_connected", owner="b") == 1
    soon = (datetime.now(UTC) + timedelta(days=1)).timestamp()
    assert of(found, "tessera_aggregator_certificate_expires_timestamp_seconds") > soon
    assert of(found, "tessera_aggregator_owner_certificate_expires_timestamp_seconds", owner="a") > soon
    assert all(of(found, "tessera_aggregator_releases", state=str(state)) == 0 for state in ReleaseState)


def test_an_idle_owner(before: dict[str, Samples]) -> None:
    """The connection, the whole budget, and every state, with nothing in it."""
    found = before["a"]
    assert of(found, "tessera_owner_connected", aggregator="central") == 1
    assert of(found, "tessera_owner_halted") == 0
    budget = {"dataset": "patients", "budget": "people"}
    assert of(found, "tessera_owner_budget_remaining_epsilon", **budget) == 2.5
    assert all(of(found, "tessera_owner_sessions", state=str(state)) == 0 for state in SessionState)


def test_the_aggregator_after_a_release(cluster: LocalCluster, after: dict[str, str]) -> None:
    """The release is in its state, each step was timed once, and the bytes are those of the fragments."""
    found = samples(after["aggregator"])
    assert of(found, "tessera_aggregator_releases", state="published") == 1
    for step in ("inviting", "consenting", "linking", "masking", "collecting", "joining"):
        assert of(found, "tessera_aggregator_step_seconds_count", step=step) == 1, step
        assert of(found, "tessera_aggregator_step_seconds_bucket", step=step, le="+Inf") == 1
    sizes = sum(fragment_path(cluster, owner, "r1").stat().st_size for owner in "ab")
    assert of(found, "tessera_aggregator_received_bytes_total", kind="fragment") == sizes
    assert of(found, "tessera_aggregator_received_bytes_total", kind="tokens") == 2 * SIZE * 16
    assert of(found, "tessera_aggregator_releases_waiting") == 0


def test_the_owner_after_a_release(cluster: LocalCluster, after: dict[str, str]) -> None:
    """What is left is what the ledger says, and what was sent is the fragment and the tokens."""
    found = samples(after["a"])
    (balance,) = ask(cluster, "owner-node", "status", owner="a")[1]["balances"]
    budget = {"dataset": "patients", "budget": "people"}
    assert balance["remaining"] == "2.2"
    assert of(found, "tessera_owner_budget_remaining_epsilon", **budget) == 2.2
    assert of(found, "tessera_owner_budget_total_epsilon", **budget) == 2.5
    assert of(found, "tessera_owner_budget_reserved_epsilon", **budget) == 0
    assert of(found, "tessera_owner_sessions", state="published") == 1
    size = fragment_path(cluster, "a", "r1").stat().st_size
    assert of(found, "tessera_owner_sent_bytes_total", kind="fragment") == size
    assert of(found, "tessera_owner_sent_bytes_total", kind="tokens") == SIZE * 16
    for step in ("describe", "consent", "link", "mask", "collect", "conclude"):
        assert of(found, "tessera_owner_step_seconds_count", step=step) >= 1, step


def test_nothing_but_states_counts_and_ids(after: dict[str, str]) -> None:
    """Labels are of a fixed set of names with few values; no purpose, release or digest is told."""
    for text in after.values():
        labels: dict[str, set[str]] = {}
        for name, of_sample in samples(text):
            for label, value in of_sample:
                if name.startswith("tessera_"):
                    labels.setdefault(label, set()).add(value)
        assert set(labels) <= {
            "name", "version", "owner", "aggregator", "dataset", "budget", "state", "step", "kind", "le",
        }  # fmt: skip
        assert max(map(len, labels.values())) < 20
        assert PURPOSE not in text
        assert "r1" not in text
        assert not re.search(r"ID-[0-9a-f]{12}|[0-9a-f]{32}", text)


def test_no_series_of_what_a_caller_says(cluster: LocalCluster, after: dict[str, str]) -> None:
    """An enrolled owner chooses names in its calls: none becomes a label, and no series is added."""
    address = cluster.aggregator.wait_for("ready")["address"]
    said = [f"zq{number}" for number in range(50)]

    async def call() -> None:
        caller = ScriptedOwner("b", address, cluster.folder / "tls", ["age"], np.zeros((0, 16), np.uint8))
        await caller.connect(said)
        for name in said:
            caller.software.version = f"1.0.{name}"
            keys = [wire.WorkKey(release=name, step=name, progress=wire.StepProgress(percent=900))]
            blob = wire.BlobKey(release=name, digest=name, kind=wire.BLOB_KIND_TOKENS)
            with suppress(grpc.RpcError):
                await caller.connect([name])
            with suppress(grpc.RpcError):
                await caller.calls.UploadState(wire.UploadStateRequest(blob=blob))
            with suppress(grpc.RpcError):
                await caller.calls.Poll(wire.PollRequest(busy=keys), timeout=0.1)
        await caller.close()

    asyncio.run(call())
    text = fetch(cluster.aggregator)
    assert samples(text).keys() == samples(after["aggregator"]).keys()
    assert not any(name in text for name in said)


def test_every_family_says_what_it_is(after: dict[str, str]) -> None:
    """Each of our families has a type, a help text and a unit in its name where it has one."""
    for text in after.values():
        ours = [each for each in text_string_to_metric_families(text) if each.name.startswith("tessera_")]
        assert len(ours) > 8
        for family in ours:
            assert family.type in ("gauge", "counter", "histogram")
            assert family.documentation.endswith(".")
            assert re.fullmatch(r"tessera_(aggregator|owner)_[a-z_]+", family.name)


def test_off_unless_asked_for(cluster: LocalCluster) -> None:
    """A daemon without the table opens no port."""
    entries = cluster.owner("b").entries
    assert not [entry for entry in entries if entry["event"] == "metrics"]
    maps = Path(f"/proc/{cluster.owner('b').pid}/net/tcp")
    assert maps.exists()
    listening = {line.split()[9] for line in maps.read_text().splitlines()[1:] if line.split()[3] == "0A"}
    own = {
        link.readlink().name
        for link in Path(f"/proc/{cluster.owner('b').pid}/fd").iterdir()
        if link.is_symlink()
    }
    assert not [inode for inode in listening if f"socket:[{inode}]" in own]


def test_a_port_in_use_stops_the_start(cluster: LocalCluster) -> None:
    """Two daemons at one port: the second says so and ends, instead of running unwatched."""
    address = cluster.aggregator.wait_for("metrics")["address"]
    own = cluster.owner("b").config
    text = own.read_text(encoding="utf-8")
    cluster.owner("b").stop()
    own.write_text(section("[metrics]", {"listen": address}) + text, encoding="utf-8")
    try:
        ended = cluster.cli("owner-node", "run", owner="b")
    finally:
        own.write_text(text, encoding="utf-8")
    assert ended.returncode == ExitCode.NOT_CONNECTED
    assert f"[metrics] {address} cannot be listened on" in ended.stderr
    assert "is another process using this port?" in ended.stderr


def test_requests_leave_no_trace_in_the_log(cluster: LocalCluster, after: dict[str, str]) -> None:
    """Scrapes every few seconds do not fill the logs, and every line is of our own form."""
    assert "GET /metrics" not in logs(cluster)
    lines = (cluster.folder / "logs" / "aggregator.log").read_text().splitlines()
    assert all(json.loads(line)["event"] for line in lines)


def test_a_revoked_owner_is_not_expected(cluster: LocalCluster, after: dict[str, str]) -> None:
    """Nobody is alarmed for ever about an owner that was excluded."""

    def expected() -> set[str]:
        found = samples(fetch(cluster.aggregator))
        return {
            dict(labels)["owner"] for name, labels in found if name == "tessera_aggregator_owner_connected"
        }

    assert expected() == {"a", "b"}
    assert cluster.cli("aggregator", "enroll", "revoke", "b", "--yes").returncode == 0
    assert expected() == {"a"}
