"""A process of the join benchmark: `python -m tests.benchmarks.join_party ENGINE FOLDER` prints what it took.

`memory` for an engine stands for our own join from files, of which only the memory is measured.
"""

# First, as in the programs: Arrow imports numpy; see `common.processor`.
import common  # noqa: F401, I001

import json
import sys
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from aggregator.release.assembly import assemble
from aggregator.release.records import to_release
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType
from common.wire.decoding import decode, decode_batches
from common.wire.fragment_layout import TOKEN_COLUMN
from common.workspace import Workspace
from tests.benchmarks.upload_parties import forget_peak, peak_bytes
from tests.fakes.releases import make_plan

N_RECORDS = 3_000_000
LATER = 5
"""Joins of a process after its first one."""
MEMORY = 4 << 30
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


def _joined(fragments: Mapping[str, Iterable[pa.RecordBatch]], folder: Path) -> pa.Table:
    """Return the joined, shuffled table, all of it in memory."""
    plan, workspace = grid(), Workspace(MEMORY, folder / "scratch")
    counts = dict.fromkeys(plan.owners, N_RECORDS)
    return pa.concat_tables(
        to_release(plan, assemble(plan, fragments, counts, N_RECORDS, workspace), workspace.memory)
    )


def _memory(folder: Path) -> tuple[int, int]:
    """Return the bytes of a joined table, and the most that the process had above its libraries."""
    idle, plan = forget_peak(), grid()
    fragments = {
        owner: decode_batches(folder / owner, plan, assignment, N_RECORDS)
        for owner, assignment in plan.assignments.items()
    }
    table = _joined(fragments, folder)
    return table.nbytes, peak_bytes() - idle


def _ours(folder: Path) -> Callable[[], object]:
    batches = {owner: part.to_batches() for owner, part in _parts(folder).items()}
    return lambda: _joined(batches, folder)


def _pyarrow(folder: Path) -> Callable[[], object]:
    first, second, third = _parts(folder).values()
    return lambda: first.join(second, TOKEN_COLUMN, join_type="inner").join(
        third, TOKEN_COLUMN, join_type="inner"
    )


def _polars(folder: Path) -> Callable[[], object]:
    import polars as pl

    first, second, third = (pl.DataFrame(pl.from_arrow(part)) for part in _parts(folder).values())
    return lambda: first.join(second, on=TOKEN_COLUMN).join(third, on=TOKEN_COLUMN)


def _duckdb(folder: Path) -> Callable[[], object]:
    import duckdb

    database = duckdb.connect()
    for name, part in _parts(folder).items():
        database.register(name, part)
    query = "SELECT * EXCLUDE (token) FROM a JOIN b USING (token) JOIN c USING (token)"
    return lambda: database.sql(query).to_arrow_table()


OURS = "ours"
ENGINES = {OURS: _ours, "pyarrow": _pyarrow, "polars": _polars, "duckdb": _duckdb}
"""How every engine joins the same tables, from tables of its own to one of its own."""


def _seconds(join: Callable[[], object]) -> dict[str, float]:
    """Return what the first join of this process takes, and the median of those after it."""
    times = []
    for _ in range(1 + LATER):
        start = time.perf_counter()
        join()
        times.append(time.perf_counter() - start)
    return {"first": times[0], "later": statistics.median(times[1:])}


def main(engine: str, folder: Path) -> None:
    """Measure one thing."""
    # Arrow loads what it needs with its first array.
    pa.array([0])
    if engine == "memory":
        table, peak = _memory(folder)
        print(json.dumps({"table": table, "peak": peak}))
    else:
        print(json.dumps(_seconds(ENGINES[engine](folder))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
