"""Both layouts from end to end with real processes, judged by what is in the release folder."""

import hmac
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from common.model.plan import Plan
from common.release.verification import verify_release
from common.wire.decoding import decode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.linking import linkage_key
from owner_node.linking.tokens import release_key
from tests.fakes.published import read_units
from tests.system.small_owners import (
    ATTRIBUTES,
    ask,
    declared,
    fragment_path,
    identifiers,
    logs,
    people,
    released,
    sealed_and_released,
    sealed_path,
    spends,
    state_dir,
    write,
)

OWNERS = ("a", "b", "c")
SIZES = {"a": 430, "b": 260, "c": 110}
SHARED = 300
SPLIT = {"a": ("age", "income"), "b": ("ward", "severity", "emergency"), "c": ("admitted",)}
K = 20


@dataclass(frozen=True)
class Made:
    """A published release and the processes that made it."""

    cluster: LocalCluster
    layout: str
    folder: Path
    document: dict[str, Any]
    plan: Plan

    @property
    def release(self) -> str:
        """Release id."""
        return self.plan.release

    def fragments(self) -> dict[str, pd.DataFrame]:
        """Return every owner's sealed fragment in resolution units, tokens as bytes."""
        return {
            owner: decode(
                sealed_path(self.cluster, owner, self.release), self.plan, self.plan.assignment_of(owner),
                SIZES[owner] if self.layout == "horizontal" else SHARED,
            ).to_pandas()
            for owner in self.plan.owners
        }  # fmt: skip

    def units(self) -> pd.DataFrame:
        """Return the released records in resolution units."""
        names = [attribute.name for attribute in self.plan.attributes]
        frame: pd.DataFrame = read_units(self.folder / "data.parquet", self.plan, names).to_pandas()
        return frame


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Three owners with two data sets each: `patients`, of different people, and `members`, of the same."""
    folder = tmp_path_factory.mktemp("release")
    first, members = 0, people(identifiers(5000, SHARED), seed=9)
    says = {}
    for seed, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(first, SIZES[owner]), seed))
        first += SIZES[owner]
        own = members[["person", *SPLIT[owner]]].sample(frac=1, random_state=seed)
        # Every owner writes the same identifiers in its own way.
        own["person"] = own["person"].str.upper() if owner == "b" else own["person"] + " "
        write(folder, owner, "members", own)
        mine = {name: ATTRIBUTES[name] for name in SPLIT[owner]}
        says[owner] = declared("patients") + declared("members", attributes=mine)
    make_setup(folder, says)
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


@pytest.fixture(scope="module", params=["horizontal", "vertical"])
def made(request, cluster) -> Made:
    """A release of each layout."""
    layout = request.param
    dataset = "patients" if layout == "horizontal" else "members"
    code, document = sealed_and_released(
        cluster, f"first-{layout}", layout=layout, dataset=dataset, owners="a,b,c", purpose="a system test",
        mechanism="idp-joint",
    )  # fmt: skip
    assert code == 0, document
    folder = Path(document["directory"])
    ca = cluster.folder / "tls" / "ca.pem"
    return Made(cluster, layout, folder, document, verify_release(folder, ca).plan)


def test_command_tells_what_was_made(made):
    """The operator sees owners, exact records, ε, k and the folder; every owner has reached its end."""
    assert made.document["state"] == "published"
    assert made.folder == made.cluster.folder / "releases" / made.release
    names = {"data.parquet", "data.csv", "manifest.json", "manifest.sig", "report.html"}
    names.add("ro-crate-metadata.json")
    assert {path.name for path in made.folder.iterdir()} == names
    sizes = SIZES if made.layout == "horizontal" else dict.fromkeys(OWNERS, SHARED)
    told = {owner["id"]: (owner["records"], owner["k"]) for owner in made.document["owners"]}
    assert told == {owner: (sizes[owner], K) for owner in OWNERS}
    for owner in OWNERS:
        made.cluster.owner(owner).wait_for("concluded", release=made.release, state="published")


def test_types_and_domains(made):
    """Integers are still integers, dates dates, numbers have their decimals, and all is within its domain."""
    table = pq.read_table(made.folder / "data.parquet")
    n = sum(SIZES.values()) if made.layout == "horizontal" else SHARED
    assert table.column("record").to_pylist() == list(range(1, n + 1))
    released_names = [name for name in table.column_names if name != "record"]
    assert set(released_names) == set(ATTRIBUTES)
    assert released_names == [attribute.name for attribute in made.plan.attributes]
    assert all(column.null_count == 0 for column in table.columns)
    types = {name: str(table.schema.field(name).type) for name in ATTRIBUTES}
    assert types["age"] == "int64"
    assert types["admitted"] == "date32[day]"
    assert types["emergency"] == "bool"
    assert types["income"] == "double"
    for name, says in ATTRIBUTES.items():
        values = table.column(name).to_pandas()
        if says["type"] == "category":
            assert set(values.unique()) <= set(says["categories"])  # type: ignore[call-overload]
        elif says["type"] != "boolean":
            assert says["min"] <= values.min() <= values.max() <= says["max"]


def test_csv_says_the_same(made):
    """The CSV file holds the same records as the Parquet file, in the same order."""
    names = [attribute.name for attribute in made.plan.attributes]
    typed, text = (
        read_units(made.folder / name, made.plan, names).to_pandas() for name in ("data.parquet", "data.csv")
    )
    pd.testing.assert_frame_equal(typed, text)
    head = (made.folder / "data.csv").read_text().splitlines()[0]
    assert head == ",".join(["record", *names])


def test_values_are_shared(made):
    """Every released value stands for at least k records of its owner."""
    for owner, fragment in made.fragments().items():
        for name in (attribute.name for attribute in made.plan.assignment_of(owner).attributes):
            assert fragment[name].value_counts().min() >= K, (owner, name)
    units = made.units()
    assert all(units[name].value_counts().min() >= K for name in units.columns)


def test_records_are_those_of_the_fragments(made):
    """Parts are stacked, groups joined on the person, nothing is lost or doubled, and the order is new."""
    fragments = made.fragments()
    if made.layout == "horizontal":
        stacked = pd.concat([fragments[owner] for owner in OWNERS])
    else:
        first, second, third = (fragments[owner] for owner in OWNERS)
        stacked = first.merge(second, on="token", validate="1:1").merge(third, on="token", validate="1:1")
    units = made.units()
    expected = stacked[list(units.columns)].reset_index(drop=True)
    assert units.value_counts(sort=False).to_dict() == expected.value_counts(sort=False).to_dict()
    assert not units.equals(expected)


def test_nothing_identifies(made):
    """No identifier, token or key is anywhere in the release folder or in any log, in any spelling."""
    cluster = made.cluster
    key = linkage_key.load(state_dir(cluster, "a")).key
    names = identifiers(0, sum(SIZES.values())) if made.layout == "horizontal" else identifiers(5000, SHARED)
    of_release = release_key(key, made.release, made.plan.digest)
    spelled = [name.strip().casefold().encode() for name in names]
    tokens = [hmac.digest(of_release, len(name).to_bytes(8, "big") + name, "sha256")[:16] for name in spelled]
    if made.layout == "vertical":
        assert set(made.fragments()["a"]["token"]) == set(tokens)
    secrets = {*spelled, *(name.encode() for name in names), *(name.upper() for name in spelled)}
    secrets |= {*tokens, *(token.hex().encode() for token in tokens), key, key.hex().encode(), of_release}
    # Compressed pages would hide what they hold, so the table is searched uncompressed as well.
    sink = pa.BufferOutputStream()
    pq.write_table(
        pq.read_table(made.folder / "data.parquet"), sink, compression="none", use_dictionary=False
    )
    places = {path.name: path.read_bytes() for path in made.folder.iterdir()}
    places |= {"data, uncompressed": sink.getvalue().to_pybytes(), "logs": logs(cluster).encode()}
    for place, content in places.items():
        assert not any(secret in content for secret in secrets), place


def test_aggregator_keeps_no_fragment(made):
    """After publication the aggregator holds no fragment or token list, and had no way to an original."""
    incoming = made.cluster.aggregator.config.parent / "state" / "incoming"
    assert [path for path in incoming.rglob("*") if path.is_file()] == []


def test_manifest_tells_the_numbers(made):
    """The manifest has exact records, ε and ε_joint of every owner, and what is not hidden."""
    manifest = json.loads((made.folder / "manifest.json").read_text())
    share = Decimal(1) if made.layout == "horizontal" else Decimal(1) / 3
    sizes = SIZES if made.layout == "horizontal" else dict.fromkeys(OWNERS, SHARED)
    for owner in manifest["owners"]:
        assert owner["records"] == str(sizes[owner["id"]])
        assert share - Decimal("1e-10") <= Decimal(owner["epsilon"]) <= share
        assert owner["epsilon_joint"] == owner["epsilon"]
    assert Decimal(manifest["totals"]["epsilon_joint"]) <= 1
    assert manifest["purpose"] == "a system test"
    assert any("share a cluster" in line for line in manifest["invariants"])
    assert "individual differential privacy" in " ".join(manifest["guarantee"]).lower()


def test_ledgers_charge_once(made):
    """Every owner's ledger has one spend for the release, of exactly the charge in the manifest."""
    manifest = json.loads((made.folder / "manifest.json").read_text())
    for owner in manifest["owners"]:
        entries = spends(made.cluster, owner["id"], made.release)
        assert [str(entry.charge) for entry in entries] == [owner["epsilon_joint"]]
        code, document = ask(made.cluster, "owner-node", "ledger", "--verify", owner=owner["id"])
        assert (code, document["verified"]) == (0, True)
        told = [
            (each["kind"], each["charge"]) for each in document["entries"] if each["release"] == made.release
        ]
        assert told == [("reserve", owner["epsilon_joint"]), ("spend", owner["epsilon_joint"])]


def test_download_is_the_release(made, tmp_path):
    """An owner gets the same folder, byte for byte."""
    out = tmp_path / "copy"
    code, document = ask(made.cluster, "owner-node", "download", made.release, "--out", out, owner="b")
    assert code == 0, document
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in made.folder.iterdir()
    }


def test_owner_commands_without_daemon(made, tmp_path):
    """An owner looks at its state, gets the release and verifies it while its daemon does not run."""
    daemon = made.cluster.owner("c")
    daemon.stop()
    try:
        out = tmp_path / "copy"
        assert ask(made.cluster, "owner-node", "download", made.release, "--out", out, owner="c")[0] == 0
        assert ask(made.cluster, "owner-node", "verify", out, owner="c")[0] == 0
        assert ask(made.cluster, "owner-node", "history", owner="c")[0] == 0
        code, document = ask(made.cluster, "owner-node", "status", owner="c")
        assert (code, document["running"], document["sessions"]) == (0, False, [])
        assert ask(made.cluster, "owner-node", "status", "--check", owner="c")[0] == 6
    finally:
        daemon.start()
        daemon.wait_for("connected")


def test_verify_holds(made):
    """The aggregator's verify and every owner's hold, identities included."""
    ca = made.cluster.folder / "tls" / "ca.pem"
    code, document = ask(made.cluster, "aggregator", "verify", made.folder, "--ca", ca)
    assert (code, document["holds"], document["identities_checked"]) == (0, True, True)
    for owner in OWNERS:
        code, document = ask(made.cluster, "owner-node", "verify", made.folder, owner=owner)
        assert code == 0, document
        assert document["own"]["records"] == (SIZES[owner] if made.layout == "horizontal" else SHARED)


def test_verify_fails_after_a_change(made, tmp_path):
    """One changed byte is found by the aggregator's and by an owner's verify: exit 7."""
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    changed = copy / "data.parquet"
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.write_bytes(content)
    assert ask(made.cluster, "aggregator", "verify", copy)[0] == 7
    code, document = ask(made.cluster, "owner-node", "verify", copy, owner="c")
    assert (code, document["error"]["code"]) == (7, "integrity")


def test_owner_finds_its_own_values_exchanged(made, tmp_path):
    """An owner whose sealed fragment is not what it was is told so, not that all is well."""
    path = fragment_path(made.cluster, "a", made.release)
    before = path.read_bytes()
    try:
        path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert ask(made.cluster, "owner-node", "verify", made.folder, owner="a")[0] == 7
    finally:
        path.write_bytes(before)


def test_same_id_returns_to_the_release(made):
    """The same command again shows the same release and charges nothing; other arguments are refused."""
    dataset = "patients" if made.layout == "horizontal" else "members"
    same = {
        "layout": made.layout, "dataset": dataset, "owners": "a,b,c", "purpose": "a system test",
        "mechanism": "idp-joint",
    }  # fmt: skip
    code, document = released(made.cluster, made.release, **same)
    assert (code, document["manifest_digest"]) == (0, made.document["manifest_digest"])
    assert len(spends(made.cluster, "a", made.release)) == 1
    code, document = released(made.cluster, made.release, **(same | {"epsilon": "2"}))
    assert (code, document["error"]["code"]) == (2, "usage")
