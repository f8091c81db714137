"""Wine Quality from a CSV file to a release: three owners and an operator, by commands alone."""

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_process import run_program
from deploy.local_setup import HOST, free_port
from tests.system.small_owners import ask

pytestmark = pytest.mark.needs("data")
OWNERS = ("north", "south", "east")
DOMAINS = {
    "fixed_acidity": (0, 20), "volatile_acidity": (0, 2), "citric_acid": (0, 2), "residual_sugar": (0, 70),
    "chlorides": (0, 1), "free_sulfur_dioxide": (0, 300), "total_sulfur_dioxide": (0, 500),
    "density": ("0.95", "1.05"), "ph": (2, 5), "sulphates": (0, 2), "alcohol": (7, 16), "quality": (0, 10),
}  # fmt: skip
"""What is known about wine, and not taken from these data."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder per owner with its part of the wines; nothing is configured."""
    folder = Path(tempfile.mkdtemp(prefix="wine-"))
    with (Path(os.environ["TESSERA_DATA"]) / "wine_quality.csv").open(newline="") as stream:
        head, *rows = csv.reader(stream)
    for index, owner in enumerate(OWNERS):
        (folder / "owners" / owner).mkdir(parents=True)
        with (folder / "owners" / owner / "wines.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([head, *rows[index :: len(OWNERS)]])
    yield folder
    shutil.rmtree(folder)


def done(program: str, *arguments: str | Path, folder: Path) -> dict[str, Any]:
    """Run a command that must end well; returns its document."""
    ended = run_program(program, [*arguments, "--json"], folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def fill_in(path: Path, *, epsilon: str) -> None:
    """Fill in what a person decides: domains, labels, the budget; and allow trials."""
    lines, attribute = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("[dataset.attributes."):
            attribute = line.split('"')[1]
        key = line.partition(" = ")[0] if line.endswith(' = "FILL IN"') else ""
        low, high = DOMAINS.get(attribute, ("", ""))
        values = {"min": low, "max": high, "categories": '["red", "white"]', "total_epsilon": epsilon}
        lines.append(f"{key} = {values[key]}" if key in values else line)
        lines += ["allow_trials = true"] if line == "[policy]" else []
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.timeout(600)
def test_from_the_file_to_the_release(place: Path) -> None:
    """One owner declares, the others take over; all enrol, try and release, and nobody is locked out."""
    hub, address = place / "aggregator", f"{HOST}:{free_port()}"
    arguments = ["--name", "central", "--trust-domain", "wine.example", "--host", HOST, "--listen", address]
    done("aggregator", "init", *arguments, "--dir", "aggregator", folder=place)
    for owner in OWNERS:
        own, shared = place / "owners" / owner, place / "wines.toml"
        known = ["--id", owner, "--trust-domain", "wine.example", "--aggregator", f"central={address}"]
        taken: list[str | Path] = ["--schema", shared] if shared.exists() else []
        made = done("owner-node", "init", "wines.csv", *known, *taken, folder=own)
        assert made["not_declared"] == made["absent"] == []
        if not taken:
            # 9.53333333333333 is a third of a number, not fourteen decimals.
            assert made["decimals"]["alcohol"] == 2
        fill_in(own / "owner.toml", epsilon="4")
        checked = done("owner-node", "check", folder=own)
        (wines,) = checked["datasets"]
        assert all(each["clamped"] == 0 for each in wines["attributes"])
        if not taken:
            done("owner-node", "schema", "export", shared, "--dataset", "wines", folder=own)
        asked = done("owner-node", "enroll", "request", "--out", f"{owner}.csr", folder=own)
        bundle = place / f"{owner}.bundle"
        heard = ["--fingerprint", asked["fingerprint"], "--out", bundle]
        issued = done("aggregator", "enroll", "approve", own / f"{owner}.csr", *heard, folder=hub)
        done(
            "owner-node",
            "enroll",
            "install",
            bundle,
            "--ca-fingerprint",
            issued["ca_fingerprint"],
            folder=own,
        )
    release = ["release", "--dataset", "wines", "--owners", ",".join(OWNERS), "--layout", "horizontal"]
    release += ["--epsilon", "1", "--id", "first", "--yes"]
    with LocalCluster(place) as cluster:
        cluster.start()
        code, tried = ask(cluster, "aggregator", *release, "--trial")
        assert (code, tried["state"], Path(tried["directory"]).name) == (0, "published", "trial-first")
        code, released = ask(cluster, "aggregator", *release)
        assert (code, released["state"]) == (0, "published")
        code, verified = ask(cluster, "aggregator", "verify", Path(released["directory"]))
        assert (code, verified["records"]) == (0, 6497)
        for owner in OWNERS:
            code, status = ask(cluster, "owner-node", "status", owner=owner)
            assert code == 0
            (balance,) = status["balances"]
            # Shares of epsilon are rounded down; the trial was not charged.
            assert Decimal(3) <= Decimal(balance["remaining"]) < Decimal("3.0001")
            assert all(not each["blocked"] and each["used"] == 0 for each in status["attempts"])
