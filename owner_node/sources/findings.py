"""All problems of a source, collected and reported together: columns and counts, never a value."""

from collections.abc import Iterable
from typing import Any

from common.errors import DataError

Finding = tuple[str | None, str, str, str]
"""Column (None: the whole source), problem, counted unit, hint."""


class Findings:
    """Collects problems batch by batch and adds up the counts of equal ones."""

    def __init__(self) -> None:
        self._counts: dict[Finding, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, column: str | None, problem: str, count: int, hint: str, counted: str = "records") -> None:
        """Add a problem, if its count is not 0.

        Args:
            column: Name of the column, or None for a problem of the whole source.
            problem: Description of the problem, without any value.
            count: Number of affected records, or of the unit in `counted`; 0 adds nothing.
            hint: What to do about it.
            counted: Unit of the count; empty for a problem without a count.
        """
        if count:
            key = (column, problem, counted, hint)
            self._counts[key] = self._counts.get(key, 0) + count

    def check(self, dataset: str, source: str) -> None:
        """Raise if anything was found.

        Raises:
            DataError: With every problem.
        """
        if self._counts:
            raise self.error(dataset, source)

    def error(self, dataset: str, source: str) -> DataError:
        """Return the error that reports every problem.

        Args:
            dataset: Name of the data set.
            source: The file, or a description of another source without secrets.
        """
        lines = [_line(*finding[:3], count) for finding, count in self._counts.items()]
        message = "\n  ".join([f"data set {dataset!r} cannot be used: {source}", *lines])
        return DataError(
            message,
            "\n  ".join(_once(hint for *_, hint in self._counts)),
            {"dataset": dataset, "source": source, "problems": self._documents()},
        )

    def _documents(self) -> list[dict[str, Any]]:
        return [
            {"column": column, "problem": problem, "count": count if counted else None}
            for (column, problem, counted, _), count in self._counts.items()
        ]


def _line(column: str | None, problem: str, counted: str, count: int) -> str:
    place = "" if column is None else f"column {column!r}: "
    noun = counted.removesuffix("s") if count == 1 else counted
    return f"{place}{problem}" + (f" ({count:,} {noun})" if counted else "")


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
