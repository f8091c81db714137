"""Releases of persons who have several events at owners, and of those who opt out between two releases."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pandas as pd
import pytest

import tessera
from common.errors import IntegrityError
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import ask, declared, identifiers, people, policy, released, spends, write
from tests.system.test_synthetic_release import kill_in_round, verified_records

SIZE = 200
GONE = 15
PERSON = """
[dataset.person]
by = "person"
order = "admitted"
[dataset.person.columns]
visits = { rule = "count" }
ward = { rule = "last", of = "ward" }
income = { rule = "mean", of = "income" }
"""
LAST, MEAN = PERSON.splitlines(keepends=True)[-2:]
OF_INCOME = f'[dataset.person]\nby = "person"\n[dataset.person.columns]\n{MEAN}'
EVENTS = """
[dataset.person.events]
at_most = 2
columns = ["ward", "age"]
gap = "days"
"""
OF_EVENTS = {
    "days": {"type": "integer", "min": 0, "max": 1000},
    "age": {"type": "integer", "min": 0, "max": 120, "missing": "category"},
}
VISITS = {"visits": {"type": "integer", "min": 0, "max": 10}}
WARD = {"ward": {"type": "category", "categories": ["medicine", "surgery", "paediatrics", "eye, ear"]}}
INCOME = {"income": {"type": "integer", "min": 0, "max": 9000}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two owners of events: of other persons, and of the same persons with other attributes."""
    folder = tmp_path_factory.mktemp("persons")
    rules = {}
    for owner, first in (("a", 0), ("b", SIZE)):
        for name, start in (("rows", first), ("columns", 0)):
            table = pd.concat([people(identifiers(start, SIZE), seed) for seed in range(3)])
            write(folder, owner, name, table.assign(age=table["age"].where(table["severity"] != "moderate")))
        opted_out(folder, owner, [])
        half, columns = (INCOME, "income") if owner == "b" else (VISITS | WARD, "ward visits")
        split = "".join(
            line for line in PERSON.splitlines(keepends=True)
            if "rule" not in line or line.split()[0] in columns
        ).replace('order = "admitted"\n', "" if owner == "b" else 'order = "admitted"\n')  # fmt: skip
        rules[owner] = policy(allow_intersect=True) + "".join(
            declared(name, attributes=attributes, opt_out="out.csv", budget="people") + text
            for name, attributes, text in (
                ("rows", VISITS | WARD | INCOME, PERSON), ("columns", half, split)
            )
        )  # fmt: skip
        stays = PERSON.replace(LAST, "") + EVENTS
        own = PERSON.replace(LAST, "").replace(MEAN, "") + EVENTS if owner == "a" else OF_INCOME
        rules[owner] += "".join(
            declared(name, attributes=attributes, budget="people", source=source) + text
            for name, source, attributes, text in (
                ("stays", "rows.csv", VISITS | WARD | OF_EVENTS | INCOME, stays),
                ("journeys", "columns.csv", VISITS | WARD | OF_EVENTS if owner == "a" else INCOME, own),
            )
        )
    make_setup(folder, rules)
    share_linkage_key(folder, "ab")
    with LocalCluster(folder) as running:
        running.start()
        yield running


def opted_out(folder: Path, owner: str, persons: list[str]) -> None:
    """Write an owner's list."""
    lines = "".join(f" {person.upper()} \n" for person in persons)
    (folder / "owners" / owner / "out.csv").write_text(f"person\n{lines}")


@pytest.mark.parametrize(
    ("layout", "dataset", "n_records"), [("horizontal", "rows", 2 * SIZE), ("vertical", "columns", SIZE)]
)
def test_a_release_has_one_record_of_each_person_who_stays(cluster, layout, dataset, n_records):
    """Three events are one record; whoever opts out is in no record of the next release, at any owner."""
    options = {"layout": layout, "dataset": dataset, "epsilon": "2"}
    if layout == "vertical":
        options["on_mismatch"] = "intersect"
    opted_out(cluster.folder, "a", [])
    for release, left in ((f"{layout}-before", 0), (f"{layout}-after", GONE)):
        opted_out(cluster.folder, "a", identifiers(0, left))
        code, document = released(cluster, release, **options)
        assert code == 0, document
        folder = Path(document["directory"])
        assert len(tessera.read_release(folder).frame) == n_records - left
        assert ask(cluster, "aggregator", "verify", folder)[0] == 0
    code, document = ask(cluster, "owner-node", "check", "--dataset", dataset, owner="a")
    assert code == 0, document
    (shown,) = document["datasets"]
    assert (shown["records"], shown["opted_out"]) == (SIZE - GONE, GONE)
    assert shown["events"]["most"] == 3


@pytest.mark.parametrize("layout", ["horizontal", "vertical"])
def test_a_synthetic_release_has_two_tables(cluster, layout, tmp_path):
    """Persons and at most two events of each are published, agree, and are verified with one another."""
    release, dataset = f"{layout}-events", "stays" if layout == "horizontal" else "journeys"
    opted_out(cluster.folder, "a", [])
    options = {"layout": layout, "dataset": dataset, "epsilon": "8", "product": "synthetic", "k": ""}
    code, document = released(cluster, release, format="parquet,csv", **options)
    assert code == 0, document
    folder = Path(document["directory"])
    ca = cluster.folder / "tls" / "ca.pem"
    read = tessera.read_release(folder, ca=ca)
    assert len(read.frame) == (2 * SIZE if layout == "horizontal" else SIZE)
    assert not [name for name in read.frame.columns if name.startswith(("ward_", "days_", "age_"))]
    number = read.events.groupby("record").size().reindex(read.frame.index, fill_value=0)
    assert number.tolist() == read.frame["events"].tolist()
    assert number.max() == 2
    first = read.events.xs(1, level="event")
    assert first["ward"].notna().all()
    assert first["days"].isna().all()
    assert read.events.xs(2, level="event")["days"].notna().all()
    # The age of three in ten events is missing.
    assert 0.1 < read.events["age"].isna().mean() < 0.5
    assert read.codebook.loc[["income", "ward", "age"], "table"].tolist() == ["persons", "events", "events"]
    assert len(read.estimates.means(["income", "events"])) == 2
    assert ask(cluster, "aggregator", "verify", folder)[0] == 0
    changed = tmp_path / "changed"
    copytree(folder, changed)
    lines = (changed / "events.csv").read_text().splitlines(keepends=True)
    other = next(line for line in lines[2:] if line.split(",")[2] != lines[1].split(",")[2])
    lines[1] = ",".join([*lines[1].split(",")[:2], *other.split(",")[2:3], *lines[1].split(",")[3:]])
    (changed / "events.csv").write_text("".join(lines))
    assert ask(cluster, "aggregator", "verify", changed)[0] == IntegrityError.exit_code


@pytest.mark.parametrize(
    ("dataset", "victim", "number"),
    [
        *(("stays", victim, number) for victim in ("a", "aggregator") for number in range(1, 5)),
        ("journeys", "a", 2),
        ("journeys", "aggregator", 3),
    ],
)
def test_killed_in_a_round_of_events(cluster, dataset, victim, number):
    """Persons and events are those that were answered before the death, and each owner spends once."""
    opted_out(cluster.folder, "a", [])

    def check(release: str, shown: dict[str, Any]) -> None:
        n_records, _ = verified_records(cluster, release, shown["directory"])
        assert n_records == (2 * SIZE if dataset == "stays" else SIZE)
        assert tessera.read_release(shown["directory"]).events is not None
        for owner in "ab":
            assert [each.epsilon for each in spends(cluster, owner, release)] == [2]

    layout = "horizontal" if dataset == "stays" else "vertical"
    asked = {"layout": layout, "dataset": dataset, "epsilon": "2", "product": "synthetic", "k": ""}
    kill_in_round(cluster, victim, number, asked, check)


def test_an_owner_checks_its_events(cluster):
    """`check` shows slots and what was left out; what cannot be made of events says what to do instead."""
    code, document = ask(cluster, "owner-node", "check", "--dataset", "stays", owner="a")
    assert code == 0, document
    (shown,) = document["datasets"]
    assert (shown["records"], shown["events_beyond"], shown["events"]["shortened"]) == (SIZE, SIZE, SIZE)
    slots = [each["name"] for each in shown["attributes"] if "slot 1" in each["settings"]]
    assert slots == ["ward_1", "age_1"]
    about, out = ("--dataset", "stays"), cluster.folder / "masked.csv"
    mask = ("mask", *about, "--epsilon", "1", "--out", out, "--yes")
    for words, problem, hint in (
        (mask, "for synthetic releases alone", "aggregator release --product synthetic"),
        ((*mask, "--product", "synthetic"), "has no table of events", "aggregator release"),
        (("schema", "export", *about, out), "which a schema file does not hold", "copy [dataset.person]"),
        (("explore", *about), "for synthetic releases alone", "other --attributes"),
    ):
        code, document = ask(cluster, "owner-node", *words, owner="a")
        assert code == 2, document
        assert problem in document["error"]["message"]
        assert hint in document["error"]["hint"]
    assert not out.exists()


BAD = {
    "no event at most": ("0", "p,2020-01-01,surgery,1,1", "at_most = 0: expected at least 1"),
    "nobody": ("2", "", "there are no records"),
    "no person": ("2", ",2020-01-01,surgery,1,1", "missing identifier (1 record)"),
    "no ward": ("2", "p,2020-01-01,,1,1", "missing value of an event (1 record)"),
}


@pytest.mark.parametrize(("at_most", "line", "problem"), BAD.values(), ids=BAD)
def test_events_that_cannot_be_used_are_errors_of_check(cluster, at_most, line, problem):
    """Settings and events that make no table are named before any release, events with their column."""
    own = cluster.owner("a").config
    own.with_name("bad.csv").write_text(f"person,admitted,ward,age,income\n{line}\n")
    text = own.read_text().replace('"rows.csv"', '"bad.csv"').replace("at_most = 2", f"at_most = {at_most}")
    config = own.with_name("bad.toml")
    config.write_text(text)
    code, document = ask(cluster, "owner-node", "check", "--dataset", "stays", "--config", config, owner="a")
    assert code == 2, document
    assert problem in str(document)


def test_a_masked_release_of_events_is_refused_by_name(cluster):
    """Slots of events cannot be masked: the operator is told before any owner is asked."""
    code, document = released(cluster, "masked-events", dataset="stays")
    assert code != 0
    assert "the events of persons (ward_1 and others) are for synthetic releases" in str(document)
