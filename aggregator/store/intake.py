"""Uploads on disk: resumed where they stopped, and checked before they take their name.

    incoming/RELEASE/OWNER.tokens        a complete token list
    incoming/RELEASE/OWNER.fragment      a complete fragment
    incoming/RELEASE/OWNER.selection     what linking selected of an owner's records, to be sent to it
    incoming/RELEASE/OWNER.answer-N      an answer to round N of a synthetic release, until all are added up
    incoming/RELEASE/N.answers           all answers to round N, for owners, until the next round is over
    incoming/RELEASE/OWNER.….part        an incomplete upload, restarted from zero for another blob
    removed/RELEASE-….                   what is being deleted

A part belongs to one blob: `….want` beside it holds that blob's digest, so that bytes of two blobs never mix.
Bytes are written past the system's page cache where the file system allows it.
"""

import asyncio
import errno
import hashlib
import logging
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from fcntl import F_GETFL, F_SETFL, fcntl
from io import FileIO
from mmap import mmap
from pathlib import Path
from typing import Any, TypeAlias

from common.daemon.process import in_thread
from common.errors import CannotStoreError, IntegrityError, NotConnectedError, ProtocolError
from common.files import private_directory, read_chunks, sync_directory, write_atomic

_log = logging.getLogger(__name__)
ASIDE = "removed"
"""Folder beside that of the uploads, for what is being deleted."""
_ANSWER, _ANSWERS = ".answer-", ".answers"
BLOCK_BYTES = 4096
"""Alignment of everything that is written past the cache."""
_FLUSH_BYTES = 64 << 20
_DIRECT: int = getattr(os, "O_DIRECT", 0)


class PartFile:
    """A file that bytes are appended to.

    It is not read before the join, and copying it into the page cache takes longer than receiving it: an
    upload of 1.2 GB takes 10 seconds with O_DIRECT and 20 without, and 4.8 and 8.2 seconds of processor time
    (`python -m tests.benchmarks --only upload`).

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
        """Write a batch; cached bytes are flushed from time to time, so that the disk works in parallel.

        Args:
            batch: The bytes; they bypass the cache if they begin on a block boundary and fill whole blocks.
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
            # Some file systems consist of cache alone.
            self._can_be_direct = False


_BATCH_BYTES = 8 << 20
"""Size of a batch; a message of a fragment that lies within one is checked without copying."""

Check: TypeAlias = Callable[[bytes | memoryview], None]
"""Called with the bytes of a blob, which may change after the call. Must not raise."""


class BlobKind(StrEnum):
    """What is uploaded."""

    TOKENS = "tokens"
    FRAGMENT = "fragment"
    ROWS = "rows"
    """For the rounds of owners with different attributes: encrypted rows."""
    SUMS = "sums"
    """Sums of others' rows, of one round."""
    SELECTION = "selection"
    """Not uploaded: which of an owner's records all groups hold, until it has masked them."""


@dataclass(frozen=True, slots=True)
class Blob:
    """What an owner uploads for a release."""

    release: str
    owner: str
    """Owner id, from its certificate."""
    kind: BlobKind
    digest: str
    """SHA-256 of the whole."""
    size: int
    """Bytes of the whole."""


class Intake:
    """The folder of uploads that have not been joined yet."""

    def __init__(self, directory: Path) -> None:
        self._directory = private_directory(directory)
        self._aside = private_directory(directory.with_name(ASIDE))
        self._writing: set[Path] = set()
        self._digests: dict[Path, str] = {}
        """Of complete blobs that this process has read: as they arrived, or in `verify`."""

    def path(self, release: str, owner: str, kind: BlobKind) -> Path:
        """Return the path of a complete blob. Ids never hold a slash or begin with a dot."""
        return self._directory / release / f"{owner}.{kind}"

    def offset(self, blob: Blob) -> int:
        """Return how many bytes of a blob are held."""
        final = self.path(blob.release, blob.owner, blob.kind)
        if final.exists() and final.stat().st_size == blob.size:
            return blob.size
        part, want = _beside(final)
        if not part.exists() or not want.exists() or want.read_text() != blob.digest:
            return 0
        return min(part.stat().st_size, blob.size)

    def held(self, release: str, owner: str, kind: BlobKind) -> int:
        """Return how many bytes of an owner's upload have arrived, whatever blob they belong to."""
        final = self.path(release, owner, kind)
        for path in (final, _beside(final)[0]):
            if path.exists():
                return path.stat().st_size
        return 0

    async def receive(
        self, blob: Blob, offset: int, chunks: AsyncIterator[bytes | memoryview], check: Check | None = None
    ) -> Path:
        """Write a blob from an offset to its end.

        Args:
            offset: Offset of the first chunk; must equal `offset(blob)`.
            check: Called in a thread with all bytes of the blob in order, including those held already.

        Returns:
            The complete file, whose digest is the declared one.

        Raises:
            ProtocolError: If the offset is another, there are more bytes than declared, or the stream ends
                early.
            NotConnectedError: If an earlier call has not ended yet; a retry succeeds.
            IntegrityError: If the digest is another; what was received is deleted.
            CannotStoreError: If the disk does not take it; a retry resumes.
            FileNotFoundError: If the release ended meanwhile.
        """
        final = self.path(blob.release, blob.owner, blob.kind)
        if final in self._writing:
            raise NotConnectedError(
                "the blob is still being uploaded by an earlier call", "try again in a moment"
            )
        self._writing.add(final)
        try:
            with _storing(blob.release):
                return await self._receive(final, blob, offset, chunks, check)
        finally:
            self._writing.discard(final)

    async def _receive(
        self,
        final: Path,
        blob: Blob,
        offset: int,
        chunks: AsyncIterator[bytes | memoryview],
        check: Check | None,
    ) -> Path:
        held = self.offset(blob)
        if offset != held:
            raise ProtocolError(
                f"the upload starts at byte {offset}, {held} bytes are held",
                "request the offset and resume there",
                {"offset": held},
            )
        part, _ = _beside(final)
        if final.exists() and held == blob.size:
            if not await asyncio.to_thread(self.verify, blob, check):
                final.unlink()
                raise _damage_error(blob)
            return final
        if held == 0:
            # Not in the thread: a release that ends meanwhile would get its folder again.
            private_directory(final.parent)
            await in_thread(_prepare, final, blob)
        if await _append(part, blob, held, chunks, check) != blob.digest:
            part.unlink()
            raise _damage_error(blob)
        await in_thread(_complete, final)
        self._digests[final] = blob.digest
        return final

    def verify(self, blob: Blob, check: Check | None = None) -> bool:
        """Whether a complete blob is stored and has this digest; passes its bytes to a check.

        One that arrived since the start is not read again, unless there is a check.
        """
        final = self.path(blob.release, blob.owner, blob.kind)
        if not final.exists() or final.stat().st_size != blob.size:
            return False
        if check is not None or final not in self._digests:
            self._digests[final] = _replay(final, check).hexdigest()
        return self._digests[final] == blob.digest

    def remove(self, release: str, owners: Iterable[str], kind: BlobKind) -> None:
        """Delete owners' blobs, whole or in part; blocks. What cannot be deleted goes with the release."""
        for owner in owners:
            final = self.path(release, owner, kind)
            self._digests.pop(final, None)
            for path in (final, *_beside(final)):
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def answer(self, release: str, owner: str, round_number: int) -> Path:
        """Return the path of an owner's answer to a round."""
        return self._directory / release / f"{owner}{_ANSWER}{round_number}"

    def answers(self, release: str, round_number: int) -> Path:
        """Return the path of all answers to a round, in one file."""
        return self._directory / release / f"{round_number}{_ANSWERS}"

    async def keep_answer(self, release: str, owner: str, round_number: int, answer: bytes) -> None:
        """Store an owner's answer to a round, unless the release ends meanwhile.

        Raises:
            CannotStoreError: If the disk does not take it.
        """
        path = self.answer(release, owner, round_number)
        with _storing(release), suppress(FileNotFoundError):
            # Not in the thread: a release that ends meanwhile would get its folder again.
            private_directory(path.parent)
            await asyncio.to_thread(write_atomic, path, answer)

    def remove_answers(self, release: str, before: int) -> None:
        """Delete the answers to rounds before one, which are added up; owners add up the last of them."""
        folder = self._directory / release
        numbers = [(path, path.name.rpartition(_ANSWER)[2], 0) for path in folder.glob(f"*{_ANSWER}*")]
        numbers += [(path, path.stem, 1) for path in folder.glob(f"*{_ANSWERS}")]
        for path, number, kept in numbers:
            if number.isdecimal() and int(number) < before - kept:
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def set_aside(self, release: str, *, but_shown: bool = False) -> bool:
        """Remove everything of a release at once, for `clear` to delete it; returns whether there was any.

        Args:
            but_shown: Whether what owners fetch stays, for a release that can go on: what linking selected,
                and all answers to the last round.
        """
        folder, aside = self._directory / release, self._aside / f"{release}-{secrets.token_hex(8)}"
        for path in list(self._digests):
            if path.parent == folder:
                self._digests.pop(path, None)
        try:
            blobs = list(folder.iterdir())
            others = [path for path in blobs if path.suffix not in (f".{BlobKind.SELECTION}", _ANSWERS)]
            if but_shown and len(others) < len(blobs):
                if not others:
                    return False
                aside.mkdir(0o700)
                for path in others:
                    path.rename(aside / path.name)
            else:
                folder.rename(aside)
        except OSError:
            # Nothing is there, or the disk cannot be written: it is tried again at the next start.
            return False
        return True

    def clear(self) -> None:
        """Delete what was set aside; blocks. What cannot be deleted is deleted by a later call."""
        for folder in list(self._aside.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _storing(release: str) -> Iterator[None]:
    """Report what the disk does not take as something that may pass: owners send it again."""
    try:
        yield
    except (FileNotFoundError, ConnectionError):
        raise
    except OSError as error:
        _log.error("upload cannot be stored", extra={"release": release, "reason": error.strerror})
        raise CannotStoreError(
            f"the aggregator cannot store the upload: {error.strerror}",
            hint="the upload is retried; the aggregator's operator has to free disk space",
        ) from None


def _beside(final: Path) -> tuple[Path, Path]:
    return final.with_name(f"{final.name}.part"), final.with_name(f"{final.name}.want")


def _prepare(final: Path, blob: Blob) -> None:
    """Create the part's file, in place of what belongs to another blob."""
    part, want = _beside(final)
    final.unlink(missing_ok=True)
    part.unlink(missing_ok=True)
    write_atomic(want, blob.digest.encode())
    part.touch(0o600)


def _complete(final: Path) -> None:
    """Make a part the blob."""
    part, want = _beside(final)
    part.replace(final)
    sync_directory(final.parent)
    want.unlink(missing_ok=True)


class _Writer:
    """Writes, digests and checks an upload in threads, one batch at a time, while the next batch arrives.

    Two buffers alternate for the whole upload. One thread writes a batch, another digests and checks it:
    writing waits for the disk, and each call that releases the interpreter's lock gets it back only when the
    receiving side releases it.

    Args:
        running: The running digest of the bytes that the part holds already.
        check: Called with every batch while it is written.
    """

    def __init__(self, part: PartFile, running: Any, check: Check | None) -> None:
        self._part = part
        self._running = running
        self._check = check
        # Page-aligned memory, which writing past the page cache needs.
        self._filling, self._writing = mmap(-1, _BATCH_BYTES), mmap(-1, _BATCH_BYTES)
        self._filled = 0
        # The first batch ends at a block boundary, wherever an earlier call stopped.
        self._most = _BATCH_BYTES - part.position % BLOCK_BYTES
        self._job: asyncio.Task[None] | None = None

    async def add(self, chunk: bytes | memoryview) -> None:
        """Add a chunk; waits only if the disk is slower than the network."""
        view = memoryview(chunk)
        while view:
            taken = view[: self._most - self._filled]
            self._filling[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            view = view[len(taken) :]
            if self._filled == self._most:
                await self._hand_over()

    async def _hand_over(self) -> None:
        await self.settle()
        batch, self._filling, self._writing = self._filling, self._writing, self._filling
        view, self._filled, self._most = memoryview(batch)[: self._filled], 0, _BATCH_BYTES
        self._job = asyncio.create_task(self._work(view))

    async def settle(self) -> None:
        """Wait for the batch that is being written, also if the call is being cancelled.

        While it is written, no other call may begin, and the file must stay open.
        """
        if self._job is None:
            return
        cancelled: asyncio.CancelledError | None = None
        while not self._job.done():
            try:
                await asyncio.wait((self._job,))
            except asyncio.CancelledError as error:
                cancelled = error
        # A failed job is kept, so that nothing after it is written.
        self._job.result()
        self._job = None
        if cancelled is not None:
            raise cancelled

    async def finish(self, *, whole: bool) -> None:
        """Write the remaining bytes; flush them if the blob is complete."""
        await self.settle()
        view = memoryview(self._filling)[: self._filled]
        self._job = asyncio.create_task(self._work(view, last=whole))
        await self.settle()

    async def _work(self, batch: memoryview, *, last: bool = False) -> None:
        jobs = (
            asyncio.to_thread(self._part.write, batch, last=last),
            asyncio.to_thread(self._digest_and_check, batch),
        )
        # Both jobs end before the buffer is used again, even if one fails.
        for failure in await asyncio.gather(*jobs, return_exceptions=True):
            if failure is not None:
                raise failure

    def _digest_and_check(self, batch: memoryview) -> None:
        self._running.update(batch)
        if self._check is not None:
            self._check(batch)


async def _append(
    part: Path, blob: Blob, held: int, chunks: AsyncIterator[bytes | memoryview], check: Check | None
) -> str:
    """Write the rest of a blob and return the digest of the whole."""
    running = await asyncio.to_thread(_replay, part, check)
    with part.open("ab", buffering=0) as stream:
        writer = _Writer(PartFile(stream), running, check)
        try:
            async for chunk in chunks:
                held += len(chunk)
                if held > blob.size:
                    break
                await writer.add(chunk)
        finally:
            await writer.finish(whole=held == blob.size)
    if held > blob.size:
        part.unlink()
        raise ProtocolError(f"more than the declared {blob.size} bytes were sent", "declare the blob's size")
    if held < blob.size:
        raise ProtocolError(
            f"the upload ended at byte {held} of {blob.size}", "request the offset and resume there"
        )
    return str(running.hexdigest())


def _damage_error(blob: Blob) -> IntegrityError:
    return IntegrityError(
        f"the {blob.kind} of {blob.owner} arrived damaged: its digest is not the declared one",
        "upload it again from the beginning",
        {"owner": blob.owner, "digest": blob.digest},
    )


def _replay(path: Path, check: Check | None = None) -> Any:
    """Return the running digest of a file; passes its bytes to a check."""
    running = hashlib.sha256()
    for piece in read_chunks(path, chunk_bytes=_BATCH_BYTES):
        running.update(piece)
        if check is not None:
            check(piece)
    return running
