"""Sealed messages between owners: the same bytes again, and nothing else than what was sealed."""

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import IntegrityError
from common.model.rounds import ParcelKind
from owner_node.linking.tokens import ReleaseKey
from owner_node.synthesis.sealed import FRAME_BYTES, LAST_FRAME_BYTES, SEALING_KEY_BYTES, sealed, unsealed

OF_RELEASE = ReleaseKey(b"k" * 32, 1)
ABOUT = {"sender": "a", "receiver": "b", "opening": "ab" * 32}
KEY = OF_RELEASE.derived(ParcelKind.SUMS, SEALING_KEY_BYTES, **ABOUT)
PIECES = (b"header", b"first rows", b"second rows")


def opened(message: bytes, key: bytes = KEY, step: int = 0) -> list[bytes]:
    """Return the pieces of a message that arrives in steps of some size."""
    steps = [message[at : at + step] for at in range(0, len(message), step)] if step else [message]
    return list(unsealed(steps, key, "owner a"))


@given(st.lists(st.binary(min_size=1, max_size=40)), st.integers(1, 90))
def test_pieces_are_those_that_were_sealed(pieces: list[bytes], step: int) -> None:
    """The same message has the same bytes, and is opened however it arrives, if it is empty, too."""
    frames = list(sealed(pieces, KEY))
    assert frames == list(sealed(pieces, KEY))
    assert [len(each) for each in frames] == [*(len(each) + FRAME_BYTES for each in pieces), LAST_FRAME_BYTES]
    assert opened(b"".join(frames), step=step) == pieces


def test_long_messages() -> None:
    """Nothing of them can be read, and equal pieces at two places do not look equal."""
    pieces = [bytes(2**20)] * 3
    message = b"".join(sealed(pieces, KEY))
    assert opened(message, step=2**16) == pieces
    assert len({hashlib.sha256(frame).digest() for frame in sealed(pieces, KEY)}) == 4
    assert bytes(16) not in message


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "swapped": lambda frames: [frames[0], frames[2], frames[1], frames[3]],
    "missing": lambda frames: [frames[0], *frames[2:]],
    "twice": lambda frames: [*frames[:2], *frames[1:]],
    "without its end": lambda frames: frames[:-1],
    "an end before": lambda frames: [frames[0], frames[-1]],
    "the end of a shorter one": lambda frames: [frames[0], *sealed([], KEY)],
    "the end of another one as a piece": lambda frames: [*frames[:3], *sealed(PIECES, KEY)],
    "truncated": lambda frames: [*frames[:-1], frames[-1][:-1]],
    "goes on": lambda frames: [*frames, b"\0"],
    "nothing": lambda _frames: [],
    "an empty frame": lambda frames: [bytes(4), *frames],
    "a frame of a tag": lambda frames: [(16).to_bytes(4) + bytes(16), *frames],
    "a huge frame": lambda frames: [(2**26 + 1).to_bytes(4), *frames],
    "of another message": lambda frames: [frames[0], *list(sealed([b"other", b"first rows"], KEY))[1:]][:2],
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_messages_are_refused(name: str) -> None:
    """Whatever is done to the frames."""
    with pytest.raises(IntegrityError, match="the message for counts of owner a"):
        opened(b"".join(CHANGES[name](list(sealed(PIECES, KEY)))))


def test_every_bit_counts() -> None:
    """So does every byte: no part of a message can be changed or left out."""
    message = b"".join(sealed(PIECES, KEY))
    for place in range(len(message)):
        changed = bytearray(message)
        changed[place] ^= 1 << place % 8
        for wrong in (bytes(changed), message[:place]):
            with pytest.raises(IntegrityError):
                opened(wrong)


@pytest.mark.parametrize(
    ("kind", "release", "changes"),
    [
        (ParcelKind.ROWS, OF_RELEASE, {}),
        (ParcelKind.SUMS, ReleaseKey(b"o" * 32, 1), {}),
        (ParcelKind.SUMS, OF_RELEASE, {"sender": "c"}),
        (ParcelKind.SUMS, OF_RELEASE, {"receiver": "c"}),
        (ParcelKind.SUMS, OF_RELEASE, {"receiver": ""}),
        (ParcelKind.SUMS, OF_RELEASE, {"sender": "b", "receiver": "a"}),
        (ParcelKind.SUMS, OF_RELEASE, {"opening": "cd" * 32}),
    ],
)
def test_other_keys_open_nothing(kind: ParcelKind, release: ReleaseKey, changes: dict[str, str]) -> None:
    """A message is for one receiver, round and kind, from one sender that has the linkage key."""
    key = release.derived(kind, SEALING_KEY_BYTES, **(ABOUT | changes))
    with pytest.raises(IntegrityError, match="was not sealed for this round with the linkage key"):
        opened(b"".join(sealed(PIECES, KEY)), key)
