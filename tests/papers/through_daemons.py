"""One cell of each table again, through real daemons: both ways to the same number have to agree.

    python -m tests.papers.through_daemons --out DIR [--releases 8] [--only wine-vertical]

Prints the mean SSE of both with its 95 % confidence interval, and ends with 1 where intervals do not meet.

References:
    Del Vasto-Terrientes et al. 2025, §5.1.2 and §5.1.3, Figures 5 and 6.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np

from common.cli import console
from common.errors import ExitCode, TesseraError
from deploy.local_cluster import LocalCluster
from owner_node.risk.measures import mean_sse
from owner_node.risk.utility import Estimate, estimate
from tests.papers import data_sets
from tests.papers.in_process import Setting, horizontal, vertical
from tests.papers.prepare import SETUPS, prepare
from tests.papers.run_setup import make_release, measure

EPSILON, K, RUNS, SEED = "1", "100", 50, 1
ORDER = "declared"


def in_daemons(name: str, data: Path, folder: Path, releases: int) -> Estimate:
    """Return the mean SSE of releases that real daemons make."""
    owners = prepare(name, data, folder, seed=SEED, order=ORDER)
    found = []
    with LocalCluster(folder, owners) as cluster:
        cluster.start()
        for number in range(releases):
            made = make_release(cluster, SETUPS[name].layout, owners, f"r{number}", EPSILON, K)
            found.append(mean_sse([*measure(cluster, made).values()]))
    return _estimated(found)


def in_process(name: str, data: Path) -> Estimate:
    """Return the mean SSE of the same setting without daemons."""
    setup = SETUPS[name]
    read = data_sets.adult(data, ORDER) if name.startswith("adult") else data_sets.wine(data)
    setting = [Setting("idp-joint", Decimal(EPSILON), int(K))]
    if setup.records:
        return horizontal(read, setup.records, setting, RUNS, np.random.default_rng(SEED))[0]
    return vertical(read, setup.attributes, setting, RUNS)[0]


def _estimated(values: Sequence[float]) -> Estimate:
    found = estimate(values)
    assert found is not None
    return found


def _text(found: Estimate) -> str:
    return f"{found.mean:.5f} ({found.low:.5f} to {found.high:.5f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare both ways from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers.through_daemons")
    named = os.environ.get("TESSERA_DATA")
    parser.add_argument("--data", type=Path, default=named, required=named is None)
    parser.add_argument("--out", type=Path, required=True, help="empty or absent folder")
    parser.add_argument("--releases", type=int, default=8, help="releases of each set-up (default: 8)")
    parser.add_argument("--only", default=",".join(SETUPS), help=f"some of {', '.join(SETUPS)}")
    options = parser.parse_args(arguments)
    rows, agree = [], True
    try:
        for name in options.only.split(","):
            one = in_daemons(name, options.data, options.out / name, options.releases)
            other = in_process(name, options.data)
            meet = one.low <= other.high and other.low <= one.high
            agree &= meet
            rows.append((name, _text(one), _text(other), "yes" if meet else "no"))
    except TesseraError as error:
        return console.report(error, as_json=False)
    heads = ("set-up", "through daemons", "in one process", "agree")
    console.table(f"mean SSE, idp-joint, ε = {EPSILON}, k = {K}", heads, rows)
    return ExitCode.DONE if agree else ExitCode.INTERNAL


if __name__ == "__main__":
    sys.exit(main())
