"""Advice to an owner about its own data before it offers them; shown to the owner only, never sent."""

from collections.abc import Iterator, Mapping
from typing import Any

from common.model.schema import Schema
from common.words.numbers import count_text
from owner_node.config import DatasetConfig
from owner_node.loading import LoadedData

WIDE = 10
"""A domain that is this many times as wide as the data causes a warning."""


_EVENTS = {
    "events_without": "without an identifier",
    "events_unordered": "without an order, in no table of events",
    "events_incomplete": "with a missing value, in no table of events",
    "events_beyond": "at random, of persons with more than the table has",
}


def left_out_lines(left_out: Mapping[str, Any]) -> Iterator[str]:
    """Yield the counts of `LoadCounts.left_out`, also as the history keeps them, with numbers as texts."""
    for name, why in _EVENTS.items():
        if name in left_out:
            yield f"left out: {count_text(int(left_out[name]), 'event')} {why}"
    if "opted_out" in left_out:
        listed = count_text(int(left_out["opt_out_listed"]), "listed person")
        yield f"opted out: {int(left_out['opted_out']):,} of {listed}, in no record"
    if n_dropped := int(left_out.get("dropped", 0)):
        yield f"dropped: {count_text(n_dropped, 'record')} with a missing value"
        for name, counts in left_out["dropped_by"].items():
            there = ((reason, int(counts.get(reason, 0))) for reason in ("na_values", "empty"))
            shown = ", ".join(f"{count:,} {reason}" for reason, count in there if count)
            yield f"  column {name!r}: {shown}"


def advice(dataset: DatasetConfig, schema: Schema, loaded: LoadedData) -> Iterator[str]:
    """Yield warnings about settings that are valid, but possibly unintended.

    Args:
        loaded: The data, with all attributes of the schema.

    Yields:
        One sentence each. They may disclose that a domain is wide, but no value of the data.
    """
    if not dataset.person_columns:
        yield (
            "no identifier is declared: the unit of privacy is the record, vertical releases are not "
            "possible, and it is asserted, not checked, that no other owner has the same persons"
        )
    elif dataset.dropping and loaded.counts.dropped:
        yield (
            "records with a missing value are dropped: a vertical or mixed release stops unless "
            "every owner has dropped the same persons"
        )
    for name, count in loaded.counts.numerals.items():
        yield (
            f"column {name!r}: {count_text(count, 'text')} such as 17.0 or 1.5E+10, as pandas and "
            "spreadsheets write whole numbers; the same persons are not found at an owner who has 17, so "
            "they count as others: export the column as integers or as text"
        )
    for attribute in schema.attributes:
        if attribute.is_categorical:
            continue
        values = loaded.columns[attribute.name]
        values = values[values <= attribute.upper]
        width = attribute.upper - attribute.lower
        if values.size and width > WIDE * (int(values.max()) - int(values.min())):
            yield (
                f"attribute {attribute.name!r}: the declared domain is more than {WIDE} times as wide as "
                "the data; the noise of idp-ls grows with it"
            )
        if "decimals" in attribute.type.needs and attribute.n_values > loaded.n_records:
            yield (
                f"attribute {attribute.name!r}: decimals = {attribute.decimals} distinguishes more values "
                "than there are records; fewer decimals may be all that is meaningful"
            )
