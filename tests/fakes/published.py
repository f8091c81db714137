"""A whole release made in memory and published into a folder: real keys, real fragments, no network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from aggregator.release.publication import ReleaseFolder
from common.arrays import Int64Array, random_order
from common.canonical import digest
from common.model.fragment import Addendum, Consent, FragmentStatement
from common.model.plan import Plan
from common.release.data_files import unit_batches
from common.release.evidence import Evidence, OwnerEvidence, Signed
from common.trust.signing import Domain, Signer
from common.wire.decoding import decode
from common.workspace import temporary_workspace
from deploy.development_ca import DevelopmentCa, Issued
from tests.fakes.releases import (
    ATTRIBUTES,
    TRUST_DOMAIN,
    Groups,
    by_token,
    encoded,
    joined,
    make_plan,
    random_columns,
    random_tokens,
    small_workspace,
)

NAMES = tuple(attribute.name for attribute in ATTRIBUTES)


def signer_of(issued: Issued) -> Signer:
    """Return the signer of an issued certificate."""
    return Signer(issued.key, [issued.certificate])


@dataclass(frozen=True)
class Made:
    """A published release with everything that made it."""

    ca: DevelopmentCa
    plan: Plan
    evidence: Evidence
    aggregator: Signer
    owners: Mapping[str, Signer]
    fragments: Mapping[str, Path]
    folder: Path
    manifest_digest: str
    columns: Mapping[str, Int64Array]

    def ca_file(self, directory: Path) -> Path:
        """Write the CA certificate."""
        path = directory / "ca.pem"
        path.write_bytes(self.ca.issued.certificate_pem)
        return path


def publish_table(
    release_dir: Path,
    evidence: Evidence,
    table: pa.Table,
    signer: Signer,
    published: datetime,
    formats: Sequence[str] = ("parquet",),
    ca: Path | None = None,
) -> str:
    """Publish a table in one piece; returns the digest of its manifest."""
    with temporary_workspace() as workspace:
        folder = ReleaseFolder(release_dir / evidence.plan.release, evidence.plan.digest)
        return folder.publish(evidence, [table], signer, published, formats, ca, workspace=workspace)


def sign_evidence(
    plan: Plan,
    aggregator: Signer,
    owners: Mapping[str, Signer],
    fragments: Mapping[str, bytes],
    linking: str,
    records: Mapping[str, int],
    **found: Any,
) -> Evidence:
    """Sign everything that a release needs; `found` is what else the addendum says."""
    addendum = Addendum(plan.release, plan.digest, linking, dict(records), **found)

    def signed(signer: Signer, domain: Domain, document) -> Signed:
        return Signed(signer.sign_document(domain, document.to_document()), signer.chain_pem)

    by_owner = {}
    for owner, signer in owners.items():
        data = fragments[owner]
        consent = Consent(plan.release, owner, plan.digest, "ab" * 32, "accept")
        statement = FragmentStatement(
            plan.release, owner, plan.digest, addendum.digest, digest(data), len(data), records[owner]
        )
        by_owner[owner] = OwnerEvidence(
            consent,
            signed(signer, Domain.CONSENT, consent),
            statement,
            signed(signer, Domain.FRAGMENT, statement),
        )
    return Evidence(
        plan,
        signed(aggregator, Domain.PLAN, plan),
        addendum,
        signed(aggregator, Domain.ADDENDUM, addendum),
        by_owner,
    )


def make_release(
    directory: Path,
    groups: Groups = ((NAMES, ("a", "b")),),
    *,
    n_records: int = 40,
    formats: Sequence[str] = ("parquet", "csv"),
    seed: int = 7,
    plan: Plan | None = None,
    linking: str = "",
    columns: Mapping[str, Int64Array] | None = None,
    **found: Any,
) -> Made:
    """Make and publish a release, of random values unless others are given; in one group the owners share the
    records.
    """
    rng = np.random.default_rng(seed)
    plan = plan or make_plan(groups)
    ca = DevelopmentCa(TRUST_DOMAIN)
    aggregator = signer_of(ca.aggregator("hub", ["localhost"]))
    owners = {owner: signer_of(ca.owner(owner)) for owner in plan.owners}
    columns = columns or random_columns(rng, plan.attributes, n_records)
    tokens = random_tokens(rng, n_records)
    data, parts, records, paths = {}, {}, {}, {}
    for group in range(plan.n_groups):
        tasks = [task for task in plan.tasks if task.group == group]
        for task, rows in zip(tasks, np.array_split(rng.permutation(n_records), len(tasks)), strict=True):
            assigned = plan.assignment_of(task.owner)
            own = {each.name: columns[each.name][rows] for each in assigned.attributes}
            keyed = tokens[rows] if plan.n_groups > 1 else None
            order = by_token(keyed) if keyed is not None else random_order(len(rows))
            data[task.owner], records[task.owner] = encoded(assigned, own, order, keyed), len(rows)
            paths[task.owner] = directory / f"{task.owner}.fragment"
            paths[task.owner].write_bytes(data[task.owner])
            parts[task.owner] = decode(paths[task.owner], plan, assigned, len(rows))
    said = linking or ("equal" if plan.n_groups > 1 else "disjoint")
    evidence = sign_evidence(plan, aggregator, owners, data, said, records, **found)
    table = joined(plan, parts, n_records, small_workspace(directory))
    release_dir = directory / "releases"
    release_dir.mkdir(exist_ok=True)
    published = datetime.now(UTC)
    manifest = publish_table(release_dir, evidence, table, aggregator, published, formats)
    folder = release_dir / plan.release
    return Made(ca, plan, evidence, aggregator, owners, paths, folder, manifest, columns)


def read_units(path: Path, plan: Plan, names: Sequence[str]) -> pa.Table:
    """Read attributes of a release back into resolution units, all records at once."""
    if path.suffix == ".parquet":
        n_records = pq.read_metadata(path).num_rows
    else:
        n_records = len(pd.read_csv(path, dtype="string"))
    return pa.Table.from_batches(list(unit_batches(path, plan, names, n_records)))
