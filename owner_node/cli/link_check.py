"""`owner-node link-check`: try match keys on local files before any release."""

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.cli import console
from common.errors import UsageError
from common.words.linking import QUALITY_HEADINGS, quality_rows, quality_text
from owner_node import config
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.linking.match_check import HEADINGS, PassCheck, check_passes, row, tokens_to_try
from owner_node.loading import load

if TYPE_CHECKING:
    from common.matching.lists import PassList
    from common.model.match_quality import MatchQuality

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="A [B]",
        help="One or two CSV or Parquet files with the columns of the match keys.",
        show_default=False,
    ),
]
DatasetOption = Annotated[
    str | None,
    typer.Option("--dataset", help="The data set whose match keys are tried.", show_default=False),
]
_MOST_FILES = 2


def link_check(
    files: FilesArgument,
    dataset: DatasetOption = None,
    config_file: console.ConfigOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Link two local files by match keys, or show whom the keys distinguish in one. Sends and spends nothing.

    The files are read with the settings of a data set of owner.toml; only the columns of its match keys are
    needed.
    """
    if len(files) > _MOST_FILES:
        raise UsageError("link-check takes one or two files", "name one file, or two to link them")
    chosen = _matched_dataset(config.load(config_file), dataset)
    key = secrets.token_bytes(32)
    lists, checks, sizes = [], [], []
    for path in files:
        own, check, n_records = _try_passes(chosen, path, key)
        lists.append(own)
        checks.append(check)
        sizes.append(n_records)
    result: dict[str, Any] = {
        "dataset": chosen.name,
        "files": [
            {"file": str(path), "records": n, "passes": [pass_check.to_document() for pass_check in check]}
            for path, n, check in zip(files, sizes, checks, strict=True)
        ],
    }
    quality = None
    if len(files) > 1:
        quality = _link(chosen, lists, sizes)
        result["links"] = quality.to_document()
    if as_json:
        console.print_json(result)
        return
    for of_file in result["files"]:
        title = f"{of_file['file']}: {of_file['records']:,} records"
        console.table(title, HEADINGS, list(map(row, of_file["passes"])))
        console.print_line()
    if quality is None:
        console.print_line("Pairs alike are different persons, or one person entered twice.")
        return
    console.table(f"{files[0]} with {files[1]}", QUALITY_HEADINGS, quality_rows(quality))
    console.print_line(quality_text(quality))
    for path, n_records in zip(files, sizes, strict=True):
        console.print_line(f"{path}: {quality.linked:,} of {n_records:,} records are linked")


def _matched_dataset(owner: OwnerConfig, name: str | None) -> DatasetConfig:
    if name is None and len(owner.datasets) != 1:
        raise UsageError("it is not clear which data set is meant", "name it: --dataset NAME")
    chosen = owner.datasets[0] if name is None else owner.dataset(name)
    if not chosen.match:
        raise UsageError(
            f"data set {chosen.name!r} has no match keys",
            "declare its passes as [[dataset.match]]; owner-node init suggests some",
        )
    return chosen


def _try_passes(
    dataset: DatasetConfig, path: Path, key: bytes
) -> tuple[list["PassList"], tuple[PassCheck, ...], int]:
    """Return the token lists of a file, whom its passes distinguish, and its number of records."""
    loaded = load(replace(dataset, source=str(path.absolute())), [], examples=True)
    passes = list(tokens_to_try(dataset, loaded.identifiers, loaded.n_records, key))
    return (
        [tokens.sent for tokens in passes],
        check_passes(dataset, passes, loaded.n_records),
        loaded.n_records,
    )


def _link(dataset: DatasetConfig, lists: list[list["PassList"]], sizes: list[int]) -> "MatchQuality":
    from common.matching.linking import link_passes
    from common.matching.quality import match_quality

    return match_quality([match.name for match in dataset.match], lists, link_passes(lists, sizes))
