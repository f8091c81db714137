"""The noisy counts of a synthetic release as a table, and records that have to follow from them.

The table (`counts.parquet`) has every number that the owners' noisy answers added up to, in the order of the
questions. Its columns:

| column | meaning |
|---|---|
| `round` | number of the round, from 1 |
| `table` | number of the table, from 1 |
| `kind` | `one-way` or `two-way` |
| `first`, `second` | names of the attributes; `second` is null in one-way tables |
| `first_cell`, `second_cell` | the values of the cell: a value, the first and last of a range, or labels |
| `count` | the noisy number of records in the cell |
| `standard_deviation` | of the noise of `count` |

Labels of one cell are joined by a stroke between blanks; every stroke of a label is doubled.

Everything but `count` follows from public numbers (`common.synthesis.schedule`). So a table that was read is
made again from its own counts and has to be the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.check import Check, unchecked
from common.errors import IntegrityError
from common.model.plan import Plan
from common.model.schema import Attribute
from common.model.together import Joint
from common.planning.synthetic import design_of
from common.planning.synthetic_noise import MEAN_DEVIATION
from common.synthesis.binning import Binning
from common.synthesis.keystream import Keystream
from common.synthesis.plausible import fault_of_sums
from common.synthesis.records import SyntheticRelease, excluded, noisy_tables, overlaps, synthesise
from common.synthesis.sample import start_bins
from common.synthesis.schedule import (
    Design,
    OneWay,
    Question,
    RoundSums,
    attributes_of,
    n_numbers,
    next_round,
    seed_of,
    split,
)
from common.synthesis.sums import LARGEST_SUM

COUNTS_FILE = "counts.parquet"
ONE_WAY, TWO_WAY = "one-way", "two-way"
_TEXT = pa.dictionary(pa.int32(), pa.string())
COLUMNS = pa.schema(
    [
        pa.field("round", pa.int32(), nullable=False),
        pa.field("table", pa.int32(), nullable=False),
        pa.field("kind", _TEXT, nullable=False),
        pa.field("first", _TEXT, nullable=False),
        pa.field("first_cell", _TEXT),
        pa.field("second", _TEXT),
        pa.field("second_cell", _TEXT),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("standard_deviation", pa.float64(), nullable=False),
    ]
)
_HINT = "do not use these files; get them again from who made them"
_BETWEEN = " | "
"""Between the labels of a cell of several."""


def counts_table(measured: RoundSums) -> pa.Table:
    """Return the noisy counts of a release, `(n_numbers, 9)`."""
    design = measured.design
    asked = [
        (number, question, counts)
        for number, (questions, sums) in enumerate(zip(measured.rounds, measured.sums, strict=True), start=1)
        for question, counts in zip(questions, split(questions, sums), strict=True)
    ]
    sizes = [question.n_numbers for _, question, _ in asked]
    described = [_describe(question, design.attributes) for _, question, _ in asked]
    deviations = [sqrt(design.variance(question.noise, attributes_of(question))) for _, question, _ in asked]
    texts = [_texts(column, sizes) for column in zip(*described, strict=True)]
    return pa.table(
        [
            pa.array(np.repeat([number for number, _, _ in asked], sizes), pa.int32()),
            pa.array(np.repeat(np.arange(1, len(asked) + 1), sizes), pa.int32()),
            *texts,
            pa.array(np.concatenate([counts for _, _, counts in asked]), pa.int64()),
            pa.array(np.repeat(deviations, sizes), pa.float64()),
        ],
        schema=COLUMNS,
    )


def pair_errors(counts: pa.Table, n_records: int) -> dict[tuple[str, str], float]:
    """Return of every counted pair the total variation to expect between its noisy and its original table.

    A cell is off by the smaller of the mean deviation of its noise and of what it holds. The records are
    mostly nearer, for they agree with all counts at once.
    """
    cells = counts.filter(pc.equal(pc.cast(counts.column("kind"), pa.string()), TWO_WAY))
    deviations, numbers, tables = (
        cells.column(name).to_numpy() for name in ("standard_deviation", "count", "table")
    )
    off = np.minimum(MEAN_DEVIATION * deviations, np.maximum(numbers, 0)) / (2 * n_records)
    _, starts, places = np.unique(tables, return_index=True, return_inverse=True)
    names = (cells.column(name).take(starts).to_pylist() for name in ("first", "second"))
    return dict(zip(zip(*names, strict=True), np.bincount(places, off).tolist(), strict=True))


_Cells = Sequence[str | None] | str | None
"""A text of each number of a table, or one of all."""


def _describe(question: Question, attributes: Sequence[Attribute]) -> tuple[_Cells, ...]:
    """Return kind, first attribute and its cells, second attribute and its cells."""
    if isinstance(question, OneWay):
        attribute = attributes[question.attribute]
        cells = leaf_texts(attribute, question.edges)
        return ONE_WAY, attribute.name, cells, None, None
    one, other = (attributes[place] for place in question.pair)
    of_one, of_other = (
        bin_texts(attribute, binning)
        for attribute, binning in zip((one, other), question.binnings, strict=True)
    )
    cells = [text for text in of_one for _ in of_other]
    return TWO_WAY, one.name, cells, other.name, of_other * len(of_one)


def _texts(tables: Sequence[_Cells], sizes: Sequence[int]) -> pa.DictionaryArray:
    """Return a column of texts from those of each table; the texts of merged bins can be long."""
    number: dict[str, int] = {}
    numbers: list[int | None] = []
    for cells, size in zip(tables, sizes, strict=True):
        column = [cells] * size if cells is None or isinstance(cells, str) else cells
        numbers += [None if text is None else number.setdefault(text, len(number)) for text in column]
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(list(number), pa.string()))


def leaf_texts(attribute: Attribute, edges: Int64Array) -> list[str]:
    """Return the values of every part of an attribute in words."""
    return range_texts(attribute, edges[:-1], edges[1:] - 1)


def range_texts(attribute: Attribute, first: Int64Array, last: Int64Array) -> list[str]:
    """Return ranges of an attribute's values in words; they are given by their first and last codes."""
    ranges = zip(first.tolist(), last.tolist(), strict=True)
    if isinstance(attribute, Joint) and not attribute.is_categorical:
        own = range_texts(attribute.first, *(each % attribute.first.n_values for each in (first, last)))
        return [f"{text}, {attribute.block_text(int(code))}" for text, code in zip(own, first, strict=True)]
    return [
        _value_text(attribute, start)
        if start == end
        else f"{_value_text(attribute, start)} to {_value_text(attribute, end)}"
        for start, end in ranges
    ]


def _value_text(attribute: Attribute, code: int) -> str:
    text = attribute.text(attribute.lower + code)
    # Only a single stroke is between labels, so no cell of several reads like a label or another cell.
    return text.replace("|", "||") if attribute.is_categorical else text


def bin_texts(attribute: Attribute, binning: Binning) -> list[str]:
    """Return the values of every bin in words."""
    edges, labels = binning.histogram.edges, binning.labels
    if attribute.is_categorical:
        held: list[list[str]] = [[] for _ in range(binning.n_bins)]
        for code, label in enumerate(labels.tolist()):
            held[label].append(_value_text(attribute, code))
        return [_BETWEEN.join(names) for names in held]
    starts = np.searchsorted(labels, np.arange(binning.n_bins))
    return leaf_texts(attribute, np.append(edges[:-1][starts], edges[-1]))


def measured_in(design: Design, counts: pa.Table, groups: Sequence[Sequence[str]] = ()) -> RoundSums:
    """Return what a table of noisy counts says that was measured; it is untrusted input.

    Args:
        groups: Ids of the owners by group, to name those whose counts are implausible.

    Raises:
        IntegrityError: If it is not the table of this release, naming the first thing that is not.
    """
    given = _numbers(counts)
    sums: list[Int64Array] = []
    while not isinstance(asked := next_round(design, sums), RoundSums):
        size = n_numbers(asked)
        if given.size < size:
            raise IntegrityError(f"{COUNTS_FILE} lacks numbers of round {len(sums) + 1}", _HINT)
        sums.append(given[:size])
        given = given[size:]
        if fault := fault_of_sums(design, sums, groups):
            raise IntegrityError(f"{COUNTS_FILE} is implausible: {fault}", _HINT)
    if given.size:
        raise IntegrityError(f"{COUNTS_FILE} has {given.size} numbers that nothing asked for", _HINT)
    for name, expected in zip(COLUMNS.names, counts_table(asked).columns, strict=True):
        same = _same(counts.column(name), expected)
        if not same.all():
            raise IntegrityError(
                f"{COUNTS_FILE} does not follow from its own counts: line {int(np.argmin(same)) + 1} has "
                f"another {name}",
                _HINT,
            )
    return asked


def _numbers(counts: pa.Table) -> Int64Array:
    if (counts.schema.names, counts.schema.types) != (COLUMNS.names, COLUMNS.types):
        raise IntegrityError(f"{COUNTS_FILE} has other columns", _HINT)
    column = counts.column("count")
    given: Int64Array = column.to_numpy()
    if column.null_count or bool(((given > LARGEST_SUM) | (given < -LARGEST_SUM)).any()):
        raise IntegrityError(f"{COUNTS_FILE} has numbers that are no counts", _HINT)
    return given


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray:
    """Return where two columns are equal, nulls included, `(n,)`."""
    if pa.types.is_dictionary(one.type):
        one, other = one.cast(pa.string()), other.cast(pa.string())
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    same: np.ndarray = pc.or_(pc.fill_null(pc.equal(one, other), False), both_null).to_numpy()
    return same


@dataclass(frozen=True, slots=True)
class PresentPersons:
    """How many persons are estimated to be at some owners at once, where a release is of everybody."""

    owners: tuple[str, ...]
    """One, or two."""
    persons: int
    low: int
    """The lower end of the 95 % interval."""
    high: int
    """The upper end."""

    def __str__(self) -> str:
        """Return it in words."""
        return f"{' and '.join(self.owners)} {self.persons:,} ({self.low:,} to {self.high:,})"


def presence_in(plan: Plan, n_persons: int, counts: pa.Table) -> tuple[PresentPersons, ...]:
    """Return how many persons are at each owner and at each two; nothing unless presence is counted."""
    if not plan.presence:
        return ()
    found = overlaps(measured_in(design_of(plan, n_persons), counts, plan.groups))
    return tuple(
        PresentPersons(
            tuple(plan.groups[group][0] for group in groups),
            *(round(min(max(each, 0.0), n_persons)) for each in (present.count, *present.interval)),
        )
        for groups, present in found.items()
    )


def presence_text(found: Sequence[PresentPersons]) -> str:
    """Say how many persons are where; empty if nothing is estimated."""
    return f"persons by noisy counts, with 95 % intervals: {'; '.join(map(str, found))}" if found else ""


def check_drawn(
    design: Design, seed: str, counts: pa.Table, codes: Iterable[Int64Array], check: Check = unchecked
) -> SyntheticRelease:
    """Check that records follow from noisy counts: the records are made from these again.

    Nothing of the owners is needed for it. That the counts are those that the owners sent is another check.

    Args:
        seed: The stated one, hexadecimal.
        codes: The published records: of each attribute the codes of their values, from 0 to V - 1,
            `(n_records,)`.
        check: Called often; it may raise.

    Raises:
        IntegrityError: Naming the first thing that does not follow: counts, seed, or an attribute and record.
    """
    if seed_of([_numbers(counts)]).hex() != seed:
        raise IntegrityError(f"the stated seed is not the digest of the counts in {COUNTS_FILE}", _HINT)
    measured, published_codes = measured_in(design, counts), list(codes)
    if not excluded(measured, noisy_tables(measured)):
        _check_one_way(measured, published_codes, check)
    made = synthesise(measured, check)
    for attribute, drawn, published in zip(design.attributes, made.codes, published_codes, strict=True):
        differing = np.flatnonzero(drawn != published) if drawn.shape == published.shape else np.arange(1)
        if differing.size:
            raise IntegrityError(
                f"the records do not follow from {COUNTS_FILE} and the seed: record {differing[0] + 1} has "
                f"another value of {attribute.name}",
                _HINT,
                {"attribute": attribute.name, "differing": int(differing.size)},
            )
    return made


def _check_one_way(measured: RoundSums, codes: Sequence[Int64Array], check: Check) -> None:
    """Check the one-way counts of records, which swaps keep: before anything is swapped, which takes long.

    Where rules are left broken, records become copies of others, with other one-way counts.
    """
    design, stream = measured.design, Keystream(measured.seed)
    for attribute, binning, published in zip(design.attributes, measured.binnings, codes, strict=True):
        check()
        start = start_bins(binning, design.n_records, stream)
        counted, expected = (
            np.bincount(bins, minlength=binning.n_bins) for bins in (binning.bins(published), start)
        )
        if not np.array_equal(counted, expected):
            raise IntegrityError(
                f"the records do not follow from {COUNTS_FILE}: {attribute.name} has other one-way counts",
                _HINT,
                {"attribute": attribute.name},
            )
