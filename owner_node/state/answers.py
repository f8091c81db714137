"""Answers of an owner node to each step; `owner_node.connection` encodes them for the wire."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common.errors import ConfigurationError, IntegrityError, ProtocolError
from common.model.fragment import LedgerHead
from common.model.rounds import Parcel

NOT_OUR_FAULT = frozenset({"protocol", "integrity", "identity", "conflict", "version"})
"""Codes of errors in the aggregator's own message: such a message changes nothing here."""

SURROUNDINGS = frozenset({"configuration", "usage", "internal", "bad_data"})
"""Codes of errors in this owner's configuration, machine or program, or of a source that is not there now.

The plan is right, and so were the data that it was agreed to for: they can come back.
"""

PERSON = "person"
"""Stored code of a refusal by a person; it is reported to the aggregator as "refused"."""

UNLINKABLE = "no_linkage_key"
"""Stored code of a missing linkage key; it is reported to the aggregator as "configuration"."""

UNSENDABLE = "unsendable_schema"
"""Stored code of a schema that no message holds; it is reported to the aggregator as "configuration"."""

FOREIGN_PARCEL = "foreign_parcel"
"""Stored code of what another owner sent and cannot be used; it is reported as "integrity"."""

_REPORTED_AS = {
    PERSON: "refused",
    UNLINKABLE: "configuration",
    UNSENDABLE: "configuration",
    FOREIGN_PARCEL: "integrity",
}

_PUBLIC = {
    PERSON: "a person at the owner refused",
    UNLINKABLE: "the owner has no linkage key yet (owner-node linkage-key)",
    UNSENDABLE: "the schema of the data set exceeds a limit of messages; owner-node check names it",
    FOREIGN_PARCEL: "what another owner sent for tables of both cannot be used; the owner's log says why",
    "refused": "refused by owner policy",
    "balance": "the budget does not cover the charge",
    "unusable_data": "the data set cannot take part in this plan",
    "data_changed": "the data set changed since the owner consented",
    "bad_data": "the data set cannot be used; the owner's log says why",
    "usage": "the owner has no such data set",
    "configuration": "the owner node is not set up for this release; its log says what is missing",
    "protocol": "the message does not fit the state of the owner's session",
    "integrity": "a signature or digest does not hold",
    "identity": "a certificate is not the expected one",
    "conflict": "the release is known at the owner with another content",
    "version": "the plan needs a newer version of the owner node: upgrade it",
}


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A ledger head, signed by this owner."""

    head: LedgerHead
    signature: bytes
    """DER."""
    certificate: bytes
    """PEM chain of the signer."""


@dataclass(frozen=True, slots=True)
class LinkAnswer:
    """The source is loaded and pinned."""

    n_records: int
    """Exact number of records."""
    tokens: bytes | Path
    """Sorted tokens, 16 bytes each, or the file that has them; with match keys the lists of all passes
    (`common.matching.lists`); empty where the plan has none."""
    sum_key: bytes = b""
    """This owner's public key for the sums of a synthetic release; empty for others."""
    signature: bytes = b""
    """Of the key's statement."""
    certificate: bytes = b""
    """PEM chain of the signer."""
    key_proof: bytes = b""
    """`KeyProof` that this owner has the linkage key, canonical; empty where the plan has no tokens."""


@dataclass(frozen=True, slots=True)
class SealAnswer:
    """The fragment is on disk; from now on it is the only answer to this plan."""

    fragment_digest: str
    """SHA-256 of its bytes."""
    size: int
    """Its size in bytes."""
    n_records: int
    """Number of records in it."""
    signature: bytes
    """Of the fragment statement."""
    certificate: bytes
    """PEM chain of the signer."""


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """The answer to a round is stored; from now on it is the only one."""

    answer: bytes
    """Numbers under masks, eight bytes each."""
    signature: bytes
    """Of the statement about all answers up to this one."""
    certificate: bytes
    """PEM chain of the signer."""
    key_proof: bytes = b""
    """Proof of the same, under the linkage key; empty where the plan has no tokens."""


@dataclass(frozen=True, slots=True)
class ParcelAnswer:
    """What others wait for in a round is on disk; it is the same whenever it is made."""

    path: Path
    parcel: Parcel
    signature: bytes
    """Of the parcel's statement."""
    certificate: bytes
    """PEM chain of the signer."""


@dataclass(frozen=True, slots=True)
class SignedParcel:
    """A statement about a parcel, as the aggregator passes it on."""

    statement: bytes
    signature: bytes
    certificate: bytes


def parcel_of(signed: SignedParcel) -> Parcel:
    """Return what a statement says, which is untrusted input."""
    try:
        return Parcel.from_bytes(signed.statement)
    except ValueError as problem:
        raise ProtocolError(str(problem), "both sides must run compatible versions") from None


def digests_of(parcels: Mapping[str, Parcel]) -> dict[str, str]:
    """Return the digests of what other owners sent, as the history has them."""
    return {f"{parcel.kind} of {owner}": parcel.parcel_digest for owner, parcel in parcels.items()}


@dataclass(frozen=True, slots=True)
class Fragment:
    """A sealed fragment, ready to be sent."""

    path: Path
    digest: str
    """SHA-256 of its bytes."""
    size: int
    """Its size in bytes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """All that is reported to the aggregator when this owner will not or cannot continue."""

    code: str
    """A code of the error catalogue."""
    message: str
    """One fixed sentence per code."""
    objects_to: str = ""
    """The owner whose messages, as the aggregator passed them on, do not hold; empty if none."""

    @classmethod
    def of(cls, code: str, objects_to: str = "") -> "Failure":
        """Return the failure of a code, of `PERSON`, `UNLINKABLE` or `UNSENDABLE`.

        Codes without a public sentence become "internal".
        """
        if code not in _PUBLIC:
            return cls("internal", "an internal fault at the owner")
        return cls(_REPORTED_AS.get(code, code), _PUBLIC[code], objects_to)


class ForeignParcelError(IntegrityError):
    """What another owner sent cannot be used; this may be reported, so that others know the reason."""


class SpentError(ConfigurationError):
    """A fault of the surroundings after the charge was spent: the step is tried again under that charge."""


class RefusedBeforeError(Exception):
    """This owner refused the release before: the answer is repeated, and nothing is recorded again.

    Args:
        failure: The first answer.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
