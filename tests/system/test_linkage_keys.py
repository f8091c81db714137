"""Linkage keys that differ or are replaced, and identifiers written differently, with real processes."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import (
    ATTRIBUTES,
    answer_of,
    ask,
    declared,
    logs,
    people,
    released,
    spends,
    start_release,
    state_dir,
    write,
)

NUMBERS = [str(number) for number in range(300, 380)]
PADDED = [f"00{number}" for number in NUMBERS]
HOLDS = {"a": "age", "b": "ward"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two owners of different attributes of the same people; data set "padded" has leading zeros at a."""
    folder = tmp_path_factory.mktemp("keys")
    table = people(NUMBERS, seed=3)
    says = dict.fromkeys(HOLDS, "")
    for owner, attribute in HOLDS.items():
        own = table[["person", attribute]]
        write(folder, owner, "patients", own)
        write(folder, owner, "padded", own.assign(person=PADDED) if owner == "a" else own)
        for name in ("patients", "padded"):
            says[owner] += declared(name, attributes={attribute: ATTRIBUTES[attribute]})
    make_setup(folder, says)
    share_linkage_key(folder, list(HOLDS))
    with LocalCluster(folder) as running:
        running.start()
        yield running


def test_written_differently(cluster):
    """Leading zeros at one owner: nothing is spent, and all parties are told what matches, and why."""
    code, document = released(cluster, "padded", dataset="padded", layout="vertical")
    assert (code, document["error"]["code"]) == (3, "conflict")
    assert document["error"]["details"]["matches"] == [
        {"groups": [["a"], ["b"]], "both": 0, "only": {"a": 80, "b": 80}}
    ]
    assert "strip-leading-zeros" in document["error"]["hint"]
    told = "a against b: no record matches, 80 only at a, 80 only at b"
    shown = cluster.cli("aggregator", "show", "padded").stdout
    assert told in " ".join(shown.split())
    assert "strip-leading-zeros" in shown
    for owner in HOLDS:
        cluster.owner(owner).wait_for("concluded", release="padded")
        assert spends(cluster, owner) == []
        history = ask(cluster, "owner-node", "history", "--release", "padded", owner=owner)[1]["history"]
        reason = ask(cluster, "owner-node", "show", "padded", owner=owner)[1]["reason"]
        assert told in reason
        assert "identifiers are probably written differently" in reason
        assert reason == f"conflict: {history[-1]['details']['reason']}"[: len(reason)]
    everything = str(document) + shown + logs(cluster)
    assert not any(
        f'"{person}"' in everything or f"'{person}'" in everything for person in (*NUMBERS, *PADDED)
    )


def test_replaced_under_way(cluster):
    """An owner replaces its key after its consent and is killed: the release is made with the key it had."""
    a, b = cluster.owner("a"), cluster.owner("b")
    b.signal(signal.SIGSTOP)
    try:
        command = start_release(cluster, "rotated", layout="vertical")
        b.signal(signal.SIGCONT)
        cluster.aggregator.wait_for("described", release="rotated", owner="b")
        b.signal(signal.SIGSTOP)
        cluster.aggregator.wait_for("consented", release="rotated", owner="a")
        before = ask(cluster, "owner-node", "linkage-key", "show", owner="a")[1]
        after = ask(cluster, "owner-node", "linkage-key", "new", "--replace", owner="a")[1]
        assert (before["generation"], after["generation"]) == (1, 2)
        a.kill()
        a.start()
    finally:
        b.signal(signal.SIGCONT)
    code, document = answer_of(command)
    assert (code, document["state"]) == (0, "published")
    manifest = json.loads((Path(document["directory"]) / "manifest.json").read_bytes())
    consents = [owner["consent"]["document"] for owner in manifest["owners"]]
    assert [each["key_generation"] for each in consents] == ["1", "1"]
    assert manifest["addendum"]["document"]["matches"] == [
        {"groups": [["a"], ["b"]], "both": "80", "only": {"a": "0", "b": "0"}}
    ]


def test_generations_are_compared(cluster):
    """After one owner replaced its key, the next release says who has which; with one key it is made."""
    code, document = released(cluster, "differ", layout="vertical")
    assert (code, document["error"]["code"]) == (3, "conflict")
    assert "a has generation 2 | b has generation 1" in document["error"]["message"]
    assert "export at a, then linkage-key import --replace at b" in document["error"]["hint"]
    assert document["error"]["details"]["generations"] == {"a": 2, "b": 1}
    assert all(spends(cluster, owner, "differ") == [] for owner in HOLDS)
    own = state_dir(cluster, "b").parent
    key = ("owner-node", "linkage-key")
    heard = ask(cluster, *key, "recipient", "--out", own / "to", owner="b")[1]["fingerprint"]
    sealing = ("--to", own / "to", "--fingerprint", heard, "--out", own / "sealed")
    sent = ask(cluster, *key, "export", *sealing, owner="a")[1]["fingerprint"]
    taken = ("import", own / "sealed", "--from-fingerprint", sent, "--replace")
    assert ask(cluster, *key, *taken, owner="b")[1]["generation"] == 2
    told = [ask(cluster, "owner-node", "status", owner=owner)[1]["linkage_key"] for owner in HOLDS]
    assert told[0] == told[1]
    assert released(cluster, "alike", layout="vertical")[0] == 0
