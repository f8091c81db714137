"""Synthetic releases of owners with different attributes through real daemons, and what is left of them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from common.model.schema import Attribute, AttributeType
from common.release.verification import verify_release
from owner_node.config import OwnerConfig
from owner_node.state.database import OwnerDatabase
from owner_node.state.rounds import Rounds
from owner_node.state.session import SessionState
from tests.wire.test_owner_daemon import Heard, ended, heard, owner, running, share_key
from tests.wire.test_synthetic import begin, session_of, spent

__all__ = ["heard"]

ATTRIBUTES = {
    "a": (Attribute("age", AttributeType.INTEGER, 0, 90), Attribute("sex", AttributeType.BOOLEAN, 0, 1)),
    "b": (Attribute("ward", AttributeType.CATEGORY, 0, 2, categories=("a", "b", "c")),),
    "c": (Attribute("pay", AttributeType.NUMBER, 0, 9_999, 2),),
}
RECORDS = 120


def part(folder: Path, name: str, address: str, certificates: Path, records: int = RECORDS) -> OwnerConfig:
    """Return the configuration of an owner of some attributes of the same persons, in an order of its own."""
    config = owner(folder / name, name, address, certificates)
    draws = np.random.default_rng(1)
    ages = draws.integers(0, 91, RECORDS)
    columns = {
        "age": ages, "sex": np.where(ages > 45, "true", "false"),
        "ward": np.array(list("abc"))[np.minimum(ages // 31, 2)], "pay": ages + 0.25,
    }  # fmt: skip
    order = np.random.default_rng(ord(name)).permutation(RECORDS)[:records]
    names = [each.name for each in ATTRIBUTES[name]]
    lines = [",".join([f"p{i}", *(str(columns[each][i]) for each in names)]) for i in order.tolist()]
    (dataset,) = config.datasets
    Path(dataset.source).write_text("\n".join([",".join(["person", *names]), *lines, ""]))
    return replace(config, datasets=(replace(dataset, attributes=ATTRIBUTES[name]),))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("names", ["ab", "abc"])
async def test_a_release_across_owners(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard, names: str
) -> None:
    """Records have the attributes of all owners, which are charged the whole ε and keep no key."""
    aggregator = await launch()
    configs = [part(tmp_path, each, aggregator.daemon.address, certificates) for each in names]
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=len(names))
        await begin(aggregator, *names, layout="vertical")
        # Every owner makes a key of 3,072 bits, which takes seconds where many tests run.
        assert await ended(aggregator, seconds=120) == "published"
        await heard.wait_for("concluded", times=len(names))
    folder = aggregator.config.aggregator.release_dir / "r1"
    verified = verify_release(folder, aggregator.certificates / "ca.pem")
    assert verified.n_records == RECORDS
    attributes = [each.name for name in names for each in ATTRIBUTES[name]]
    assert pq.read_table(folder / "data.parquet").column_names == ["record", *attributes]
    kinds = set(pq.read_table(folder / "counts.parquet").column("kind").to_pylist())
    assert kinds == {"one-way", "score", "coarse", "two-way"}
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["synthesis"]["colluding"] == "0"
    for config in configs:
        assert spent(config) == 1
        assert session_of(config).state is SessionState.PUBLISHED
        assert not list((config.owner.state_dir / "outbox").glob("*.parcel"))
        with OwnerDatabase(config.owner.state_dir, make=False) as db:
            assert Rounds(db).secrets("hub", "r1") is None
