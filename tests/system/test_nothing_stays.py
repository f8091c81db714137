"""What the aggregator never has (identifiers, linkage key) and what it must not keep (tokens), searched for.

Every search is also made where it must find something, so that none passes by looking at nothing.
"""

import json
import signal
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.linking.tokens import release_key, tokens
from owner_node.values.normal_forms import NormalForm, normalise
from tests.system.searching import forms, in_memory, on_disk
from tests.system.small_owners import (
    ATTRIBUTES,
    answer_of,
    ask,
    declared,
    fragment_path,
    people,
    policy,
    start_release,
    state_dir,
    write,
)

MARK = b"Zq7Qz"
"""In every identifier, and nowhere else."""
PURPOSE = "a purpose that Xw8Wx marks"
NAMES = [f"{MARK.decode()}-{number:04}" for number in range(120)]
HOLDS = {"a": "age", "b": "ward"}
pytestmark = pytest.mark.usefixtures("ordinary_starts")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two owners of different attributes of the same people; at b a person agrees to every plan."""
    table = people(NAMES, seed=4)
    says = {"a": "", "b": policy(approval="manual")}
    for owner, attribute in HOLDS.items():
        write(tmp_path, owner, "patients", table[["person", attribute]])
        says[owner] += declared("patients", attributes={attribute: ATTRIBUTES[attribute]})
    make_setup(tmp_path, says)
    share_linkage_key(tmp_path, list(HOLDS))
    with LocalCluster(tmp_path) as running:
        running.start()
        yield running


def linkage_key(cluster: LocalCluster) -> bytes:
    """Return the owners' secret, from where it lies."""
    return b64decode(json.loads((state_dir(cluster, "a") / "linkage.key").read_bytes())["key"])


def tokens_of(cluster: LocalCluster, release: str) -> list[bytes]:
    """Return the tokens of everybody, made as an owner makes them."""
    digest = ask(cluster, "aggregator", "show", release)[1]["plan_digest"]
    columns = normalise([pa.array(NAMES)], [NormalForm(("trim", "casefold"))])
    made = tokens(columns, release_key(linkage_key(cluster), release, digest))
    return [token.tobytes() for token in made]


def test_nothing_stays(cluster):
    """The aggregator never has identifiers or the linkage key, in memory or on disk, and keeps no token."""
    place = cluster.folder / "aggregator"
    secrets = {MARK, MARK.lower(), *forms(linkage_key(cluster))}
    out = cluster.folder / "copy"
    command = start_release(cluster, "searched", layout="vertical", purpose=PURPOSE, out=str(out))
    a = cluster.owner("a")
    cluster.aggregator.wait_for("consented", release="searched", owner="a")
    cluster.aggregator.wait_for("waiting", release="searched", owner="b")
    a.signal(signal.SIGSTOP)
    try:
        assert ask(cluster, "owner-node", "approve", "searched", "--yes", "--anyway", owner="b")[0] == 0
        cluster.aggregator.wait_for("linked", release="searched", owner="b")
        sent = tokens_of(cluster, "searched")
        # Now b has linked and a cannot: the aggregator must have b's tokens, in an order that says nothing.
        held = on_disk(place, sent)
        assert set(held) == set(sent)
        (blob,) = {path for paths in held.values() for path in paths}
        assert blob.read_bytes() == b"".join(sorted(sent))
        assert on_disk(place, secrets) == {}
        aggregator = cluster.aggregator.pid
        assert in_memory(aggregator, {*secrets, PURPOSE.encode()}) == {PURPOSE.encode()}
        assert MARK in in_memory(a.pid, secrets)
    finally:
        a.signal(signal.SIGCONT)
    code, document = answer_of(command)
    assert (code, document["state"]) == (0, "published")
    cluster.aggregator.wait_for("acknowledged", release="searched", owner="b")
    # The fragment stays with its owner, without its tokens.
    outbox = fragment_path(cluster, "b", "searched")
    assert outbox.exists()
    assert on_disk(outbox.parent, sent) == {}
    written = {form for token in sent for form in forms(token)}
    folder = Path(document["directory"])
    assert (folder / "data.parquet").exists()
    for searched in (place, folder.parent, out, cluster.folder / "logs"):
        assert any(path.is_file() for path in searched.rglob("*"))
        assert on_disk(searched, {*written, *secrets}) == {}
    database = {path.name for path in on_disk(place, [b"searched"])[b"searched"]}
    assert {"aggregator.db", "aggregator.db-wal"} & database
    assert in_memory(aggregator, {*secrets, PURPOSE.encode()}) == {PURPOSE.encode()}
