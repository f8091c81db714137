"""Facts over attributes of two owners through real daemons: every released record has them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow.parquet as pq
import pytest

from aggregator.control.facts_file import facts_document
from common.model.schema import Attribute, AttributeType
from common.model.structural_zeros import ExcludedValues, StructuralZero
from common.release.verification import verify_release
from owner_node.config import OwnerConfig
from owner_node.synthesis import paillier
from tests.fakes.small_keys import small_keys
from tests.fakes.synthetic_owners import paillier_key
from tests.wire.test_owner_daemon import Heard, ended, heard, owner, running, share_key
from tests.wire.test_synthetic import spent

__all__ = ["heard"]

RECORDS = 300
ALIVE = "alive"
STATUS = Attribute("status", AttributeType.CATEGORY, 0, 1, categories=(ALIVE, "dead"))
AGE = Attribute("age", AttributeType.INTEGER, 0, 90)
OF_DEATH = Attribute("cause", AttributeType.CATEGORY, 0, 2, categories=("none", "heart", "lung"))
DEAD = Attribute("dead", AttributeType.BOOLEAN, 0, 1)
OWN = StructuralZero((ExcludedValues("age", (("0", "17"),)), ExcludedValues("status", (("dead", "dead"),))))
"""A rule that owner a declares about its own attributes."""
FACTS = """
structural_zeros = [
    { status = ["alive"], cause = ["heart", "lung"] },
    { status = ["dead"], cause = ["none"] },
]

[attributes.dead]
follows = "status"
values = { alive = false, dead = true }
"""


def parts(folder: Path, address: str, certificates: Path) -> list[OwnerConfig]:
    """Return owner a, which knows who is alive, and owner b, which knows causes of death."""
    draws = np.random.default_rng(3)
    age = draws.integers(0, 91, RECORDS)
    dead = (age > 40) & (draws.random(RECORDS) < 0.5)
    columns = {
        "age": age, "status": np.where(dead, "dead", ALIVE),
        "cause": np.where(dead, np.where(age > 70, "heart", "lung"), "none"),
        "dead": np.where(dead, "true", "false"),
    }  # fmt: skip
    configs = []
    for name, attributes, rules in (("a", (AGE, STATUS), (OWN,)), ("b", (OF_DEATH, DEAD), ())):
        config = owner(folder / name, name, address, certificates)
        (dataset,) = config.datasets
        names = [each.name for each in attributes]
        lines = [",".join([f"p{i}", *(str(columns[each][i]) for each in names)]) for i in range(RECORDS)]
        Path(dataset.source).write_text("\n".join([",".join(["person", *names]), *lines, ""]))
        dataset = replace(dataset, attributes=attributes, structural_zeros=rules)
        configs.append(replace(config, datasets=(dataset,)))
    share_key(configs)
    return configs


@pytest.fixture(autouse=True)
def _made_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners have small keys that are made once for all tests."""
    small_keys(monkeypatch)
    numbers = iter(range(10))
    monkeypatch.setattr(paillier, "new_key", lambda: paillier_key(next(numbers)))


async def begin(aggregator: Any, facts: str = FACTS) -> None:
    """Start a synthetic release with facts."""
    await aggregator.start(
        "a", "b", layout="vertical", product="synthetic", k="", epsilon="4", facts=facts_document(facts)
    )


@pytest.mark.timeout(300)
async def test_no_record_breaks_a_fact_over_two_owners(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """Nobody alive has a cause of death, and an attribute of b follows one of a without being counted."""
    aggregator = await launch()
    configs = parts(tmp_path, aggregator.daemon.address, certificates)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator)
        assert await ended(aggregator, seconds=120) == "published", (await aggregator.show()).error
        # The same id with the same facts is the same release, and with others it is none.
        await begin(aggregator)
        with pytest.raises(grpc.aio.AioRpcError, match="other arguments"):
            await begin(aggregator, FACTS.replace('"heart", ', ""))
    folder = aggregator.config.aggregator.release_dir / "r1"
    verified = verify_release(folder, aggregator.certificates / "ca.pem")
    assert verified.n_records == RECORDS
    frame = pq.read_table(folder / "data.parquet").to_pandas().astype(str)
    assert list(frame)[1:] == ["age", "status", "dead", "cause"]
    alive = frame["status"] == ALIVE
    assert 0 < alive.sum() < RECORDS
    assert ((frame["cause"] == "none") == alive).all()
    assert ((frame["dead"] == "False") == alive).all()
    assert (alive | (frame["age"].astype(int) >= 18)).all()
    assert verified.plan.assignment_of("b").names == ("cause",)
    guarantee = json.loads((folder / "manifest.json").read_bytes())["guarantee"]
    assert any(each.startswith("Rules that the operator states hold") for each in guarantee)
    assert [spent(each) for each in configs] == [4, 4]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ('structural_zeros = [{ agee = { max = 3 }, cause = ["heart"] }]', "did you mean 'age'"),
        (
            'structural_zeros = [{ status = ["alive"] }, { cause = ["none", "heart", "lung"] }]',
            "the structural zeros leave no possible record",
        ),
    ],
)
async def test_facts_that_cannot_be_used_end_before_anybody_is_asked(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard, facts: str, said: str
) -> None:
    """Owners describe their data, and get no plan."""
    aggregator = await launch()
    configs = parts(tmp_path, aggregator.daemon.address, certificates)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await begin(aggregator, facts)
        assert await ended(aggregator) == "failed"
    view = await aggregator.show()
    assert said in view.error.message
    assert not view.plan
    assert [spent(each) for each in configs] == [0, 0]
