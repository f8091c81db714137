"""Persons who opted out: their records are left out as if the source did not have them."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import BoolArray
from common.canonical import document_digest
from common.progress import Progress
from owner_node.config import DatasetConfig
from owner_node.loading.persons import person_keys
from owner_node.loading.reading import decodable, report_unless_once
from owner_node.sources import texts
from owner_node.sources.file_source import FileSource
from owner_node.sources.findings import Findings
from owner_node.sources.options import SourceOptions
from owner_node.sources.person_texts import are_numerals
from owner_node.sources.source import Reader


class OptOutReader(Reader):
    """A source without the records of persons whose identifiers are in a file.

    Args:
        dataset: The data set; it names the file.
        reader: The opened source, which has the columns that tell persons apart.

    Raises:
        DataError: If the file cannot be used, so that nobody stays in by mistake.
    """

    def __init__(self, dataset: DatasetConfig, reader: Reader) -> None:
        self._dataset, self._reader = dataset, reader
        self.names, self.ordered, self.is_text = reader.names, reader.ordered, reader.is_text
        self.descriptions, self.labels = reader.descriptions, reader.labels
        self._keys, self._numerals = _listed(dataset)
        self.listed = len(self._keys)
        self.opt_out = document_digest({"identifiers": self._keys.to_pylist()})
        self._found = np.zeros(len(self._keys), dtype=np.bool_)

    def batches(self, columns: Sequence[str], findings: Findings) -> Iterator[list[Any]]:
        """Read the records of all others (see `Reader`)."""
        wanted = list(dict.fromkeys([*columns, *self._dataset.told_apart_by]))
        for arrays in self._reader.batches(wanted, findings):
            came = decodable(dict(zip(wanted, arrays, strict=True)), findings)
            if all(texts.is_readable(came[name].type) for name in self._dataset.told_apart_by):
                # Whatever is wrong with identifiers is reported where they are read.
                _, keys = person_keys(self._dataset, came, Findings())
                places = pc.index_in(keys, value_set=self._keys)
                self._found[places.drop_null().to_numpy()] = True
                others = pc.or_(places.is_null(), keys.is_null())
                came = {name: texts.filter_values(array, others) for name, array in came.items()}
            yield [came[name] for name in columns]
        self.left_out = int(self._found.sum())
        listed = int(self._numerals.sum())
        if listed and not (self._numerals & self._found).any():
            # Spreadsheets write 17.0 for 17, who would stay in.
            problem = "identifiers of opt_out such as 17.0, none of which is in the source"
            hint = "write them in the file of opt_out as the source does, such as 17"
            findings.add(None, problem, listed, hint, "identifiers")

    def expected(self) -> int | None:
        """Return the number of the source's records (see `Reader`)."""
        return self._reader.expected()

    def close(self) -> None:
        """Close the source."""
        self._reader.close()


def _listed(dataset: DatasetConfig) -> tuple[Any, BoolArray]:
    """Return the identifiers of the file in normal form, sorted, each once; and which are written as 17.0."""
    path, findings = str(dataset.opt_out), Findings()
    reader = FileSource(dataset.name, path, SourceOptions(csv=dataset.csv)).open(findings, Progress())
    keys: list[Any] = []
    numerals: list[Any] = []
    if reader is not None:
        with closing(reader):
            names = dataset.told_apart_by
            once = [report_unless_once(name, reader.names, findings) for name in names]
            if all(once):
                for arrays in reader.batches(names, findings):
                    came = decodable(dict(zip(names, arrays, strict=True)), findings)
                    written, key = person_keys(dataset, came, findings)
                    for name, array in written.items():
                        hint = "complete the file of opt_out: every line names a person"
                        findings.add(name, "missing identifier", array.null_count, hint)
                    keys.append(key.drop_null())
                    # The normal form of 17.0 need not show how it was written.
                    numerals += [key.filter(are_numerals(array)).drop_null() for array in written.values()]
    findings.check(dataset.name, path)
    distinct = pc.unique(pa.chunked_array(keys, pa.large_string()))
    listed = distinct.take(pc.sort_indices(distinct))
    found = pc.is_in(listed, value_set=pa.chunked_array(numerals, pa.large_string()).combine_chunks())
    return listed, found.to_numpy(zero_copy_only=False)
