"""Bytes of memory and scratch that a release takes."""

TABLES_IN_MEMORY = 4
"""Sizes of the loaded table that a release takes in memory: loaded, masked, and as much again for work."""
VALUE_BYTES = 8
TOKEN_BYTES = 16
_SORTED_BYTES = 48
"""Spilled for a record by two sorts of one attribute, one feeding the other."""
_MATCH_BYTES = 450
"""Taken in memory by the match keys of one pass for a record: texts, hashes and their order."""
_PASS_BYTES = 60
"""Taken by the finished token list of a pass for a record until it is sent."""


def match_bytes(table: int, n_records: int, n_passes: int) -> int:
    """Return about the bytes of memory that a release with match keys takes.

    Args:
        table: Size of the loaded table in bytes.
    """
    return max(TABLES_IN_MEMORY * table, table + n_records * (_MATCH_BYTES + _PASS_BYTES * n_passes))


def masking_bytes(n_records: int, n_columns: int) -> int:
    """Return about the bytes that masking writes to scratch, beside the loaded table."""
    of_fragment = TOKEN_BYTES + VALUE_BYTES * n_columns
    return n_records * (VALUE_BYTES * n_columns + max(_SORTED_BYTES, of_fragment))
