"""Sealed fragments on disk: written atomically (temporary file, flush, rename), and sent only from here.

A file under its final name whose session is not yet `sealed` is a leftover as well: the process died between
the rename and the transaction. Masking again destroys it first; its noise was never disclosed.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from common.errors import ProtocolError
from common.files import atomic_writer, private_directory, sync_directory
from common.model.plan import RELEASE_ID
from common.trust.identity import is_name

_SUFFIX = ".fragment"
_FOLDER = "outbox"
_PARCEL = ".parcel"
PARCELS = f"{_FOLDER}/*{_PARCEL}"
"""The files that owners of other attributes send each other, in the state directory."""
# It occurs in no release id and no aggregator's name, so that no two pairs share a file name.
_BETWEEN = "~"


class Outbox:
    """The folder of an owner's fragments."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = private_directory(state_dir / _FOLDER)

    def path(self, aggregator: str, release: str) -> Path:
        """Return where a release's sealed fragment is, or will be.

        Raises:
            ProtocolError: If the names could not be those of an aggregator and a release.
        """
        if not RELEASE_ID.fullmatch(release) or not is_name(aggregator):
            raise ProtocolError("a release id or an aggregator's name is malformed", "nothing was written")
        return self._directory / f"{aggregator}{_BETWEEN}{release}{_SUFFIX}"

    def parcel(self, aggregator: str, release: str, name: str) -> Path:
        """Return where something is that owners of other attributes send each other in a round.

        Its name has no dot.
        """
        return self.path(aggregator, release).with_suffix(f".{name}{_PARCEL}")

    def keep_parcels(self, releases: Collection[tuple[str, str]]) -> None:
        """Delete everything that was sent or received in rounds, but that of some (aggregator, release)."""
        for path in self._directory.glob(f"*{_PARCEL}"):
            # Ids of releases can have dots.
            names = path.name.removesuffix(_PARCEL).rpartition(".")[0]
            aggregator, _, release = names.partition(_BETWEEN)
            if (aggregator, release) not in releases:
                path.unlink(missing_ok=True)

    def begin(self, aggregator: str, release: str) -> AbstractContextManager[BinaryIO]:
        """Write a fragment atomically: it appears, flushed, when the block ends without an error."""
        return atomic_writer(self.path(aggregator, release))

    def destroy(self, aggregator: str, release: str) -> int:
        """Delete a release's fragment and the files of interrupted writes.

        Returns:
            How many files were deleted.
        """
        path = self.path(aggregator, release)
        doomed = [file for file in (path, *self._partial(path.name)) if file.exists()]
        for file in doomed:
            file.unlink(missing_ok=True)
        if doomed:
            sync_directory(self._directory)
        return len(doomed)

    def leftovers(self) -> tuple[Path, ...]:
        """Return the files of interrupted writes; a fragment that is being written looks the same."""
        return self._partial("*")

    def sealed(self) -> tuple[tuple[str, str], ...]:
        """Return the (aggregator, release) of every complete fragment."""
        names = sorted(path.name.removesuffix(_SUFFIX) for path in self._directory.glob(f"*{_SUFFIX}"))
        pairs = (name.partition(_BETWEEN) for name in names if not name.startswith("."))
        return tuple((aggregator, release) for aggregator, _, release in pairs)

    def _partial(self, name: str) -> tuple[Path, ...]:
        return tuple(sorted(self._directory.glob(f".{name}.*.partial")))
