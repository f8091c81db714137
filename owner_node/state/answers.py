"""What an owner node answers to each piece of work; `owner_node.connection.client` puts it on the wire."""

from dataclasses import dataclass
from pathlib import Path

from common.model.fragment import LedgerHead

NOT_OUR_FAULT = frozenset({"protocol", "integrity", "identity", "conflict"})
"""Codes of errors that lie in what the aggregator sent: such a message changes nothing here."""

PERSON = "person"
"""What a refusal by a person is kept as; to the aggregator its code is "refused"."""

UNLINKABLE = "no_linkage_key"
"""What a missing linkage key is told as; to the aggregator its code is "configuration"."""

_TOLD_AS = {PERSON: "refused", UNLINKABLE: "configuration"}

_PUBLIC = {
    PERSON: "a person at the owner refused",
    UNLINKABLE: "the owner has no linkage key yet (owner-node linkage-key)",
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
}


@dataclass(frozen=True, slots=True)
class SignedHead:
    """Where the ledger is, signed by this owner."""

    head: LedgerHead
    """The statement."""
    signature: bytes
    """DER."""
    certificate: bytes
    """PEM chain of the signer."""


@dataclass(frozen=True, slots=True)
class Linked:
    """The source is loaded and pinned."""

    n_records: int
    """Exact number of records."""
    tokens: bytes
    """Sorted tokens, 16 bytes each; empty where the plan wants none."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The fragment is on disk; from now on it is the answer to this plan."""

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
class Fragment:
    """A sealed fragment, ready to be sent."""

    path: Path
    """The file."""
    digest: str
    """SHA-256 of its bytes."""
    size: int
    """Its size in bytes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What the aggregator hears when this owner will not or cannot go on: never more than this."""

    code: str
    """A code of the error catalogue."""
    message: str
    """One fixed sentence per code."""

    @classmethod
    def of(cls, code: str) -> "Failure":
        """Return the failure of a code, of `PERSON` or of `UNLINKABLE`.

        Codes that say nothing to others become "internal".
        """
        if code not in _PUBLIC:
            return cls("internal", "an internal fault at the owner")
        return cls(_TOLD_AS.get(code, code), _PUBLIC[code])


class RefusedBeforeError(Exception):
    """This owner has refused the release before: the same is answered again, and nothing is noted anew.

    Args:
        failure: What was answered.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
