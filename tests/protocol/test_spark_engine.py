"""An owner node whose records Spark masks: the charge stays single whatever ends while it masks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import SourceUnreachableError
from common.workspace import Workspace
from owner_node.config import PolicyConfig
from owner_node.config.engine import EngineKind, OwnerEngineSection
from owner_node.sources.spark_session import SparkSettings
from tests.fakes.offering import N_RECORDS, Offering
from tests.protocol.test_disk_engine import agreed, disjoint, scratch
from tests.spark_cluster import QUIET, SMALL

pytestmark = QUIET


@pytest.fixture
def offering(tmp_path: Path) -> Iterator[Offering]:
    """One owner node with a Spark session of its own, and its aggregator."""
    from owner_node.sources import spark_session

    made = Offering(tmp_path, PolicyConfig(allow_intersect=True))
    section = OwnerEngineSection(memory_limit=256 * 10**6, threads=2, kind=EngineKind.SPARK)
    settings = SparkSettings("local[2]", Workspace(section.memory_limit, tmp_path / "session", 2), SMALL)
    datasets = tuple(replace(each, spark=settings) for each in made.config.datasets)
    made.config = replace(made.config, engine=section, datasets=datasets)
    made.restart()
    yield made
    made.records.db.close()
    spark_session.stop()


def test_a_driver_that_dies_while_it_masks_is_started_again_with_one_charge(
    offering: Offering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step waits and is done again with fresh noise; scratch is empty afterwards."""
    from pyspark import SparkContext

    from owner_node.engines.spark import SparkEngine

    plan = agreed(offering, "horizontal")
    offering.node.production.link("r1", plan.digest)
    message = offering.signed(disjoint(plan))
    column = SparkEngine.column

    def dies(engine: SparkEngine, task: object) -> object:
        found = column(engine, task)  # type: ignore[arg-type]
        process = SparkContext._gateway.proc
        process.kill()
        process.wait()
        return found

    with monkeypatch.context() as broken:
        broken.setattr(SparkEngine, "column", dies)
        with pytest.raises(SourceUnreachableError, match="the Java process of the Spark session ended"):
            offering.node.production.mask("r1", plan.digest, *message)
    assert offering.kinds() == ["reserve", "spend"]
    sealed = offering.node.production.mask("r1", plan.digest, *message)
    assert sealed.n_records == N_RECORDS
    assert offering.kinds() == ["reserve", "spend"]
    assert not scratch(offering)
