"""What an aggregator signs when it answers `Connect`, and `Poll` with work.

A TLS session shows an owner only that its aggregator's host was dialled. The signature shows that the
aggregator of that name answers, to this owner, now: another aggregator under the same CA, at the same host,
gets no schema, no token and no fragment.
"""

from common.canonical import canonical, digest
from common.wire.v1 import owner_pb2 as wire

NONCE_BYTES = 16
"""Size of the nonce that an owner makes for a connection."""
METADATA_KEY = "tessera-error-bin"
"""Metadata of a call that ends with an error of the catalogue: the error as JSON."""
TIME_KEY = "tessera-time"
"""Metadata of the aggregator's answer to Connect: its clock, Unix time in whole seconds."""


def signed_answer(owner: str, nonce: bytes, answer: wire.ConnectResponse | wire.PollResponse) -> bytes:
    """Return the bytes that are signed: who is answered, its nonce, and the answer without its signature."""
    content = type(answer)()
    content.MergeFrom(answer)  # type: ignore[arg-type]  # both are of the same type
    content.ClearField("signature")
    content.ClearField("certificate")
    said = digest(content.SerializeToString(deterministic=True))
    return canonical({"owner": owner, "nonce": nonce.hex(), "kind": answer.DESCRIPTOR.name, "answer": said})
