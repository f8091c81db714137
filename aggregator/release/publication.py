"""The release folder and its `manifest.json`: written beside its final place, flushed, then renamed into it.

A reader sees no folder or a complete one. Publishing again after a crash keeps a complete folder and deletes
the leftovers of an interrupted attempt.

The manifest is one signed file with everything that is needed to judge a release offline. It holds the
documents that were signed while the release was made (plan, addendum, consents, fragment statements), their
signatures and the certificates that verify them; the numbers and sentences that follow from them; and the
digest of every other file. `manifest.sig` signs the bytes of this file.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.canonical import canonical, digest, parse_json
from common.errors import IntegrityError, TesseraError
from common.files import check_out, remove_leftover, synced_writer, whole_folder
from common.model.plan import Plan
from common.planning.arguments import FORMATS
from common.progress import Progress
from common.release.evidence import Evidence
from common.release.summary import manifest_document
from common.release.verification import MANIFEST_FILE, REPORT_FILE, SIGNATURE_FILE, verify_release
from common.trust.signing import Domain, Signer
from common.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa

    from common.release.column_summary import ColumnSummary


@dataclass(frozen=True, slots=True)
class ReleasedFile:
    """One file of a release folder."""

    digest: str
    """SHA-256 of its bytes."""
    size: int
    """Number of bytes."""


def to_bytes(document: Mapping[str, Any], files: Mapping[str, ReleasedFile]) -> bytes:
    """Return the bytes of `manifest.json`: numbers as strings, keys sorted, indented for people.

    Args:
        files: Every other file of the folder but `manifest.sig`, by name.

    Returns:
        UTF-8, ending in a line feed.
    """
    listed = {name: {"digest": file.digest, "size": file.size} for name, file in files.items()}
    plain = json.loads(canonical({**document, "files": listed}))
    return json.dumps(plain, ensure_ascii=False, indent=2, sort_keys=True).encode() + b"\n"


_FILES = {"parquet": "data.parquet", "csv": "data.csv"}
_READ_BYTES = 1 << 20
_log = logging.getLogger(__name__)


class ReleaseFolder:
    """Where a release appears, whole or not at all."""

    def __init__(self, path: Path, plan_digest: str) -> None:
        self.path, self._plan_digest = path, plan_digest

    def may_exist(self) -> bool:
        """Whether it may hold this release; so does one that cannot be examined now."""
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        try:
            plan_digest = parse_json((self.path / MANIFEST_FILE).read_bytes())["plan"]["digest"]
        except (OSError, ValueError, KeyError, TypeError):
            return True
        return bool(plan_digest == self._plan_digest)

    def manifest_digest(self, workspace: Workspace | None = None) -> str | None:
        """Return the manifest's digest if the release is published already, or None.

        Raises:
            IntegrityError: If the folder exists and is not this release, whole and unchanged.
        """
        if not self.path.exists():
            return None
        try:
            verified = verify_release(self.path, workspace=workspace)
        except IntegrityError as error:
            raise IntegrityError(
                f"{self.path} is there already and is no whole release: {error.message}",
                "move that folder away",
                error.details,
            ) from None
        if verified.plan_digest != self._plan_digest:
            raise IntegrityError(
                f"{self.path} holds another release of the same name",
                "move that folder away",
                {"plan_digest": self._plan_digest, "found": verified.plan_digest},
            )
        return verified.manifest_digest

    def publish(
        self,
        evidence: Evidence,
        pieces: Iterable["pa.Table"],
        signer: Signer,
        published: datetime,
        formats: Sequence[str] = ("parquet",),
        ca: Path | None = None,
        *,
        counts: Callable[[], "pa.Table | None"] = lambda: None,
        workspace: Workspace,
        progress: Progress | None = None,
    ) -> str:
        """Write the folder, unless it is there; without a report if that cannot be made (`note`).

        Args:
            pieces: The released records in order (`aggregator.release.records.to_release`). Each piece
                becomes a row group of the Parquet file. They are read only if the folder has to be written.
            ca: PEM file of the CAs that all identities must lead to; None leaves them unchecked.
            counts: Returns the noisy counts that the records were drawn from; None where they were masked.
            progress: Advanced by the records that are written; verifying them is a step of its own.

        Returns:
            The digest of the manifest.

        Raises:
            IntegrityError: If the folder exists and is not this release, whole and unchanged; or if the new
                one would not hold for those who verify it. Then none appears.
            OSError: If it cannot be written.
        """
        progress = progress or Progress()
        # At once: this attempt may fail, and whoever then ends the release wants nothing of it to stay.
        remove_leftover(self.path)
        kept = self.manifest_digest(workspace)
        if kept is not None:
            return kept
        with whole_folder(self.path) as folder:
            document = manifest_document(evidence, signer.chain_pem, published)
            summaries = _write_data(folder, evidence.plan, document, pieces, formats, workspace, progress)
            if (table := counts()) is not None:
                _write_counts(folder, table)
            _write_report(folder, document, evidence, summaries, formats, table)
            if evidence.plan.described:
                _write_description(folder, document, evidence)
            manifest = to_bytes(document, _digest_files(folder))
            _write(folder / MANIFEST_FILE, manifest)
            _write(folder / SIGNATURE_FILE, signer.sign(Domain.MANIFEST, manifest))
            _check(folder, ca, workspace, progress)
        return digest(manifest)

    def note(self, out: str = "") -> str:
        """Put the copy of a published release where the operator wanted it, if anywhere.

        Returns:
            What did not go well with report and copy; empty if nothing.
        """
        has_report = (self.path / REPORT_FILE).exists()
        report = "" if has_report else "the report could not be made: there is no report.html"
        return "; ".join(filter(None, (report, self._copy(Path(out)) if out else "")))

    def _copy(self, out: Path) -> str:
        """Copy the folder; return why there is no copy. A release is published without it, too."""
        try:
            manifest = out / MANIFEST_FILE
            # There already if this is another attempt to write down that the release is published.
            if not manifest.is_file() or manifest.read_bytes() != (self.path / MANIFEST_FILE).read_bytes():
                copy_release(self.path, out)
        except TesseraError as error:
            reason = error.message
        except OSError as error:
            reason = error.strerror or type(error).__name__
        else:
            return ""
        _log.error("the copy of the release could not be made", extra={"reason": reason})
        return f"there is no copy at {out}: {reason}"


def copy_release(folder: Path, out: Path) -> None:
    """Put a copy of a release folder into an empty or absent folder, whole or not at all."""
    check_out(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(out) as beside:
        for source in sorted(folder.iterdir()):
            with source.open("rb") as stream, synced_writer(beside / source.name) as target:
                shutil.copyfileobj(stream, target, _READ_BYTES)


def _check(folder: Path, ca: Path | None, workspace: Workspace, progress: Progress) -> None:
    """Run the checks of `verify` before the folder is visible, including for expired certificates."""
    try:
        verify_release(folder, ca, written=True, workspace=workspace, progress=progress)
    except IntegrityError as error:
        # Its hint is for readers of the folder.
        raise IntegrityError(
            f"the release would not hold for those who verify it: {error.message}", details=error.details
        ) from None


def _write(path: Path, data: bytes) -> None:
    with synced_writer(path) as stream:
        stream.write(data)


def _write_data(
    folder: Path,
    plan: Plan,
    document: Mapping[str, Any],
    pieces: Iterable["pa.Table"],
    formats: Sequence[str],
    workspace: Workspace,
    progress: Progress,
) -> dict[str, "ColumnSummary | None"]:
    """Write the data files, and those of events, in all formats at once; summarise the columns of data."""
    from common.release.column_summary import ColumnSummaries
    from common.release.events import events_table, unfold
    from common.release.table import RECORD_COLUMN, events_schema, file_metadata, release_schema
    from common.release.values import to_units

    schema, events = release_schema(plan), plan.events
    metadata = file_metadata(plan, document)
    with ExitStack() as open_files, ColumnSummaries(plan.released, workspace) as summaries:
        write = _writer(folder, "data", schema.with_metadata(metadata), formats, open_files)
        write_events = events and _writer(
            folder, "events", events_schema(events).with_metadata(metadata), formats, open_files
        )
        for piece in pieces:
            write(piece.select(schema.names))
            units = {each.name: to_units(each, piece.column(each.name)).to_numpy() for each in plan.released}
            summaries.add(units)
            if events and write_events:
                slots = piece.column_names[len(schema) :]
                units |= {name: piece.column(name).to_numpy() for name in slots}
                first = piece.column(RECORD_COLUMN)[0].as_py()
                write_events(events_table(events, unfold(events, units, first)))
            progress.advance(piece.num_rows)
        return summaries.finish()


def _writer(
    folder: Path, stem: str, schema: "pa.Schema", formats: Sequence[str], open_files: ExitStack
) -> "Callable[[pa.Table], None]":
    """Open the files of a table in all formats; return what writes the next lines of it."""
    import pyarrow.parquet as pq

    from common.release.table import write_csv_header, write_csv_records

    parquet = csv = None
    if "parquet" in formats:
        stream = open_files.enter_context(synced_writer(folder / f"{stem}.parquet"))
        parquet = open_files.enter_context(pq.ParquetWriter(stream, schema, compression="zstd"))
    if "csv" in formats:
        csv = open_files.enter_context(synced_writer(folder / f"{stem}.csv"))
        write_csv_header(csv, schema)

    def write(table: "pa.Table") -> None:
        if parquet is not None:
            parquet.write_table(table.replace_schema_metadata(schema.metadata))
        if csv is not None:
            write_csv_records(csv, table)

    return write


def _write_counts(folder: Path, counts: "pa.Table") -> None:
    import pyarrow.parquet as pq

    from common.release.counts import COUNTS_FILE

    with synced_writer(folder / COUNTS_FILE) as stream:
        pq.write_table(counts, stream, compression="zstd")


def _write_report(
    folder: Path,
    document: Mapping[str, Any],
    evidence: Evidence,
    summaries: Mapping[str, "ColumnSummary | None"],
    formats: Sequence[str],
    counts: "pa.Table | None",
) -> None:
    from common.release.report import render_report

    data_files = [_FILES[kind] for kind in FORMATS if kind in formats]
    try:
        report = render_report(document, evidence, summaries, data_files, counts).encode()
    except Exception as fault:  # noqa: BLE001 - owners have spent for the data: no report keeps them back
        _log.error("report left out", extra={"release": evidence.plan.release}, exc_info=fault)
        return
    _write(folder / REPORT_FILE, report)


def _write_description(folder: Path, document: Mapping[str, Any], evidence: Evidence) -> None:
    from common.release.description import DESCRIPTION_FILE, describe

    files = {name: (file.digest, file.size) for name, file in _digest_files(folder).items()}
    try:
        description = describe(document, evidence, files)
    except Exception as fault:  # noqa: BLE001 - as for the report
        _log.error("description left out", extra={"release": evidence.plan.release}, exc_info=fault)
        return
    _write(folder / DESCRIPTION_FILE, description)


def _digest_files(folder: Path) -> dict[str, ReleasedFile]:
    listed = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as stream:
            listed[path.name] = ReleasedFile(
                hashlib.file_digest(stream, "sha256").hexdigest(), path.stat().st_size
            )
    return listed
