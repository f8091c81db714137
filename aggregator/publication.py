"""The release folder: made completely beside its place, flushed, then renamed into it.

A reader sees no folder or a whole one. Publishing again after a crash keeps a folder that is complete and
deletes what an interrupted attempt left.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from aggregator.manifest import ReleasedFile, manifest_document, to_bytes
from common.canonical import digest
from common.durable import sync_directory
from common.errors import IntegrityError, UsageError
from common.evidence import Evidence
from common.signing import Domain, Signer
from common.verification import MANIFEST_FILE, REPORT_FILE, SIGNATURE_FILE, verify_release

FORMATS = ("parquet", "csv")
"""What a release can be written as."""
_FILES = {"parquet": "data.parquet", "csv": "data.csv"}
_READ_BYTES = 1 << 20


def parse_formats(text: str) -> tuple[str, ...]:
    """Read `--format`.

    Raises:
        UsageError: If it names none, one twice, or one that is not known.
    """
    formats = tuple(part.strip() for part in text.split(","))
    if len(set(formats)) != len(formats) or not set(formats) <= set(FORMATS):
        raise UsageError(f"--format {text} is not a list of formats", f"accepted: {', '.join(FORMATS)}")
    return formats


def publish(
    release_dir: Path,
    evidence: Evidence,
    table: Any,
    signer: Signer,
    published: datetime,
    formats: Sequence[str] = ("parquet",),
) -> str:
    """Write a release folder.

    Args:
        release_dir: Where release folders are; the new one is called as the release.
        evidence: What was signed while the release was made.
        table: The joined table (`aggregator.joining.join`), a `pyarrow.Table`.
        signer: The aggregator's key.
        published: Now, with a time zone.
        formats: Any of `FORMATS`.

    Returns:
        The digest of the manifest.

    Raises:
        IntegrityError: If a folder of this name exists and is not this release, whole and unchanged.
        OSError: If it cannot be written.
    """
    final = release_dir / evidence.plan.release
    _remove_leftover(final)
    kept = published_digest(release_dir, evidence.plan.digest, evidence.plan.release)
    if kept is not None:
        return kept
    with _folder_beside(final) as folder:
        document = manifest_document(evidence, signer.chain_pem, published)
        _write_data(folder, table, formats)
        _write_report(folder, document, evidence, formats)
        manifest = to_bytes(document, _listed(folder))
        _write(folder / MANIFEST_FILE, manifest)
        _write(folder / SIGNATURE_FILE, signer.sign(Domain.MANIFEST, manifest))
    return digest(manifest)


def published_digest(release_dir: Path, plan_digest: str, release: str) -> str | None:
    """Return the manifest's digest of a release that is already published, or None.

    Args:
        release_dir: Where release folders are.
        plan_digest: Digest of the plan that the release must answer.
        release: Release id.

    Raises:
        IntegrityError: If a folder of this name exists and is not this release, whole and unchanged.
    """
    folder = release_dir / release
    if not folder.exists():
        return None
    verified = verify_release(folder)
    if verified.plan_digest != plan_digest:
        raise IntegrityError(
            f"{folder} holds another release of the same name",
            "move that folder away, or release under another id",
            {"plan_digest": plan_digest, "found": verified.plan_digest},
        )
    return verified.manifest_digest


def check_out(out: Path) -> None:
    """Check before anything is started that a finished copy can be put into a folder.

    Raises:
        UsageError: If it is there and not an empty folder, or cannot be made.
    """
    hint = "name a folder that is empty or absent"
    if out.is_symlink() or out.exists():
        if not out.is_dir():
            raise UsageError(f"{out} is not a folder", hint)
        if any(out.iterdir()):
            raise UsageError(f"{out} is not empty", hint)
    parent = next(each for each in (out.absolute().parents) if each.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"{parent} is not writable", "name a folder in a place you can write to")


def copy_release(folder: Path, out: Path) -> None:
    """Put a copy of a release folder into an empty or absent folder, whole or not at all.

    Raises:
        UsageError: If `out` is not empty by now.
        OSError: If it cannot be written.
    """
    check_out(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with _folder_beside(out) as beside:
        for source in sorted(folder.iterdir()):
            with source.open("rb") as stream, _flushed(beside / source.name) as target:
                shutil.copyfileobj(stream, target, _READ_BYTES)


def _beside(final: Path) -> Path:
    """Return where a folder is made; no release and no `--out` can be called that by accident."""
    return final.with_name(f".{final.name}.partial")


def _remove_leftover(final: Path) -> None:
    """Delete what an interrupted attempt left."""
    if _beside(final).exists():
        shutil.rmtree(_beside(final))


@contextmanager
def _folder_beside(final: Path) -> Iterator[Path]:
    """Make a folder that takes its name only when the block ends without an error."""
    _remove_leftover(final)
    folder = _beside(final)
    folder.mkdir()
    try:
        yield folder
        sync_directory(folder)
        folder.rename(final)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_directory(final.parent)


@contextmanager
def _flushed(path: Path) -> Iterator[BinaryIO]:
    with path.open("xb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def _write(path: Path, data: bytes) -> None:
    with _flushed(path) as stream:
        stream.write(data)


def _write_data(folder: Path, table: Any, formats: Sequence[str]) -> None:
    if "parquet" in formats:
        import pyarrow.parquet as pq

        with _flushed(folder / _FILES["parquet"]) as stream:
            pq.write_table(table, stream, compression="zstd")
    if "csv" in formats:
        from aggregator.release_csv import write_csv

        with _flushed(folder / _FILES["csv"]) as stream:
            write_csv(stream, table)


def _write_report(
    folder: Path, document: Mapping[str, Any], evidence: Evidence, formats: Sequence[str]
) -> None:
    from aggregator.report import render_report

    data_files = [_FILES[each] for each in FORMATS if each in formats]
    _write(folder / REPORT_FILE, render_report(document, evidence, data_files).encode())


def _listed(folder: Path) -> dict[str, ReleasedFile]:
    listed = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as stream:
            listed[path.name] = ReleasedFile(
                hashlib.file_digest(stream, "sha256").hexdigest(), path.stat().st_size
            )
    return listed
