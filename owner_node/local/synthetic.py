"""A synthetic table of one data set, for its owner: records made of noisy counts.

The owner asks itself the rounds of a synthetic release (`common.synthesis`), with the whole noise. All noisy
counts together are ε-differentially private for whole records; the records are made of them alone.
"""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from common.errors import RefusedError, UsageError
from common.model.products import Product
from common.model.schema import Attribute, Schema, with_derived
from common.planning.arguments import ReleaseArguments
from common.planning.synthetic_noise import hidden_by_noise, noise_share
from common.progress import Progress
from common.release.counts import counts_table
from common.release.synthetic_table import records_table, report_of
from common.synthesis.schedule import Design
from common.words.synthetic import expected_noise
from owner_node.consent.plan_rules import SyntheticWork
from owner_node.local.charge import LocalData, LocalWork
from owner_node.local.masked_tables import MadeTable
from owner_node.masking.arrays import SystemBits
from owner_node.synthesis.own_table import own_design, synthesise_together


def prepare_synthesis(arguments: ReleaseArguments, data: LocalData) -> "SynthesisJob":
    """Plan a synthetic table and check for every foreseeable error; nothing is charged.

    Args:
        arguments: The request: a horizontal release of this owner alone, under the work's id.

    Raises:
        UsageError: If a setting is not possible.
        UnusableDataError: If there are too many records.
    """
    dataset, schema = data.dataset, data.schema
    if dataset.max_records_per_person != 1:
        raise UsageError(
            "a synthetic table needs data in which a person has one record",
            "max_records_per_person is declared to be more: make one record of each person first",
        )
    epsilon, delta = arguments.epsilon, arguments.delta
    design = own_design(schema, data.pinned.n_records, epsilon, delta, arguments.pairs)
    zeros = schema.structural_zeros
    document = {
        "kind": "synthetic",
        "dataset": dataset.name,
        "epsilon": epsilon,
        "schema": [attribute.to_document() for attribute in schema.attributes],
        **({"delta": delta} if delta else {}),
        **({"pairs": [list(pair) for pair in arguments.pairs]} if arguments.pairs else {}),
        **({"structural_zeros": [each.to_document() for each in zeros]} if zeros else {}),
        **({"following": [each.to_document() for each in schema.following]} if schema.following else {}),
    }
    asked = SyntheticWork(
        attributes=schema.names,
        epsilon=epsilon,
        delta=delta,
        policy=data.policy,
        dataset=dataset,
        today=data.now.date(),
    )
    work = LocalWork(
        data.records, arguments.release, document, asked, data.pinned, Product.SYNTHETIC, data.place
    )
    return SynthesisJob(schema, design, work, data.now)


@dataclass(frozen=True, slots=True, repr=False)
class SynthesisJob:
    """A synthetic table that is planned and possible."""

    schema: Schema
    """What is modelled, in the order of the table, and what is declared about it."""
    design: Design
    """What the table follows from, beside the noisy counts."""
    work: LocalWork
    """Its charge, and the data."""
    created: datetime

    @property
    def released(self) -> tuple[Attribute, ...]:
        """All attributes in the order of the columns."""
        return with_derived(self.schema.attributes, self.schema.following)

    @property
    def noise_share(self) -> float:
        """Expected total variation that noise brings to a table of 4 x 4 cells; from public numbers."""
        return noise_share(self.design)

    @property
    def worth(self) -> str:
        """Say what to expect of relations between attributes."""
        return expected_noise(self.design)

    def check_worth(self, *, anyway: bool) -> None:
        """Refuse what is expected to be worthless.

        Raises:
            RefusedError: If noise is expected to hide the relations between attributes.
        """
        if not anyway and hidden_by_noise(self.design):
            raise RefusedError(
                f"the table is expected to be worthless: {self.worth}",
                "choose a larger epsilon, fewer attributes or --product masked, or insist with --anyway",
                {"noise_share": f"{self.noise_share:.3g}"},
            )

    def make(self, _fragment: Path, progress: Progress) -> MadeTable:
        """Ask the rounds and make the records."""
        progress.begin("counting", 0)
        design, following, engine = self.design, self.schema.following, self.work.data.records.engine
        columns = engine.sample(engine.n_records).columns
        codes = [columns[attribute.name] - attribute.lower for attribute in design.attributes]
        made = synthesise_together(design, [codes], [SystemBits()])
        progress.end()
        report = {
            "id": self.work.id,
            "dataset": self.work.asked.dataset.name,
            "created": self.created.isoformat(timespec="seconds"),
            **report_of(made.measured, self.schema.structural_zeros, following),
        }

        def pieces() -> Generator[pa.Table]:
            yield records_table(made, following)

        return MadeTable(report, pieces(), counts_table(made.measured))
