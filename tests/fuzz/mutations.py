"""Bytes and messages a little or very much beside what they should be; the same for the same seed."""

import os
import random
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

N_MUTATIONS = int(os.environ.get("TESSERA_FUZZ", "500"))
"""How many mutations of everything are tried; `make fuzz` tries ten thousand."""
_INTEGERS = (0, 1, 2, 127, 255, 2**31 - 1, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    "", "a", "r1", "..", "../../x", "x" * 300, "x" * 70_000, "\0", "ü\u202e\U0001f600", "1E+999999999", "-1",
    "null", "{}", "ab" * 32, "r-none", "integrity", "internal", "published",
)  # fmt: skip
_PIECES = (
    b"",
    b"\0",
    b"\xff" * 8,
    b"{}",
    b"[" * 2000,
    b'"',
    b"1E+999999999",
    b"9" * 5000,
    b"\xf0\x28\x8c\x28",
)
_Kind = FieldDescriptor


def mutated_bytes(data: bytes, seed: int) -> bytes:
    """Return bytes with a few things changed: flipped, cut, doubled, put in, or put somewhere else."""
    draw, changed = random.Random(seed), bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        start = draw.randrange(len(changed) + 1)
        end = min(start + draw.choice((1, 1, 4, 32, 1000)), len(changed))
        action = draw.randrange(6)
        if action == 0 and changed:
            changed[min(start, len(changed) - 1)] ^= 1 << draw.randrange(8)
        elif action == 1:
            del changed[start:end]
        elif action == 2:
            changed[start:start] = changed[start:end]
        elif action == 3:
            changed[start:end] = draw.choice(_PIECES)
        elif action == 4:
            del changed[start:]
        else:
            changed[start:end] = draw.randbytes(end - start)
    return bytes(changed)


def mutated_message(message: Message, seed: int) -> Message:
    """Return a message of the same type with a few of its fields changed, left out or filled."""
    draw, changed = random.Random(seed), type(message)()
    changed.CopyFrom(message)
    for _ in range(draw.choice((1, 1, 2, 4))):
        _change_field(draw, changed)
    return changed


def _change_field(draw: random.Random, message: Message) -> None:
    present: list[Any] = [field for field, _ in message.ListFields()]
    every: list[Any] = list(message.DESCRIPTOR.fields)
    if not every:
        return
    field = draw.choice(present if present and draw.random() < 0.7 else every)
    if draw.random() < 0.15:
        message.ClearField(field.name)
    elif field.is_repeated:
        _change_repeated(draw, message, field)
    elif field.type == _Kind.TYPE_MESSAGE:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _change_field(draw, inner)
    else:
        setattr(message, field.name, _value(draw, field, getattr(message, field.name)))


def _change_repeated(draw: random.Random, message: Message, field: FieldDescriptor) -> None:
    values = getattr(message, field.name)
    if field.type == _Kind.TYPE_MESSAGE:
        if not values or draw.random() < 0.3:
            values.add()
        _change_field(draw, draw.choice(list(values)))
    else:
        values.extend(_value(draw, field, None) for _ in range(draw.choice((1, 3, 200))))


def _value(draw: random.Random, field: FieldDescriptor, now: Any) -> Any:
    if field.type == _Kind.TYPE_STRING:
        return draw.choice(_TEXTS)
    if field.type == _Kind.TYPE_BYTES:
        return mutated_bytes(now or b"", draw.randrange(2**32))
    if field.type == _Kind.TYPE_BOOL:
        return not now
    if field.type == _Kind.TYPE_ENUM:
        return draw.choice((0, 1, 2, 99))
    most = {_Kind.TYPE_UINT64: 2**64, _Kind.TYPE_UINT32: 2**32, _Kind.TYPE_INT64: 2**63}[field.type]
    return draw.choice([each for each in _INTEGERS if each < most])


def mutations(message: Message, first_seed: int = 0) -> Iterator[bytes]:
    """Yield messages as bytes, each once: half of them still messages of their type, half of them anything.

    Of a short message, most mutations come several times.
    """
    data, seen = message.SerializeToString(), set()
    for seed in range(first_seed, first_seed + N_MUTATIONS):
        made = mutated_message(message, seed).SerializeToString() if seed % 2 else mutated_bytes(data, seed)
        if hash(made) not in seen:
            seen.add(hash(made))
            yield made
