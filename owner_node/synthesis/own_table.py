"""Synthetic tables of data that are all here, without messages."""

from collections.abc import Sequence
from decimal import Decimal
from itertools import repeat

import numpy as np

from common.check import Check, unchecked
from common.errors import UnusableDataError, UsageError
from common.model.schema import Schema, rule_codes
from common.planning.synthetic import check_attributes, check_delta, named_pairs
from common.synthesis.records import SyntheticRelease, synthesise
from common.synthesis.sample import MOST_RECORDS
from common.synthesis.schedule import Design, Round, check_design, run_rounds
from owner_node.masking.arrays import BitSource, Int64Array
from owner_node.synthesis.counts import Columns, noisy_answer


def own_design(
    schema: Schema,
    n_records: int,
    epsilon: Decimal,
    delta: Decimal,
    pairs: Sequence[Sequence[str]] = (),
) -> Design:
    """Return what a synthetic table of one owner's data follows from, once it is checked that it can be made.

    Raises:
        UsageError: If a setting is not possible.
        UnusableDataError: If there are too many records.
    """
    if any(each.slot > 0 for each in schema.attributes):
        raise UsageError(
            "a table of one owner's data alone has no table of events",
            "leave the slots of events out: --attributes, or make a release: aggregator release",
        )
    check_attributes(schema.attributes)
    if n_records > MOST_RECORDS:
        raise UnusableDataError(
            f"{n_records:,} records, a synthetic table has at most {MOST_RECORDS:,}",
            "make it of a part of the records",
        )
    check_delta(delta, n_records)
    rules = tuple(rule_codes(rule, schema.attributes) for rule in schema.structural_zeros)
    places = {name: place for place, name in enumerate(schema.names)}
    named = [tuple(map(places.__getitem__, pair)) for pair in named_pairs(pairs, schema.names)]
    design = Design(schema.attributes, n_records, epsilon, delta, rules=rules, named_pairs=tuple(named))
    check_design(design)
    return design


def synthesise_together(
    design: Design, parts: Sequence[Columns], bits: Sequence[BitSource], check: Check = unchecked
) -> SyntheticRelease:
    """Make all rounds of a release, and its records.

    Args:
        bits: Each owner's source of random bits.
        check: Called often while records are made; it may raise.
    """

    def answer(asked: Round) -> Int64Array:
        drawn = zip(parts, map(repeat, bits), strict=True)
        answers = [noisy_answer(asked, part, source) for part, source in drawn]
        sums: Int64Array = np.sum(answers, axis=0, dtype=np.int64)
        return sums

    return synthesise(run_rounds(design, answer), check)
