"""What the carriers of values are worth on the papers' data sets: the table in docs/decisions.md.

    python -m tests.papers.worth --data FOLDER [--runs 10]

One owner, or Adult dealt to four; ε = 1 for the whole release, k chosen. Noise comes from the operating
system.
"""

import argparse
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np

from common.arrays import Int64Array
from common.model.plan import Layout
from common.model.schema import Schema, round_to_leading_digit
from common.planning.arguments import RankNoise, ReleaseArguments
from common.planning.planner import make_plan
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.mask import mask_table
from owner_node.masking.tasks import mask_tasks
from owner_node.risk.measures import attribute_sse, mean_sse, scale_of
from owner_node.risk.total_variation import Distributions
from tests.papers import risk_data
from tests.papers.data_sets import DataSet

SETTINGS = (
    *(("census", mechanism, w) for w in ("0.03", "0.1") for mechanism in ("idp-joint", "auto")),
    *(("wine", mechanism, w) for w in ("0.03", "0.1") for mechanism in ("idp-joint", "auto")),
    *(("adult", mechanism, "0.03") for mechanism in ("idp-joint", "auto")),
    *(("adult of four owners", mechanism, "0.03") for mechanism in ("idp-joint", "auto")),
)


def worth(
    data: DataSet, parts: Sequence[Int64Array], mechanism: str, rank_noise: str, runs: int
) -> Iterator[tuple[float, float, float]]:
    """Mask a data set several times, and yield mean SSE and total variation, one-way and two-way.

    Args:
        data: All records.
        parts: Positions of every owner's records.
        mechanism: Mechanism id, or "auto".
        rank_noise: w.
        runs: How many times.
    """
    schemas = {
        f"owner-{place}": Schema(data.attributes, records_rounded=round_to_leading_digit(part.size))
        for place, part in enumerate(parts)
    }
    arguments = ReleaseArguments(
        release="worth", dataset="data", layout=Layout.HORIZONTAL, groups=(tuple(schemas),),
        epsilon=Decimal(1), mechanism=mechanism, rank_noise=RankNoise(Decimal(rank_noise)),
    )  # fmt: skip
    plan = make_plan(arguments, schemas, aggregator="", created="", version="")
    distributions = Distributions.of(data.attributes, data.columns)
    original = [data.columns[each.name] for each in data.attributes]
    scales = [scale_of(each, column) for each, column in zip(data.attributes, original, strict=True)]
    for _ in range(runs):
        masked = [np.empty_like(column) for column in original]
        for task, part in zip(plan.tasks, parts, strict=True):
            own = {name: column[part] for name, column in data.columns.items()}
            columns = mask_table(MemoryEngine(own), mask_tasks(plan, task.attributes, {}))
            for attribute, column in zip(data.attributes, masked, strict=True):
                column[part] = columns[attribute.name]
        errors = [attribute_sse(*each) for each in zip(scales, original, masked, strict=True)]
        yield mean_sse(errors), *distributions.total_variation(masked)


def main() -> None:
    """Print a line per setting."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers.worth")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    for name, mechanism, rank_noise in SETTINGS:
        data = getattr(risk_data, name.split()[0])(options.data)
        sizes = risk_data.ADULT_OWNERS if "four" in name else (data.n_records,)
        order = np.random.default_rng(1).permutation(data.n_records)
        parts = np.split(order, np.cumsum(sizes)[:-1])
        found = np.array(list(worth(data, parts, mechanism, rank_noise, options.runs))).mean(axis=0)
        print(
            f"| {name} | {mechanism} | {rank_noise} | " + " | ".join(f"{each:.3g}" for each in found) + " |"
        )


if __name__ == "__main__":
    main()
