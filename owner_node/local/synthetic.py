"""A synthetic table of one data set, for its owner: records drawn from a model of noisy counts.

The owner asks itself the rounds of a synthetic release (`common.synthesis`), with the whole noise. All noisy
counts together are ε-differentially private for whole records; model and records are made from them alone.

References:
    McKenna, Sheldon, Miklau 2019, "Graphical-model based estimation and inference for differential privacy".
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from common import __version__
from common.errors import RefusedError, UnusableDataError, UsageError
from common.model.plan import Product
from common.model.schema import Attribute, Schema
from common.progress import Progress
from common.release.table import described, from_units
from common.synthesis.course import Design, check_noise
from common.synthesis.rounds import MOST_ATTRIBUTES
from common.synthesis.sample import MOST_RECORDS
from common.words.numbers import bound_text, percent_text
from common.words.synthetic import invariants, promises
from owner_node.config import DatasetConfig, PolicyConfig
from owner_node.consent.plan_rules import SyntheticWork
from owner_node.local.charge import LocalWork
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.together import synthesise_together

if TYPE_CHECKING:
    from owner_node.engines.pinned import PinnedData

_WARNED, _REFUSED = 0.05, 0.2
"""Expected noise of a small table, as a share of the records: from here on results are poor, or worthless."""
_SMALL_TABLE = 16
"""Cells."""
_MEAN_OF_NOISE = 0.4
"""The expected total variation per cell, by standard deviations of its noise: half of about 0.8."""


def prepare_synthesis(
    work_id: str,
    dataset: DatasetConfig,
    data: "PinnedData",
    schema: Schema,
    epsilon: Decimal,
    *,
    policy: PolicyConfig,
    now: datetime,
    place: str = "",
) -> "SynthesisJob":
    """Plan a synthetic table and check for every foreseeable error; nothing is charged.

    Args:
        work_id: Id of the work.
        dataset: The data set.
        data: Its records.
        schema: The attributes to model, in the order of the table.
        epsilon: ε for the whole record of a person.
        policy: The owner's policy; `LocalCharges.judge` applies it.
        now: The time.
        place: Location of the source; empty for data passed in memory.

    Raises:
        UsageError: If a setting is not possible.
        UnusableDataError: If there are too many records.
    """
    attributes = schema.attributes
    if dataset.max_records_per_person != 1:
        raise UsageError(
            "a synthetic table needs data in which a person has one record",
            "max_records_per_person is declared to be more: make one record of each person first",
        )
    if len(attributes) > MOST_ATTRIBUTES:
        raise UsageError(
            f"{len(attributes)} attributes, a model has at most {MOST_ATTRIBUTES}",
            "choose some: --attributes a,b,c",
        )
    if data.n_records > MOST_RECORDS:
        raise UnusableDataError(
            f"{data.n_records:,} records, a synthetic table has at most {MOST_RECORDS:,}",
            "make it of a part of the records",
        )
    names = tuple(each.name for each in attributes)
    document = {
        "kind": "synthetic",
        "dataset": dataset.name,
        "epsilon": epsilon,
        "schema": [each.to_document() for each in attributes],
    }
    asked = SyntheticWork(attributes=names, epsilon=epsilon, policy=policy, dataset=dataset, today=now.date())
    work = LocalWork(work_id, document, asked, data, Product.SYNTHETIC, place)
    job = SynthesisJob(attributes, epsilon, work, now)
    check_noise(job.design)
    return job


@dataclass(frozen=True, slots=True, repr=False)
class SynthesisJob:
    """A synthetic table that is planned and possible."""

    attributes: tuple[Attribute, ...]
    """What is modelled, in the order of the table."""
    epsilon: Decimal
    """ε for the whole record of a person."""
    work: LocalWork
    """Its charge, and the data."""
    created: datetime

    @property
    def n_records(self) -> int:
        """Number of records, of the data and of the table."""
        return self.work.data.n_records

    @property
    def noise_share(self) -> float:
        """Expected total variation that noise brings to a table of 4 x 4 cells; from public numbers."""
        deviation = self.design.pair_variance**0.5
        return float(_SMALL_TABLE * _MEAN_OF_NOISE * deviation / self.n_records)

    @property
    def worth(self) -> str:
        """Say what to expect of relations between attributes."""
        if len(self.attributes) < 2:
            return ""
        noise = (
            f"noise moves about {percent_text(min(self.noise_share, 1.0))} of the records in a table of 4 x 4"
        )
        return f"{noise}: too few records for a model" if self.noise_share > _WARNED else noise

    def check_worth(self, *, anyway: bool) -> None:
        """Refuse what is expected to be worthless.

        Raises:
            RefusedError: If noise is expected to hide the relations between attributes.
        """
        if not anyway and len(self.attributes) > 1 and self.noise_share > _REFUSED:
            needed = round(self.n_records * self.noise_share / _WARNED, -2)
            raise RefusedError(
                f"the table is expected to be worthless: {self.worth}",
                f"about {needed:,.0f} records would do for this epsilon and number of attributes; choose a "
                "larger epsilon, fewer attributes or --product masked, or insist with --anyway",
                {"noise_share": f"{self.noise_share:.3g}"},
            )

    def make(self, _fragment: Path, progress: Progress) -> tuple[Mapping[str, Any], Generator[pa.Table]]:
        """Ask the rounds, fit the model and draw the records; return the report, and the table."""
        progress.begin("counting", 0)
        engine = self.work.data.records.engine
        columns = engine.sample(engine.n_records).columns
        codes = [columns[each.name] - each.lower for each in self.attributes]
        made = synthesise_together(self.design, [codes], [SystemBits()])
        progress.end()
        names = [each.name for each in self.attributes]
        relations = [[names[i], names[j]] for i, j in made.measured.pairs]
        drawn = [
            from_units(each, found + each.lower)
            for each, found in zip(self.attributes, made.codes, strict=True)
        ]
        how = f"drawn from a model of noisy counts, ε {bound_text(self.epsilon)} for the whole record"
        schema = pa.schema([described(each, how) for each in self.attributes])

        def pieces() -> Generator[pa.Table]:
            yield pa.table(drawn, schema=schema)

        return self._report(relations), pieces()

    @property
    def design(self) -> Design:
        """What the table follows from, beside the noisy counts."""
        return Design(self.attributes, self.n_records, self.epsilon)

    def _report(self, relations: list[list[str]]) -> dict[str, Any]:
        """Return the report: how the table was made, what is promised and what is not hidden."""
        return {
            "id": self.work.id,
            "product": str(Product.SYNTHETIC),
            "dataset": self.work.asked.dataset.name,
            "created": self.created.isoformat(timespec="seconds"),
            "version": __version__,
            "epsilon": self.epsilon,
            "records": self.n_records,
            "order": "drawn",
            "schema": [each.to_document() for each in self.attributes],
            "attributes": [each.name for each in self.attributes],
            "relations": relations,
            "promises": list(promises(self.epsilon)),
            "invariants": list(invariants(self.n_records)),
        }
