"""Columns that another one determines, and values that never occur together, in the records of an owner.

They are candidates for `follows` and for `structural_zeros`.

What is found depends on the data and is for their owner. Whether it is public knowledge, and holds for
everybody, a person decides.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from common.arrays import BoolArray, Int64Array

MOST_VALUES = 50
"""A column with more different values is not compared."""
MOST_COLUMNS = 100
"""Columns that are compared, each with each."""
_RECORDS_OF_VALUE = 10
"""With fewer records for each value, a column determines others by chance."""
_EXPECTED = 20
"""Number of records that independent columns would have of values, at least, whose absence is reported."""


class Dependencies:
    """Values of pairs of columns that occur together, batch by batch."""

    def __init__(self, names: Iterable[str]) -> None:
        self._compared = list(names)[:MOST_COLUMNS]
        self._counts = {name: np.zeros(MOST_VALUES, dtype=np.int64) for name in self._compared}
        """Number of records by code; without columns that have too many values."""
        self._together = {
            pair: np.zeros((MOST_VALUES, MOST_VALUES), dtype=np.bool_)
            for pair in combinations(self._compared, 2)
        }
        """By pair of columns: true where two codes occur together. A pair in which all values do is
        dropped."""

    @property
    def names(self) -> Collection[str]:
        """Names of the columns that have few values so far."""
        return self._counts.keys()

    def update(self, codes: Mapping[str, Int64Array]) -> None:
        """Compare the next records.

        Args:
            codes: By column: one code for each record, `(n_records,)`, from 0 to `MOST_VALUES` - 1 and the
                same in all batches. A column that is left out has too many values.
        """
        self._counts = {
            name: counts + np.bincount(codes[name], minlength=MOST_VALUES)
            for name, counts in self._counts.items()
            if name in codes
        }
        for (first, second), table in list(self._together.items()):
            if first in codes and second in codes:
                table[codes[first], codes[second]] = True
                n_cells = np.count_nonzero(self._counts[first]) * np.count_nonzero(self._counts[second])
                # A column with one value so far may be sorted.
                if min(table.any(axis=0).sum(), table.any(axis=1).sum()) < 2 or table.sum() < n_cells:
                    continue
            del self._together[first, second]

    def found(self) -> dict[str, list[str]]:
        """Return the columns that determine a column, by its name; of two that determine each other, one."""
        determining: dict[str, list[str]] = {}
        for first in self._compared:
            for second in self._compared:
                table = self._table(first, second)
                if table is None or (table.sum(axis=1) > 1).any():
                    continue
                n_first, n_second = (np.count_nonzero(table.any(axis=axis)) for axis in (1, 0))
                if n_second < 2 or n_first * _RECORDS_OF_VALUE > self._counts[first].sum():
                    continue
                if second not in determining.get(first, ()):
                    determining.setdefault(second, []).append(first)
        return determining

    def values(self, first: str, second: str) -> dict[int, int]:
        """Return the code of a determined column for each code of the first, which determines it."""
        table = self._table(first, second)
        return (
            {} if table is None else {code: int(row.argmax()) for code, row in enumerate(table) if row.any()}
        )

    def never(self, values: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """Return the values of pairs of columns that are frequent and never occur together.

        Args:
            values: Values by code, of the columns to look at; several codes may have the same value. Pairs in
                which one column determines the other are left out.
        """
        determining = self.found()
        different = {name: list(dict.fromkeys(of_codes)) for name, of_codes in values.items()}
        has_value = {
            name: np.array(
                [[value == each for each in different[name]] for value in of_codes], dtype=np.int64
            )
            for name, of_codes in values.items()
        }
        absent: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for (first, second), table in self._together.items():
            if not {first, second} <= values.keys() or first in determining.get(second, ()):
                continue
            if second in determining.get(first, ()):
                continue
            rows, columns = has_value[first], has_value[second]
            n_first, n_second = (
                self._counts[first][: len(rows)] @ rows,
                self._counts[second][: len(columns)] @ columns,
            )
            expected = np.outer(n_first, n_second) / max(n_first.sum(), 1)
            together = rows.T @ table[: len(rows), : len(columns)] @ columns > 0
            cells = np.argwhere(~together & (expected >= _EXPECTED)).tolist()
            if cells:
                absent[first, second] = [
                    (different[first][row], different[second][column]) for row, column in cells
                ]
        return absent

    def _table(self, first: str, second: str) -> BoolArray | None:
        table = self._together.get((first, second))
        if table is None and (second, first) in self._together:
            return self._together[second, first].T
        return table


def determined(columns: Mapping[str, Int64Array]) -> dict[str, list[str]]:
    """Return the columns that determine a column, by its name, in records that are all there.

    Args:
        columns: Values by column, `(n_records,)` each.
    """
    codes = {}
    for name, values in columns.items():
        different, of = np.unique(values, return_inverse=True)
        if different.size <= MOST_VALUES:
            codes[name] = of.astype(np.int64)
    dependencies = Dependencies(codes)
    dependencies.update(codes)
    return dependencies.found()
