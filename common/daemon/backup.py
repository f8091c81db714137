"""A backup: one private file with the configuration, the certificates and the state of a party.

The database is copied through SQLite, so that the copy is of one moment while the daemon continues writing.
Every other file of a state directory is written beside its place and renamed, or grows at its end alone.
The archive is a tar file. Its last member lists all others with their digests: an archive that was cut off,
or changed, is refused before anything of it is used.

A restore replaces nothing. It puts the database last, so that an interrupted one can be repeated.
"""

import hashlib
import io
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path, PurePath
from typing import Any

from common.canonical import canonical, parse_json
from common.database import SqliteDatabase
from common.errors import IntegrityError, UsageError
from common.files import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    atomic_writer,
    is_leftover,
    private_directory,
    sync_directory,
)
from common.workspace import PREFIX, Workspace

LINKS = "links"
"""Folder in the state folder through which a command passes one-time links to the daemon.

It is in no backup: put back, a link that was used or is too old would sign in again."""
_FORMAT = "tessera-backup-1"
_LIST = "backup.json"
_CONFIGURATION = "configuration"
_KEYS = "keys/"
_STATE = "state/"
_STAGING = ".restoring"
_LARGEST_LIST = 2**26
"""Bytes: a longer list was not made by `make`."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """What one party has to back up."""

    party: str
    """Whose it is, as "owner north"."""
    configuration: Path
    keys: Mapping[str, Path]
    """Certificates, keys and secrets by setting, as `tls.cert`; absent files are left out."""
    state_dir: Path
    database: str
    """Name of the database in the state directory."""
    workspace: Workspace
    """Where long steps write original values for a while; never in a backup."""
    left_out: frozenset[str]
    """Entries of the state directory, or patterns of files, that a restored party makes again or must not
    have."""
    removing: tuple[str, ...] = ()
    """Statements that delete from the copy of the database what a restored party must not have."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made or restored."""

    party: str
    made: str
    """When, in UTC, ISO 8601."""
    files: int
    """Number of files in it."""
    size: int
    """Their bytes."""
    kept: tuple[Path, ...] = ()
    """Files that a restore left as they were, because they are there with another content."""


def make(holdings: Holdings, database: SqliteDatabase, target: Path, now: datetime) -> Backup:
    """Write a backup.

    Args:
        target: The file to write, 0600; must not exist.

    Raises:
        UsageError: If the file exists, or cannot be written.
        CannotStoreError: If the database cannot be read.
    """
    if target.exists():
        raise UsageError(f"{target} exists", hint="name a new file: a backup never replaces another")
    if target.absolute().is_relative_to(holdings.state_dir):
        hint = "name a file outside: everything in there is part of the backup"
        raise UsageError(f"{target} is in the state folder {holdings.state_dir}", hint)
    listed: dict[str, str] = {}
    size = 0
    try:
        with (
            atomic_writer(target) as stream,
            tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
            holdings.workspace.folder("backup") as folder,
        ):
            copy = folder / holdings.database
            database.copy_to(copy, holdings.removing)
            for name, path in _members(holdings, copy):
                # A sealed fragment that was delivered meanwhile is gone, and no longer needed.
                with suppress(FileNotFoundError), path.open("rb") as file:
                    listed[name] = _add(archive, name, file)
                    size += archive.getmembers()[-1].size
            document = {"format": _FORMAT, "party": holdings.party, "made": now.isoformat(), "files": listed}
            _add(archive, _LIST, io.BytesIO(canonical(document)))
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror or error}",
            hint="check the folder, and space on its disk and in the scratch folder",
        ) from None
    return Backup(holdings.party, now.isoformat(), len(listed), size)


def restore(
    source: Path,
    configuration: Path,
    holdings_of: Callable[[Path], Holdings],
    prepare: Callable[[Path], None],
) -> Backup:
    """Put a backup into the places that the configuration names.

    Args:
        configuration: The configuration file; where there is none, it is taken from the backup.
        holdings_of: Reads a configuration file and returns what belongs to the party.
        prepare: Called with a folder that holds the restored database, before the database takes its place.

    Returns:
        What was restored. Certificates, keys and the configuration that are there already are kept.

    Raises:
        UsageError: If the state directory has a database, or the backup is another party's or cannot be read.
        IntegrityError: If the backup is damaged or incomplete.
        ConfigurationError: If the configuration cannot be used.
    """
    # Opening a pipe would wait for somebody to write into it.
    if source.exists() and not source.is_file():
        raise UsageError(f"{source} is not a regular file", hint="name the file that backup made")
    try:
        with tarfile.open(source, "r:") as archive:
            members, document = _verify_list(archive, source)
            if not configuration.exists():
                _place(archive, members[_CONFIGURATION], configuration)
            holdings = holdings_of(configuration)
            _check_party(str(document["party"]), holdings, source)
            kept = _restore_all(archive, members, holdings, prepare)
    except tarfile.TarError:
        raise _damage_error(source) from None
    except OSError as error:
        raise UsageError(
            f"{source} cannot be restored: {error.strerror}: {error.filename}",
            hint="check the path, permissions and free disk space; then repeat",
        ) from None
    size = sum(member.size for member in members.values())
    return Backup(holdings.party, str(document["made"]), len(members), size, kept)


# --- writing -------------------------------------------------------------------------------------------


def _members(holdings: Holdings, database: Path) -> Iterator[tuple[str, Path]]:
    """Return the files of a backup with their names in the archive."""
    yield _CONFIGURATION, holdings.configuration
    for setting, path in holdings.keys.items():
        yield _KEYS + setting, path
    yield _STATE + holdings.database, database
    scratch = holdings.workspace.scratch
    for path in sorted(holdings.state_dir.rglob("*")):
        name = path.relative_to(holdings.state_dir)
        own = _is_left_out(holdings, name) or name.parts[0].startswith(holdings.database)
        spilled = path.is_relative_to(scratch) and (
            scratch != holdings.state_dir or name.parts[0].startswith(PREFIX)
        )
        if not own and not spilled and path.is_file() and not path.is_symlink() and not is_leftover(path):
            yield _STATE + name.as_posix(), path


def _is_left_out(holdings: Holdings, name: PurePath) -> bool:
    """Return whether backups leave a file of the state directory out, and restores ignore it."""
    entries = (LINKS, *holdings.left_out)
    return name.parts[0] in entries or any(fnmatchcase(name.as_posix(), each) for each in entries)


def _add(archive: tarfile.TarFile, name: str, stream: BufferedReader | io.BytesIO) -> str:
    """Append a file as long as it is now, and return the digest of what was appended."""
    member = tarfile.TarInfo(name)
    member.mode = PRIVATE_FILE
    member.size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    reader = _Hashed(stream)
    archive.addfile(member, reader)
    return reader.digest.hexdigest()


class _Hashed(io.RawIOBase):
    """A file that digests what is read of it: a log may grow while it is copied."""

    def __init__(self, stream: BufferedReader | io.BytesIO) -> None:
        self._stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data


def named_files(**tables: Any) -> dict[str, Path]:
    """Return the files that tables of a configuration name, by setting, such as `tls.cert`."""
    files: dict[str, Path] = {}
    for name, value in tables.items():
        if isinstance(value, Path):
            files[name] = value
        elif is_dataclass(value):
            below = {f"{name}.{field.name}": getattr(value, field.name) for field in fields(value)}
            files |= named_files(**below)
    return files


# --- restoring -----------------------------------------------------------------------------------------


def _damage_error(source: Path) -> IntegrityError:
    return IntegrityError(f"{source} is damaged, or no whole backup", hint="use another backup")


def _verify_list(archive: tarfile.TarFile, source: Path) -> tuple[dict[str, tarfile.TarInfo], dict[str, Any]]:
    """Return the files of a backup by name, and its list, after all digests were compared."""
    there = archive.getmembers()
    members = {member.name: member for member in there}
    # `make` writes no links, pipes or folders, and what a link leads to is not what was digested.
    if len(members) < len(there) or not all(member.isreg() and _is_safe(member.name) for member in there):
        raise _damage_error(source)
    last = members.pop(_LIST, None)
    if last is None or last.size > _LARGEST_LIST:
        raise _damage_error(source)
    try:
        document = parse_json(_open(archive, last).read())
        listed = dict(document["files"])
        complete = document["format"] == _FORMAT and _CONFIGURATION in listed
    except (ValueError, LookupError, TypeError):
        raise _damage_error(source) from None
    digests = {
        name: hashlib.file_digest(_open(archive, member), "sha256").hexdigest()
        for name, member in members.items()
    }
    if not complete or digests != listed:
        raise _damage_error(source)
    return members, document


def _is_safe(name: str) -> bool:
    """Whether a name stays below the folder that it is put into."""
    return not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def _open(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    """Open a regular file of an archive."""
    stream = archive.extractfile(member)
    if stream is None:
        raise tarfile.ReadError
    return stream


def _check_party(party: str, holdings: Holdings, source: Path) -> None:
    if party != holdings.party:
        raise UsageError(
            f"{source} is a backup of {party}, and {holdings.configuration} is for {holdings.party}",
            hint="name this party's backup, or the configuration file of that party",
        )
    database = private_directory(holdings.state_dir) / holdings.database
    # SQLite would play a log that a crash left into the restored database.
    parts = [database.with_name(database.name + suffix) for suffix in ("", "-wal", "-shm", "-journal")]
    if present := [file.name for file in parts if file.exists()]:
        raise UsageError(
            f"{holdings.state_dir} has {' and '.join(present)}: a restore never replaces a database",
            hint="if it is the newest one, start the daemon with it; if it is damaged, move all its files "
            f"away first: {', '.join(file.name for file in parts)}",
        )


def _restore_all(
    archive: tarfile.TarFile,
    members: Mapping[str, tarfile.TarInfo],
    holdings: Holdings,
    prepare: Callable[[Path], None],
) -> tuple[Path, ...]:
    """Put all files in their places, the database last; return those that were kept as they are."""
    database = _STATE + holdings.database
    places = {_KEYS + setting: path for setting, path in holdings.keys.items()}
    places |= {
        name: holdings.state_dir / name.removeprefix(_STATE)
        for name in members
        if name.startswith(_STATE) and not _is_left_out(holdings, PurePath(name.removeprefix(_STATE)))
    }
    places[_CONFIGURATION] = holdings.configuration
    kept = [
        place
        for name, place in places.items()
        if name in members and name != database and not _place(archive, members[name], place)
    ]
    staging = holdings.state_dir / _STAGING
    shutil.rmtree(staging, ignore_errors=True)
    _place(archive, members[database], staging / holdings.database)
    prepare(staging)
    (staging / holdings.database).rename(places[database])
    sync_directory(holdings.state_dir)
    shutil.rmtree(staging)
    return tuple(kept)


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> bool:
    """Write a file, whole or not at all; return False if another one is there, which is kept."""
    if place.exists():
        if not place.is_file():
            return False
        with place.open("rb") as present:
            same = hashlib.file_digest(present, "sha256").digest()
        return same == hashlib.file_digest(_open(archive, member), "sha256").digest()
    for parent in reversed(place.parents):
        parent.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    with atomic_writer(place) as stream:
        shutil.copyfileobj(_open(archive, member), stream)
    return True
