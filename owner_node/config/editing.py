"""Changes of one setting in `owner.toml` that leave everything else in the file as it is."""

import re
import tomllib
from decimal import Decimal
from pathlib import Path

from common.errors import ConfigurationError
from common.files import write_atomic

_HEADER = re.compile(r"\s*\[")
_DATASET = re.compile(r"\s*\[\[\s*dataset\s*\]\]")
_SETTING = re.compile(r"\s*rank_noise\s*=")


def set_rank_noise(path: Path, dataset: str, rank_noise: Decimal) -> None:
    """Write the rank noise of a data set into the file: in place of the one that is there, or as a new line.

    Raises:
        ConfigurationError: If the file cannot be changed so; it is left as it is.
    """
    line = f'rank_noise = "{rank_noise:f}"'
    by_hand = f"write it yourself, below [[dataset]] of {dataset!r}: {line}"
    try:
        text = path.read_text(encoding="utf-8")
        changed = _with_line(text, dataset, line)
        expected = tomllib.loads(text)
        for table in expected["dataset"]:
            if table["name"] == dataset:
                table["rank_noise"] = f"{rank_noise:f}"
        # Lines that look like tables may be part of a text: then the result differs from what was meant.
        if tomllib.loads(changed) != expected:
            raise ValueError
        write_atomic(path, changed.encode(), path.stat().st_mode & 0o777)
    except (OSError, ValueError, KeyError, IndexError):
        raise ConfigurationError(f"{path} could not be changed", hint=by_hand) from None


def _with_line(text: str, dataset: str, line: str) -> str:
    names = [table["name"] for table in tomllib.loads(text)["dataset"]]
    lines = text.splitlines(keepends=True)
    starts = [number for number, each in enumerate(lines) if _DATASET.match(each)]
    start = starts[names.index(dataset)]
    following = (number for number in range(start + 1, len(lines)) if _HEADER.match(lines[number]))
    end = next(following, len(lines))
    for number in range(start + 1, end):
        if _SETTING.match(lines[number]):
            return "".join([*lines[:number], f"{line}\n", *lines[number + 1 :]])
    return "".join([*lines[: start + 1], f"{line}\n", *lines[start + 1 :]])
