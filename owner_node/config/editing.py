"""Changes of `owner.toml` by commands, which leave everything else in the file as it is."""

import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from common.errors import ConfigurationError
from common.files import write_atomic
from owner_node.config.shared_schema import SETTINGS, attribute_texts, settings_text, with_schema

_HEADER = re.compile(r"\s*\[")
_DATASET = re.compile(r"\s*\[\[\s*dataset\s*\]\]")
_BELOW = re.compile(r"\s*\[+\s*dataset\s*\.\s*(?P<name>[A-Za-z0-9_-]+|\"[^\"]*\")")
_SETTING = re.compile(r"\s*rank_noise\s*=")
_SHARED = re.compile(rf"\s*({'|'.join(SETTINGS[1:])})\s*[.=]")


def set_rank_noise(path: Path, dataset: str, rank_noise: Decimal) -> None:
    """Write the rank noise of a data set into the file: in place of the one that is there, or as a new line.

    Raises:
        ConfigurationError: If the file cannot be changed so; it is left as it is.
    """
    line = f'rank_noise = "{rank_noise:f}"'
    by_hand = f"write it yourself, below [[dataset]] of {dataset!r}: {line}"
    value = {"rank_noise": f"{rank_noise:f}"}
    _change(path, dataset, lambda text: _with_line(text, dataset, line), lambda table: table | value, by_hand)


def set_schema(path: Path, schema: Mapping[str, Any]) -> None:
    """Write a schema into the data set of its name: settings and attributes in the place of those there.

    Raises:
        ConfigurationError: If the file cannot be changed so; it is left as it is.
    """
    name = schema["name"]
    _change(
        path,
        name,
        lambda text: _with_attributes(text, schema),
        lambda table: with_schema(table, schema),
        f"write it yourself: settings and attributes of the schema below [[dataset]] of {name!r}",
    )


def _change(
    path: Path,
    dataset: str,
    change: Callable[[str], str],
    meant: Callable[[dict[str, Any]], dict[str, Any]],
    by_hand: str,
) -> None:
    """Change the text of a file, if that does to the table of a data set what was meant, and nothing else."""
    try:
        text = path.read_text(encoding="utf-8")
        changed = change(text)
        expected = tomllib.loads(text, parse_float=Decimal)
        expected["dataset"] = [
            meant(table) if table["name"] == dataset else table for table in expected["dataset"]
        ]
        # Lines that look like tables may be part of a text: then the result differs from what was meant.
        if tomllib.loads(changed, parse_float=Decimal) != expected:
            raise ValueError
        write_atomic(path, changed.encode(), path.stat().st_mode & 0o777)
    except (OSError, ValueError, KeyError, IndexError):
        raise ConfigurationError(f"{path} could not be changed", hint=by_hand) from None


def _start(text: str, lines: list[str], dataset: str) -> int:
    """Return the number of the line with the heading of a data set."""
    names = [table["name"] for table in tomllib.loads(text)["dataset"]]
    return [number for number, line in enumerate(lines) if _DATASET.match(line)][names.index(dataset)]


def _with_line(text: str, dataset: str, line: str) -> str:
    lines = text.splitlines(keepends=True)
    start = _start(text, lines, dataset)
    following = (number for number in range(start + 1, len(lines)) if _HEADER.match(lines[number]))
    end = next(following, len(lines))
    for number in range(start + 1, end):
        if _SETTING.match(lines[number]):
            return "".join([*lines[:number], f"{line}\n", *lines[number + 1 :]])
    return "".join([*lines[: start + 1], f"{line}\n", *lines[start + 1 :]])


def _with_attributes(text: str, schema: Mapping[str, Any]) -> str:
    lines = text.splitlines(keepends=True)
    start = _start(text, lines, schema["name"])
    settings, tables, number = [lines[start]], [], start + 1
    while number < len(lines) and not _HEADER.match(lines[number]):
        size = _setting_lines(lines[number:]) if _SHARED.match(lines[number]) else 0
        settings += [] if size else [lines[number]]
        number += size or 1
    while number < len(lines) and (below := _BELOW.match(lines[number])):
        end = next((n for n in range(number + 1, len(lines)) if _HEADER.match(lines[n])), len(lines))
        if below["name"].strip('"') not in ("attributes", *SETTINGS):
            tables += lines[number:end]
        number = end
    own = {key: value for key, value in schema.items() if key != "name"}
    parts = ["".join(settings).rstrip(), settings_text(own), "".join(tables)]
    parts += attribute_texts(schema, "dataset.attributes")
    return "\n".join(["".join(lines[:start]) + parts[0], *filter(None, parts[1:])]) + (
        "\n" + "".join(lines[number:]) if lines[number:] else ""
    )


def _setting_lines(lines: list[str]) -> int:
    """Return how many lines the setting has that begins with the first."""
    for size in range(1, len(lines) + 1):
        with suppress(tomllib.TOMLDecodeError):
            tomllib.loads("".join(lines[:size]))
            return size
    raise ValueError("a setting without an end")
