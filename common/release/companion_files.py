"""What a release holds beside its records: nothing, or the noisy counts that they have to follow from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from common.arrays import Int64Array
from common.canonical import digest
from common.check import Check
from common.errors import IntegrityError
from common.model.fragment import n_records
from common.model.plan import Plan
from common.model.rounds import N_ZEROS, NUMBER_BYTES
from common.model.together import to_codes
from common.planning.synthetic import design_of
from common.release.counts import COUNTS_FILE, check_drawn, measured_in
from common.release.data_files import DATA_FILES, read_counts
from common.release.events import event_files, fold, read_events
from common.release.evidence import Evidence
from common.release.step import step
from common.synthesis.schedule import check_design


class RecordsCheck:
    """Takes the records of a release as they are read. Masked ones follow from nothing that is released."""

    def add(self, units: Mapping[str, Int64Array]) -> None:
        """Take the next records, in resolution units."""

    def check(self, folder: Path, hint: str, due: Check) -> None:
        """Check all records against what is released beside them; `due` is called often and may raise."""


class CompanionFiles(ABC):
    """What is beside the records of a release."""

    files: ClassVar[tuple[str, ...]]
    """Names of the files beside data, report and manifest."""

    @abstractmethod
    def check_rounds(self, evidence: Evidence) -> None:
        """Check what opened the rounds."""

    @abstractmethod
    def records(self, evidence: Evidence) -> RecordsCheck:
        """Return what takes the records, to check them in the end."""

    @abstractmethod
    def counts(self, folder: Path, plan: Plan) -> pa.Table | None:
        """Return the noisy counts; None: there are none."""


class _Nothing(CompanionFiles):
    files = ()

    def check_rounds(self, evidence: Evidence) -> None:
        if evidence.rounds:
            raise IntegrityError("a synthetic release has rounds, and no other has")

    def records(self, _evidence: Evidence) -> RecordsCheck:
        return RecordsCheck()

    def counts(self, _folder: Path, _plan: Plan) -> None:
        return None


class _Counts(CompanionFiles):
    """Noisy counts, which the records follow from."""

    files = (COUNTS_FILE,)

    def check_rounds(self, evidence: Evidence) -> None:
        plan, addendum = evidence.plan, evidence.addendum
        documents = [document for document, _ in evidence.rounds]
        if not documents:
            raise IntegrityError("a synthetic release has rounds, and no other has")
        previous = ""
        for number, document in enumerate(documents, start=1):
            stated = (document.release, document.plan_digest, document.addendum_digest)
            if stated != (plan.release, plan.digest, addendum.digest):
                raise IntegrityError(f"round {number} is of another release")
            if (document.round, document.previous) != (number, previous):
                raise IntegrityError(f"round {number} does not follow the one before")
            previous = document.digest
        if [key.owner for key in documents[0].keys] != list(plan.owners):
            raise IntegrityError("the keys for sums are not those of its owners")

    def records(self, evidence: Evidence) -> RecordsCheck:
        return _Drawn(evidence)

    def counts(self, folder: Path, plan: Plan) -> pa.Table:
        return read_counts(folder / COUNTS_FILE, plan.modelled)


def companion_files(plan: Plan) -> CompanionFiles:
    """Return what the release of a plan holds beside its records."""
    return _Counts() if plan.product.rules.in_rounds else _Nothing()


class _Drawn(RecordsCheck):
    """Drawn records, which follow from the noisy counts, and these from what was signed round by round."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._units: dict[str, list[Int64Array]] = {
            each.name: [] for each in evidence.plan.counted if each.slot <= 0
        }

    def add(self, units: Mapping[str, Int64Array]) -> None:
        for name, pieces in self._units.items():
            pieces.append(units[name])

    def check(self, folder: Path, hint: str, due: Check) -> None:
        plan, addendum, rounds = self._evidence.plan, self._evidence.addendum, self._evidence.rounds
        counts = read_counts(folder / COUNTS_FILE, plan.modelled)
        with step("the plan", hint):
            design = design_of(plan, n_records(plan, addendum))
            check_design(design)
        units = {name: np.concatenate(pieces) for name, pieces in self._units.items()}
        self._units.clear()
        codes = to_codes(plan.modelled, units | self._slots(folder, units, hint))
        seed = measured_in(design, counts, plan.groups).seed.hex()
        made = check_drawn(design, seed, counts, codes, due)
        with step("the rounds", hint):
            attached = [document.attached for document, _ in rounds]
            zeros = digest(bytes(N_ZEROS * NUMBER_BYTES))
            sums = [digest(sums_of_round.astype("<i8").tobytes()) for sums_of_round in made.measured.sums]
            if attached != [addendum.digest, zeros, *sums]:
                raise IntegrityError(f"what the aggregator signed is not what {COUNTS_FILE} has")

    def _slots(self, folder: Path, units: Mapping[str, Int64Array], hint: str) -> dict[str, Int64Array]:
        """Return the values of the slots of events, which every file of events has alike."""
        events, read = self._evidence.plan.events, dict[str, Int64Array]()
        if events is None:
            return {}
        number = units[events.attributes[events.number].name]
        for name in event_files(events, DATA_FILES):
            if (folder / name).is_file():
                with step(name, hint):
                    columns = read_events(folder / name, events, number)
                    if any(
                        not np.array_equal(read.get(each, values), values) for each, values in columns.items()
                    ):
                        raise IntegrityError("it has other events than the other file of events")
                read = columns
        return fold(events, read, number.size)
