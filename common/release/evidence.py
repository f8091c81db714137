"""The documents that were signed while a release was made, as a manifest carries them.

Written by the aggregator, read by anyone who verifies; both forms are here, so that they stay consistent.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from common.canonical import Document, canonical, digest
from common.model.fragment import Addendum, Consent, FragmentStatement
from common.model.plan import Plan
from common.model.rounds import RoundDocument


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature with the certificates that say whose it is."""

    signature: bytes
    """DER, over the domain line and the canonical bytes of the document."""
    certificates: str
    """PEM chain, the signer's certificate first."""

    def to_document(self, document: Document) -> dict[str, Any]:
        """Return a signed document's part of the manifest."""
        return {
            "document": json.loads(document.to_bytes()),
            "digest": document.digest,
            "signature": base64.b64encode(self.signature).decode(),
            "certificates": self.certificates,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read the signature of a part of the manifest.

        Raises:
            ValueError: If it is none; KeyError or TypeError if the part has another form.
        """
        certificates = document["certificates"]
        if not isinstance(certificates, str):
            raise ValueError("certificates were expected")
        return cls(base64.b64decode(document["signature"], validate=True), certificates)


@dataclass(frozen=True, slots=True)
class OwnerEvidence:
    """What one owner signed."""

    consent: Consent
    """Its answer to the plan."""
    consent_signed: Signed
    statement: FragmentStatement
    """What it stated about its fragment."""
    statement_signed: Signed

    def to_document(self) -> dict[str, Any]:
        """Return the owner's part of the manifest."""
        return {
            "fragment": self.statement_signed.to_document(self.statement),
            "consent": self.consent_signed.to_document(self.consent),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read the owner's part of the manifest; see `Signed.from_document` for what it raises."""
        consent, fragment = document["consent"], document["fragment"]
        return cls(
            Consent.from_bytes(_check_digest(consent)),
            Signed.from_document(consent),
            FragmentStatement.from_bytes(_check_digest(fragment)),
            Signed.from_document(fragment),
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was signed while a release was made."""

    plan: Plan
    plan_signed: Signed
    """The aggregator's signature of it."""
    addendum: Addendum
    """What linking found."""
    addendum_signed: Signed
    """The aggregator's signature of it."""
    owners: Mapping[str, OwnerEvidence]
    """What every owner of the plan signed, by owner id."""
    rounds: tuple[tuple[RoundDocument, Signed], ...] = ()
    """What opened the rounds of a synthetic release, and the one that closed the last, each signed by the
    aggregator."""

    @property
    def answered_digest(self) -> str:
        """Digest of what owners answered last: the addendum, or what has the sums of the last round."""
        return self.rounds[-1][0].digest if self.rounds else self.addendum.digest

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Read the evidence of a manifest; see `Signed.from_document` for what it raises."""
        plan, addendum = manifest["plan"], manifest["addendum"]
        return cls(
            Plan.from_bytes(_check_digest(plan)),
            Signed.from_document(plan),
            Addendum.from_bytes(_check_digest(addendum)),
            Signed.from_document(addendum),
            {owner["id"]: OwnerEvidence.from_document(owner) for owner in manifest["owners"]},
            tuple(
                (RoundDocument.from_bytes(_check_digest(signed_round)), Signed.from_document(signed_round))
                for signed_round in manifest.get("rounds", ())
            ),
        )


def _check_digest(part: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a part's document, whose digest must be the shown one."""
    data = canonical(part["document"])
    if digest(data) != part["digest"]:
        raise ValueError("a digest is not that of its document")
    return data
