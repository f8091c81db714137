"""A file of uploaded bytes, written past the system's page cache where that can be."""

import errno
import os
from fcntl import F_GETFL, F_SETFL, fcntl
from io import FileIO

BLOCK_BYTES = 4096
"""What is written past the cache begins and ends at a multiple of this."""
_FLUSH_BYTES = 64 << 20
_DIRECT: int = getattr(os, "O_DIRECT", 0)


class PartFile:
    """A file that grows at its end.

    Nobody reads it before the join, and copying it into the cache takes longer than receiving it.

    Args:
        stream: The file, unbuffered and positioned at its end.
    """

    def __init__(self, stream: FileIO) -> None:
        self._stream = stream
        self._position = stream.tell()
        self._unflushed = 0
        self._direct = False
        self._can_be_direct = _DIRECT != 0

    @property
    def position(self) -> int:
        """Bytes of the file."""
        return self._position

    def write(self, batch: memoryview, *, last: bool) -> None:
        """Write a batch; what is cached is flushed along the way, so that the disk works meanwhile.

        Args:
            batch: The bytes; past the cache goes what begins on a page and fills whole blocks.
            last: Whether the file is complete now, and must be on the disk.

        Raises:
            OSError: If the disk takes no more.
        """
        self._set_direct(wanted=self._position % BLOCK_BYTES == 0 == len(batch) % BLOCK_BYTES)
        while batch:
            try:
                written = self._stream.write(batch)
            except OSError as error:
                if error.errno != errno.EINVAL or not self._direct:
                    raise
                self._can_be_direct = False
                self._set_direct(wanted=False)
                continue
            batch = batch[written:]
            self._position += written
            self._unflushed += 0 if self._direct else written
        if last or self._unflushed >= _FLUSH_BYTES:
            os.fdatasync(self._stream.fileno())
            self._unflushed = 0

    def _set_direct(self, *, wanted: bool) -> None:
        if self._direct == (wanted and self._can_be_direct):
            return
        flags = fcntl(self._stream, F_GETFL) & ~_DIRECT
        try:
            fcntl(self._stream, F_SETFL, flags | (0 if self._direct else _DIRECT))
            self._direct = not self._direct
        except OSError:
            # Some file systems are nothing but cache.
            self._can_be_direct = False
