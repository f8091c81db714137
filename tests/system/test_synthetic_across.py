"""Synthetic releases of owners with different attributes by separate processes, killed in every round.

In the mixed ones persons are divided between two owners of the same attributes.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow.parquet as pq
import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import AGGREGATOR, make_setup, share_linkage_key
from owner_node.state.rounds import Rounds
from tests.system.small_owners import (
    ATTRIBUTES,
    answer_of,
    ask,
    declared,
    identifiers,
    people,
    policy,
    released,
    spends,
    start_release,
    state_dir,
    write,
)
from tests.system.test_synthetic_release import (
    ATTEMPTS,
    PAUSE_SECONDS,
    kill_in_round,
    state,
    verified_records,
)

HELD = {"a": ("age", "severity"), "b": ("ward", "income")}
OWNERS = tuple(HELD)
GROUPS = ("a", "bc")
SIZE = 300
OWN = re.compile(r"\.(rows|sums)-[0-9a-f]{16}\.parcel$")
PLACES = range(SIZE)
ODD: dict[str, dict[str, tuple[dict[str, object], list[Any]]]] = {
    "a": {
        "one": ({"type": "category", "categories": ["x"]}, ["x" for _ in PLACES]),
        "wide": ({"type": "integer", "min": 0, "max": 2**40}, [2**31 * each for each in PLACES]),
    },
    "b": {
        "code": (
            {"type": "category", "categories": ["a", "b"], "missing": "category"},
            [("a", "b", None)[each % 3] for each in PLACES],
        ),
        "cost": (
            {"type": "integer", "min": 1, "max": 999, "missing": "category"},
            [str(each + 1) if each % 3 else None for each in PLACES],
        ),
    },
}
"""Attributes of one value, of 2^40 values, and with missing values, and their cells."""
ASKED = {"product": "synthetic", "k": "", "layout": "vertical", "owners": ",".join(OWNERS)}
MIXED = {
    "product": "synthetic", "k": "", "layout": "mixed", "owners": "", "dataset": "divided",
    "groups": ";".join(",".join(group) for group in GROUPS),
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Owners of attributes of the same persons, each in an order of its own; c is for mixed releases."""
    folder = tmp_path_factory.mktemp("across")
    says = {"c": policy()}
    records, others = (people(identifiers(first, SIZE), seed=seed) for first, seed in ((0, 1), (SIZE, 2)))
    for place, (owner, names) in enumerate(HELD.items()):
        write(folder, owner, "patients", records[["person", *names]].sample(frac=1, random_state=place))
        attributes = {name: ATTRIBUTES[name] for name in names}
        odd = records[["person"]].assign(**{name: cells for name, (_, cells) in ODD[owner].items()})
        write(folder, owner, "odd", odd)
        says[owner] = "\n".join(
            [
                policy(),
                declared("patients", attributes=attributes, total_epsilon="1000"),
                # The same persons, so the same budget: the ledger recognises them.
                declared(
                    "odd",
                    attributes={name: each for name, (each, _) in ODD[owner].items()},
                    total_epsilon="1000",
                    budget="patients",
                ),
            ]
        )
    for names, group in zip(HELD.values(), GROUPS, strict=True):
        for place, owner in enumerate(group):
            write(folder, owner, "divided", others[["person", *names]][place :: len(group)])
            attributes = {name: ATTRIBUTES[name] for name in names}
            says[owner] += "\n" + declared("divided", attributes=attributes, total_epsilon="1000")
    make_setup(folder, says)
    share_linkage_key(folder, tuple(says))
    with LocalCluster(folder) as running:
        running.start()
        yield running


def check_published(cluster: LocalCluster, release: str, folder: str, epsilon: int = 1) -> None:
    """Check that a release holds for everybody, and that each owner was charged ε once."""
    n_records, own = verified_records(cluster, release, folder)
    mixed = {"a": SIZE, "b": SIZE // 2, "c": SIZE // 2}
    assert n_records == SIZE
    assert own in (dict.fromkeys(OWNERS, SIZE), mixed)
    # The whole ε, not a part of it: a person's record is at several.
    charged = {owner: [each.epsilon for each in spends(cluster, owner, release)] for owner in mixed}
    assert charged == {owner: [epsilon] if owner in own else [] for owner in mixed}


@pytest.mark.parametrize(("release", "asked"), [("whole", ASKED), ("grouped", MIXED)])
def test_a_release(cluster, release, asked):
    """Records have the attributes of all groups; keys, rows and sums are gone when it is published."""
    code, shown = released(cluster, release, **asked)
    assert (code, shown["state"]) == (0, "published"), shown
    check_published(cluster, release, shown["directory"])
    code, verified = ask(cluster, "owner-node", "verify", shown["directory"], owner="b")
    assert (code, verified["own"]["records"]) == (0, SIZE if asked is ASKED else SIZE // 2)
    table = pq.read_table(Path(shown["directory"]) / "data.parquet")
    assert table.num_rows == SIZE
    assert table.column_names == ["record", *(name for names in HELD.values() for name in names)]
    kinds = set(pq.read_table(Path(shown["directory"]) / "counts.parquet").column("kind").to_pylist())
    assert kinds == {"one-way", "two-way"}
    for owner in "".join(GROUPS) if asked is MIXED else OWNERS:
        cluster.owner(owner).wait_for("concluded", release=release)
        with state(cluster, owner) as db:
            assert Rounds(db).secrets(AGGREGATOR, release) is None
            assert not any(each.answer for each in Rounds(db).answered(AGGREGATOR, release))
    assert not list((cluster.folder / "owners").glob(f"*/state/outbox/*~{release}.*.parcel"))
    assert not list((cluster.aggregator.config.parent / "state" / "incoming").glob(f"{release}/*"))


def test_narrow_wide_and_missing_values(cluster):
    """One value, a domain of 2^40, and missing values are counted across owners like any others."""
    code, shown = released(cluster, "odd", **ASKED | {"dataset": "odd", "epsilon": "50"})
    assert (code, shown.get("state")) == (0, "published"), shown
    check_published(cluster, "odd", shown["directory"], 50)
    table = pq.read_table(Path(shown["directory"]) / "data.parquet")
    assert set(table.column("one").to_pylist()) == {"x"}
    assert set(table.column("code").to_pylist()) == {"a", "b", "(missing)"}
    assert 0 < table.column("cost").null_count < SIZE


@pytest.mark.parametrize(
    ("asked", "victim", "number"),
    [
        # Every round that counts and either victim in both layouts.
        *((ASKED, victim, number) for victim, number in (("a", 2), ("aggregator", 3))),
        *((MIXED, victim, number) for victim, number in (("aggregator", 2), ("b", 3))),
    ],
    ids=lambda value: "mixed" if value is MIXED else "vertical" if value is ASKED else str(value),
)
def test_killed_in_a_round(cluster, asked, victim, number):
    """Whoever dies in a round goes on with it: what was answered stays, and what was sent is the same."""
    kill_in_round(
        cluster, victim, number, asked,
        lambda release, shown: check_published(cluster, release, shown["directory"]),
        witness="b" if asked is MIXED else "a",
    )  # fmt: skip


@pytest.mark.parametrize("victim", OWNERS)
def test_killed_with_what_others_wait_for(cluster, victim):
    """An owner that dies before it sends rows or sums, and loses the file, makes the same again."""
    daemon = cluster.owner(victim)
    for attempt in range(ATTEMPTS):
        release = f"lost-{victim}-{attempt}"
        command = start_release(cluster, release, **ASKED)
        made = made_by(cluster, victim, release)
        daemon.kill()
        digests = {path: sha256(path.read_bytes()).hexdigest() for path in made}
        for path in made:
            path.unlink()
        cluster.restart(daemon)
        again = {}
        while command.poll() is None:
            for path in made:
                # It is deleted once the release is published.
                with suppress(FileNotFoundError):
                    again[path] = sha256(path.read_bytes()).hexdigest()
            sleep(PAUSE_SECONDS)
        code, document = answer_of(command)
        assert (code, document.get("state")) == (0, "published"), document
        check_published(cluster, release, document["directory"])
        if again:
            assert again == digests
            return
    pytest.fail(f"in {ATTEMPTS} releases nobody had to make anything again")


def made_by(cluster: LocalCluster, owner: str, release: str) -> list[Path]:
    """Return what an owner has made for others, as soon as there is something."""
    until, outbox = monotonic() + 60, state_dir(cluster, owner) / "outbox"
    while monotonic() < until:
        # What it got from others ends with a number.
        made = [each for each in outbox.glob(f"{AGGREGATOR}~{release}.*.parcel") if OWN.search(each.name)]
        if made:
            return made
        sleep(PAUSE_SECONDS)
    raise AssertionError(f"{owner} has never made anything for others in {release}")
