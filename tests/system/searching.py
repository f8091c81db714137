"""Search the memory of a process, and everything below a folder, for bytes."""

import base64
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path

_PIECE = 1 << 20
_NOTHING = bytes(_PIECE)


def forms(secret: bytes) -> tuple[bytes, ...]:
    """Return how a secret of raw bytes could be written down: as it is, hexadecimal, base64."""
    text = base64.b64encode(secret)
    return secret, secret.hex().encode(), secret.hex().upper().encode(), text[:-4]


def in_memory(pid: int, needles: Iterable[bytes]) -> set[bytes]:
    """Return which needles are in the readable memory of a process of this user."""
    wanted = set(needles)
    found: set[bytes] = set()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for first, last in _regions(pid):
            for piece in _pieces(memory, first, last, max(map(len, wanted)) - 1):
                # Much of it was reserved and never written to.
                if piece.endswith(_NOTHING) and not any(piece[: -len(_NOTHING)]):
                    continue
                found |= {needle for needle in wanted - found if needle in piece}
    return found


def _regions(pid: int) -> list[tuple[int, int]]:
    regions = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        place, modes, *rest = line.split(maxsplit=5)
        name = rest[-1] if rest else ""
        # The code of libraries, which nothing writes to, and what the kernel lends.
        code = ".so" in name and "w" not in modes
        if modes.startswith("r") and not code and not name.startswith("[v"):
            first, last = (int(end, 16) for end in place.split("-"))
            regions.append((first, last))
    return regions


def _pieces(memory: FileIO, first: int, last: int, overlap: int) -> Iterator[bytes]:
    """Read a region, every piece together with the end of the one before."""
    before = b""
    for place in range(first, last, _PIECE):
        try:
            memory.seek(place)
            piece = memory.read(min(_PIECE, last - place))
        except OSError:  # a region that went away meanwhile, or a file that is shorter than its mapping
            return
        yield before + piece
        before = piece[-overlap:]


def on_disk(folder: Path, needles: Iterable[bytes]) -> dict[bytes, set[Path]]:
    """Return which needles are in the files below a folder, with the files; names of files count as well."""
    wanted = set(needles)
    found: dict[bytes, set[Path]] = {}
    for path in (each for each in folder.rglob("*") if each.is_file()):
        content = str(path).encode() + b"\0" + path.read_bytes()
        for needle in (each for each in wanted if each in content):
            found.setdefault(needle, set()).add(path)
    return found
