"""Texts of the cells of `counts.parquet`: no two of one table read alike, whatever labels there are."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.analysis.noisy_counts import NoisyCounts
from common.errors import IntegrityError
from common.model.schema import Attribute, AttributeType
from common.release.counts import bin_texts, counts_table, measured_in
from common.synthesis.binning import Binning
from common.synthesis.histogram import Histogram
from common.synthesis.schedule import Design, RoundSums, run_rounds
from owner_node.synthesis.counts import exact_answer

LABELS = ("a", "b", "a | b", "a || b", "a |", "| b", "|", "||", 'eye, "ear"', "(missing)")
WARD = Attribute("ward", AttributeType.CATEGORY, 0, len(LABELS) - 1, categories=LABELS)
ILL = Attribute("ill", AttributeType.BOOLEAN, 0, 1)
N_RECORDS = 20_000


def measured(*few: str) -> tuple[Design, RoundSums]:
    """Return exact counts of records, of which hardly any have some labels: these share a bin."""
    often = [code for code, label in enumerate(LABELS) if label not in few]
    draw = np.random.default_rng(1)
    ward = np.array(often)[draw.integers(0, len(often), N_RECORDS)]
    columns = [ward, draw.integers(0, 2, N_RECORDS)]
    design = Design((WARD, ILL), N_RECORDS, Decimal(1))
    return design, run_rounds(design, lambda asked: exact_answer(asked, columns))


@pytest.mark.parametrize("few", list(pairwise(LABELS)))
def test_no_two_cells_read_alike(tmp_path, few):
    """One of several labels reads like no label that has its separator; what was written is read."""
    design, asked = measured(*few)
    table = counts_table(asked)
    frame = table.to_pandas()
    assert not frame.duplicated(["table", "first_cell", "second_cell"]).any()
    # A cell means the same in all tables: the text of a label, or that of a bin.
    alone = set(frame.loc[frame["kind"] == "one-way", "first_cell"])
    binned = bin_texts(WARD, asked.binnings[0])
    assert len(set(binned)) == len(binned) == len(LABELS) - 1
    assert len(set(binned) - alone) == 1
    pq.write_table(table, tmp_path / "counts.parquet")
    again = measured_in(design, pq.read_table(tmp_path / "counts.parquet"))
    assert again.seed == asked.seed
    assert NoisyCounts(again).table("ward", "ill").index.is_unique


def test_cells_with_other_labels_are_found():
    """Cells of two bins that change places are another table."""
    design, asked = measured("a", "b")
    table = counts_table(asked)
    place = table.schema.get_field_index("first_cell")
    texts = table.column("first_cell").to_pylist()
    swapped = [{"a | b": "a || b", "a || b": "a | b"}.get(text, text) for text in texts]
    assert swapped != texts
    changed = table.set_column(place, table.schema.field(place), pa.array(swapped).dictionary_encode())
    with pytest.raises(IntegrityError, match="has another first_cell"):
        measured_in(design, changed)


def test_every_partition_of_labels_has_texts_of_its_own():
    """Strokes of labels are doubled, so a single one is between labels; other labels are as they are."""
    edges = np.arange(len(LABELS) + 1)
    zeros = np.zeros(len(LABELS))
    parts = Histogram(edges, zeros.astype(np.int64), zeros, zeros)
    read: dict[str, tuple[str, ...]] = {}
    for code in range(2 ** len(LABELS)):
        inside = (code >> np.arange(len(LABELS))) & 1
        if 0 < inside.sum() < len(LABELS):
            text = bin_texts(WARD, Binning(parts, 1 - inside, 2))[0]
            held = tuple(label for label, of in zip(LABELS, inside.tolist(), strict=True) if of)
            assert read.setdefault(text, held) == held
    assert read["a | b"] == ("a", "b")
    assert read["a || b"] == ("a | b",)
    assert read['eye, "ear"'] == ('eye, "ear"',)
