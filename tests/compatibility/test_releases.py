"""Whole releases by programs of two versions: owners of one with an aggregator of the other, and mixed."""

import hashlib
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from common import __version__
from deploy.local_cluster import LocalCluster
from deploy.local_process import run_program
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import (
    ATTRIBUTES,
    Attributes,
    ask,
    declared,
    identifiers,
    people,
    policy,
    released,
    spends,
    write,
)  # fmt: skip

OWNERS = ("a", "b")
SIZE = 120
NAMES = ("age", "income", "ward", "severity")
OLD, NEW = "0.1.0", __version__


def make_owners(folder: Path, **rules: object) -> LocalCluster:
    """Return two owners of other persons (`patients`; `apart`, without names) and of the same (`halves`)."""
    both = people(identifiers(1000, SIZE), seed=9)
    says = {}
    for position, owner in enumerate(OWNERS):
        for name in ("patients", "apart"):
            write(folder, owner, name, people(identifiers(SIZE * position, SIZE), seed=position))
        half = NAMES[2 * position : 2 * position + 2]
        write(folder, owner, "halves", both[["person", *half]])
        says[owner] = policy(allow_owner_column=True, **rules) + declared("patients")
        says[owner] += declared("halves", attributes={name: ATTRIBUTES[name] for name in half})
        says[owner] += declared("apart", identifier=[], normalise=[])
    make_setup(folder, says)
    share_linkage_key(folder, OWNERS)
    return LocalCluster(folder)


@pytest.mark.parametrize("line", (Path(__file__).parent / "released" / "SHA256SUMS").read_text().splitlines())
def test_released_wheels_stay_as_they_were(line):
    """What is tested here is what was released."""
    expected, name = line.split()
    wheel = Path(__file__).parent / "released" / name
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == expected


def test_two_versions(before, tmp_path):
    """The programs are of two versions, or these tests would show nothing."""
    assert run_program("aggregator", ["--version"], tmp_path).stdout.split()[-1] == NEW
    assert (before / "aggregator").is_file()
    with make_owners(tmp_path) as cluster:
        cluster.owner("a").programs = before
        assert cluster.cli("owner-node", "--version", owner="a").stdout.split()[-1] == OLD != NEW


@pytest.fixture(
    params=[("new", "old", "new"), ("old", "new", "old")],
    ids=lambda each: f"{each[0]} aggregator, owners {each[1]} and {each[2]}",
)
def cluster(request, before, tmp_path) -> Iterator[LocalCluster]:
    """An aggregator of either version, with an owner of each."""
    with make_owners(tmp_path) as running:
        daemons = (running.aggregator, running.owner("a"), running.owner("b"))
        for daemon, version in zip(daemons, request.param, strict=True):
            daemon.programs = before if version == "old" else None
        running.start()
        yield running


def test_releases(cluster, before):
    """Without an identifier they end published, charged once at each owner, and hold by both versions."""
    code, shown = released(cluster, "rows", dataset="apart", owner_column="", rank_noise="0.1")
    assert (code, shown["state"]) == (0, "published"), shown
    place = Path(shown["directory"])
    for owner in OWNERS:
        # By the owner's own program: the newer one would convert the older one's ledger.
        entries = ask(cluster, "owner-node", "ledger", "--verify", owner=owner)[1]["entries"]
        assert [Decimal(each["charge"]) > 0 for each in entries if each["kind"] == "spend"] == [True]
        assert ask(cluster, "owner-node", "verify", place, owner=owner)[0] == 0
    ca = cluster.folder / "tls" / "ca.pem"
    assert json.loads((place / "manifest.json").read_bytes())["plan"]["document"]["protocol"] == "1"
    for programs in (before, None):
        cluster.aggregator.programs = programs
        assert ask(cluster, "aggregator", "verify", place, "--ca", ca)[1]["holds"]
    versions = {each["id"]: each["version"] for each in ask(cluster, "aggregator", "owners")[1]["owners"]}
    assert set(versions.values()) <= {OLD, NEW}


@pytest.mark.parametrize(("dataset", "layout"), [("patients", "horizontal"), ("halves", "vertical")])
def test_nobody_links_with_owners_that_prove_nothing(cluster, dataset, layout):
    """Owners of the version before do not show that they have the linkage key; nothing is spent."""
    code, shown = released(cluster, "linked", dataset=dataset, layout=layout)
    olds = [owner for owner in OWNERS if cluster.owner(owner).programs is not None]
    if cluster.aggregator.programs is None:
        assert code == 3, shown
        assert f"{olds[0]} (version {OLD}): key-proof, known since 0.2.0" in shown["error"]["message"]
    else:
        assert code == 4, shown
        (newer,) = set(OWNERS) - set(olds)
        said = ask(cluster, "owner-node", "show", "linked", owner=newer)[1]
        assert "prove to each other that they have the linkage key" in json.dumps(said)
    for owner in OWNERS:
        # By the owner's own program, as above.
        entries = ask(cluster, "owner-node", "ledger", "--verify", owner=owner)[1]["entries"]
        assert "spend" not in [each["kind"] for each in entries]


@pytest.mark.parametrize(("older", "code", "said"), [("b", 3, "missing-values"), ("", 4, "owner ")])
def test_missing_numbers_that_one_version_keeps(before, tmp_path, older, code, said):
    """An owner that does not know of them is named; an older aggregator is refused, and nobody charged."""
    with make_owners(tmp_path) as cluster:
        table = people(identifiers(2000, SIZE), seed=3)
        table.loc[:30, "age"] = None
        kept: dict[str, Attributes] = {
            "a": {"age": {**ATTRIBUTES["age"], "missing": "category"}},
            "b": {"ward": ATTRIBUTES["ward"]},
        }
        for owner, attributes in kept.items():
            write(tmp_path, owner, "gaps", table)
            with cluster.owner(owner).config.open("a") as stream:
                stream.write(declared("gaps", attributes=attributes))
        (cluster.owner(older) if older else cluster.aggregator).programs = before
        cluster.start()
        found, shown = released(cluster, "gaps", dataset="gaps", layout="vertical")
        assert (found, said in shown["error"]["message"]) == (code, True), shown
        assert not spends(cluster, "a")


def test_a_synthetic_release_needs_both_versions(before, tmp_path):
    """An owner that does not know the product is named, and nothing is charged; masked releases go on."""
    with make_owners(tmp_path) as cluster:
        cluster.owner("b").programs = before
        cluster.start()
        found, shown = released(cluster, "drawn", dataset="apart", product="synthetic", k="")
        assert found == 3, shown
        assert "b (version 0.1.0): synthetic-determined, known since 0.2.0" in shown["error"]["message"]
        assert not spends(cluster, "a")
        code, shown = released(cluster, "masked", dataset="apart")
        assert (code, shown["state"]) == (0, "published"), shown


def test_an_older_aggregator_makes_no_synthetic_release(before, tmp_path):
    """It has no such option, and its masked releases are those of newer owners, too."""
    with make_owners(tmp_path) as cluster:
        cluster.aggregator.programs = before
        cluster.start()
        ended = cluster.cli(
            "aggregator", "release", "--dataset", "apart", "--layout", "horizontal", "--owners", "a,b",
            "--epsilon", "1", "--product", "synthetic", "--yes",
        )  # fmt: skip
        assert (ended.returncode, "--product" in ended.stderr) == (2, True)
        code, shown = released(cluster, "masked", dataset="apart")
        assert (code, shown["state"]) == (0, "published"), shown
