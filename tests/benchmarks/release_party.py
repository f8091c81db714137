"""The processes of the benchmark of large releases: `python -m tests.benchmarks.release_party …`.

`write LAYOUT FOLDER OWNER` makes a fragment. `publish LAYOUT FOLDER` joins and publishes all of them, and
prints what it took.
"""

import json
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from aggregator.release.assembly import assemble
from aggregator.release.publication import ReleaseFolder
from aggregator.release.records import to_release
from common.arrays import random_order, sortable
from common.model.fragment import n_records
from common.model.plan import Plan
from common.model.schema import Attribute, AttributeType
from common.wire.decoding import decode_batches
from common.wire.encoding import encode
from common.wire.fragment_layout import TOKEN_BYTES, has_tokens
from common.workspace import Workspace
from deploy.development_ca import DevelopmentCa
from tests.benchmarks.upload_parties import peak_bytes
from tests.fakes.published import sign_evidence, signer_of
from tests.fakes.releases import TRUST_DOMAIN, make_plan

N_RECORDS = 10_000_000
OWNERS = {"horizontal": ("a", "b", "c"), "vertical": ("a", "b")}
MEMORY = 10**9
DISTINCT = {"x0": 100, "x1": 50_000, "x2": 200_000, "x3": 1_000_000, "x4": 0}
"""How many values a masked attribute has; 0 for one that differs in every record."""
LARGEST = 10**9


def large_plan(layout: str) -> Plan:
    """Return the plan: five integers at every owner of one group, or divided between two groups."""
    names, owners = list(DISTINCT), OWNERS[layout]
    attributes = [Attribute(name, AttributeType.INTEGER, 0, LARGEST) for name in names]
    divided = [(names[:3], owners[:1]), (names[3:], owners[1:])]
    return make_plan(divided if layout == "vertical" else [(names, owners)], attributes=attributes)


def write(layout: str, folder: Path, owner: str) -> None:
    """Write the fragment of an owner; where groups are aligned, all have the same tokens."""
    rng, plan = np.random.default_rng(OWNERS[layout].index(owner)), large_plan(layout)
    assignment, columns = plan.assignment_of(owner), {}
    for each in assignment.attributes:
        distinct = DISTINCT[each.name]
        values = rng.integers(0, LARGEST, distinct or N_RECORDS)
        columns[each.name] = rng.choice(values, N_RECORDS) if distinct else values
    order, tokens = random_order(N_RECORDS), None
    if has_tokens(plan):
        tokens = np.random.default_rng(7).integers(0, 256, (N_RECORDS, TOKEN_BYTES), dtype=np.uint8)
        order = np.argsort(sortable(tokens), kind="stable").astype(np.int64)
    with (folder / owner).open("wb") as stream:
        encode(stream, assignment, columns, order, tokens)


def publish_all(layout: str, folder: Path) -> None:
    """Join and publish the fragments; print seconds, peak of memory in bytes, and records of the release."""
    plan, ca = large_plan(layout), DevelopmentCa(TRUST_DOMAIN)
    aggregator = signer_of(ca.aggregator("hub", ["localhost"]))
    owners = {owner: signer_of(ca.owner(owner)) for owner in plan.owners}
    counts, empty = dict.fromkeys(plan.owners, N_RECORDS), dict.fromkeys(plan.owners, b"")
    found = "equal" if has_tokens(plan) else "disjoint"
    evidence = sign_evidence(plan, aggregator, owners, empty, found, counts)
    n_released = n_records(plan, evidence.addendum)
    fragments = {
        owner: decode_batches(folder / owner, plan, assignment, N_RECORDS)
        for owner, assignment in plan.assignments.items()
    }
    workspace = Workspace(MEMORY, folder / "scratch")
    start = time.perf_counter()
    with closing(assemble(plan, fragments, counts, n_released, workspace)) as records:
        pieces = to_release(plan, records, workspace.memory // 8)
        ReleaseFolder(folder / plan.release, plan.digest).publish(
            evidence, pieces, aggregator, datetime.now(UTC), workspace=workspace
        )
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak": peak_bytes(), "records": n_released}))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        publish_all(sys.argv[2], Path(sys.argv[3]))
