"""Synthetic releases through real daemons over real TLS: rounds, restarts, endings, and what is left."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from common.errors import IntegrityError
from common.model.schema import Attribute, AttributeType
from common.release.verification import verify_release
from common.wire.v1 import control_pb2 as control
from owner_node.cli.releases import _verify_own
from owner_node.config import OwnerConfig, PolicyConfig
from owner_node.ledger.ledger import Ledger
from owner_node.state.database import OwnerDatabase
from owner_node.state.rounds import AnsweredRound, Rounds
from owner_node.state.session import SessionState
from owner_node.state.sessions import Session, Sessions
from tests.wire.test_owner_daemon import Heard, heard, owner, published, running, share_key

__all__ = ["heard"]

ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 0, 90),
    Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),
    Attribute("pay", AttributeType.NUMBER, 0, 9_999_999, 2),
)
RECORDS = 400
NAMES = "abc"


def cohort(folder: Path, name: str, address: str, certificates: Path, **policy: Any) -> OwnerConfig:
    """Return the configuration of an owner whose attributes depend on each other."""
    first = 1000 * NAMES.index(name)
    config = owner(folder / name, name, address, certificates, first)
    draws = np.random.default_rng(first)
    ages = draws.integers(0, 91, RECORDS)
    wards = np.array(list("abc"))[np.minimum(ages // 31, 2)]
    lines = (
        f"p{first + i},{age},{ward},{age * 1000 + 0.25:.2f}"
        for i, (age, ward) in enumerate(zip(ages, wards, strict=True))
    )
    (dataset,) = config.datasets
    Path(dataset.source).write_text("\n".join(["person,age,ward,pay", *lines, ""]))
    dataset = replace(dataset, attributes=ATTRIBUTES)
    return replace(config, datasets=(dataset,), policy=PolicyConfig(**policy))


@pytest.fixture
def owners(launch: Callable[..., Any], tmp_path: Path, certificates: Path) -> Callable[..., Any]:
    """Start an aggregator, and return it with configurations of so many owners."""

    async def start(number: int = 3, **policy: Any) -> tuple[Any, list[OwnerConfig]]:
        aggregator = await launch()
        address = aggregator.daemon.address
        configs = [cohort(tmp_path, each, address, certificates, **policy) for each in NAMES[:number]]
        share_key(configs)
        return aggregator, configs

    return start


async def begin(aggregator: Any, *names: str, **changes: Any) -> control.ReleaseView:
    """Start a synthetic release."""
    return await aggregator.start(*names, product="synthetic", k="", **changes)


def session_of(config: OwnerConfig, release: str = "r1") -> Session:
    """Return an owner's session."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        session = Sessions(db, lambda: datetime.now(UTC)).get("hub", release)
    assert session is not None
    return session


def rounds_of(config: OwnerConfig, release: str = "r1") -> tuple[AnsweredRound, ...]:
    """Return what an owner stored of the rounds."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        return Rounds(db).answered("hub", release)


def spent(config: OwnerConfig) -> Decimal:
    """Return what an owner's budget was charged."""
    with OwnerDatabase(config.owner.state_dir, make=False) as db:
        return Ledger(db, lambda: datetime.now(UTC)).balance("cohort", Decimal(10)).spent


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_release_is_made_of_sums(owners: Callable[..., Any], heard: Heard, number: int) -> None:
    """Records follow from what the aggregator added up; owners are charged ε once, and keep no answer."""
    aggregator, configs = await owners(number)
    names = NAMES[:number]
    async with running(*configs):
        await heard.wait_for("connected", times=number)
        await begin(aggregator, *names, formats=["parquet", "csv"])
        await published(aggregator)
        await heard.wait_for("concluded", times=number)
    folder = aggregator.config.aggregator.release_dir / "r1"
    verified = verify_release(folder, aggregator.certificates / "ca.pem")
    assert verified.n_records == RECORDS * number
    assert {"data.parquet", "data.csv", "counts.parquet", "report.html"} <= set(verified.files)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["product"] == "synthetic"
    assert manifest["synthesis"]["colluding"] == str(min(number - 1, 1))
    assert manifest["synthesis"]["rounds"] == "3"
    assert ["age", "ward"] in manifest["synthesis"]["relations"] or len(
        manifest["synthesis"]["relations"]
    ) >= 2
    table = pq.read_table(folder / "data.parquet")
    assert table.column_names == ["record", "age", "ward", "pay"]
    for config in configs:
        assert _verify_own(config, folder, verified).n_records == RECORDS
        assert spent(config) == 1
        session = session_of(config)
        assert session.state is SessionState.PUBLISHED
        assert len(rounds_of(config)) == 3
        assert not any(each.answer or each.attached for each in rounds_of(config))
        with OwnerDatabase(config.owner.state_dir, make=False) as db:
            assert Rounds(db).key("hub", "r1") is None


async def test_the_published_numbers_are_checked(
    owners: Callable[..., Any], heard: Heard, tmp_path: Path
) -> None:
    """A count or a record that is another one is found, also with digests that fit."""
    aggregator, configs = await owners(2)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, "a", "b")
        await published(aggregator)
    folder, copy = aggregator.config.aggregator.release_dir / "r1", tmp_path / "copy"
    shutil.copytree(folder, copy)
    counts = pq.read_table(copy / "counts.parquet")
    other = counts.column("count").to_numpy().copy()
    other[0] += 1
    pq.write_table(
        counts.set_column(counts.schema.get_field_index("count"), counts.schema.field("count"), [other]),
        copy / "counts.parquet",
    )
    with pytest.raises(IntegrityError, match=r"counts\.parquet was changed"):
        verify_release(copy)
