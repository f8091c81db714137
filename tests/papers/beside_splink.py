"""Match keys beside Splink, which links plain text by probabilities: recall, precision, processor time.

    make febrl build/bench/.installed
    PYTHONPATH=build/bench python -m tests.papers.beside_splink

Prints the table of docs/match-keys.md: FEBRL4, and as many persons as asked for, drawn from it.

References:
    Linacre, R. et al. (2022), Splink: free software for probabilistic record linkage at scale, International
    Journal of Population Data Science 7. The settings are those of its example for FEBRL4, without the
    national id and the address.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version

import numpy as np
import pandas as pd
import pyarrow as pa

from common.arrays import BoolArray, Float64Array
from owner_node.values.match_keys import SUGGESTED
from tests.papers.febrl import febrl4_tables, measured, persons

COLUMNS = ("forename", "surname", "born", "postcode")
N_PERSONS = 200_000
"""Of each owner, beside FEBRL4."""
SHARED = 0.8
"""Share of them that the other owner has, too."""
LEAST_PROBABILITY = 0.95
"""Of Splink's links where its threshold is not chosen by the truth."""
SAMPLED_PAIRS = 1e7
"""From which Splink estimates how often different persons agree; its manual calls this often adequate."""
SWAPPED = "l.forename = r.surname and l.surname = r.forename"


def draw_persons(n_persons: int, seed: int) -> list[pd.DataFrame]:
    """Return persons of two owners whose names, dates and postcodes are written as in FEBRL4.

    Every column of a person is that of somebody in both files: the value, and what was made of it. Dates get
    another decade, or there would be 5,000 of them.
    """
    draw = np.random.default_rng(seed)
    files, n_all = febrl4_tables(), 2 * n_persons - int(SHARED * n_persons)
    written: list[dict[str, list[str]]] = [{}, {}]
    for name in COLUMNS:
        chosen = draw.integers(0, len(files[0]), n_all)
        for own, table in zip(written, files, strict=True):
            own[name] = table[name].to_numpy(dtype=object)[chosen].tolist()
    dates = zip(written[0]["born"], written[1]["born"], draw.integers(0, 10, n_all).tolist(), strict=True)
    moved = [_change_decade(first, second, str(decade)) for first, second, decade in dates]
    tables = []
    for place, own in enumerate(written):
        table = pd.DataFrame({**own, "born": [each[place] for each in moved], "truth": np.arange(n_all)})
        held = table[:n_persons] if place == 0 else table[-n_persons:]
        tables.append(held.iloc[draw.permutation(n_persons)].reset_index(drop=True))
    return tables


def _change_decade(first: str, second: str, decade: str) -> tuple[str, str]:
    """Put two ways of writing a date into a decade, unless they differ in it or one is missing."""
    if not first or first[2:3] != second[2:3]:
        return first, second
    return first[:2] + decade + first[3:], second[:2] + decade + second[3:]


def plain_text(table: pd.DataFrame) -> pa.Table:
    """Return the persons of a table as Splink reads them: what is missing is null."""
    texts = {name: [each or None for each in table[name].tolist()] for name in COLUMNS}
    return pa.table({**texts, "truth": table["truth"].tolist()})


def score_pairs(tables: Sequence[pa.Table], *, is_large: bool) -> pa.Table:
    """Return the pairs that Splink compares, with the weight and the probability that it finds.

    Args:
        tables: Columns of two owners, and the column `truth`, which Splink takes for the number of a record.
        is_large: Whether pairs of one postcode are too many to compare all of them.
    """
    import splink.comparison_library as comparisons
    from splink import DuckDBAPI, Linker, SettingsCreator, block_on

    of_postcode = ("forename", "postcode"), ("surname", "postcode")
    settings = SettingsCreator(
        link_type="link_only",
        unique_id_column_name="truth",
        comparisons=[
            comparisons.NameComparison("forename").configure(term_frequency_adjustments=True),
            comparisons.NameComparison("surname").configure(term_frequency_adjustments=True),
            comparisons.DateOfBirthComparison("born", input_is_string=True, datetime_format="%Y%m%d"),
            comparisons.DamerauLevenshteinAtThresholds("postcode", [1, 2]).configure(
                term_frequency_adjustments=True
            ),
        ],
        blocking_rules_to_generate_predictions=[
            block_on("forename", "surname"),
            SWAPPED,
            block_on("born"),
            *(block_on(*each) for each in (of_postcode if is_large else (("postcode",),))),
        ],
    )
    database = DuckDBAPI()
    linked = [
        database.register(table, dataset_display_name=name) for name, table in zip("ab", tables, strict=True)
    ]
    linker = Linker(linked, settings, log_level=None)
    exactly = [block_on("forename", "surname", "born"), f"{SWAPPED} and l.born = r.born"]
    linker.training.estimate_probability_two_random_records_match(exactly, recall=0.5)
    linker.training.estimate_u_using_random_sampling(max_pairs=SAMPLED_PAIRS)
    for rule in (block_on("born"), block_on("forename", "surname")):
        linker.training.estimate_parameters_using_expectation_maximisation(rule)
    return linker.inference.predict(threshold_match_probability=0.01).as_pyarrow_table()


def best_pairs(pairs: pa.Table) -> tuple[BoolArray, Float64Array]:
    """Return of the pairs that are the best of both persons whether they are right, and their probabilities.

    Returns:
        Both of shape (n_pairs,), the likeliest first.
    """
    ordered = pairs.sort_by([("match_weight", "descending")])
    both = [ordered[f"truth_{side}"].to_numpy() for side in "lr"]
    is_best = np.ones(len(ordered), dtype=np.bool_)
    for side in both:
        is_first = np.zeros(len(ordered), dtype=np.bool_)
        is_first[np.unique(side, return_index=True)[1]] = True
        is_best &= is_first
    return (both[0] == both[1])[is_best], ordered["match_probability"].to_numpy()[is_best]


def count_links(is_right: BoolArray, least_precision: float) -> int:
    """Return how many of the likeliest pairs can be taken with a precision, 0 if none."""
    precision = np.cumsum(is_right) / np.arange(1, is_right.size + 1)
    return int(np.flatnonzero(precision >= least_precision).max(initial=-1)) + 1


def compare(label: str, tables: Sequence[pd.DataFrame], *, is_large: bool) -> Iterator[str]:
    """Link two owners both ways; yields the rows of the table, with the time of large ones."""
    n_common = len(set.intersection(*(set(each["truth"]) for each in tables)))
    owners = [persons(table) for table in tables]
    plain = [plain_text(table) for table in tables]
    began = _processor_seconds()
    found = measured(owners, SUGGESTED)
    ours = _processor_seconds() - began
    began = _processor_seconds()
    pairs = score_pairs(plain, is_large=is_large)
    theirs = _processor_seconds() - began
    is_right, probabilities = best_pairs(pairs)
    own_time, their_time = (f"{taken:.1f}" if is_large else "" for taken in (ours, theirs))
    yield f"| {label} | match keys | {found.recall:.3f} | {found.precision:.4f} | {own_time} |"
    sizes = {
        "Splink, threshold for this precision": count_links(is_right, found.precision),
        f"Splink, probability ≥ {LEAST_PROBABILITY}": int((probabilities >= LEAST_PROBABILITY).sum()),
    }
    for way, size in sizes.items():
        right = int(is_right[:size].sum())
        yield f"| {label} | {way} | {right / n_common:.3f} | {right / max(size, 1):.4f} | {their_time} |"


def _processor_seconds() -> float:
    """Return the processor time of this process, its threads, and its children."""
    return sum(os.times()[:4])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Compare match keys with Splink.")
    parser.add_argument("--persons", type=int, default=N_PERSONS, help="of each owner, beside FEBRL4")
    options = parser.parse_args()
    print(f"Splink {version('splink')}, DuckDB {version('duckdb')}, pyarrow {version('pyarrow')}\n")
    print("| persons | linked by | recall | precision | processor time, s |\n|---|---|---|---|---|")
    tables = [each[[*COLUMNS, "truth"]] for each in febrl4_tables()]
    for row in compare("FEBRL4: 5,000 + 5,000", tables, is_large=False):
        print(row, flush=True)
    n_persons = options.persons
    for row in compare(f"{n_persons:,} + {n_persons:,}", draw_persons(n_persons, seed=1), is_large=True):
        print(row, flush=True)


if __name__ == "__main__":
    main()
