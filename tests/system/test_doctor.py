"""`doctor` of both programs on real processes: all is well, before enrolment, and everything that breaks."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.development_ca import DevelopmentCa
from deploy.local_cluster import LocalCluster
from deploy.local_setup import HOST, make_setup, share_linkage_key
from tests.system.small_owners import ask, declared, identifiers, people, write

OWNERS = ("a", "b")
PORT = re.compile(r":(\d+)\"")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two owners and the aggregator, connected."""
    folder = tmp_path_factory.mktemp("doctor")
    make_setup(folder, {owner: declared("patients") for owner in OWNERS})
    for place, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(100 * place, 50), place))
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


@pytest.fixture
def config(cluster: LocalCluster) -> Iterator[Path]:
    """B's configuration, which a test may change."""
    path = cluster.owner("b").config
    before = path.read_text()
    yield path
    path.write_text(before)


def examined(cluster: LocalCluster, owner: str = "") -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Run doctor of an owner, or of the aggregator; returns the exit code and the findings by check."""
    code, document = ask(cluster, "owner-node" if owner else "aggregator", "doctor", owner=owner)
    assert document["healthy"] is (code == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for each in document["checks"]:
        assert each["hint"] or each["outcome"] in ("pass", "skip")
        found.setdefault(each["check"], []).append(each)
    return code, found


def failures(found: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Return what failed, by check."""
    told = [each for findings in found.values() for each in findings if each["outcome"] == "fail"]
    return {each["check"]: each["text"] for each in told}


def test_all_is_well(cluster: LocalCluster) -> None:
    """Both sides pass everything while they run, and tell whom they are connected to."""
    code, found = examined(cluster, "a")
    assert (code, failures(found)) == (0, {})
    assert "connected to 'central'" in found["daemon"][1]["text"]
    assert found["aggregator 'central', clock"][0]["text"] == "the clocks agree"
    assert found["ledger"][0]["outcome"] == "pass"
    code, found = examined(cluster)
    assert (code, failures(found)) == (0, {})
    assert "spiffe://demo.example/aggregator/central" in found["port"][1]["text"]


def test_before_enrolment(cluster: LocalCluster, config: Path) -> None:
    """Without a certificate the way to the aggregator is gone as far as it leads; what to do next is told."""
    config.write_text(config.read_text().replace("owner-b.", "not-yet."))
    code, found = examined(cluster, "b")
    assert (code, failures(found)) == (0, {})
    assert "owner-node enroll request" in found["identity"][0]["hint"]
    assert [each["outcome"] for each in found["aggregator 'central', certificate"]] == ["pass", "pass"]
    assert found["aggregator 'central', calls"][0]["outcome"] == "skip"


def test_another_authority(cluster: LocalCluster, config: Path) -> None:
    """An owner with the wrong CA file learns so, enrolled or not: exit 6."""
    tls = cluster.folder / "tls"
    DevelopmentCa("demo.example").issued.write(tls, "other-ca")
    config.write_text(config.read_text().replace("tls/ca.pem", "tls/other-ca.pem"))
    code, found = examined(cluster, "b")
    assert code == 6
    assert "not issued" in failures(found)["identity"]
    config.write_text(config.read_text().replace("owner-b.", "not-yet."))
    code, found = examined(cluster, "b")
    assert code == 6
    assert "not issued under the authorities" in failures(found)["aggregator 'central', certificate"]


@pytest.mark.parametrize("enrolled", [True, False])
@pytest.mark.parametrize("content", [b"", b"<html>", b"-----BEGIN CERTIFICATE-----\nMII", b"\x30\x82\x01"])
def test_a_damaged_file_is_named_and_no_network(
    cluster: LocalCluster, config: Path, content: bytes, enrolled: bool
) -> None:
    """With a CA file that cannot be read nothing is said against a network and an aggregator that work."""
    (cluster.folder / "tls" / "damaged.pem").write_bytes(content)
    text = config.read_text().replace("tls/ca.pem", "tls/damaged.pem")
    config.write_text(text if enrolled else text.replace("owner-b.", "not-yet."))
    code, found = examined(cluster, "b")
    assert code == 2
    assert failures(found)
    assert all("damaged.pem" in each for each in failures(found).values())


def test_files_in_other_forms_are_well(cluster: LocalCluster, config: Path) -> None:
    """A byte order mark and indentation keep neither the check-up nor the calls from working."""
    tls = cluster.folder / "tls"
    for name in ("ca.pem", "owner-b.pem", "owner-b.key"):
        other = tls / name.replace("b.", "c.").replace("ca", "other-form")
        other.touch(0o600)
        other.write_bytes((tls / name).read_text().replace("\n", "\r\n  ").encode("utf-8-sig"))
    text = config.read_text().replace("owner-b.", "owner-c.").replace("tls/ca.pem", "tls/other-form.pem")
    config.write_text(text)
    code, found = examined(cluster, "b")
    assert (code, failures(found)) == (0, {})
    assert found["aggregator 'central', calls"][0]["outcome"] == "pass"


def test_another_aggregator(cluster: LocalCluster, config: Path) -> None:
    """The exact names are told: whom the configuration expects, and who answered."""
    config.write_text(config.read_text().replace('name = "central"', 'name = "hub"'))
    code, found = examined(cluster, "b")
    assert code == 6
    told = failures(found)["aggregator 'hub', certificate"]
    assert "expected spiffe://demo.example/aggregator/hub" in told
    assert "seen spiffe://demo.example/aggregator/central for localhost, 127.0.0.1" in told


def test_nobody_there(cluster: LocalCluster, config: Path) -> None:
    """A port without a listener, a port with another one, and a name that does not exist: exit 6."""
    before = config.read_text()
    with socket.create_server((HOST, 0)) as mute:
        config.write_text(PORT.sub(f':{mute.getsockname()[1]}"', before))
        code, found = examined(cluster, "b")
        assert (code, list(failures(found))) == (6, ["aggregator 'central', TLS"])
    code, found = examined(cluster, "b")
    assert "refuses connections" in failures(found)["aggregator 'central', TLS"]
    config.write_text(before.replace(f'"{HOST}:', '"nowhere.invalid:'))
    code, found = examined(cluster, "b")
    assert (code, list(failures(found))) == (6, ["aggregator 'central', name"])


def test_data_and_configuration(cluster: LocalCluster, config: Path) -> None:
    """A data set that cannot be opened and a file that cannot be read fail like anything else: exit 2."""
    before = config.read_text()
    config.write_text(before.replace("patients.csv", "patient.csv"))
    code, found = examined(cluster, "b")
    assert (code, list(failures(found))) == (2, ["data set 'patients'"])
    config.write_text(before + "\nmistake = 1\n")
    code, found = examined(cluster, "b")
    assert (code, list(failures(found))) == (2, ["configuration"])


def test_a_damaged_ledger(cluster: LocalCluster) -> None:
    """An owner.db that is none any more: exit 7."""
    owner = cluster.owner("b")
    owner.stop()
    path = owner.config.parent / "state" / "owner.db"
    whole = path.read_bytes()
    path.write_bytes(b"not a database" * 1000)
    try:
        code, found = examined(cluster, "b")
    finally:
        path.write_bytes(whole)
        owner.start()
        owner.wait_for("connected")
    assert code == 7
    assert "damaged" in failures(found)["database"]


def test_the_aggregators_port_is_taken(cluster: LocalCluster) -> None:
    """A stopped aggregator learns whether it could listen."""
    cluster.aggregator.stop()
    try:
        code, found = examined(cluster)
        assert (code, found["daemon"][0]["outcome"], found["port"][0]["outcome"]) == (0, "warn", "pass")
        match = PORT.search(cluster.aggregator.config.read_text())
        assert match is not None
        with socket.create_server((HOST, int(match[1]))):
            code, found = examined(cluster)
        assert (code, list(failures(found))) == (2, ["port"])
    finally:
        cluster.aggregator.start()
        cluster.aggregator.wait_for("ready")


def test_on_a_terminal_everything_is_a_line_with_what_to_do(cluster: LocalCluster) -> None:
    """People read outcome, check and text on a line, and the cure below it."""
    out = cluster.cli("owner-node", "doctor", owner="a").stdout
    assert re.search(r"^PASS  configuration: .*owner 'a'", out, flags=re.MULTILINE)
    assert re.search(r"^\d+ pass, \d+ warn, 0 fail, \d+ skip$", out, flags=re.MULTILINE)
