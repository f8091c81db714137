"""Records and cursors in memory, and a delivery that runs once."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from common.daemon.audit import AuditSink
from common.daemon.delivery import AuditSource, Delivery


class KeptRecords:
    """A source; its records have their positions, from 1, as numbers."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.records = list(records)
        self.cursors: dict[str, int] = {}

    def audit_records(self, after: int, most: int) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Return records with their numbers."""
        return list(enumerate(self.records, 1))[after : after + most]

    def position(self, sink: str) -> int:
        """Return a cursor."""
        return self.cursors.get(sink, 0)

    def note_delivered(self, sink: str, sequence: int) -> None:
        """Move a cursor."""
        self.cursors[sink] = sequence


async def deliver(source: AuditSource, sinks: Iterable[AuditSink]) -> None:
    """Deliver what there is, as a daemon does that starts and is stopped at once."""
    with patch("common.daemon.delivery._LAST_SECONDS", 60.0):
        running = asyncio.create_task(Delivery(source, tuple(sinks)).run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
