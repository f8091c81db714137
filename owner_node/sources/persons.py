"""Count persons with more records than the data set allows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from common.errors import DataError
from common.words.numbers import count_text
from owner_node.config import DatasetConfig
from owner_node.sources.findings import Findings
from owner_node.values.normal_forms import normalise


def count_repeated(identifiers: Sequence[Any], limit: int) -> tuple[int, int, int]:
    """Count persons with more than `limit` records, and their records.

    Args:
        identifiers: One Arrow string array per identifier column, normalised, no nulls; shape (n_records,).

    Returns:
        Number of persons, number of their records, and most records of one of them.
    """
    persons = np.zeros(len(identifiers[0]), dtype=np.int64)
    for column in identifiers:
        codes = column.dictionary_encode().indices.to_numpy().astype(np.int64)
        # Renumbered after every column, so that the product never exceeds n_records squared.
        pairs = persons * (int(codes.max(initial=0)) + 1) + codes
        persons = np.unique(pairs, return_inverse=True)[1]
    sizes = np.bincount(persons)
    above = sizes[sizes > limit]
    return len(above), int(above.sum()), int(above.max(initial=0))


def find_repeated(dataset: DatasetConfig, identifiers: Sequence[Any], findings: Findings) -> None:
    """Report persons with too many records, by their normalised identifiers."""
    try:
        normal = normalise(identifiers, dataset.normal_forms)
    except DataError:
        return  # reported already, batch by batch
    report_repeated(dataset, *count_repeated(normal, dataset.max_records_per_person), findings)


def report_repeated(
    dataset: DatasetConfig, persons: int, records: int, most: int, findings: Findings
) -> None:
    """Report persons who have too many records."""
    hint = (
        f"leave {count_text(dataset.max_records_per_person, 'record')} of each person in the source, or name "
        "one more column in identifier if this does not distinguish persons, or declare "
        f"max_records_per_person = {most}, with which noise and the smallest k grow; in vertical releases it "
        "has to be 1"
    )
    limit = f"more than {count_text(dataset.max_records_per_person, 'record')}"
    problem = f"{count_text(persons, 'person')} {'has' if persons == 1 else 'have'} {limit}"
    findings.add(", ".join(dataset.identifier), problem, records, hint)
