"""Statements and signatures of the rounds of a synthetic release.

The aggregator opens a round with a document that every owner of the release gets: the sums of the answers to
the round before. It never states a question, since everybody computes the question from plan and sums
(`common.synthesis.schedule`). Each document names the one before by its digest, so that the last one stands
for all of them.

*The first round asks nothing*: owners answer `N_ZEROS` zeros under their masks. Nothing is charged before all
of them have added these answers up to zeros: keys, linkage keys, versions and masks fit each other.

*Nobody takes the aggregator's word for a sum.* With each later document comes what every owner answered and
signed in the round before, where there is one with a proof under the linkage key. An owner adds that up
itself, and continues only if the document states the same sums.
The last document asks nothing more. Owners answer it with no number: they sign that the sums hold.

Owners mask their answers under the digest of the document that they answer. So answers add up only if all
owners got the same sums and the same keys of all rounds. Other owners' answers are uniform numbers given
their sums. Owners delete them after adding. They are not published: a key that leaks later would disclose
the noisy counts of its owner.
"""

import hashlib
import re
from dataclasses import dataclass, field
from enum import StrEnum

from common.canonical import OMITTED, Document

_DIGEST = re.compile(r"(?:[0-9a-f]{64})?")
_BETWEEN = b"\n"
"""Between a document and what it names by its digest: canonical JSON has no line feed."""
KEY_BYTES = PROOF_BYTES = 32
FIRST_COUNTED = 2
"""Number of the first round that asks something; the charge is spent in it."""
N_ZEROS = 16
"""Numbers of the first round: sums of masks that do not cancel are zero with a probability of 2^-1024."""
NUMBER_BYTES = 8
"""Of an answer and of a sum: signed integers, the lowest byte first."""
LARGEST_ANSWER = 2**21
"""Bytes: an answer is part of one message, and so are sums."""
LARGEST_PROOF = 2**17
"""Bytes of what an owner signed about an answer, and of its certificates."""


@dataclass(frozen=True, slots=True)
class SumKey(Document):
    """An owner's public key for the sums of one release, signed by the owner."""

    release: str
    """Id of the release."""
    owner: str
    """Id of the owner."""
    plan_digest: str
    """Digest of the plan."""
    key: str
    """X25519, hexadecimal."""


@dataclass(frozen=True, slots=True)
class SignedKey(Document):
    """A key for sums as the aggregator passes it on."""

    owner: str
    """Id of the owner."""
    key: str
    """X25519, hexadecimal."""
    signature: str
    """The owner's, of its `SumKey`; hexadecimal."""
    certificate: str
    """PEM chain of the owner."""


CIPHERTEXT_BYTES = 768
"""Of an encrypted number, with keys of 3,072 bits."""


class ParcelKind(StrEnum):
    """What owners of different attributes send each other in a round, through the aggregator."""

    ROWS = "rows"
    """Encrypted bins of a holder's persons (`owner_node.synthesis.crossed`), for all of its adders."""
    SUMS = "sums"
    """Noisy sums of an adder, for all of its holders."""


@dataclass(frozen=True, slots=True)
class Parcel(Document):
    """What an owner sends other owners in a round, signed by it."""

    release: str
    owner: str
    plan_digest: str
    opening: str
    """Digest of the document that opened the round."""
    kind: ParcelKind
    parcel_digest: str
    """SHA-256 of its bytes."""
    size: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class RoundDocument(Document):
    """What opens a round of a synthetic release, signed by the aggregator."""

    release: str
    """Id of the release."""
    plan_digest: str
    """Digest of the plan."""
    addendum_digest: str
    """Of the result of linking."""
    round: int
    """Number of the round, from 1; the last one asks nothing."""
    previous: str
    """Digest of the document before; empty in the first one."""
    attached: str
    """SHA-256 of what comes with it: the addendum, and with later documents the sums of the round before."""
    keys: tuple[SignedKey, ...] = field(default=(), metadata=OMITTED)
    """In the first document: the keys of all owners."""
    answers: str = field(default="", metadata=OMITTED)
    """SHA-256 of all answers to the round before, with what owners signed (`SignedAnswers`); empty in the
    first document."""
    answers_size: int = field(default=0, metadata=OMITTED)
    """How many bytes they have."""

    def __post_init__(self) -> None:
        digests = (self.plan_digest, self.addendum_digest, self.previous, self.attached, self.answers)
        if self.round < 1 or not all(map(_DIGEST.fullmatch, digests)):
            raise ValueError("rounds are numbered from 1, and digests are SHA-256")
        before = {bool(self.previous), bool(self.answers), not self.keys}
        if before != {self.round > 1}:
            raise ValueError("the first round has keys, the others a document and answers before them")

    def with_attached(self, attached: bytes) -> bytes:
        """Return the document and what comes with it, as owners fetch them."""
        return self.to_bytes() + _BETWEEN + attached


@dataclass(frozen=True, slots=True)
class SignedAnswer(Document):
    """An owner's signature of its answer to a round, as the aggregator passes it on."""

    owner: str
    before: str
    """Digest of its answers to the rounds before (`chained`); empty for the first."""
    signature: str
    """Signature of its `FragmentStatement`, hexadecimal."""
    certificate: str
    """PEM chain of the owner."""
    key_proof: str = field(default="", metadata=OMITTED)
    """That it is the owner's, under the linkage key, hexadecimal; empty where the plan has no tokens."""

    def __post_init__(self) -> None:
        digests = (self.before, self.key_proof)
        if not all(map(_DIGEST.fullmatch, digests)) or not bytes.fromhex(self.signature):
            raise ValueError("digests are SHA-256, and answers are signed")


@dataclass(frozen=True, slots=True)
class SignedAnswers(Document):
    """All answers to a round; after it, in one file, come the answers themselves in the same order."""

    answers: tuple[SignedAnswer, ...]

    def head(self) -> bytes:
        """Return the first line of the file."""
        return self.to_bytes() + _BETWEEN


def read_round(data: bytes) -> tuple[RoundDocument, bytes]:
    """Return a document, and what comes with it, from what `with_attached` made.

    Raises:
        ValueError: If it is none, or something else comes with it.
    """
    document, _, attached = data.partition(_BETWEEN)
    found = RoundDocument.from_bytes(document)
    if hashlib.sha256(attached).hexdigest() != found.attached:
        raise ValueError("something else comes with the document of a round than it names")
    return found, attached


def chained(before: str, answer: bytes) -> str:
    """Return the digest of all answers of an owner up to one, hexadecimal.

    Args:
        before: The same of the answers before; empty for the first.
    """
    return hashlib.sha256(bytes.fromhex(before) + answer).hexdigest()
