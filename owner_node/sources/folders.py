"""Which files of a folder are its data: one rule for whatever reads the folder.

Programs write files of their own beside the data, such as `_SUCCESS`, `.part-0.crc` or `.~lock`, and begin
their names with "_" or ".". Every other file is data. A folder that holds anything else is refused, so that
no record is left out or read twice without a word.
"""

from collections.abc import Iterable

from owner_node.sources.findings import Findings

_LEFT_OUT = ("_", ".")
_RULE = 'names that begin with "_" or "." are left out'
NOT_PARQUET = "not readable as Parquet"
UNREADABLE = f"write them again, each file has to be complete; move other files out of the folder; {_RULE}"
"""What to do about files of a folder that are not readable as Parquet."""


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
        findings.add(None, "this is a folder without Parquet files", 1, hint, counted="")
    return files
