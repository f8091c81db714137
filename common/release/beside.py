"""What a release holds beside its records: nothing, or what the records follow from."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from common.arrays import Int64Array
from common.errors import IntegrityError
from common.model.plan import Plan
from common.release.evidence import Evidence


class Records:
    """The records of a release as they are read: masked ones follow from nothing that is released."""

    def add(self, units: Mapping[str, Int64Array]) -> None:
        """Take the next records, in resolution units."""

    def check(self, folder: Path, hint: str) -> None:
        """Check all records against what is released beside them."""


class Nothing:
    """Beside masked records."""

    files: tuple[str, ...] = ()
    """Names of the files beside data, report and manifest."""

    def check_rounds(self, evidence: Evidence) -> None:
        """Check what opened the rounds."""
        if evidence.rounds:
            raise IntegrityError("a synthetic release has rounds, and no other has")

    def records(self, _evidence: Evidence) -> Records:
        """Return what takes the records, to check them in the end."""
        return Records()

    def counts(self, _folder: Path, _plan: Plan) -> pa.Table | None:
        """Return the noisy counts; None: there are none."""
        return None


def beside(plan: Plan) -> Nothing:
    """Return what the release of a plan holds beside its records; libraries of models are loaded with it."""
    if plan.product.rules.in_rounds:
        from common.release.counted import CountsBeside

        return CountsBeside()
    return Nothing()
