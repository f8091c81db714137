"""An owner's earlier state, which is copied and put back, and what its ledger must still have."""

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

from common.files import PRIVATE_FILE
from deploy.local_cluster import LocalCluster
from owner_node.ledger.ledger import EntryKind
from owner_node.release.records import Records
from owner_node.state.database import FILE_NAME
from tests.chaos.parties import newest_head, records_of
from tests.system.small_owners import state_dir


def copy_state(cluster: LocalCluster, owner: str) -> None:
    """Copy an owner's database as SQLite does beside a writer; an earlier copy is replaced."""
    with (
        closing(sqlite3.connect(state_dir(cluster, owner) / FILE_NAME)) as source,
        closing(sqlite3.connect(_copy(cluster, owner))) as copy,
    ):
        source.backup(copy)


def put_back(cluster: LocalCluster, owner: str) -> None:
    """Replace the database of an owner whose daemon does not run by the copy."""
    place = state_dir(cluster, owner)
    for path in place.glob(f"{FILE_NAME}*"):
        path.unlink()
    (place / FILE_NAME).write_bytes(_copy(cluster, owner).read_bytes())
    (place / FILE_NAME).chmod(PRIVATE_FILE)


def spent(records: Records, up_to: int | None = None) -> dict[str, Decimal]:
    """Return what a ledger says was spent, by digest of the plan.

    Args:
        records: The owner's state.
        up_to: The number of the last entry that counts; None: all count.
    """
    charges: dict[str, Decimal] = {}
    for each in records.ledger.entries():
        if each.kind is EntryKind.SPEND and (up_to is None or each.sequence <= up_to):
            charges[each.plan_digest] = charges.get(each.plan_digest, Decimal(0)) + each.charge
    return charges


def known_charges(cluster: LocalCluster, owner: str) -> dict[str, Decimal]:
    """Return what the aggregator can show to have been spent: up to the newest head that it keeps."""
    with records_of(cluster, owner) as records:
        return spent(records, newest_head(cluster, owner))


def _copy(cluster: LocalCluster, owner: str) -> Path:
    """Return where the copy is: not on the owner's disk, which may be full."""
    return cluster.folder / f"{owner}-{FILE_NAME}"
