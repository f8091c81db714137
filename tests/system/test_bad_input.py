"""Whatever cannot become a release ends with the exit code that says why, and with nothing spent."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from common.cli import console
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from owner_node.cli import application
from tests.system.small_owners import (
    ATTRIBUTES,
    answer_of,
    ask,
    declared,
    identifiers,
    ledger,
    logs,
    people,
    policy,
    released,
    spends,
    start_release,
    write,
)

MARK = "Zq7Qz"
"""Part of every wrong value: where it shows up, a value of a record was told."""
PEOPLE = {"a": identifiers(0, 80), "b": identifiers(100, 80), "c": identifiers(200, 80)}


@dataclass(frozen=True)
class Wrong:
    """A way in which b's data set is wrong."""

    spoil: Callable[[pd.DataFrame, Path], None]
    """Writes it instead of the good one."""
    told: tuple[str, ...]
    """What the owner's own check names."""


def _cell(column: str, value: str | None, records: int = 3) -> Callable[[pd.DataFrame, Path], None]:
    def spoil(table: pd.DataFrame, path: Path) -> None:
        changed = table.astype({column: object})
        changed.loc[: records - 1, column] = value
        changed.to_csv(path, index=False)

    return spoil


def _as_bytes(change: Callable[[bytes], bytes]) -> Callable[[pd.DataFrame, Path], None]:
    def spoil(_: pd.DataFrame, path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return spoil


WRONG = {
    "type": Wrong(_cell("age", MARK), ("age", "3")),
    "decimal": Wrong(_cell("age", "12.5", records=1), ("age", "1")),
    "domain": Wrong(_cell("income", "9000.01"), ("income", "3")),
    "category": Wrong(_cell("ward", MARK), ("ward", "3")),
    "date": Wrong(_cell("admitted", f"2020-02-30{MARK}"), ("admitted", "3")),
    "missing": Wrong(_cell("severity", None), ("severity", "3")),
    "nan": Wrong(_cell("income", "nan"), ("income", "3")),
    "infinity": Wrong(_cell("income", "inf"), ("income", "3")),
    "no-identifier": Wrong(_cell("person", None), ("person", "3")),
    "twice": Wrong(_cell("person", f"ID-{MARK}"), ("person", "3")),
    "empty": Wrong(_as_bytes(lambda _: b""), ("empty.csv",)),
    "encoding": Wrong(_as_bytes(lambda data: data.replace(b"surgery", b"surg\xe9ry")), ("encoding.csv",)),
    "columns": Wrong(_as_bytes(lambda data: data.replace(b"person,age", b"person,ages", 1)), ("age",)),
    "doubled": Wrong(_as_bytes(lambda data: data.replace(b",note\n", b",age\n", 1)), ("age",)),
    "absent": Wrong(lambda _, path: path.unlink(), ("absent.csv",)),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Owner a is fine; b has a policy and data sets that are wrong; c has a linkage key of its own."""
    folder = tmp_path_factory.mktemp("bad")
    good = {owner: people(names, seed) for seed, (owner, names) in enumerate(PEOPLE.items())}
    sets: dict[str, dict[str, pd.DataFrame]] = {
        name: {"a": good["a"], "b": good["b"]} for name in ("patients", "tight", "clash", *WRONG)
    }
    sets["patients"]["c"] = good["c"]
    sets["few"] = {"a": good["a"], "b": good["b"][:52]}
    sets["overlap"] = {"a": good["a"], "b": pd.concat([good["a"][:7], good["b"]])}
    sets["mismatch"] = {"a": good["a"][["person", "age"]], "b": good["a"][4:][["person", "ward"]]}
    carriers = ["idp-joint", "idp-quantiles", "dp-hist"]
    rules = policy(min_k=10, max_epsilon_per_release="5", mechanisms=carriers)
    says = {"a": "", "b": rules, "c": ""}
    for name, held in sets.items():
        for owner, table in held.items():
            path = write(folder, owner, name, table)
            if owner == "b" and name in WRONG:
                WRONG[name].spoil(table, path)
            says[owner] += _declared(owner, name)
    make_setup(folder, says, deadlines={"invite": "15s"})
    share_linkage_key(folder, ["a", "b"])
    with LocalCluster(folder) as running:
        assert ask(running, "owner-node", "linkage-key", "new", owner="c")[0] == 0
        running.start()
        yield running


def _declared(owner: str, name: str) -> str:
    attributes = {key: dict(says) for key, says in ATTRIBUTES.items()}
    if name == "mismatch":
        kept = "age" if owner == "a" else "ward"
        attributes = {kept: attributes[kept]}
    if name == "clash" and owner == "b":
        attributes["age"]["max"] = 110
        attributes["ward"]["categories"] = ["surgery", "medicine", "paediatrics", "eye, ear"]
        del attributes["emergency"]
    total = "0.5" if name == "tight" else "100"
    return declared(name, attributes=attributes, total_epsilon=total)


@pytest.fixture(autouse=True)
def nothing_spent(cluster) -> Iterator[None]:
    """After every test: no owner has spent or still reserves anything, and no log quotes a value."""
    yield
    for owner in PEOPLE:
        assert spends(cluster, owner) == []
        with ledger(cluster, owner) as book:
            budgets = {entry.budget for entry in book.entries()}
            assert {book.balance(name, Decimal(1)).reserved for name in budgets} <= {Decimal(0)}
    told = logs(cluster)
    assert MARK not in told
    assert MARK.casefold() not in told
    assert not any(name in told for names in PEOPLE.values() for name in names)


def concluded(cluster: LocalCluster, release: str, *owners: str) -> None:
    """Wait until owners have heard of the end of a release."""
    for owner in owners:
        cluster.owner(owner).wait_for("concluded", release=release)


def await_present(cluster: LocalCluster, owner: str) -> None:
    """Wait until the aggregator counts an owner as connected: it does once the owner waits for work."""
    while True:
        owners = ask(cluster, "aggregator", "owners")[1]["owners"]
        if any(each["id"] == owner and each["connected"] for each in owners):
            return


def test_conflicts_are_told_together(cluster):
    """All differences between the owners' schemas are listed with owner and attribute: exit 3."""
    code, document = released(cluster, "clash", dataset="clash")
    assert (code, document["error"]["code"]) == (3, "conflict")
    found = {(each["owner"], each["attribute"]) for each in document["error"]["details"]["conflicts"]}
    assert {attribute for _, attribute in found} == {"age", "ward", "emergency"}
    assert {owner for owner, _ in found} == {"b"}
    assert all(each["fix"] for each in document["error"]["details"]["conflicts"])
    concluded(cluster, "clash", "a", "b")


def test_conflict_can_be_left_out(cluster):
    """`--attributes` leaves the clashing attributes out, and the plan is made."""
    words = ["--dataset", "clash", "--layout", "horizontal", "--owners", "a,b", "--epsilon", "1", "--k", "20"]
    code, document = ask(
        cluster, "aggregator", "plan", *words, "--attributes", "severity,income", "--id", "subset"
    )
    assert (code, document.get("state")) == (0, "planned"), document
    assert [each["name"] for each in document["plan"]["attributes"]] == ["severity", "income"]
    concluded(cluster, "subset", "a", "b")


def test_overlap(cluster):
    """A person at two owners of the same attributes breaks parallel composition: exit 3, with the count."""
    code, document = released(cluster, "overlap", dataset="overlap")
    assert (code, document["error"]["code"]) == (3, "conflict")
    assert "7" in document["error"]["message"]
    concluded(cluster, "overlap", "a", "b")


def test_mismatch(cluster):
    """In a vertical release everybody must be known to every owner: exit 3, who lacks how many."""
    code, document = released(cluster, "mismatch", dataset="mismatch", layout="vertical")
    assert (code, document["error"]["code"]) == (3, "conflict")
    assert "b" in document["error"]["message"]
    assert "4" in document["error"]["message"]
    concluded(cluster, "mismatch", "a", "b")


def test_other_linkage_key(cluster):
    """An owner with another linkage key is found before tokens are compared: exit 3."""
    code, document = released(cluster, "other-key", owners="a,c")
    assert (code, document["error"]["code"]) == (3, "conflict")
    assert "key" in document["error"]["message"]
    concluded(cluster, "other-key", "a", "c")


@pytest.mark.parametrize(
    "options",
    [{"k": "9"}, {"epsilon": "5.1"}, {"mechanism": "idp-ls"}],
    ids=lambda options: "-".join(*options.items()),
)
def test_refused_by_policy(cluster, options):
    """What b's policy does not allow ends at the plan: exit 4, with the rule, and no owner is asked."""
    release = "policy-" + "-".join(*options.items())
    code, document = released(cluster, release, **options)
    assert (code, document["error"]["code"]) == (4, "refused")
    assert "b: policy." in document["error"]["message"]
    concluded(cluster, release, "a", "b")
    history = ask(cluster, "owner-node", "history", "--release", release, owner="b")[1]["history"]
    assert not any(each["event"] == "refused" for each in history)


def test_balance(cluster):
    """A charge above what both budgets hold is refused by both: exit 5."""
    code, document = released(cluster, "balance", dataset="tight")
    assert (code, document["error"]["code"]) == (5, "balance")
    concluded(cluster, "balance", "a", "b")


@pytest.mark.parametrize("k", ["55", "81"])
def test_fewer_records_than_k(cluster, k):
    """Fewer than k records end it unspent: exit 4, whether the rounded number shows it or not."""
    release = f"few-{k}"
    code, document = released(cluster, release, dataset="few", k=k)
    assert (code, document["error"]["code"]) == (4, "unusable_data")
    concluded(cluster, release, "a", "b")


@pytest.mark.parametrize("name", sorted(WRONG))
def test_bad_data(cluster, capsys, name):
    """Wrong data are reported to their owner in full, to others as a kind without a value."""
    config = str(cluster.owner("b").config)
    assert console.run(application(), "owner-node", ["check", "--dataset", name, "--config", config]) == 2
    said = "".join(capsys.readouterr())
    # Only a person at the owner itself sees which category it is.
    # Only a person at the owner itself sees which text it is.
    assert (MARK in said) == (name in ("category", "date", "type"))
    assert all(word in said for word in (*WRONG[name].told, f"{name}.csv"))
    assert "hint:" in said
    code, document = released(cluster, f"bad-{name}", dataset=name)
    # Found when the records are counted, or not before the data are loaded for a plan.
    assert code == 4
    assert document["error"]["code"] in ("bad_data", "unusable_data")
    assert document["error"]["message"].startswith("owner b: ")
    assert MARK not in str(document)
    concluded(cluster, f"bad-{name}", "a", "b")


def test_deadline(cluster):
    """An owner that is connected and does not answer in time ends the release: exit 8."""
    await_present(cluster, "b")
    halted = cluster.owner("b")
    halted.signal(signal.SIGSTOP)
    try:
        code, document = released(cluster, "late")
    finally:
        halted.signal(signal.SIGCONT)
    assert (code, document["error"]["code"]) == (8, "deadline"), document
    assert document["error"]["details"]["owners"] == ["b"]
    concluded(cluster, "late", "a")


def test_cancelled(cluster):
    """A release that its operator cancels ends its command with exit 8 and returns what was reserved."""
    halted = cluster.owner("b")
    halted.signal(signal.SIGSTOP)
    try:
        command = start_release(cluster, "unwanted")
        cluster.aggregator.wait_for("described", release="unwanted", owner="a")
        assert ask(cluster, "aggregator", "cancel", "unwanted")[0] == 0
    finally:
        halted.signal(signal.SIGCONT)
    code, document = answer_of(command)
    assert (code, document["error"]["code"]) == (8, "cancelled")
    concluded(cluster, "unwanted", "a")


def test_not_connected(cluster):
    """An owner that is known and does not come in time is named: exit 6."""
    absent = cluster.owner("c")
    absent.stop()
    release = "absent"
    try:
        code, document = released(cluster, release, owners="a,c")
        if code == 8:
            # It stopped between two polls, and counts as connected for as long as two deadlines.
            release = "still-absent"
            code, document = released(cluster, release, owners="a,c")
    finally:
        absent.start()
        absent.wait_for("connected")
    assert (code, document["error"]["code"]) == (6, "not_connected")
    assert document["error"]["details"]["owners"] == ["c"]
    concluded(cluster, release, "a", "c")
