"""Enrolment by file, with the real commands and daemons, as people at two organisations do it."""

import json
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_process import run_program
from deploy.local_setup import HOST, free_port, section
from tests.system.small_owners import ATTRIBUTES, ask, declared, identifiers, people, policy, released, write

TRUST_DOMAIN = "hospitals.example"
SMALL = {"age": ATTRIBUTES["age"]}


def run(program: str, *arguments: str | Path, folder: Path) -> tuple[int, dict[str, Any]]:
    """Run a command with `--json`; returns its exit code and its document."""
    ended = run_program(program, [*arguments, "--json"], folder)
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def done(program: str, *arguments: str | Path, folder: Path) -> dict[str, Any]:
    """Run a command that must end well; returns its document."""
    code, document = run(program, *arguments, folder=folder)
    assert code == 0, document
    return document


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """An aggregator and two owners that have configurations, and no certificates yet of the owners."""
    folder = Path(tempfile.mkdtemp(prefix="enrol-"))
    address = f"{HOST}:{free_port()}"
    arguments = ["init", "--name", "central", "--trust-domain", TRUST_DOMAIN, "--host", HOST]
    done("aggregator", *arguments, "--dir", "aggregator", "--listen", address, folder=folder)
    with (folder / "aggregator" / "aggregator.toml").open("a", encoding="utf-8") as config:
        config.write(section("[deadlines]", {"invite": "15s"}))
        config.write(section("[audit]", {"file": "audit.jsonl"}))
    for number, owner in enumerate("ab"):
        write(folder, owner, "patients", people(identifiers(1000 * number, 200), number))
        text = [
            section("[owner]", {"id": owner, "trust_domain": TRUST_DOMAIN, "state_dir": "state"}),
            section("[[aggregator]]", {"name": "central", "address": address}),
            section("[tls]", {"ca": "tls/ca.pem", "cert": "tls/own.pem", "key": "tls/own.key"}),
            policy(min_k=10),
            declared("patients", attributes=SMALL, identifier=[], normalise=[]),
        ]
        (folder / "owners" / owner / "owner.toml").write_text("\n".join(text), encoding="utf-8")
    yield folder
    shutil.rmtree(folder)


def own(place: Path, owner: str) -> Path:
    """Return an owner's folder."""
    return place / "owners" / owner


def enrol(place: Path, owner: str, *approving: str) -> dict[str, Any]:
    """Enrol an owner: request, approve, install; each side hears the other's fingerprint."""
    csr, bundle = place / f"{owner}.csr", place / f"{owner}.bundle"
    asked = done("owner-node", "enroll", "request", "--out", csr, *_new(approving), folder=own(place, owner))
    heard = ["--fingerprint", asked["fingerprint"]]
    issued = done(
        "aggregator",
        "enroll",
        "approve",
        csr,
        "--out",
        bundle,
        *heard,
        *approving,
        folder=place / "aggregator",
    )
    heard = ["--ca-fingerprint", issued["ca_fingerprint"]]
    return done("owner-node", "enroll", "install", bundle, *heard, folder=own(place, owner))


def _new(approving: tuple[str, ...]) -> list[str]:
    return ["--new-key"] if "--replace" in approving else []


def test_what_is_refused_on_the_way(place: Path) -> None:
    """Exchanged and changed files, wrong fingerprints and foreign names stop the enrolment, each in words."""
    hub = place / "aggregator"
    asked = {
        owner: done(
            "owner-node", "enroll", "request", "--out", place / f"{owner}.csr", folder=own(place, owner)
        )
        for owner in "ab"
    }
    heard = {owner: ["--fingerprint", str(asked[owner]["fingerprint"])] for owner in "ab"}
    out: list[str | Path] = ["--out", place / "x.bundle"]

    def refused(
        program: str, *arguments: str | Path, folder: Path, code: int, told: str, hint: str = " "
    ) -> None:
        ended = run(program, *arguments, folder=folder)
        assert ended[0] == code, ended
        assert told in ended[1]["error"]["message"]
        assert hint in ended[1]["error"]["hint"]

    approve = ("aggregator", "enroll", "approve")
    refused(
        *approve, place / "b.csr", *out, *heard["a"], folder=hub, code=7, told="not for the key with that"
    )
    refused(
        *approve,
        place / "a.csr",
        *out,
        folder=hub,
        code=2,
        told="no terminal to ask at",
        hint="--fingerprint F",
    )
    refused("aggregator", "enroll", "revoke", "a", folder=hub, code=2, told="no terminal to ask at")
    damaged = place / "damaged.csr"
    damaged.write_bytes((place / "a.csr").read_bytes().replace(b"M", b"N", 3))
    refused(*approve, damaged, *out, "--yes", folder=hub, code=7, told="certificate request")
    assert not (place / "x.bundle").exists()
    issued = done(*approve, place / "a.csr", *out, *heard["a"], folder=hub)
    ca = ["--ca-fingerprint", issued["ca_fingerprint"]]
    install = ("owner-node", "enroll", "install")
    wrong = ["--ca-fingerprint", asked["a"]["fingerprint"]]
    refused(*install, place / "x.bundle", *wrong, folder=own(place, "a"), code=7, told="another CA")
    refused(*install, place / "x.bundle", *ca, folder=own(place, "b"), code=7, told="a key that is not here")
    bundle = json.loads((place / "x.bundle").read_bytes())
    (place / "y.bundle").write_text(json.dumps(bundle | {"certificates": bundle["ca"]}))
    refused(*install, place / "y.bundle", *ca, folder=own(place, "a"), code=7, told="a key that is not here")
    assert not (own(place, "a") / "tls" / "own.key").exists()
    done(*approve, place / "b.csr", *out, *heard["b"], "--id", "c", folder=hub)
    refused(*install, place / "x.bundle", *ca, folder=own(place, "b"), code=6, told="names spiffe://")


def test_from_nothing_to_a_release_and_out_again(place: Path) -> None:
    """Two owners enrol, release together; one is revoked while connected, enrols anew, and is back."""
    for owner in "ab":
        approving = ["--replace"] if owner == "b" else []
        installed = enrol(place, owner, *approving)
        assert installed["party"] == f"spiffe://{TRUST_DOMAIN}/owner/{owner}"
        tls = own(place, owner) / "tls"
        assert sorted(path.name for path in tls.iterdir()) == ["ca.pem", "own.key", "own.pem"]
        assert stat.S_IMODE((tls / "own.key").stat().st_mode) == 0o600
    with LocalCluster(place) as cluster:
        cluster.start()
        code, release = released(cluster, "r1")
        assert (code, release["state"]) == (0, "published")
        code, verified = ask(
            cluster,
            "aggregator",
            "verify",
            Path(release["directory"]),
            "--ca",
            place / "aggregator/tls/ca.pem",
        )
        assert (code, verified["identities_checked"]) == (0, True)
        code, document = ask(cluster, "aggregator", "enroll", "revoke", "a", "--yes")
        assert (code, {each["owner"] for each in document["revoked"]}) == (0, {"a"})
        before = len(cluster.owner("a").entries)
        code, _ = released(cluster, "r2")
        assert code == 6
        told = cluster.owner("a").wait_for("not connected", after=before)
        assert "owner a is revoked" in told["reason"]
        enrol(place, "a", "--replace")
        cluster.owner("a").wait_for("connected", after=before)
        code, release = released(cluster, "r3")
        assert (code, release["state"]) == (0, "published")
        code, known = ask(cluster, "aggregator", "enroll", "list")
        actions = [(entry["action"], entry["owner"]) for entry in known["log"]]
        assert actions[-2:] == [("revoke", "a"), ("approve", "a")]
        assert all(entry["actor"] for entry in known["log"])
        code, history = ask(cluster, "aggregator", "history")
        enrolled = [each for each in history["actions"] if each["action"].startswith("enroll")]
        assert [(each["action"], each["arguments"]["owner"]) for each in enrolled] == [
            (f"enroll {entry['action']}", entry["owner"]) for entry in known["log"]
        ]
        assert [each["action"] for each in history["actions"]].count("release") == 3
    copied = (place / "aggregator" / "audit.jsonl").read_text().splitlines()
    without_number = [
        {key: value for key, value in json.loads(line).items() if key != "sequence"} for line in copied
    ]
    # Where a release is now is asked of the releases; an action is written down once.
    states = [action.pop("release_state") for action in history["actions"]]
    assert [each for each in states if each] == ["published", "failed", "published"]
    assert without_number == history["actions"]
