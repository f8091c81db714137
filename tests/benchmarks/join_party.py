"""The process of the join benchmark: `python -m tests.benchmarks.join_party FOLDER` prints what it found."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from aggregator.release.joining import join
from common.arrays import random_order
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType
from common.wire.decoding import decode
from common.wire.encoding import TOKEN_COLUMN
from tests.benchmarks.result import medians
from tests.benchmarks.upload_parties import forget_peak, peak_bytes
from tests.fakes.releases import make_plan

N_RECORDS = 1_000_000
REPETITIONS = 5
GROUPS = (
    (("a0", "a1", "a2", "a3"), ("a",)),
    (("b0", "b1", "b2"), ("b",)),
    (("c0", "c1", "c2"), ("c",)),
)
"""Attributes and owner of each group."""


def upper(name: str) -> int:
    """Return the largest value of an attribute: the first ones of a group have few, and are encoded by it."""
    return 10 ** (2 * int(name[1:]) + 2)


def grid() -> Plan:
    """Return the plan: three groups of one owner each, ten numbers in all."""
    names = [name for group, _ in GROUPS for name in group]
    attributes = [Attribute(name, AttributeType.INTEGER, 0, upper(name)) for name in names]
    return make_plan(GROUPS, attributes=attributes)


def _parts(folder: Path) -> dict[str, pa.Table]:
    plan = grid()
    return {
        owner: decode(folder / owner, plan, plan.assignment_of(owner), N_RECORDS) for _, (owner,) in GROUPS
    }


def _memory(folder: Path) -> tuple[int, int]:
    """Return the bytes of a joined table, and the most that the process had above its libraries."""
    idle = forget_peak()
    table = join(grid(), _parts(folder), random_order(N_RECORDS))
    return table.nbytes, peak_bytes() - idle


def _engines(parts: list[pa.Table]) -> dict[str, Callable[[], object]]:
    """Return how every engine joins the same tables, from tables of its own to one of its own."""
    import duckdb
    import polars as pl

    first, second, third = parts
    frames = [pl.DataFrame(pl.from_arrow(part)) for part in parts]
    database = duckdb.connect()
    for name, part in zip("abc", parts, strict=True):
        database.register(name, part)
    query = "SELECT * EXCLUDE (token) FROM a JOIN b USING (token) JOIN c USING (token)"
    return {
        "pyarrow": lambda: first.join(second, TOKEN_COLUMN, join_type="inner").join(
            third, TOKEN_COLUMN, join_type="inner"
        ),
        "polars": lambda: frames[0].join(frames[1], on=TOKEN_COLUMN).join(frames[2], on=TOKEN_COLUMN),
        "duckdb": lambda: database.sql(query).to_arrow_table(),
    }


def main(folder: Path) -> None:
    """Measure memory first, while nothing else is in it."""
    # Arrow loads what it needs with its first array.
    pa.array([0])
    table, peak = _memory(folder)
    parts, plan = _parts(folder), grid()
    engines = _engines(list(parts.values()))
    ours, *theirs = medians(
        REPETITIONS, lambda: join(plan, parts, random_order(N_RECORDS)), *engines.values()
    )
    seconds = {"ours": ours} | dict(zip(engines, theirs, strict=True))
    print(json.dumps({"seconds": seconds, "table": table, "peak": peak}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
