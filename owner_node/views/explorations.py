"""Explorations of an owner: their records, and the pages in the state folder, kept until they are deleted.

A page holds shares and errors, and no value of a record: distributions before and after, whose scales end at
the smallest and the largest value, are left out.
"""

import json
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from common import __version__
from common.clock import utc_now
from common.errors import UsageError
from common.files import private_directory, write_atomic
from common.progress import Progress
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.engines.pinned import pin
from owner_node.engines.sampling import in_memory
from owner_node.explore.advice import name_of
from owner_node.explore.page import render_page
from owner_node.explore.results import Results
from owner_node.explore.sweep import ExploredTable, ExploreRequest, check_known, check_question, explore
from owner_node.loading import schema_of
from owner_node.risk.trials import Randomness

_NAME = re.compile("[0-9a-f]{16}")
_ABOUT = ("dataset", "created", "mechanisms", "epsilons", "ks", "rank_noises", "repetitions", "known")


class Explorations:
    """The kept explorations of one owner: `NAME.html`, and `NAME.json` with what a list shows of it."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "explorations"

    def all(self) -> list[dict[str, Any]]:
        """Return what a list shows of each, newest first.

        Returns:
            `{name, by, dataset, created, mechanisms, epsilons, ks, rank_noises, repetitions, known, records,
            settings, recommended, reasons}` each; `recommended` is null if no setting is.
        """
        documents = [json.loads(path.read_bytes()) for path in self._folder.glob("*.json")]
        return sorted(documents, key=lambda document: (document["created"], document["name"]), reverse=True)

    def page(self, name: str) -> str:
        """Return a page.

        Raises:
            UsageError: If there is none with this name.
        """
        return self._path(name).read_text(encoding="utf-8")

    def keep(self, results: Results, by: str) -> str:
        """Store the page of an exploration.

        Returns:
            The name of the page.
        """
        name, chosen = secrets.token_hex(8), results.recommendation.cell
        about = {key: results.about[key] for key in _ABOUT} | {
            "name": name,
            "by": by,
            "records": results.about["records"],
            "settings": len(results.cells),
            "recommended": None if chosen is None else name_of(results.cells[chosen]),
            "reasons": results.recommendation.reasons,
        }
        folder = private_directory(self._folder)
        write_atomic(folder / f"{name}.html", render_page(results, compare=False).encode())
        # The list reads these: whatever it names has its page.
        write_atomic(folder / f"{name}.json", json.dumps(about).encode())
        return name

    def delete(self, name: str) -> None:
        """Delete a page.

        Raises:
            UsageError: If there is none with this name.
        """
        path = self._path(name)
        path.with_suffix(".json").unlink(missing_ok=True)
        path.unlink()

    def _path(self, name: str) -> Path:
        path = self._folder / f"{name}.html"
        if not (_NAME.fullmatch(name) and path.is_file()):
            raise UsageError("this exploration is not kept here", "choose one of the list")
        return path


def table_of(
    owner: OwnerConfig, dataset: DatasetConfig, attributes: Sequence[str], progress: Progress | None = None
) -> ExploredTable:
    """Load the records of a data set, or a random sample of what does not fit into memory.

    Args:
        owner: The configuration; its policy says which attributes are explored by default.
        attributes: Names of attributes; empty for all that the policy admits.

    Raises:
        DataError: With everything that is wrong with the data.
    """
    allowed = tuple(attributes) or owner.admitted(dataset)
    data = pin(dataset, allowed, owner.engine.kind, owner.workspace, progress=progress)
    with closing(data.records):
        loaded = data.records.engine
        sample = in_memory(loaded)
    schema = schema_of(dataset, allowed, loaded.n_records, owner.policy.limits)
    sampled = loaded.n_records if sample.n_records < loaded.n_records else None
    return ExploredTable(dataset.name, schema, sample, dataset.taxonomies, sampled, data.counts.left_out)


def explored(
    owner: OwnerConfig,
    dataset: str,
    attributes: Sequence[str],
    question: ExploreRequest,
    by: str,
    progress: Callable[[int, int], None],
    loading: Progress | None = None,
) -> str:
    """Explore a data set and keep the page.

    Args:
        attributes: Names of attributes; empty for all that the policy admits.
        by: Name of the person who asks.

    Returns:
        The name of the page.

    Raises:
        UsageError: As `owner_node.explore.sweep.explore`.
    """
    check_question(question)
    table = table_of(owner, owner.dataset(dataset), attributes, loading)
    check_known(table, question.known)
    about = {"created": utc_now().isoformat(timespec="seconds"), "version": __version__}
    results = explore(table, question, about, Randomness.of_system(), progress)
    return Explorations(owner.owner.state_dir).keep(results, by)
