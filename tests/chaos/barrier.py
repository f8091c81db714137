"""Watches what arrives at the aggregator: when the first byte of each fragment was there, and of which."""

import hashlib
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_PAUSE_SECONDS = 0.003
_MARK = ".fragment"


class Watch:
    """Looks at a release's folder of uploads, again and again, while the `with` block runs.

    Args:
        incoming: The folder of one release's uploads; need not be there.
    """

    def __init__(self, incoming: Path) -> None:
        self._incoming = incoming
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.first: dict[str, float] = {}
        """The earliest Unix time, by owner, at which a file of its fragment was written to."""
        self.digests: dict[str, set[str]] = {}
        """Digests of fragments that were announced or complete, by owner."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            # The folder goes when the release ends, maybe while it is listed.
            with suppress(FileNotFoundError):
                for path in self._incoming.glob(f"*{_MARK}*"):
                    # It may be renamed or removed meanwhile.
                    with suppress(OSError):
                        self._note(path)

    def _note(self, path: Path) -> None:
        owner, _, rest = path.name.partition(_MARK)
        written = path.stat().st_mtime
        self.first[owner] = min(self.first.get(owner, written), written)
        known = self.digests.setdefault(owner, set())
        if rest == ".want":
            known.add(path.read_text())
        elif not rest and not known:
            known.add(hashlib.sha256(path.read_bytes()).hexdigest())
