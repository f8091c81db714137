"""Limits of messages between owners and aggregator: one table for both sides.

Each text of a message has a greatest length, checked when it arrives, before any of it is used or stored.
"""

from collections.abc import Container, Mapping

from google.protobuf.message import Message

from common.errors import ProtocolError
from common.model.plan import LARGEST_PLAN
from common.model.rounds import LARGEST_ANSWER
from common.model.schema import LARGEST_SCHEMA

MESSAGE_LIMIT = 4 * 1024 * 1024
"""Most bytes of one message, either way."""
KEEPALIVE_MS = 30_000
WINDOW_BYTES = 4 * 1024 * 1024
"""Most bytes under way in a stream at its start: three times the need of 100 Mbit/s with a delay of 100 ms.

gRPC measures a connection and adapts the window to it. From the 64 KiB of HTTP/2 it takes seconds to grow,
and congestion control takes a sender that waits for the window for a slow line.
"""

_NAME = 256
"""Characters of names, ids, digests and versions."""
_SIGNATURE = 128
_CHAIN = 64 * 1024
_STATEMENT = 4096
SENTENCES = 64 * 1024
"""Characters of a reason for people."""
_PIECE = 1 << 20

LONGEST: Mapping[str, int] = {
    **dict.fromkeys(("release", "plan_digest", "dataset", "datasets", "version", "features", "nonce"), _NAME),
    **dict.fromkeys(
        ("step", "state", "code", "id", "hash", "shown", "key_check", "objects_to", "file", "files"), _NAME
    ),
    **dict.fromkeys(("digest", "consents_digest", "addendum_digest", "manifest_digest"), _NAME),
    **dict.fromkeys(("opening_digest", "sum_key"), _NAME),
    **dict.fromkeys(("tokens_digest", "fragment_digest"), _NAME),
    **dict.fromkeys(("signature", "consent_signature", "fragment_signature"), _SIGNATURE),
    **dict.fromkeys(("certificate", "consent_certificate", "fragment_certificate", "request"), _CHAIN),
    **dict.fromkeys(("receipt", "fragment", "statement", "key_proof"), _STATEMENT),
    **dict.fromkeys(("reason", "message"), SENTENCES),
    **dict.fromkeys(("data", "zstd"), _PIECE),
    "answer": LARGEST_ANSWER,
    "schema": LARGEST_SCHEMA,
    "plan": LARGEST_PLAN,
}
"""Most characters of a text, or bytes, by the name of the field."""


def check_lengths(message: Message, besides: Container[str] = ()) -> None:
    """Check the length of every field of a message, but for some by name, at any depth.

    Raises:
        ProtocolError: Naming the first field that is too long.
    """
    for field, value in message.ListFields():
        if field.name in besides:
            continue
        for item in value if field.is_repeated else (value,):
            if isinstance(item, Message):
                check_lengths(item)
            elif isinstance(item, str | bytes) and len(item) > LONGEST.get(field.name, _NAME):
                unit = "bytes" if isinstance(item, bytes) else "characters"
                raise ProtocolError(
                    f"the field {field.name!r} of a message has {len(item)} {unit}, "
                    f"at most {LONGEST.get(field.name, _NAME)} are accepted",
                    "docs/limitations.md lists the limits; both sides must run compatible versions",
                )
