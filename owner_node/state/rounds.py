"""The rounds of synthetic releases in owner.db: an owner's secrets, and the one answer to each round.

An answer is stored in the transaction that ends its drawing, and only then sent. After a crash it is there,
and is the answer for ever, or nobody has seen it. Then it is drawn from the same seed, and is the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from secrets import token_bytes

from common.model.rounds import FIRST_COUNTED, KEY_BYTES
from owner_node.state.database import OwnerDatabase, Transaction

FORGET_SECRETS = "DELETE FROM sum_keys"
"""Removes the secrets of all releases."""


@dataclass(frozen=True, slots=True)
class AnsweredRound:
    """A round that this owner answered."""

    number: int
    """From 1."""
    document: bytes
    """What opened it, canonical bytes."""
    attached: bytes
    """What came with that; empty once it was removed."""
    answer: bytes
    """The answer; empty once it was removed."""
    digest: str
    """Of all answers up to this one (`common.model.rounds.chained`)."""
    signature: bytes
    """This owner's, of its statement about them."""
    certificate: bytes
    """PEM chain of the signer."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What an owner keeps of a synthetic release like its data, until the release can go on no more."""

    private_key: bytes = field(repr=False)
    """For the masks of its answers, 32 random bytes (`owner_node.synthesis.masks`)."""
    seed: bytes = field(repr=False)
    """Seed of its noise, 32 random bytes (`owner_node.synthesis.crossed.stream`)."""
    pair_key: bytes = field(default=b"", repr=False)
    """For tables with owners of other attributes (`owner_node.synthesis.paillier.new_key`); empty without."""

    @classmethod
    def of(cls, stored: bytes) -> "Secrets":
        """Return the secrets as they are stored, one after the other."""
        return cls(stored[:KEY_BYTES], stored[KEY_BYTES : 2 * KEY_BYTES], stored[2 * KEY_BYTES :])


class Rounds:
    """The rounds of all releases."""

    def __init__(self, db: OwnerDatabase) -> None:
        self._db = db

    def secrets(self, aggregator: str, release: str) -> Secrets | None:
        """Return the secrets of a release; None if it has none, or none any more."""
        where = "SELECT key FROM sum_keys WHERE aggregator = ? AND release = ?"
        rows = self._db.rows(where, (aggregator, release))
        return Secrets.of(bytes(rows[0]["key"])) if rows else None

    def make_secrets(self, tx: Transaction, aggregator: str, release: str, pair_key: bytes = b"") -> Secrets:
        """Return the secrets of a release; they are made once, with a key for tables across owners."""
        known = self.secrets(aggregator, release)
        if known is not None:
            return known
        key = token_bytes(2 * KEY_BYTES) + pair_key
        row = (aggregator, release, key)
        tx.execute("INSERT INTO sum_keys (aggregator, release, key) VALUES (?, ?, ?)", row)
        return Secrets.of(key)

    def selection(self, aggregator: str, release: str) -> bytes:
        """Return what linking found of an owner's records, as the aggregator sent it; empty before."""
        where = "SELECT partners FROM sum_keys WHERE aggregator = ? AND release = ?"
        rows = self._db.rows(where, (aggregator, release))
        return bytes(rows[0]["partners"] or b"") if rows else b""

    def keep_selection(self, tx: Transaction, aggregator: str, release: str, selection: bytes) -> None:
        """Store what linking found of an owner's records."""
        row = (selection, aggregator, release)
        tx.execute("UPDATE sum_keys SET partners = ? WHERE aggregator = ? AND release = ?", row)

    def answered(self, aggregator: str, release: str) -> tuple[AnsweredRound, ...]:
        """Return the rounds of a release that were answered, in order."""
        rows = self._db.rows(
            "SELECT round, document, attached, answer, digest, signature, certificate FROM rounds"
            " WHERE aggregator = ? AND release = ? ORDER BY round",
            (aggregator, release),
        )
        with self._db.decoding():
            return tuple(
                AnsweredRound(
                    int(row["round"]), bytes(row["document"]), bytes(row["attached"] or b""),
                    bytes(row["answer"] or b""), str(row["digest"]), bytes(row["signature"]),
                    bytes(row["certificate"]),
                )
                for row in rows
            )  # fmt: skip

    def add(self, tx: Transaction, aggregator: str, release: str, answered: AnsweredRound) -> None:
        """Store the answer to a round; there is never a second one."""
        tx.execute(
            "INSERT INTO rounds (aggregator, release, round, document, attached, answer, digest, signature,"
            " certificate) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                aggregator, release, answered.number, answered.document, answered.attached, answered.answer,
                answered.digest, answered.signature, answered.certificate,
            ),
        )  # fmt: skip

    def may_continue(self, aggregator: str, release: str) -> bool:
        """Return True if a release has answers of counts that can be sent again, and its key."""
        answered = self.answered(aggregator, release)
        return self.secrets(aggregator, release) is not None and len(answered) >= FIRST_COUNTED

    def held(self) -> tuple[tuple[str, str], ...]:
        """Return the (aggregator, release) of every release whose secrets are kept."""
        rows = self._db.rows("SELECT aggregator, release FROM sum_keys")
        return tuple((row["aggregator"], row["release"]) for row in rows)

    def forget(self, tx: Transaction, releases: Iterable[tuple[str, str]]) -> None:
        """Remove secrets and answers of releases; what opened their rounds stays, to verify them."""
        for names in releases:
            tx.execute("DELETE FROM sum_keys WHERE aggregator = ? AND release = ?", names)
            tx.execute(
                "UPDATE rounds SET answer = NULL, attached = NULL WHERE aggregator = ? AND release = ?", names
            )
