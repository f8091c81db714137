"""Events of persons as attributes of one record a person: their number, and slots that hold them in order.

Slot i of a column of events has the value of a person's i-th event. Its last value, as that of absent persons
of a union (`common.model.presence`), stands for persons with fewer events, and for numbers and dates also for
an event without this value, if that is declared. A column that is about two events, such as the time between
them, begins with slot 2. So a person with all its events is one record, and what is
promised for a record is promised for both tables: persons, and their events.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Self

from common.model.presence import with_absence
from common.model.schema import NO_SLOT, Attribute, AttributeType

EVENT_COLUMN = "event"
"""Number of an event among those of its person, from 1, in order."""
MOST_EVENTS = 20
"""Most events of one person that are kept."""


def number_attribute(name: str, at_most: int) -> Attribute:
    """Return the attribute with a person's number of events."""
    return Attribute(name, AttributeType.INTEGER, 0, at_most, slot=0)


def slots_of(column: Attribute, first: int, at_most: int) -> tuple[Attribute, ...]:
    """Return the slots of a column of events."""
    absent = with_absence(column)
    return tuple(
        replace(absent, name=f"{column.name}_{number}", slot=number, is_optional=column.keeps_missing)
        for number in range(first, at_most + 1)
    )


@dataclass(frozen=True)
class EventTable:
    """The table of events that some attributes of persons hold, by the places of these attributes."""

    attributes: tuple[Attribute, ...]
    """All attributes of the records."""
    number: int
    """Place of the number of events."""
    slots: Mapping[str, tuple[int, ...]]
    """Places of the slots by column of the events, in the order of events."""

    @classmethod
    def of(cls, attributes: Sequence[Attribute]) -> Self | None:
        """Return the table of events; None if no attribute is a slot.

        Raises:
            ValueError: If slots are not those of one table.
        """
        slots: dict[str, list[int]] = defaultdict(list)
        for place, each in enumerate(attributes):
            if each.slot > 0:
                slots[column_of(each)].append(place)
        numbers = [place for place, each in enumerate(attributes) if each.slot == 0]
        if not slots:
            return None
        if len(numbers) != 1:
            raise ValueError("events need one attribute with their number")
        at_most = attributes[numbers[0]].upper
        for column, places in slots.items():
            places.sort(key=lambda place: attributes[place].slot)
            given = [attributes[place].slot for place in places]
            first = 1 if attributes[places[0]].categories else min(given[0], 2)
            if given != [*range(first, at_most + 1)]:
                raise ValueError(f"the events need all of {column}_1 to {column}_{at_most}, or none")
            if len({replace(attributes[place], name="_1", slot=1) for place in places}) > 1:
                raise ValueError(f"the events have different domains of {column!r}")
            if column in {each.name for each in attributes} | {EVENT_COLUMN}:
                raise ValueError(f"a column of events and another one are called {column!r}")
        if all(attributes[places[0]].slot > 1 for places in slots.values()):
            raise ValueError("the events need a column that a first event has a value of")
        return cls(tuple(attributes), numbers[0], {name: tuple(each) for name, each in slots.items()})

    @property
    def at_most(self) -> int:
        """g, the most events of a person."""
        return self.attributes[self.number].upper

    @cached_property
    def persons(self) -> tuple[int, ...]:
        """Places of the attributes that are no slots."""
        return tuple(place for place, each in enumerate(self.attributes) if each.slot <= 0)

    @cached_property
    def columns(self) -> tuple[Attribute, ...]:
        """The columns of the events as they are released; those about two events lack a first value."""
        return tuple(map(self._column, self.slots))

    def _column(self, name: str) -> Attribute:
        first = self.attributes[self.slots[name][0]]
        if first.categories:
            labels = first.categories[:-1]
            return replace(first, name=name, slot=NO_SLOT, categories=labels, upper=first.upper - 1)
        missing = first.is_optional or first.slot > 1
        return replace(first, name=name, slot=NO_SLOT, is_optional=False, keeps_missing=missing)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs of attributes to be counted, ascending.

        Those of persons, each of them with the first event, and columns of one event and of two neighbours.
        """
        at = {
            number: [p for places in self.slots.values() for p in places if self.attributes[p].slot == number]
            for number in range(1, self.at_most + 2)
        }
        pairs = {*combinations(self.persons, 2)}
        pairs |= {(one, other) for one in self.persons for other in at[1]}
        for number in range(1, self.at_most + 1):
            pairs |= {*combinations(at[number], 2)}
            pairs |= {(one, other) for one in at[number] for other in at[number + 1]}
        return tuple(sorted((min(pair), max(pair)) for pair in pairs))


def fault_of_events(attributes: Sequence[Attribute]) -> str | None:
    """Say what is wrong with attributes that hold events; None if they can be used."""
    try:
        EventTable.of(attributes)
    except ValueError as problem:
        return str(problem)
    return None


def column_of(slot: Attribute) -> str:
    """Return the name of a slot's column."""
    return slot.name.removesuffix(f"_{slot.slot}")
