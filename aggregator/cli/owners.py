"""`aggregator owners`: all owners that have ever connected, with their state."""

from typing import TYPE_CHECKING

from aggregator.cli.inspect import moment, warn_of_expiry
from aggregator.control.connection import daemon, pages
from aggregator.control.documents import owner_document
from common.cli import console
from common.trust.identity import OWNER_RENEWS
from common.wire.v1.control_pb2 import ListOwnersRequest

if TYPE_CHECKING:
    from common.wire.v1.control_pb2 import OwnerView


def owners(config: console.ConfigOption = None, as_json: console.JsonOption = False) -> None:
    """List every owner that has ever connected."""
    with daemon(config) as calls:
        answers = pages(calls.ListOwners, ListOwnersRequest())
        found: list[OwnerView] = [owner for answer in answers for owner in answer.owners]
    if as_json:
        console.print_json({"owners": [owner_document(owner) for owner in found]})
        return
    console.table(
        "",
        ("owner", "connected", "since", "data sets", "version", "certificate expires", "key"),
        [
            (
                *(owner.id, owner.connected, moment(owner.since), ", ".join(owner.datasets)),
                *(
                    owner.version,
                    "revoked" if owner.revoked else moment(owner.certificate_expires),
                ),
                owner.fingerprint[:16],
            )
            for owner in found
        ],
    )
    for owner in found:
        if not owner.revoked:
            warn_of_expiry(f"owner {owner.id}", owner.certificate_expires, OWNER_RENEWS)
