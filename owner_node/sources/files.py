"""Files and folders of this machine that cannot be read, and which files of a folder are its data.

Programs write files of their own beside the data, such as `_SUCCESS`, `.part-0.crc` or `.~lock`, and begin
their names with "_" or ".". Every other file is data. A folder that holds anything else is refused, so that
no record is left out or read twice without a word.
"""

from collections.abc import Iterable
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO, Any, Literal, Protocol

from common.errors import check_resources, did_you_mean
from owner_node.sources.findings import Findings

HEAD_BYTES = 1024
"""First bytes of a file that tell its format."""
_LEFT_OUT = ("_", ".")
_RULE = 'names that begin with "_" or "." are left out'
NOT_PARQUET = "not readable as Parquet"
UNREADABLE = f"write them again, each file has to be complete; move other files out of the folder; {_RULE}"
"""Hint for files of a folder that are not readable as Parquet."""


class StoredFile(Protocol):
    """A file of this machine, which is a `Path`, or an object in a store."""

    @property
    def name(self) -> str:
        """Its name, without folders."""

    @property
    def suffix(self) -> str:
        """The end of its name, such as ".csv"."""

    def open(self, mode: Literal["rb"], /) -> IO[bytes]:
        """Open it for reading bytes."""


def arrow_file(file: StoredFile) -> Any:
    """Open a file to be read by Arrow."""
    import pyarrow as pa

    if isinstance(file, Path):
        return pa.OSFile(str(file), "rb")
    return pa.PythonFile(file.open("rb"), mode="r")


def first_bytes(path: Path, findings: Findings) -> bytes | None:
    """Return the first bytes of a file, which identify its type; None if unreadable, with a finding."""
    problem, hint = "this is a pipe or a device, not a file", "write the data into a file, and name that"
    try:
        # Opening a pipe waits until somebody writes into it, and a device may never end.
        if S_ISDIR(kind := path.stat().st_mode) or S_ISREG(kind):
            with path.open("rb") as file:
                return file.read(HEAD_BYTES)
    except FileNotFoundError:
        hint = "correct the path; one in owner.toml is relative to the folder of that file"
        findings.add(None, "there is no such file", 1, hint, "", lambda: filter(None, [_close_to(path)]))
        return None
    except IsADirectoryError:
        problem, hint = "this is a folder, not a file", "name the file"
    except PermissionError:
        problem, hint = "the file may not be read", "let the account of the owner node read the file"
    except OSError as fault:
        check_resources(fault)
        problem, hint = f"the file cannot be read: {fault.strerror}", "check the path and the disk"
    findings.fail(problem, hint)
    return None


def _close_to(path: Path) -> str:
    """Return a question with the most similar name in the folder; empty if there is none."""
    try:
        return did_you_mean(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:
        return ""


def data_files(entries: Iterable[tuple[str, bool]], findings: Findings) -> list[str]:
    """Return the names of the files that are data, in their order.

    Args:
        entries: What the folder holds: the name of each entry, and whether it is a folder.
    """
    visible = sorted((name, is_folder) for name, is_folder in entries if not name.startswith(_LEFT_OUT))
    files = [name for name, is_folder in visible if not is_folder]
    folders = [name for name, is_folder in visible if is_folder]
    partitions = [name for name in folders if "=" in name]
    others = [name for name in folders if "=" not in name]
    hint = "write one folder of Parquet files without partitions, with the partitions' values as columns"
    findings.add(None, "a folder of partitions", len(partitions), hint, "folders", lambda: partitions)
    hint = f"move the files into one folder, without others in it; {_RULE}"
    findings.add(None, "a folder in the folder", len(others), hint, "folders", lambda: others)
    if not visible:
        hint = f"put Parquet files into it, or name one CSV or Parquet file in source; {_RULE}"
        findings.fail("this is a folder without Parquet files", hint)
    return files
