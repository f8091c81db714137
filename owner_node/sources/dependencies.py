"""Columns that another one determines, exactly, in the records of an owner: candidates for `follows`.

What is found depends on the data and is for their owner. Whether it is public knowledge, and holds for
everybody, a person decides.
"""

from collections.abc import Iterable, Mapping
from itertools import permutations

import numpy as np

from common.arrays import Int64Array

MOST_VALUES = 50
"""A column with more different values is not compared."""
MOST_COLUMNS = 100
"""Columns that are compared, each with each."""
_RECORDS_OF_VALUE = 10
"""With fewer records for each value, a column determines others by chance."""
_UNSEEN = -1


class Dependencies:
    """Pairs of columns in which each value of the first has one value of the second, batch by batch."""

    def __init__(self, names: Iterable[str]) -> None:
        compared = list(names)[:MOST_COLUMNS]
        self._n_records = 0
        self._values = {
            pair: np.full(MOST_VALUES, _UNSEEN, dtype=np.int64) for pair in permutations(compared, 2)
        }
        """By determining and determined column: the code of the second for each code of the first."""

    @property
    def names(self) -> frozenset[str]:
        """Names of the columns that may still determine others, or be determined."""
        return frozenset(name for pair in self._values for name in pair)

    def update(self, codes: Mapping[str, Int64Array]) -> None:
        """Compare the next records.

        Args:
            codes: By column: one code for each record, `(n_records,)`, from 0 to `MOST_VALUES` - 1 and the
                same in all batches. A column that is left out has too many values.
        """
        self._n_records += next((each.size for each in codes.values()), 0)
        for (first, second), known in list(self._values.items()):
            if first in codes and second in codes:
                given, values = codes[first], codes[second]
                unseen = known[given] == _UNSEEN
                known[given[unseen]] = values[unseen]
                if (known[given] == values).all():
                    continue
            del self._values[first, second]

    def found(self) -> dict[str, list[str]]:
        """Return the columns that determine a column, by its name; of two that determine each other, one."""
        determining: dict[str, list[str]] = {}
        for (first, second), known in self._values.items():
            seen = known[known != _UNSEEN]
            constant = np.unique(seen).size < 2
            if constant or seen.size * _RECORDS_OF_VALUE > self._n_records:
                continue
            if second not in determining.get(first, ()):
                determining.setdefault(second, []).append(first)
        return determining


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
