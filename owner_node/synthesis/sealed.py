"""Messages between owners of different attributes, which the aggregator passes on and cannot read or change.

Every piece is encrypted and authenticated under a key that follows from the owners' linkage key, and from who
sends it to whom in which round (`owner_node.linking.tokens.ReleaseKey`). The same message has the same bytes:
AES-SIV needs no nonce, and two messages under one key disclose only whether pieces are equal.

A message is a sequence of frames: the size in four bytes, and a sealed piece. The last frame says that
nothing follows.

References:
    RFC 5297 (AES-SIV).
"""

from collections.abc import Generator, Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from common.errors import IntegrityError

SEALING_KEY_BYTES = 64
"""Size of a key of AES-SIV with AES-256."""
_SIZE_BYTES = 4
_TAG_BYTES = 16
FRAME_BYTES = _SIZE_BYTES + _TAG_BYTES
"""By which a frame is larger than its piece."""
_LARGEST_FRAME = 2**26
_LAST = 2**31
"""Added to the size of the last frame."""
_END = b"end"
LAST_FRAME_BYTES = FRAME_BYTES + len(_END)


class Incoming:
    """A message that arrives in pieces of any size.

    Args:
        owner: Who sent it, in words.
    """

    def __init__(self, pieces: Iterable[bytes], owner: str) -> None:
        self._pieces, self._owner, self._held = iter(pieces), owner, bytearray()

    def take(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            IntegrityError: If the message ends before.
        """
        while len(self._held) < size:
            piece = next(self._pieces, None)
            if piece is None:
                raise self.wrong("is truncated")
            self._held += piece
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken

    def end(self) -> None:
        """Check that nothing follows.

        Raises:
            IntegrityError: If something does.
        """
        if self._held or any(self._pieces):
            raise self.wrong("has trailing bytes")

    def wrong(self, fault: str) -> IntegrityError:
        """Return an error about the message."""
        return IntegrityError(
            f"the message for counts of {self._owner} {fault}",
            "nothing was published; both sides must run compatible versions on the same persons",
        )


def sealed(pieces: Iterable[bytes], key: bytes) -> Generator[bytes]:
    """Seal a message, whose pieces are not empty.

    Args:
        key: `SEALING_KEY_BYTES`, for this message alone.
    """
    seal, number = AESSIV(key), 0
    for number, piece in enumerate(pieces, start=1):
        yield _frame(seal.encrypt(piece, [_place(number)]))
    yield _frame(seal.encrypt(_END, [_place(number + 1), _END]), _LAST)


def unsealed(pieces: Iterable[bytes], key: bytes, owner: str) -> Generator[bytes]:
    """Open what `sealed` made, in pieces of any size.

    Raises:
        IntegrityError: If it was sealed under another key, or changed.
    """
    incoming, seal, number = Incoming(pieces, owner), AESSIV(key), 0
    while True:
        number += 1
        size = int.from_bytes(incoming.take(_SIZE_BYTES))
        is_last, size = size >= _LAST, size % _LAST
        if not _TAG_BYTES < size <= _LARGEST_FRAME:
            raise incoming.wrong("is not sealed")
        frame = incoming.take(size)
        try:
            piece = seal.decrypt(frame, [_place(number), _END] if is_last else [_place(number)])
        except InvalidTag:
            raise incoming.wrong("was not sealed for this round with the linkage key of its owners") from None
        if is_last:
            return incoming.end()
        yield piece


def _frame(piece: bytes, last: int = 0) -> bytes:
    return (len(piece) + last).to_bytes(_SIZE_BYTES) + piece


def _place(number: int) -> bytes:
    return number.to_bytes(8)
