"""All problems of a source, collected and reported together: columns and counts, and no value by default."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from common.errors import DataError

Finding = tuple[str | None, str, str, str]
"""Column (None: the whole source), problem, counted unit, hint."""


_MOST_EXAMPLES = 5


class Findings:
    """Collects problems batch by batch and adds up the counts of equal ones.

    Args:
        examples: Whether errors name wrong labels, columns and files. Only for a person at this owner's own
            terminal who asks for it: such an error is never logged, stored or sent.
    """

    def __init__(self, *, examples: bool = False) -> None:
        self._counts: dict[Finding, int] = {}
        self._examples: dict[Finding, dict[str, None]] | None = {} if examples else None

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(
        self,
        column: str | None,
        problem: str,
        count: int,
        hint: str,
        counted: str = "records",
        examples: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Add a problem, if its count is not 0.

        Args:
            problem: Description of the problem, without any value.
            count: Number of affected records, or of the unit in `counted`; 0 adds nothing.
            counted: Unit of the count; empty for a problem without a count.
            examples: Returns what is wrong, or what may be meant; called only where examples are named.
        """
        if count:
            key = (column, problem, counted, hint)
            self._counts[key] = self._counts.get(key, 0) + count
            if self._examples is not None:
                kept = self._examples.setdefault(key, {})
                for text in islice(examples(), _MOST_EXAMPLES - len(kept)):
                    kept[text] = None

    def fail(self, problem: str, hint: str) -> None:
        """Add a problem of the whole source that has no count."""
        self.add(None, problem, 1, hint, counted="")

    def check(self, dataset: str, source: str) -> None:
        """Raise if anything was found."""
        if self._counts:
            raise self.error(dataset, source)

    def error(self, dataset: str, source: str) -> DataError:
        """Return the error that reports every problem.

        Args:
            source: The file, or a description of another source without secrets.
        """
        lines = []
        for finding, count in self._counts.items():
            column, problem, counted, _ = finding
            place = "" if column is None else f"column {column!r}: "
            noun = counted.removesuffix("s") if count == 1 else counted
            line = f"{place}{problem}" + (f" ({count:,} {noun})" if counted else "")
            lines.append(": ".join(filter(None, [line, ", ".join(self._examples_of(finding))])))
        problems: list[dict[str, Any]] = [
            {"column": finding[0], "problem": finding[1], "count": count if finding[2] else None}
            | ({"examples": examples} if (examples := self._examples_of(finding)) else {})
            for finding, count in self._counts.items()
        ]
        message = "\n  ".join([f"data set {dataset!r} cannot be used: {source}", *lines])
        return DataError(
            message,
            "\n  ".join(dict.fromkeys(hint for *_, hint in self._counts)),
            {"dataset": dataset, "source": source, "problems": problems},
        )

    def _examples_of(self, finding: Finding) -> list[str]:
        return list((self._examples or {}).get(finding, ()))
