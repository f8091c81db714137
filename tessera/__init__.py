"""What analysts use: `tessera.read_release`, `tessera.read_table`, and the errors that they raise."""

try:
    from common.analysis.reading import Release, read_release
    from common.analysis.table_reading import SyntheticTable, read_table
    from common.errors import IntegrityError, TesseraError, UsageError
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("common."):
        raise
    import common

    # A script's own folder comes first in the search for modules, and `common` is a usual name there.
    place = common.__file__ or ", ".join(common.__path__)
    raise ImportError(
        f"{place} is in the way: tessera brings a package of the name 'common', which is not found then; "
        "rename that file or folder, or run from another folder"
    ) from None

__all__ = [
    "IntegrityError",
    "Release",
    "SyntheticTable",
    "TesseraError",
    "UsageError",
    "read_release",
    "read_table",
]
