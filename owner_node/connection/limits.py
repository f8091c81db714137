"""Limits on everything that an aggregator sends, checked before any of it is used or stored."""

from collections.abc import Container

from google.protobuf.message import Message

from common.errors import ProtocolError
from common.model.plan import LARGEST_PLAN

_CHAIN = 64 * 1024
_SIGNATURE = 128
_LONGEST = {
    "certificate": _CHAIN,
    "signature": _SIGNATURE,
    "consent_certificate": _CHAIN,
    "consent_signature": _SIGNATURE,
    "fragment_certificate": _CHAIN,
    "fragment_signature": _SIGNATURE,
    "plan": LARGEST_PLAN,
    "addendum": LARGEST_PLAN,
    "reason": 64 * 1024,
    "data": 1 << 20,
    "receipt": 4096,
    "fragment": 4096,
}
"""Most bytes of a field by its name."""
_OTHERS = 256
"""Most bytes of every other text: names, ids, digests, versions."""


def check_lengths(message: Message, besides: Container[str] = ()) -> None:
    """Check the length of every field of a message, at any depth.

    Args:
        message: The message.
        besides: Names of its fields that are not checked.

    Raises:
        ProtocolError: Naming the first field that is too long.
    """
    for field, value in message.ListFields():
        if field.name in besides:
            continue
        for each in value if field.is_repeated else (value,):
            if isinstance(each, Message):
                check_lengths(each)
            elif isinstance(each, str | bytes) and len(each) > _LONGEST.get(field.name, _OTHERS):
                raise ProtocolError(
                    f"the field {field.name!r} of a message has {len(each)} characters, "
                    f"at most {_LONGEST.get(field.name, _OTHERS)} are accepted",
                    "both sides must run compatible versions",
                )
