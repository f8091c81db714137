"""`manifest.json`: everything that is needed to judge a release offline, in one signed file.

It carries the documents that were signed while the release was made (plan, addendum, consents, fragment
statements), their signatures and the certificates that verify them; what follows from them in numbers and in
plain words; and the digest of every other file. The bytes of the file are what `manifest.sig` signs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from common import __version__
from common.canonical import canonical
from common.evidence import Evidence
from common.guarantee import composition, found, invariants, promises

FORMAT = 1
"""Version of the manifest's form."""


@dataclass(frozen=True, slots=True)
class ReleasedFile:
    """One file of a release folder."""

    digest: str
    """SHA-256 of its bytes."""
    size: int
    """Number of bytes."""


def manifest_document(
    evidence: Evidence, aggregator_certificates: str, published: datetime
) -> dict[str, Any]:
    """Return the manifest, still without the digests of the files.

    Args:
        evidence: What was signed.
        aggregator_certificates: PEM chain of the aggregator that will sign the manifest.
        published: The moment at which the release will be judged, with a time zone.

    Returns:
        A document for `to_bytes`.
    """
    # pyarrow comes with it; command lines that only check their options stay quick.
    from common.release_summary import summary

    plan, addendum = evidence.plan, evidence.addendum
    derived = summary(plan, addendum)
    return {
        "format": FORMAT,
        "release": plan.release,
        "version": __version__,
        "layout": str(plan.layout),
        "purpose": plan.purpose,
        "times": {"planned": plan.created, "published": published.isoformat(timespec="seconds")},
        "totals": derived["totals"],
        "composition": composition(plan),
        "guarantee": [*promises(plan), *([found(plan, addendum.multiples)] if addendum.multiples else [])],
        "invariants": list(invariants(plan)),
        "schema": derived["schema"],
        "owners": [{**owner, **evidence.owners[owner["id"]].to_document()} for owner in derived["owners"]],
        "aggregator": {"id": plan.aggregator, "certificates": aggregator_certificates},
        "plan": evidence.plan_signed.to_document(plan),
        "addendum": evidence.addendum_signed.to_document(addendum),
    }


def to_bytes(document: Mapping[str, Any], files: Mapping[str, ReleasedFile]) -> bytes:
    """Return the bytes of `manifest.json`: numbers as strings, keys sorted, indented for people.

    Args:
        document: From `manifest_document`.
        files: Every other file of the folder but `manifest.sig`, by name.

    Returns:
        UTF-8, ending in a line feed.
    """
    listed = {name: {"digest": each.digest, "size": each.size} for name, each in files.items()}
    plain = json.loads(canonical({**document, "files": listed}))
    return json.dumps(plain, ensure_ascii=False, indent=2, sort_keys=True).encode() + b"\n"
