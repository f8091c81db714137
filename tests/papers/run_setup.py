"""Run a prepared set-up through real daemons and measure what its release is worth.

    python -m tests.papers.run_setup --folder DIR [--epsilon 1] [--k 100] [--id first]

Each owner's sealed fragment is compared with its original records. The records of a fragment are shuffled,
but `idp-joint` gives the records of an attribute values in their own order, so that comparing the sorted
values compares every record with its own value, attribute by attribute.

References:
    Del Vasto-Terrientes et al. 2025, eq. 5 (mean SSE), read as dist² = (1/l²) Σ d²/σ².
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.arrays import Int64Array
from common.cli import console
from common.errors import ExitCode, TesseraError, UsageError, from_document
from common.model.plan import Plan
from common.model.schema import Attribute, CategoryOrder
from common.release.verification import verify_release
from common.wire.decoding import decode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import AGGREGATOR
from owner_node.config import load as load_config
from owner_node.loading import load
from owner_node.masking.tasks import frequency_order
from owner_node.risk.measures import mean_sse
from owner_node.state.outbox import Outbox
from tests.papers.prepare import DATASET, DESCRIPTION

Columns = Mapping[str, Int64Array]


@dataclass(frozen=True, slots=True)
class Part:
    """What one owner has, before and after masking, in resolution units; records in different orders."""

    original: Columns
    """Original values by attribute, each of shape (n_records,)."""
    masked: Columns
    """Masked values by attribute, each of shape (n_records,)."""


def description(folder: Path) -> dict[str, object]:
    """Return what `tests.papers.prepare` says about a folder.

    Raises:
        UsageError: If it did not make it.
    """
    try:
        read: dict[str, object] = json.loads((folder / DESCRIPTION).read_text())
    except OSError:
        raise UsageError(f"{folder} is no prepared set-up", "make it with tests.papers.prepare") from None
    return read


def make_release(
    cluster: LocalCluster, layout: str, owners: Sequence[str], release: str, epsilon: str, k: str
) -> Path:
    """Make a release with `idp-joint`; returns its folder.

    Raises:
        TesseraError: What the release ended with.
    """
    ended = cluster.cli(
        *("aggregator", "release", "--dataset", DATASET, "--layout", layout, "--owners", ",".join(owners)),
        *("--epsilon", epsilon, "--k", k, "--mechanism", "idp-joint", "--rank-noise", "0"),
        *("--id", release, "--yes", "--anyway", "--json"),
        timeout=600,
    )
    document = json.loads(ended.stdout)
    if ended.returncode:
        raise from_document(document)
    return Path(document["directory"])


def parts_of(cluster: LocalCluster, plan: Plan, records: Mapping[str, int]) -> dict[str, Part]:
    """Return every owner's original and masked values.

    Args:
        cluster: The daemons' folder.
        plan: Plan of a published release.
        records: Exact number of records by owner.
    """
    parts = {}
    for owner in plan.owners:
        config = load_config(cluster.owner(owner).config)
        task = plan.assignment_of(owner)
        names = [attribute.name for attribute in task.attributes]
        fragment = Outbox(config.owner.state_dir).path(AGGREGATOR, plan.release)
        table = decode(fragment, plan, task, records[owner], tokens=False)
        masked = {name: table[name].to_numpy().astype(np.int64) for name in names}
        parts[owner] = Part(load(config.dataset(DATASET), names).columns, masked)
    return parts


def sse_by_attribute(attributes: Sequence[Attribute], parts: Sequence[Part]) -> dict[str, float]:
    """Return Σ d² / (n·σ²) of every attribute, with σ² the sample variance of all its original values.

    Args:
        attributes: The attributes of the release.
        parts: Owners' values as masked by `idp-joint`.

    Returns:
        By attribute, in units of its variance; `mean_sse` takes them.
        Categories are counted by the places of their masking order. An attribute without variation counts 0
        if it is unchanged and is infinite otherwise.
    """
    return {each.name: _relative_error(each, parts) for each in attributes}


def _relative_error(attribute: Attribute, parts: Sequence[Part]) -> float:
    holders = [part for part in parts if attribute.name in part.original]
    everything = np.concatenate([part.original[attribute.name] for part in holders])
    order = _order(attribute, everything)
    error = 0.0
    for part in holders:
        original, masked = part.original[attribute.name], part.masked[attribute.name]
        own = _order(attribute, original)
        # Sorted as this owner's masking sorts them, compared by their places among all original values.
        before, after = (values[np.argsort(_placed(own, values))] for values in (original, masked))
        moved = _placed(order, after) - _placed(order, before)
        error += float(np.square(moved.astype(np.float64)).sum())
    variance = float(np.var(_placed(order, everything).astype(np.float64), ddof=1))
    if variance == 0:
        return 0.0 if error == 0 else float("inf")
    return error / (len(everything) * variance)


def _order(attribute: Attribute, values: Int64Array) -> Int64Array | None:
    """Return the place of each category in the frequency order of these values; None: as declared."""
    if attribute.is_categorical and attribute.order is CategoryOrder.FREQUENCY:
        return frequency_order(values, attribute.n_values).place_of
    return None


def _placed(order: Int64Array | None, values: Int64Array) -> Int64Array:
    return values if order is None else order[values]


def measure(cluster: LocalCluster, release: Path) -> dict[str, float]:
    """Verify a release and return the error of each of its attributes; see `sse_by_attribute`.

    Raises:
        IntegrityError: If the release does not hold.
    """
    verified = verify_release(release, cluster.folder / "tls" / "ca.pem")
    parts = parts_of(cluster, verified.plan, verified.addendum.records)
    return sse_by_attribute(verified.plan.attributes, list(parts.values()))


def run(folder: Path, release: str, epsilon: str, k: str) -> dict[str, float]:
    """Start a set-up's daemons, make a release, print and return the error of each attribute."""
    says = description(folder)
    owners = [str(owner) for owner in says["owners"]]  # type: ignore[attr-defined]
    with LocalCluster(folder, owners) as cluster:
        cluster.start()
        made = make_release(cluster, str(says["layout"]), owners, release, epsilon, k)
        errors = measure(cluster, made)
    title = f"{says['setup']}, ε = {epsilon}, k = {k}, seed {says['seed']}: {made}"
    console.table(title, ("attribute", "Σ d² / (n·σ²)"), [(name, f"{e:.6f}") for name, e in errors.items()])
    console.print_line(f"mean SSE: {mean_sse([*errors.values()]):.6f}")
    return errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a prepared set-up from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers.run_setup", description="Run a set-up.")
    parser.add_argument("--folder", type=Path, required=True, help="folder made by tests.papers.prepare")
    parser.add_argument("--epsilon", default="1", help="privacy budget (default: 1)")
    parser.add_argument("--k", default="100", help="minimum cluster size (default: 100)")
    parser.add_argument("--id", default="first", help="id of the release (default: first)")
    options = parser.parse_args(arguments)
    try:
        run(options.folder, options.id, options.epsilon, options.k)
    except TesseraError as error:
        return console.report(error, as_json=False)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
