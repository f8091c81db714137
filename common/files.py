"""Files and whole folders that survive a power cut and that no other user can read.

Every file of state is written beside its final place, flushed to the disk and renamed over the old one; then
the folder is flushed too. A reader sees the old content or the new one, never half of either. Whole folders
are made in the same way: a reader sees none or all of one. Files are 0600 and folders 0700 from the moment
they exist, not after a later `chmod`.
"""

import fcntl
import hashlib
import json
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from common.errors import CannotStoreError, ConfigurationError, ProtocolError, UsageError, lacks_resources

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
RELEASE_DIRECTORY = 0o755
_RELEASE_FILE = 0o644
CHUNK_BYTES = 256 * 1024
"""Size of a chunk of an upload or download; the last one of a file is smaller."""
_PARTIAL_SUFFIX = ".partial"


def sync_directory(directory: Path) -> None:
    """Flush a folder's list of names to the disk, without which a rename can be lost."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the disk in a block name a path: an error of an open file names none."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        # Libraries add words of their own to those of the system.
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None


def user_name(uid: int) -> str:
    """Return the name of a user of this machine; with the number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def disk_reason(error: OSError) -> str:
    """Return why the disk cannot be used, and which part of it."""
    place = f"{error.filename} cannot be used" if error.filename else "the disk cannot be used"
    return f"{place}: {error.strerror or type(error).__name__}"


def forbidden(error: PermissionError) -> ConfigurationError:
    """Return the error for a file or folder that this user may not use."""
    return ConfigurationError(
        disk_reason(error),
        hint="run the command as the user of the daemon (sudo -u USER), or check whose file it is",
    )


@contextmanager
def explaining_disk() -> Iterator[None]:
    """Turn errors of the disk in a block into words for a person; other errors have no number, and stay."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        hint = "make room there, and check whose it is; then retry"
        raise ConfigurationError(disk_reason(error), hint=hint) from None


@contextmanager
def atomic_writer(path: Path, mode: int = PRIVATE_FILE) -> Iterator[BinaryIO]:
    """Open a file for streaming that appears under its name only when the block ends without an error.

    Args:
        mode: Permissions of the finished file. While it is written it is 0600.

    Yields:
        A binary file. If the block raises, what was written is deleted and `path` stays as it was.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_PARTIAL_SUFFIX, dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_atomic(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Write a small file so that it is there completely, or not at all, whenever the power fails."""
    with atomic_writer(path, mode) as stream:
        stream.write(data)


def is_leftover(path: Path) -> bool:
    """Whether a file is one that is being written, or that an interrupted write left."""
    return path.name.startswith(".") and path.name.endswith(_PARTIAL_SUFFIX)


def remove_leftovers(directory: Path) -> int:
    """Delete what interrupted writes left in a folder; returns how many files.

    Only for a folder whose lock the caller holds: a file that is being written looks the same.

    Args:
        directory: The folder; folders inside it are left alone.
    """
    leftovers = list(directory.glob(f".*{_PARTIAL_SUFFIX}"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    if leftovers:
        sync_directory(directory)
    return len(leftovers)


def private_directory(path: Path) -> Path:
    """Make a folder that only its user can enter, or check that it is one; returns it.

    Args:
        path: The folder. Absent parents are made private as well: one can be a folder that has to be.

    Raises:
        ConfigurationError: If it exists and is no folder, or others can enter it.
    """
    try:
        for folder in reversed((path, *path.parents)):
            if not folder.is_dir():
                folder.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConfigurationError(
            f"{path} is not a folder", hint="name a folder, or a place where one can be made"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be made: {error.strerror}", hint="make it, for this user, with mode 0700"
        ) from None
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ConfigurationError(
            f"{path} is open to other users (mode {mode:04o})", hint=f"close it: chmod 700 {path}"
        )
    return path


def is_open(status: os.stat_result) -> bool:
    """Whether a file or folder is open to other users than the one who works with it.

    A file of root's may be readable by a group: so an orchestrator gives a secret to a process, which cannot
    change its mode, and so does root to a service.
    """
    shared = 0o040 if stat.S_ISREG(status.st_mode) and status.st_uid == 0 != os.geteuid() else 0
    return bool(stat.S_IMODE(status.st_mode) & 0o077 & ~shared)


def read_private(path: Path) -> bytes:
    """Read a file that holds a secret, and refuse it if others could read it too.

    Raises:
        ConfigurationError: If it is absent or unreadable, or open to others (`is_open`).
    """
    try:
        with path.open("rb") as stream:
            # The open file is judged, not the name: what is behind a name can change in between.
            status = os.fstat(stream.fileno())
            if is_open(status):
                mode = stat.S_IMODE(status.st_mode)
                raise ConfigurationError(
                    f"{path} holds a secret and is open to other users (mode {mode:04o})",
                    hint=f"close it: chmod 600 {path}",
                )
            return stream.read()
    except OSError as error:
        kind = CannotStoreError if lacks_resources(error) else ConfigurationError
        raise kind(
            f"{path} cannot be read: {error.strerror}", hint="check the path and whose file it is"
        ) from None


def read_secret(path: Path) -> str:
    """Read the secret that is the first line of a private file.

    Raises:
        ConfigurationError: Like `read_private`; if the line is empty or not UTF-8.
    """
    try:
        secret = read_private(path).partition(b"\n")[0].decode().strip()
    except UnicodeDecodeError:
        secret = ""
    if not secret:
        raise ConfigurationError(
            f"{path} holds no secret", hint="write the secret into its first line, as UTF-8"
        )
    return secret


def is_locked(path: Path) -> bool:
    """Return True if a process holds a lock file of `exclusive_lock`."""
    try:
        with path.open("rb") as stream:
            # An orderly end empties the file, so that the lock itself is seldom touched from outside.
            if not stream.read(1):
                return False
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def exclusive_lock(path: Path, holder: str) -> Iterator[None]:
    """Hold a lock file for the length of a block; the system lets go of it if the process dies.

    Args:
        path: The lock file. It stays when the lock is let go: deleting it would let two holders in.
        holder: What holds the lock, reported to the second process ("owner-node run").

    Raises:
        UsageError: If another process holds it; names that process and what it said it is.
        CannotStoreError: If the file cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise _cannot_write(path, error) from None
    with os.fdopen(descriptor, "r+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _lock_error(path, stream.read()) from None
        stream.truncate()
        try:
            os.write(descriptor, json.dumps({"pid": os.getpid(), "holder": holder}).encode())
        except OSError as error:
            raise _cannot_write(path, error) from None
        try:
            yield
        finally:
            stream.seek(0)
            stream.truncate()


@contextmanager
def lock_folder(folder: Path, how: int = 0) -> Iterator[None]:
    """Hold the lock of a folder, which the system lets go of if the process dies; `how` may be `LOCK_NB`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(descriptor)


def _cannot_write(path: Path, error: OSError) -> CannotStoreError:
    return CannotStoreError(
        f"{path} cannot be written: {error.strerror}", hint="check the disk and whose folder it is"
    )


def _lock_error(path: Path, content: bytes) -> UsageError:
    """Return the holder of a lock; the holder may be between taking it and writing its name."""
    try:
        written = json.loads(content)
        who = {"holder": str(written["holder"]), "pid": int(written["pid"])}
    except (ValueError, KeyError, TypeError):
        return UsageError(f"{path} is locked by another process", "stop the other process first")
    return UsageError(
        f"{path} is locked by {who['holder']} (process {who['pid']})", "stop that process first", who
    )


def check_writable(folder: Path) -> None:
    """Check, before work whose result goes into a folder, that a file can be made there.

    A file without a name is made: to modes and users alone, a folder of the system looks writable for root.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "create it, or name a file in another folder")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"{folder} is not writable: {error.strerror}", "name a file in a folder you can write to"
        ) from None


def check_out(out: Path) -> None:
    """Check before anything is started that a finished copy can be put into a folder."""
    hint = "name a folder that is empty or absent"
    if out.is_symlink() or out.exists():
        if not out.is_dir():
            raise UsageError(f"{out} is not a folder", hint)
        if any(out.iterdir()):
            raise UsageError(f"{out} is not empty", hint)
    parent = next(folder for folder in (out.absolute().parents) if folder.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"{parent} is not writable", "name a folder in a place you can write to")


def _beside(final: Path) -> Path:
    """Return where a folder is made; no release and no `--out` can be called that by accident."""
    return final.with_name(f".{final.name}.partial")


def remove_leftover(final: Path) -> None:
    """Delete what an interrupted attempt left."""
    if _beside(final).exists():
        shutil.rmtree(_beside(final))


def remove_folder(final: Path) -> None:
    """Remove a folder, its name at once, then its content; a second call goes on after an interrupted one."""
    doomed = final.with_name(f".{final.name}.deleted")
    if final.exists():
        if doomed.exists():
            shutil.rmtree(doomed)
        final.rename(doomed)
        sync_directory(final.parent)
    if doomed.exists():
        shutil.rmtree(doomed)
        sync_directory(final.parent)


@contextmanager
def whole_folder(final: Path) -> Iterator[Path]:
    """Make a folder that takes its name only when the block ends without an error.

    Anybody may read it, and its user alone may write, whatever the umask is.
    """
    remove_leftover(final)
    folder = _beside(final)
    folder.mkdir(PRIVATE_DIRECTORY)
    try:
        yield folder
        for path in folder.iterdir():
            path.chmod(_RELEASE_FILE)
        folder.chmod(RELEASE_DIRECTORY)
        sync_directory(folder)
        folder.rename(final)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_directory(final.parent)


@contextmanager
def synced_writer(path: Path) -> Iterator[BinaryIO]:
    """Write a new file that is on the disk when the block ends."""
    with path.open("xb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file as lower-case hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_chunks(path: Path, offset: int = 0, chunk_bytes: int = CHUNK_BYTES) -> Iterator[memoryview]:
    """Read a file from an offset to its end.

    Yields:
        Chunks, never an empty one. All are read into one buffer: each is valid until the next is read.

    Raises:
        ProtocolError: If the offset is not within the file.
    """
    size = path.stat().st_size
    if not 0 <= offset <= size:
        raise ProtocolError(
            f"offset {offset} is not within the {size} bytes of {path.name}",
            "ask how much the other side holds, and continue from there",
        )
    place = memoryview(bytearray(min(chunk_bytes, size - offset)))
    with path.open("rb", buffering=0) as stream:
        stream.seek(offset)
        while n_bytes := stream.readinto(place):
            yield place[:n_bytes]
