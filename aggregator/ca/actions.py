"""What was done with certificates goes into the operators' log, and from there to wherever that is copied.

Commands write to the register of certificates with or without the daemon; the daemon copies what it has not
yet, each entry once, with the time and the user of the entry.
"""

import asyncio
import logging

from aggregator.ca.enrolment import Enrolment, LogEntry
from aggregator.store.database import CannotStoreError, Database
from aggregator.store.operator_log import Action, OperatorLog
from common.errors import ConfigurationError

_LOOK_SECONDS = 5.0
_SOURCE = "enrolment"
_log = logging.getLogger(__name__)


class EnrolmentActions:
    """Copies the log of the register into the operators' log.

    Args:
        enrolment: The register of certificates.
        db: The aggregator's database.
        operators: The operators' log, in that database.
    """

    def __init__(self, enrolment: Enrolment, db: Database, operators: OperatorLog) -> None:
        self._enrolment, self._db, self._operators = enrolment, db, operators

    def copy(self) -> None:
        """Copy everything that is not there yet.

        Raises:
            CannotStoreError: If the aggregator's database cannot be written.
            ConfigurationError: If the register cannot be read.
        """
        copied, newest = self._copied(), self._enrolment.newest()
        if newest == copied:
            return
        # A register that was put back from a backup counts its entries anew from where the backup ends.
        entries = self._enrolment.log(after=copied) if newest > copied else []
        with self._db.transaction() as tx:
            for entry in entries:
                self._operators.insert(tx, _action(entry))
            upto = entries[-1].sequence if entries else newest
            tx.execute("INSERT OR REPLACE INTO copied VALUES (?, ?)", (_SOURCE, upto))
        self._operators.announce()

    async def watch(self) -> None:
        """Copy what commands have written, within seconds, until cancelled."""
        failing = ""
        while True:
            try:
                self.copy()
                failing = ""
            except (CannotStoreError, ConfigurationError) as error:
                if error.message != failing:
                    _log.warning("certificates not noted in the history", extra={"reason": error.message})
                failing = error.message
            await asyncio.sleep(_LOOK_SECONDS)

    def _copied(self) -> int:
        rows = self._db.rows("SELECT sequence FROM copied WHERE source = ?", (_SOURCE,))
        return int(rows[0][0]) if rows else 0


def _action(entry: LogEntry) -> Action:
    whose = {"owner": entry.owner, "fingerprint": entry.fingerprint, "serial": entry.serial}
    return Action(entry.time, entry.actor, f"enroll {entry.action}", "", whose)
