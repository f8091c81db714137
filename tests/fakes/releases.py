"""Plans and masked columns for tests of everything that happens after masking."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa

from aggregator.release.assembly import assemble
from aggregator.release.records import to_release
from common.arrays import Int64Array, TokenArray, sortable
from common.model.plan import BudgetSplit, Layout, Linking, Plan
from common.model.schema import Attribute, AttributeType, IdentifierRules
from common.model.task import Assignment, PlannedAttribute, Task
from common.wire.decoding import decode
from common.wire.encoding import encode
from common.workspace import Workspace

TRUST_DOMAIN = "release.test"
AGGREGATOR = f"spiffe://{TRUST_DOMAIN}/aggregator/hub"

LABELS = ("a", 'b "x", y', "café", "line\r\nend")
"""Labels with everything that CSV has to quote."""
ATTRIBUTES = (
    Attribute("age", AttributeType.INTEGER, 0, 120),
    Attribute("income", AttributeType.NUMBER, -1_000_000, 999_999_999, decimals=3),
    Attribute("admitted", AttributeType.DATE, -400, 20_000),
    Attribute("ward", AttributeType.CATEGORY, 0, 3, categories=LABELS, ordered=True),
    Attribute("smoker", AttributeType.BOOLEAN, 0, 1),
    Attribute("dose", AttributeType.NUMBER, 0, 10**9, decimals=9),
)
"""One attribute of every type."""

Groups = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Per group: attribute names, owner ids."""


def planned(name: str, k: int = 3, mechanism: str = "idp-joint") -> PlannedAttribute:
    """Return how an attribute is masked."""
    epsilon = Decimal("0.1")
    joint = epsilon * (2 if mechanism == "idp-ls" else 1)
    return PlannedAttribute(name, mechanism, epsilon, k, joint, Decimal("0.25"))


def make_plan(
    groups: Groups,
    *,
    attributes: Sequence[Attribute] = ATTRIBUTES,
    tokens: bool = True,
    k: int = 3,
    max_records_per_person: int = 1,
    release: str = "demo-1",
) -> Plan:
    """Return a plan over a grid of groups and owners."""
    masked = [name for names, _ in groups for name in names]
    layout = Layout.HORIZONTAL if len(groups) == 1 else Layout.MIXED
    if len(groups) > 1 and all(len(owners) == 1 for _, owners in groups):
        layout = Layout.VERTICAL
    return Plan(
        release=release,
        aggregator=AGGREGATOR,
        created="2026-03-01T12:00:00+00:00",
        version="0.1.0",
        purpose="quality of care",
        layout=layout,
        epsilon=Decimal(1),
        budget_split=BudgetSplit.OWNER,
        attributes=tuple(each for each in attributes if each.name in masked),
        identifier=IdentifierRules(1, ("trim",)) if tokens else None,
        max_records_per_person=max_records_per_person,
        linking=Linking(tokens),
        tasks=tuple(
            Task(owner, "cohort", group, 1000, tuple(planned(name, k) for name in names))
            for group, (names, owners) in enumerate(groups)
            for owner in owners
        ),
    )


def random_columns(
    rng: np.random.Generator, attributes: Sequence[Attribute], n_records: int
) -> dict[str, Int64Array]:
    """Return values within the domains of the attributes."""
    return {
        each.name: rng.integers(each.lower, each.highest, n_records, dtype=np.int64, endpoint=True)
        for each in attributes
    }


def random_tokens(rng: np.random.Generator, n_records: int) -> TokenArray:
    """Return different tokens in random order, some with zero bytes at their ends."""
    tokens = rng.integers(0, 256, (n_records, 16), dtype=np.uint8)
    tokens[::3, 12:] = 0
    return np.unique(tokens, axis=0)[rng.permutation(n_records)]


def by_token(tokens: TokenArray) -> Int64Array:
    """Return the order that sorts tokens."""
    return np.argsort(sortable(tokens)).astype(np.int64)


def encoded(
    assignment: Assignment,
    columns: Mapping[str, Int64Array],
    order: Int64Array,
    tokens: TokenArray | None = None,
) -> bytes:
    """Return the bytes of a fragment."""
    stream = BytesIO()
    encode(stream, assignment, columns, order, tokens)
    return stream.getvalue()


def through_file(
    path: Path,
    plan: Plan,
    assignment: Assignment,
    columns: Mapping[str, Int64Array],
    order: Int64Array,
    tokens: TokenArray | None = None,
) -> pa.Table:
    """Encode a fragment into a file and decode it from there."""
    path.write_bytes(encoded(assignment, columns, order, tokens))
    return decode(path, plan, assignment, len(order))


def small_workspace(scratch: Path, memory: int = 1 << 30) -> Workspace:
    """Return a workspace for tests; with a few kilobytes of memory everything is done in many pieces."""
    return Workspace(memory, scratch / "scratch")


def joined(plan: Plan, parts: Mapping[str, pa.Table], n_records: int, workspace: Workspace) -> pa.Table:
    """Return the table that is released: decoded fragments joined, shuffled, in release types."""
    batches = {owner: table.to_batches() for owner, table in parts.items()}
    counts = {owner: table.num_rows for owner, table in parts.items()}
    records = assemble(plan, batches, counts, n_records, workspace)
    return pa.concat_tables(to_release(plan, records, workspace.memory))
