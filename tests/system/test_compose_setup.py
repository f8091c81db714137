"""What the compose demonstrations prepare before any container of a party starts; needs no Docker."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from common.errors import NotConnectedError, UsageError
from deploy import compose_release
from deploy.compose_init import COMPLETE, HOST, PORT, TRUST_DOMAIN, OwnerFiles, main, make_parties, scenario
from deploy.demo_data import HOSPITALS
from deploy.local_process import run_json
from owner_node.config import load


def volumes(parties: Path, owners) -> list[Path]:
    """Make the empty volumes as the engine mounts them."""
    places = [parties / "aggregator", *(parties / "owners" / owner for owner in owners)]
    for place in places:
        place.mkdir(parents=True)
    return places


def content(places) -> dict[Path, bytes]:
    """Return every file of the volumes."""
    return {path: path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    """The volumes of the hospitals, filled."""
    folder = tmp_path_factory.mktemp("parties")
    volumes(folder, HOSPITALS)
    assert main(["hospitals", "--parties", str(folder), "--seed", "2"]) == 0
    return folder


def test_every_party_has_its_own(parties):
    """Every owner's own command accepts what it was given: identity, configuration, data and linkage key."""
    for owner, n_records in HOSPITALS.items():
        place = parties / "owners" / owner
        checked = run_json("owner-node", ["check"], place)
        assert (checked["owner"], checked["datasets"][0]["records"]) == (owner, n_records)


def test_no_secret_of_another(parties):
    """No private key lies in two volumes, and the CA's in none; the linkage key is the owners' alone."""
    places = [parties / "aggregator", *(parties / "owners" / owner for owner in HOSPITALS)]
    keys = [path.read_bytes() for place in places for path in place.rglob("own.key")]
    assert len(keys) == len(set(keys)) == len(places)
    certificates = {(place / "tls" / "ca.pem").read_bytes() for place in places}
    assert len(certificates) == 1
    assert not list(parties.rglob("ca.key"))
    linkage_keys = [path.read_bytes() for path in parties.rglob("linkage.key")]
    assert (len(linkage_keys), len(set(linkage_keys))) == (len(HOSPITALS), 1)
    assert {path.name for path in content(places[:1])} == {
        "aggregator.toml", "ca.pem", "own.pem", "own.key", COMPLETE,
    }  # fmt: skip


def test_complete_volumes_are_kept(parties):
    """A second `up` changes nothing: ledgers, keys and releases live in these volumes."""
    places = [parties / "aggregator", *(parties / "owners" / owner for owner in HOSPITALS)]
    before = content(places)
    assert main(["hospitals", "--parties", str(parties), "--seed", "2"]) == 0
    assert content(places) == before


def test_one_new_volume(tmp_path):
    """One volume removed beside volumes in use is an error that says what to do; nothing is overwritten."""
    owners = {"north": OwnerFiles("", {}), "valley": OwnerFiles("", {})}
    places = volumes(tmp_path, owners)
    for place in places[:2]:
        (place / COMPLETE).touch()
    with pytest.raises(UsageError) as raised:
        make_parties(tmp_path, owners)
    assert "down -v" in raised.value.hint
    assert content(places[2:]) == {}


def test_interrupted_setup_is_made_anew(tmp_path):
    """What a setup that was killed half-way left is replaced as a whole, never mixed with new keys."""
    owners = scenario("departments", 1)
    places = volumes(tmp_path, owners)
    (places[0] / "tls").mkdir()
    (places[0] / "tls" / "own.key").write_bytes(b"half of a key")
    (places[1] / "stale").symlink_to(tmp_path)
    assert make_parties(tmp_path, owners)
    assert (places[0] / "tls" / "own.key").read_bytes().startswith(b"-----BEGIN")
    assert not (places[1] / "stale").is_symlink()
    assert tmp_path.is_dir()
    assert len({path.read_bytes() for path in tmp_path.rglob("linkage.key")}) == 1


@pytest.mark.parametrize("place", ["real-data/clinic", "real-data/registry", "spark/registry"])
def test_own_configuration(place):
    """The configurations that a user starts from are valid, and are found where the volume's identity is."""
    owner = Path(place).name
    loaded = load(Path(__file__).parents[2] / "deploy" / place / "owner.toml")
    assert (loaded.owner.id, loaded.owner.trust_domain) == (owner, TRUST_DOMAIN)
    assert [each.address for each in loaded.aggregators] == [f"{HOST}:{PORT}"]
    assert {loaded.tls.cert.parent, loaded.tls.key.parent} == {Path("/var/lib/tessera/tls")}


def test_the_spark_demonstration_fits_its_configuration():
    """Master, workers and owner node have one secret, one folder and a network of their own."""
    folder = Path(__file__).parents[2] / "deploy" / "spark"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    settings = load(folder / "registry" / "owner.toml").datasets[0].spark
    assert settings is not None
    defaults = (folder / "cluster" / "spark-defaults.conf").read_text()
    assert f"spark.authenticate.secret {settings.conf['spark.authenticate.secret']}\n" in defaults
    assert settings.is_protected
    host, port = settings.master.removeprefix("spark://").split(":")
    assert services[host]["command"] == ["--host", host, "--port", port]
    shared = f"scratch:{settings.workspace.scratch}"
    for name in ("spark-worker-1", "spark-worker-2", "registry"):
        assert shared in services[name]["volumes"]
        assert "spark" in services[name]["networks"]
    for name in ("spark-worker-1", "spark-worker-2", host):
        assert services[name]["networks"] == ["spark"]


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="no docker-compose")
def test_the_spark_demonstration_is_a_valid_compose_file():
    """docker-compose reads it, with everything that it takes over from the common file."""
    path = Path(__file__).parents[2] / "deploy" / "spark" / "compose.yaml"
    done = subprocess.run(
        ["docker-compose", "-f", str(path), "config"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) >= {"registry", "spark-master", "spark-worker-2"}


def test_identities_alone(tmp_path):
    """Parties with a configuration of their own get keys and nothing that could shadow that configuration."""
    places = volumes(tmp_path, ["clinic", "registry"])
    assert main(["identities", "--owner=clinic", "--owner=registry", "--parties", str(tmp_path)]) == 0
    assert (places[0] / "aggregator.toml").is_file()
    for place in places[1:]:
        assert (place / "tls" / "own.key").is_file()
        assert (place / "state" / "linkage.key").is_file()
        assert not (place / "owner.toml").exists()


def test_copy_belongs_to_the_host(tmp_path):
    """The copy of a release belongs to the owner of the host's folder, and a repeated run replaces it."""
    release, out = tmp_path / "first", tmp_path / "releases"
    release.mkdir()
    out.mkdir()
    if os.getuid() == 0:
        os.chown(out, 12_345, 12_346)
    (release / "data.csv").write_text("record\n1\n")
    assert compose_release.hand_over(release, out) == out / "first"
    (release / "data.csv").write_text("record\n1\n2\n")
    copy = compose_release.hand_over(release, out)
    assert (copy / "data.csv").read_text() == "record\n1\n2\n"
    owner = (out.stat().st_uid, out.stat().st_gid)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (copy, *copy.iterdir())} == {owner}


def test_waiting_for_owners(tmp_path, monkeypatch):
    """A release before `up` says which owners are not connected and where to look."""
    program = tmp_path / "aggregator"
    answer = json.dumps(
        {"owners": [{"id": "north", "connected": True}, {"id": "valley", "connected": False}]}
    )
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    compose_release.wait_connected(tmp_path, ["north"], seconds=0)
    with pytest.raises(NotConnectedError, match="valley"):
        compose_release.wait_connected(tmp_path, ["north", "valley"], seconds=0)
