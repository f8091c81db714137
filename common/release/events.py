"""The table of events of a release: the slots of its records unfolded, a line per event.

`events.parquet` and `events.csv` have the number of the person's `record` in the data file, the number of the
`event` among those of this person, and the columns of events. They follow from the same records as the data
file, so both tables agree; and together they have all that was drawn, so that verification can compare it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.arrays import Int64Array
from common.errors import IntegrityError
from common.model.events import EVENT_COLUMN, EventTable
from common.release.data_files import (
    check_sizes,
    csv_tables,
    label_bytes,
    open_parquet,
    parquet_pieces,
    units_within,
)
from common.release.table import RECORD_COLUMN, events_schema
from common.release.values import from_units

_STEM = "events"


def event_files(events: EventTable | None, data_files: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the files of events that are beside data files; none without events."""
    return () if events is None else tuple(f"{_STEM}{Path(name).suffix}" for name in data_files)


def unfold(events: EventTable, units: Mapping[str, Int64Array], first: int = 1) -> dict[str, Int64Array]:
    """Return the columns of the events of some records, `(n_events,)` each, in resolution units.

    Args:
        units: Values of the records by attribute, `(n_records,)` each.
        first: Number of the first record.
    """
    record, event = _numbered(units[events.attributes[events.number].name])
    columns = {RECORD_COLUMN: record + first, EVENT_COLUMN: event + 1}
    for name, places in events.slots.items():
        slots = [events.attributes[place] for place in places]
        column = np.full(record.size, slots[0].highest, dtype=np.int64)
        for slot in slots:
            at = event == slot.slot - 1
            column[at] = units[slot.name][record[at]]
        columns[name] = column
    return columns


def _numbered(number: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the record of each event and its place among those of the record, both from 0, `(n_events,)`."""
    record = np.repeat(np.arange(number.size), number)
    return record, np.arange(record.size) - np.repeat(np.cumsum(number) - number, number)


def fold(events: EventTable, columns: Mapping[str, Int64Array], n_records: int) -> dict[str, Int64Array]:
    """Return the slots of records by name, `(n_records,)` each, from the columns of `unfold`."""
    record, event, slots = columns[RECORD_COLUMN], columns[EVENT_COLUMN], {}
    for name, places in events.slots.items():
        for place in places:
            slot = events.attributes[place]
            at = event == slot.slot
            slots[slot.name] = np.full(n_records, slot.highest, dtype=np.int64)
            slots[slot.name][record[at] - 1] = columns[name][at]
    return slots


def events_table(events: EventTable, columns: Mapping[str, Int64Array]) -> pa.Table:
    """Return the columns of `unfold` as a table of release types."""
    keys = [pa.array(columns[name]) for name in (RECORD_COLUMN, EVENT_COLUMN)]
    values = [from_units(each, columns[each.name]) for each in events.columns]
    return pa.table([*keys, *values], schema=events_schema(events))


def read_events(path: Path, events: EventTable, number: Int64Array) -> dict[str, Int64Array]:
    """Read a file of events, which anybody may have written.

    Args:
        number: Events of each record by the data file, `(n_records,)`.

    Returns:
        The columns as `unfold` returns them, numbered as the data file says.

    Raises:
        IntegrityError: If it has other columns, other events, or values that were not declared.
    """
    try:
        columns = _columns(path, events, int(number.sum()))
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise IntegrityError(f"{path.name} cannot be read ({type(problem).__name__})") from None
    record, event = _numbered(number)
    expected = {RECORD_COLUMN: record + 1, EVENT_COLUMN: event + 1}
    in_order = all(np.array_equal(columns[name], values) for name, values in expected.items())
    for name, places in events.slots.items():
        slot = events.attributes[places[0]]
        # A value about two events is missing in the first one, and only there.
        if slot.slot > 1:
            in_order &= np.array_equal(columns[name] > slot.upper, event == 0)
    if not in_order:
        raise IntegrityError(f"the events of {path.name} are not those of the records, in order")
    return columns


def _columns(path: Path, events: EventTable, n_events: int) -> dict[str, Int64Array]:
    schema, mismatch = events_schema(events), f"{path.name} has other columns, or another number of events"
    if path.suffix == ".parquet":
        with open_parquet(path) as file:
            found, metadata = file.schema_arrow, file.metadata
        if (found.names, found.types, metadata.num_rows) != (schema.names, schema.types, n_events):
            raise IntegrityError(mismatch)
        check_sizes(path, metadata, label_bytes(events.columns))
        pieces = parquet_pieces(path)
    else:
        pieces = csv_tables(path, events.columns)
    tables, n_read = [], 0
    for piece in pieces:
        n_read += piece.num_rows
        if piece.column_names != schema.names or n_read > n_events:
            raise IntegrityError(mismatch)
        tables.append(piece)
    if n_read != n_events:
        raise IntegrityError(mismatch)
    if not n_events:
        return {name: np.zeros(0, dtype=np.int64) for name in schema.names}
    whole = pa.concat_tables(tables)
    keys = {
        name: pc.cast(whole.column(name), pa.int64()).to_numpy() for name in (RECORD_COLUMN, EVENT_COLUMN)
    }
    return keys | {each.name: units_within(path.name, whole, each).to_numpy() for each in events.columns}
