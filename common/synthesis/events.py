"""Events of persons in a synthetic release: what is counted of their slots, and which records hold.

A person is one record with all its slots (`common.model.events`), so every table is a partition of persons,
and nothing is added to the proof of the noise. A slot has an event exactly if the person's number of events
reaches it, and then a value, unless values are optional: these are rules. Records start so that they hold, as
those of persons who are present do (`common.synthesis.presence`). Swaps keep them: both persons have an event
in the slot.

Slots are many, and of each transition from one event to the next the tables of all slots add up. So tables of
persons' attributes alone get four fifths of the tables' budget, and their one-way counts half of theirs.
"""

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext

from common.arrays import Int64Array
from common.model.events import EventTable
from common.synthesis.binning import Binning, StructuralZero
from common.synthesis.keystream import Keystream
from common.synthesis.presence import present_bins
from common.synthesis.sample import start_bins

ONE_WAY_PARTS, TABLE_PARTS = (1, 1), (4, 1)
"""Ratios of the budget: for attributes of persons, and for slots and tables with one."""
_DIGITS = 60


def slot_rules(events: EventTable) -> list[StructuralZero]:
    """Return the rules of slots: a person with fewer events has no value there; others have, if required."""
    rules: list[StructuralZero] = []
    for places in events.slots.values():
        for place in places:
            slot = events.attributes[place]
            last = slot.n_values - 1
            rules.append({events.number: [(0, slot.slot - 1)], place: [(0, last - 1)]})
            if not slot.is_optional:
                rules.append({events.number: [(slot.slot, events.at_most)], place: [(last, last)]})
    return rules


def balanced(weights: Sequence[Decimal], slots: Sequence[bool], parts: tuple[int, int]) -> list[Decimal]:
    """Return weights of which those of persons and those of slots together are in the given ratio.

    Args:
        slots: True for what is about slots.
        parts: Of persons, and of slots.
    """
    # The same at every owner, whatever the context of its process is.
    with localcontext(Context(prec=_DIGITS)):
        totals = [
            sum((w for w, s in zip(weights, slots, strict=True) if s is which), Decimal(0))
            for which in (False, True)
        ]
        if not all(totals):
            return list(weights)
        return [
            weight * totals[not of_slot] * parts[of_slot]
            for weight, of_slot in zip(weights, slots, strict=True)
        ]


def start_events(
    events: EventTable, binnings: Sequence[Binning], n_records: int, stream: Keystream
) -> list[Int64Array]:
    """Return bins of records that have as many events as their number says, `(n_records,)` by attribute."""
    columns = {place: start_bins(binnings[place], n_records, stream) for place in events.persons}
    for place, first in first_bins(events, binnings).items():
        present = columns[events.number] >= first
        alone = not events.attributes[place].is_optional
        columns[place] = present_bins(binnings[place], present, stream, absent_alone=alone)
    return [columns[place] for place in range(len(binnings))]


def first_bins(events: EventTable, binnings: Sequence[Binning]) -> dict[int, int]:
    """Return the lowest bin of the number of events with which persons have the event of each slot."""
    # Rules cut the numbers of events where a slot begins to be filled.
    number = binnings[events.number]
    return {
        place: int(number.labels[events.attributes[place].slot])
        for places in events.slots.values()
        for place in places
    }
