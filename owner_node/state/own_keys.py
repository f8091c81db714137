"""Keys in owner.db: the public keys that this owner signed with, and the secret key of its data digests."""

import hmac
import secrets

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

from common.trust.identity import check_key, fingerprint
from common.trust.signing import Domain, signed_bytes
from owner_node.state.database import Clock, OwnerDatabase, Transaction

_KEY_BYTES = 32


class OwnKeys:
    """The keys."""

    def __init__(self, db: OwnerDatabase, clock: Clock) -> None:
        self._db, self._clock = db, clock

    def remember(self, tx: Transaction, certificate: x509.Certificate) -> None:
        """Store the key of a certificate that this owner signs with: its signatures outlive its CA."""
        key = check_key(certificate)
        encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        tx.execute(
            "INSERT OR IGNORE INTO own_keys (fingerprint, public_key, first_used) VALUES (?, ?, ?)",
            (fingerprint(key), encoded, self._clock().isoformat()),
        )

    def signed(self, domain: Domain, payload: bytes, signature: bytes) -> bool:
        """Whether one of these keys made a signature."""
        for row in self._db.rows("SELECT public_key FROM own_keys"):
            key = load_der_public_key(row["public_key"])
            if not isinstance(key, ec.EllipticCurvePublicKey):
                continue
            try:
                key.verify(signature, signed_bytes(domain, payload), ec.ECDSA(SHA256()))
            except InvalidSignature:
                continue
            return True
        return False

    def source_key(self) -> bytes:
        """Return the key of data digests; it is created if absent."""
        key = self.known_source_key()
        if key is None:
            with self._db.transaction() as tx:
                tx.execute(
                    "INSERT OR IGNORE INTO source_key (id, key) VALUES (1, ?)",
                    (secrets.token_bytes(_KEY_BYTES),),
                )
            return self.source_key()
        return key

    def known_source_key(self) -> bytes | None:
        """Return the key of data digests, or None if there is none yet."""
        rows = self._db.rows("SELECT key FROM source_key")
        return bytes(rows[0]["key"]) if rows else None

    def pin(self, digest: str) -> str:
        """Return the keyed form of a digest of original data, for everything that is stored, shown or copied.

        Equal data have equal pins. The digest itself would let anyone who reads a ledger or an audit log try
        out values: of one record, if the others are known, or of few.

        Args:
            digest: SHA-256 of the data, hexadecimal (`owner_node.sources.digest`).

        Returns:
            HMAC-SHA256 of it under the source key, lower-case hexadecimal.
        """
        return hmac.new(self.source_key(), b"source\n" + digest.encode(), "sha256").hexdigest()
