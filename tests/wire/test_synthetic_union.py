"""Owners of different attributes and other persons, whose release is of everybody; aggregators that lie."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from aggregator.release import linking
from aggregator.release.linking import LinkingResult
from common.analysis.reading import read_release
from common.release.verification import verify_release
from tests.fakes.small_keys import small_keys
from tests.fakes.synthetic_owners import paillier_key
from tests.wire.test_owner_daemon import Heard, ended, heard, running, share_key
from tests.wire.test_synthetic import begin, spent
from tests.wire.test_synthetic_across import RECORDS, messages, part, refusals

__all__ = ["heard"]

HELD = 40
"""Persons of each owner, of 60."""


@pytest.fixture(autouse=True)
def _made_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every owner's key is another small one, made once for all tests."""
    small_keys(monkeypatch)
    numbers = iter(range(10, 100))
    monkeypatch.setattr("owner_node.synthesis.paillier.new_key", lambda: paillier_key(next(numbers)))


@pytest.mark.timeout(900)
async def test_three_owners_of_other_persons(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """Everybody is released, absent at some owners as a whole; an auditor computes all messages again."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates, HELD) for each in "abc"]
    configs = [replace(c, owner=replace(c.owner, keep_for_audit=timedelta(days=2))) for c in configs]
    share_key(configs)
    persons = [
        {line.partition(",")[0] for line in Path(c.datasets[0].source).read_text().splitlines()[1:]}
        for c in configs
    ]
    everybody = set.union(*persons)
    async with running(*configs):
        await heard.wait_for("connected", times=3)
        await begin(aggregator, *"abc", layout="vertical", on_mismatch="union")
        assert await ended(aggregator, seconds=120) == "published", (await aggregator.show()).error
        await heard.wait_for("concluded", times=3)
    folder = aggregator.config.aggregator.release_dir / "r1"
    verified = verify_release(folder, aggregator.certificates / "ca.pem")
    assert verified.n_records == len(everybody) < RECORDS + 1
    assert [each.owners for each in verified.presence] == [
        ("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"),
    ]  # fmt: skip
    table = pq.read_table(folder / "data.parquet").to_pandas()
    present = [table[f"at_{name}"].astype(str).str.lower() == "true" for name in "abc"]
    assert (present[0] | present[1] | present[2]).all()
    assert ((table["ward"] == "(absent)") == ~present[1]).all()
    assert (table["age"].isna() == ~present[0]).all()
    assert ((table["sex"] == "(absent)") == ~present[0]).all()
    read = read_release(folder)
    assert set(read.codebook.index) == set(table.columns) - {"record"}
    assert read.counts is not None
    assert len(read.counts.table("ward")) == 4
    assert len(read.counts.table("sex")) == 3  # and absent
    assert [spent(config) for config in configs] == [1, 1, 1]
    assert set(verified.addendum.records.values()) == {len(everybody)}
    for config in configs:
        assert messages(config)[-1].kind == "answer"


def changed(found: LinkingResult, owner: str, places: Callable[[np.ndarray], np.ndarray]) -> LinkingResult:
    """Return what linking found with other places of an owner, which the addendum names then."""
    sent = np.frombuffer(found.selections[owner], dtype=">u4").copy()
    return replace(found, selections={**found.selections, owner: places(sent).astype(">u4").tobytes()})


def collide(places: np.ndarray) -> np.ndarray:
    """Give two persons of an owner one place."""
    places[0] = places[1]
    return places


def beyond(places: np.ndarray) -> np.ndarray:
    """Give a person a place that is not there."""
    places[0] = RECORDS
    return places


LIES: dict[str, tuple[Callable[[LinkingResult], LinkingResult], str]] = {
    "collide": (lambda found: changed(found, "b", collide), "places that are not different ones"),
    "beyond": (lambda found: changed(found, "b", beyond), "places that are not different ones"),
    "sizes": (
        lambda found: replace(found, records={**found.records, "b": found.records["b"] + 1}),
        "different numbers of records",
    ),
    "fewer": (
        lambda found: replace(found, records=dict.fromkeys(found.records, HELD - 1)),
        "number of records that this owner linked",
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_places_that_cannot_be_are_refused_before_a_charge(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    lie: str,
) -> None:
    """Places that collide or do not exist, and numbers of persons that differ or are too small."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates, HELD) for each in "ab"]
    share_key(configs)
    unite, (change, said) = linking._unite, LIES[lie]
    monkeypatch.setattr(linking, "_unite", lambda *arguments: change(unite(*arguments)))
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, *"ab", layout="vertical", on_mismatch="union")
        assert await ended(aggregator, seconds=120) == "failed"
        await heard.wait_for("concluded", times=2)
    assert any(said in each for each in refusals(configs)), refusals(configs)
    assert [spent(config) for config in configs] == [0, 0]
    assert not (aggregator.config.aggregator.release_dir / "r1").exists()


async def test_a_person_of_two_places_cannot_be_seen(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An owner knows its own places alone. The plan says what is left of the promise then."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates, HELD) for each in "ab"]
    share_key(configs)
    unite = linking._unite
    monkeypatch.setattr(
        linking, "_unite", lambda *arguments: changed(unite(*arguments), "b", lambda places: places[::-1])
    )
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, *"ab", layout="vertical", on_mismatch="union")
        assert await ended(aggregator, seconds=120) == "published"
    verified = verify_release(aggregator.config.aggregator.release_dir / "r1")
    assert any("for this person the promise is ε 2" in each for each in verified.guarantee)
