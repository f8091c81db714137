"""Simulated records for trials, made from the declared domains alone: nothing of the source is read."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from common.release.values import from_units
from owner_node.config import DatasetConfig
from owner_node.sources.findings import Findings
from owner_node.sources.source import Reader

RECORDS = 10_000
"""Records of every owner in a trial, whatever number it really has."""
_FIRST_DATE = date(1900, 1, 1)


class SimulatedReader(Reader):
    """Uniform values of the declared domains, and people who are the same for owners at the same place.

    The values are the same each time, so that a trial resumes after a restart like a release.

    Args:
        dataset: The data set; `simulated` is the owner's place in its group of owners.
    """

    def __init__(self, dataset: DatasetConfig) -> None:
        self._dataset = dataset
        self._attributes = {attribute.name: attribute for attribute in dataset.attributes}
        self.names: Sequence[str] = tuple(dict.fromkeys((*dataset.person_columns, *self._attributes)))

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Make the columns (see `Reader`)."""
        yield [self._column(name) for name in columns]

    def _column(self, name: str) -> Any:
        place = self._dataset.simulated or 0
        if name not in self._attributes:
            return self._people(name, place * RECORDS)
        attribute = self._attributes[name]
        draw = np.random.default_rng([crc32(name.encode()), place])
        return from_units(
            attribute, draw.integers(attribute.lower, attribute.highest, RECORDS, np.int64, endpoint=True)
        )

    def _people(self, name: str, first: int) -> Any:
        """Return identifiers that every normal form keeps apart: dates where it takes dates, else numbers."""
        numbers = range(first, first + RECORDS)
        forms = dict(zip(self._dataset.identifier, self._dataset.normal_forms, strict=True))
        form = forms.get(name)
        if form is not None and "date" in form.steps:
            days = (_FIRST_DATE + timedelta(days=number) for number in numbers)
            return pa.array([day.strftime(form.date_format) for day in days])
        return pa.array([str(10**9 + number) for number in numbers])
