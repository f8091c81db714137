"""Publishing two million records of five attributes, against writing the same table with pyarrow.

Publishing also makes the figures of the report, signs, and verifies the folder that it wrote: it reads the
data again, and computes the digests of the files.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from aggregator.release.publication import ReleaseFolder
from common.release.table import release_table
from common.workspace import Workspace
from deploy.development_ca import DevelopmentCa
from tests.benchmarks.release_party import DISTINCT, LARGEST, MEMORY, large_plan
from tests.benchmarks.result import Result
from tests.fakes.published import sign_evidence, signer_of
from tests.fakes.releases import TRUST_DOMAIN

PIECES, PIECE_RECORDS = 8, 2**18
TURNS = 5
LIMITS = {("parquet",): 4.0, ("parquet", "csv"): 3.0}
"""Of the time to publish, two fifths are figures of the report, a quarter is spent on verifying."""


def run() -> Iterator[Result]:
    """Measure both sets of formats, in processor time."""
    with tempfile.TemporaryDirectory(prefix="publish-") as name:
        for formats in LIMITS:
            yield _measure(Path(name), formats)


def _measure(folder: Path, formats: tuple[str, ...]) -> Result:
    plan, ca, draw = large_plan("horizontal"), DevelopmentCa(TRUST_DOMAIN), np.random.default_rng(1)
    aggregator = signer_of(ca.aggregator("hub", ["localhost"]))
    owners = {owner: signer_of(ca.owner(owner)) for owner in plan.owners}
    n_records = PIECES * PIECE_RECORDS
    counts = dict.fromkeys(plan.owners, n_records // 4) | {plan.owners[0]: n_records // 2}
    empty = dict.fromkeys(plan.owners, b"")
    evidence = sign_evidence(plan, aggregator, owners, empty, "disjoint", counts)
    lists = {each: draw.integers(0, LARGEST, distinct or n_records) for each, distinct in DISTINCT.items()}
    pieces = [
        release_table(
            plan,
            {each: draw.choice(values, PIECE_RECORDS) for each, values in lists.items()},
            PIECE_RECORDS,
            1 + number * PIECE_RECORDS,
        )
        for number in range(PIECES)
    ]
    table, target = pa.concat_tables(pieces), folder / "-".join(formats)

    def ours(turn: int) -> None:
        ReleaseFolder(target.with_suffix(f".{turn}"), plan.digest).publish(
            evidence, pieces, aggregator, datetime.now(UTC), formats, workspace=Workspace(MEMORY, folder)
        )

    def bare(_: int) -> None:
        parquet.write_table(table, target.with_suffix(".parquet"), compression="zstd")
        if "csv" in formats:
            csv.write_csv(table, target.with_suffix(".csv"))

    taken = [(_processor_seconds(ours, turn), _processor_seconds(bare, turn)) for turn in range(TURNS + 1)]
    seconds, reference = (statistics.median(each) for each in zip(*taken[1:], strict=True))
    detail = f"{n_records:,} records in {seconds:.2f} s against {reference:.2f} s of processor time"
    return Result(f"publish {' and '.join(formats)} / pyarrow", seconds / reference, LIMITS[formats], detail)


def _processor_seconds(action: Callable[[int], None], turn: int) -> float:
    begun = time.process_time()
    action(turn)
    return time.process_time() - begun
