"""Masking for notebooks: a DataFrame in, a masked one and a report out, charged to a ledger in a folder.

It needs no daemon, aggregator or certificate. Charges and promises are the same as for `owner-node mask`;
with an owner's own folder, the ledger is the same, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from common import __version__
from common.analysis.noisy_counts import NoisyCounts
from common.analysis.reading import to_frame
from common.arrays import random_order
from common.clock import utc_now
from common.errors import UsageError
from common.model import schema as model
from common.model.mechanisms import DEFAULT_MECHANISM
from common.model.privacy import NO_RANK_NOISE, parse_delta, parse_epsilon
from common.model.products import Product
from common.planning.arguments import parse_k, parse_mechanism, parse_own_arguments, parse_rank_noise
from common.release.counts import measured_in
from common.settings import validate
from owner_node.config import DatasetConfig, PolicyConfig, load
from owner_node.config.dataset import DatasetTable, misdeclared
from owner_node.engines.pinned import PinnedData, in_memory
from owner_node.explore.assessment import ALL_MEASURES, Grid
from owner_node.explore.models import is_installed
from owner_node.explore.sweep import ExploredTable, ExploreRequest, check_question
from owner_node.explore.sweep import explore as sweep
from owner_node.ledger.ledger import Balance
from owner_node.loading import LoadedData, others_of, schema_of
from owner_node.loading.reading import Reading, gather
from owner_node.local.charge import LocalData, Standing, new_id
from owner_node.local.mask import ORIGINAL, prepare_mask
from owner_node.local.masked_tables import MaskedTables, make_table
from owner_node.local.query import answer_query, error_text, prepare_query
from owner_node.local.synthetic import prepare_synthesis
from owner_node.masking.engine import MemoryEngine
from owner_node.masking.questions import Asked, range_texts
from owner_node.release.records import Records
from owner_node.risk.trials import DRAWS, Randomness
from owner_node.risk.utility import MEASURES
from owner_node.sources.findings import Findings
from owner_node.sources.frames import Frame, FrameReader, as_table

__all__ = ["Answer", "Explored", "Masked", "Workspace"]

Schema = Mapping[str, Mapping[str, Any]]
"""Attributes by name, each with the keys of `[dataset.attributes.NAME]` in `owner.toml`."""
_SOURCE = "the DataFrame"


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """The protected form of a DataFrame."""

    frame: pd.DataFrame
    """Masked values, in the order and with the index of the original records; or synthetic records."""
    report: Mapping[str, Any]
    """How it was made, what is promised and what is not hidden; all numbers are texts."""
    id: str
    """Id of the work: the same data, arguments and id give the same frame again, without a charge."""
    counts: NoisyCounts | None = None
    """What a synthetic table was made of, with estimates from it; None for masked values, and for tables of
    versions without it."""

    def __repr__(self) -> str:
        """Return size and id; the values are in `frame`."""
        n_records, n_attributes = self.frame.shape
        return f"Masked({n_records:,} records, {n_attributes} attributes, id {self.id!r})"

    def shuffled(self) -> pd.DataFrame:
        """Return the records in random order and without their index; only this form may be passed on.

        The place or index of a record identifies it to anyone who knows the original data.
        """
        return self.frame.iloc[random_order(len(self.frame))].reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """A noisy answer to one question."""

    answers: tuple[str, ...]
    """The answer as text, exact as it was drawn; of a histogram one number per range."""
    ranges: tuple[Mapping[str, str], ...]
    """What was counted; empty for other questions."""
    error_95: str | None
    """95 of 100 answers, of a histogram each count, are within this of the exact one; None where that depends
    on the data."""
    charged: Decimal
    """What the budget was charged; 0 for an answer that was given before."""
    id: str
    """Id of the work: the same question and id give the same answer again, without a charge."""

    def __repr__(self) -> str:
        """Return the answer with its error in one line."""
        shown = ", ".join(self.answers)
        return f"Answer({shown}" + (f" ± {self.error_95})" if self.error_95 else ")")


@dataclass(frozen=True, slots=True, eq=False)
class Explored:
    """Settings that were tried on a DataFrame. Nothing was charged; keep it as private as the data."""

    settings: pd.DataFrame
    """One row per setting: its arguments, what is left of the data, what attacks find."""
    document: Mapping[str, Any]
    """All results, as `owner-node explore --json` prints them."""

    def __repr__(self) -> str:
        """Return the number of settings and the first sentence of the recommendation."""
        return f"Explored({len(self.settings)} settings; {self.document['recommendation']['reasons'][0]})"


class Workspace:
    """A folder with a ledger, and the budget in it that is charged.

    Args:
        folder: Folder of ledger and results, private to this user; created if absent.
        budget: Name of the budget. A budget belongs to data permanently: other data need another budget.
        total_epsilon: The total of the budget for the lifetime of the data, a decimal as text.
        total_delta: The most that all δ may add up to; none without it.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": range(20, 80), "ward": ["A", "B"] * 30})
        >>> schema = {
        ...     "age": {"type": "integer", "min": 0, "max": 120},
        ...     "ward": {"type": "category", "categories": ["A", "B"]},
        ... }
        >>> workspace = Workspace("workspace", budget="patients", total_epsilon="3")
        >>> masked = workspace.mask(frame, schema, epsilon="1", k=10, id="first")
        >>> masked.frame.shape
        (60, 2)
        >>> masked.report["epsilon_joint"]
        '1'
        >>> workspace.balance().remaining
        Decimal('2')
        >>> again = workspace.mask(frame, schema, epsilon="1", k=10, id="first")
        >>> again.frame.equals(masked.frame), workspace.balance().remaining
        (True, Decimal('2'))
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        budget: str,
        total_epsilon: str | Decimal,
        total_delta: str | Decimal = "",
    ) -> None:
        self.folder = Path(folder).absolute()
        """Folder of ledger and results."""
        self.budget = budget
        self.total_epsilon = parse_epsilon(str(total_epsilon))
        """The total of the budget."""
        self._owner, self._policy = "notebook", PolicyConfig(total_delta=parse_delta(str(total_delta)))
        self._dataset: DatasetConfig | None = None

    @classmethod
    def of_owner(cls, config: str | Path, dataset: str) -> "Workspace":
        """Return the workspace of an owner's data set: its ledger, budget, policy and schema.

        Args:
            config: The owner's `owner.toml`.

        Raises:
            ConfigurationError: If the file cannot be used.
            UsageError: If there is no such data set.
        """
        owner = load(Path(config))
        declared = owner.dataset(dataset)
        workspace = cls(owner.owner.state_dir, budget=declared.budget, total_epsilon=declared.total_epsilon)
        workspace._owner, workspace._policy, workspace._dataset = owner.owner.id, owner.policy, declared
        return workspace

    def balance(self) -> Balance:
        """Return the balance of the budget."""
        with (records := self._records()).db:
            return records.ledger.balance(self.budget, self.total_epsilon)

    def mask(
        self,
        frame: Frame,
        schema: Schema | None = None,
        *,
        epsilon: str | Decimal,
        mechanism: str = DEFAULT_MECHANISM,
        rank_noise: str | Decimal | Mapping[str, str | Decimal] | None = None,
        k: int | Literal["auto"] = "auto",
        attributes: str | Sequence[str] = (),
        weights: Mapping[str, str | Decimal] | None = None,
        identifier: str | Sequence[str] = (),
        max_records_per_person: int = 1,
        missing: Literal["error", "drop", "category"] = "error",
        id: str | None = None,  # noqa: A002 - what it is called everywhere
        anyway: bool = False,
    ) -> Masked:
        """Mask a DataFrame and charge the budget. Columns that are not declared are not read.

        Args:
            frame: Original records, `(n_records, n_columns)`: a DataFrame of pandas, or any table with the C
                stream of Arrow, such as those of polars and pyarrow, whose records are numbered from 0.
            schema: The attributes; None for those of the owner's data set.
            epsilon: For all attributes together, a decimal as text.
            mechanism: Mechanism id, or "auto": chosen for every attribute.
            rank_noise: Scale of the noise on the assignment of values to records, as a share of the ranks, a
                decimal as text; or by attribute, with the default for the others; None for the default,
                0.03.
            k: Minimum cluster size.
            attributes: Mask only these, in this order; empty for all.
            weights: Share epsilon by weight; None for equal shares.
            identifier: Columns that identify a person; never masked, and never in the result.
            max_records_per_person: Most records that one person has.
            missing: Treatment of a missing value: an error, dropping the record, or a category. Those of
                numbers and dates are kept where `missing` stands at the attribute.
            id: The same id with the same arguments and data gives the same result again, without a charge;
                without an id, every call draws new noise and is charged.
            anyway: Mask also if the result is expected to be worthless: half of its means would do.

        Returns:
            The masked records and a report.

        Raises:
            ConfigurationError: If the schema is wrong, with all its problems.
            DataError: If the data do not fit the schema, by column and count, never a value.
            UsageError: If an argument is not valid, or the result is expected to be worthless.
            UnusableDataError: If there are fewer than k records, or a domain is too wide.
            RefusedError: If the owner's policy does not allow it.
            BalanceError: If the budget does not cover it.
            ConflictError: If the id was used for other work.
        """
        dataset = self._declare(schema, identifier, max_records_per_person, missing)
        arguments = parse_own_arguments(
            self._owner,
            new_id("mask", utc_now) if id is None else id,
            dataset.name,
            epsilon=str(epsilon),
            k=str(k),
            mechanism=mechanism,
            attributes=[attributes] if isinstance(attributes, str) else list(attributes),
            weights=[f"{name}={weight}" for name, weight in (weights or {}).items()],
            rank_noise=_rank_noise_texts(rank_noise),
        )
        loaded, of_records, index = self._load(frame, dataset, arguments.attributes)
        with self._open_state(dataset, loaded) as (records, data):
            given = LocalData(dataset, data, of_records, records, self._policy, utc_now())
            job = prepare_mask(arguments, given, ORIGINAL)
            tables = MaskedTables(self.folder)
            if job.work.standing() is Standing.NEW:
                expected = job.foresee()
                job.work.judge(lambda: expected)
                expected.check_worth(anyway=anyway)
            report = make_table(job, tables, "a notebook")
        table = pq.read_table(tables.table_path(job.work.id))
        return Masked(to_frame(table, job.plan.released, index), report, job.work.id)

    def synthesise(
        self,
        frame: Frame,
        schema: Schema | None = None,
        *,
        epsilon: str | Decimal,
        delta: str | Decimal = "",
        attributes: str | Sequence[str] = (),
        pairs: Sequence[tuple[str, str]] = (),
        identifier: str | Sequence[str] = (),
        missing: Literal["error", "drop", "category"] = "error",
        structural_zeros: Sequence[Mapping[str, Any]] = (),
        id: str | None = None,  # noqa: A002 - what it is called everywhere
        anyway: bool = False,
    ) -> Masked:
        """Make as many records as there are from noisy counts, and charge the budget.

        Args:
            frame: Original records, `(n_records, n_columns)`; one of each person.
            schema: As in `mask`.
            epsilon: For the whole record of a person, a decimal as text.
            delta: δ of (ε, δ)-differential privacy; the workspace's policy must allow it.
            attributes: Count only these; empty for all.
            pairs: Count only the tables of these pairs; empty for those of all.
            identifier: As in `mask`.
            missing: As in `mask`.
            structural_zeros: What no record is, such as `[{"age": {"max": 15}, "status": ["married"]}]`.
            id: As in `mask`.
            anyway: Also if noise hides the relations.

        Returns:
            The records, which are nobody's, and a report.

        Raises:
            TesseraError: As `mask` does.
        """
        dataset = self._declare(schema, identifier, 1, missing, structural_zeros)
        arguments = parse_own_arguments(
            self._owner,
            new_id("synthetic", utc_now) if id is None else id,
            dataset.name,
            epsilon=str(epsilon),
            product=Product.SYNTHETIC,
            delta=str(delta),
            attributes=[attributes] if isinstance(attributes, str) else list(attributes),
            pairs=[":".join(pair) for pair in pairs],
        )
        loaded, of_records, _ = self._load(frame, dataset, arguments.attributes)
        with self._open_state(dataset, loaded) as (records, data):
            given = LocalData(dataset, data, of_records, records, self._policy, utc_now())
            job = prepare_synthesis(arguments, given)
            tables = MaskedTables(self.folder)
            if job.work.standing() is Standing.NEW:
                job.work.judge()
                job.check_worth(anyway=anyway)
            report = make_table(job, tables, "a notebook")
        table = pq.read_table(tables.table_path(job.work.id))
        index = pd.RangeIndex(table.num_rows)
        counts = None
        if "seed" in report:
            published = pq.read_table(tables.counts_path(job.work.id))
            counts = NoisyCounts(measured_in(job.design, published), job.schema.following)
        return Masked(to_frame(table, job.released, index), report, job.work.id, counts)

    def query(
        self,
        frame: Frame,
        statistic: str,
        attribute: str,
        schema: Schema | None = None,
        *,
        epsilon: str | Decimal,
        share: str | Decimal | None = None,
        equals: str | None = None,
        at_least: str | None = None,
        below: str | None = None,
        bins: Sequence[str] = (),
        identifier: str | Sequence[str] = (),
        max_records_per_person: int = 1,
        missing: Literal["error", "drop", "category"] = "error",
        id: str | None = None,  # noqa: A002 - what it is called everywhere
    ) -> Answer:
        """Ask one question about one attribute and charge the budget.

        Args:
            frame: Original records, `(n_records, n_columns)`.
            statistic: "median", "maximum", "second-maximum", "quantile", "sum", "mean", "count", "histogram".
            schema: As in `mask`.
            epsilon: Charge of the whole answer, a decimal as text.
            share: Which quantile.
            equals: Count this value.
            at_least: Count from this value on.
            below: Count below this value.
            bins: Lower ends of the ranges of a histogram.
            identifier: As in `mask`.
            max_records_per_person: As in `mask`.
            missing: As in `mask`.
            id: As in `mask`.

        Raises:
            TesseraError: As `mask` does.
        """
        dataset = self._declare(schema, identifier, max_records_per_person, missing)
        loaded, of_records, _ = self._load(frame, dataset, [attribute])
        which = None if share is None else str(share)
        asked = Asked(statistic, str(epsilon), which, equals, at_least, below, list(bins))
        question = asked.about(of_records.by_name[attribute], dataset.max_records_per_person)
        work_id = new_id("query", utc_now) if id is None else id
        with self._open_state(dataset, loaded) as (records, data):
            query = prepare_query(
                question, dataset, data, records, policy=self._policy, work_id=work_id, today=utc_now().date()
            )
            new = query.work.standing() is Standing.NEW
            if new:
                query.work.judge()
            values = answer_query(query)
        charged = query.work.charge if new else Decimal(0)
        return Answer(values, tuple(range_texts(question)), error_text(query), charged, work_id)

    def explore(
        self,
        frame: Frame,
        schema: Schema | None = None,
        *,
        epsilon: Sequence[str] = ("0.1", "0.5", "2"),
        k: Sequence[int | Literal["auto"]] = ("auto",),
        mechanism: Sequence[str] = (DEFAULT_MECHANISM,),
        rank_noise: Sequence[str] = ("0", "0.03", "0.1"),
        repetitions: int = 5,
        identifier: str | Sequence[str] = (),
        max_records_per_person: int = 1,
        missing: Literal["error", "drop", "category"] = "error",
    ) -> Explored:
        """Try settings: what is left of the data, and what an intruder finds. Charges nothing.

        Args:
            frame: Original records, `(n_records, n_columns)`.
            schema: As in `mask`.
            epsilon: Budgets to try.
            k: Minimum cluster sizes to try.
            mechanism: Mechanisms to try.
            rank_noise: Rank noises to try.
            repetitions: Draws of each setting.
            identifier: As in `mask`.
            max_records_per_person: As in `mask`.
            missing: As in `mask`.

        Raises:
            TesseraError: As `mask` does, if no setting can be tried.
        """
        dataset = self._declare(schema, identifier, max_records_per_person, missing)
        loaded, of_records, _ = self._load(frame, dataset, ())
        noises = tuple(parse_rank_noise([noise]).everywhere or NO_RANK_NOISE for noise in rank_noise)
        grid = Grid(
            tuple(parse_epsilon(str(value)) for value in epsilon), tuple(parse_k(str(value)) for value in k),
            tuple(map(parse_mechanism, mechanism)), noises,
        )  # fmt: skip
        measures = ALL_MEASURES if is_installed() else tuple(MEASURES)
        request = ExploreRequest(grid, repetitions, min(DRAWS, repetitions), measures)
        check_question(request)
        table = ExploredTable(dataset.name, of_records, MemoryEngine(loaded.columns), dataset.taxonomies)
        about = {"created": utc_now().isoformat(timespec="seconds"), "version": __version__}
        document = sweep(
            table, request, about, Randomness.of_system(), lambda _done, _all: None
        ).to_document()
        return Explored(pd.json_normalize(document["cells"]), document)

    def _declare(
        self,
        schema: Schema | None,
        identifier: str | Sequence[str],
        most_records: int,
        missing: str,
        structural_zeros: Sequence[Mapping[str, Any]] = (),
    ) -> DatasetConfig:
        if schema is None:
            if self._dataset is None:
                raise UsageError("there is no schema", "declare the attributes, as in owner.toml")
            return self._dataset
        if not isinstance(schema, Mapping):
            raise UsageError(
                f"a schema is a mapping of attributes, not {type(schema).__name__}",
                'write {"age": {"type": "integer", "min": 0, "max": 120}}',
            )
        document = {
            "name": self.budget,
            "source": _SOURCE,
            "total_epsilon": self.total_epsilon,
            "identifier": identifier if isinstance(identifier, str) else list(identifier),
            "max_records_per_person": most_records,
            "missing": missing,
            "structural_zeros": [_plain_table(rule) for rule in structural_zeros],
            "attributes": {name: _plain_table(table) for name, table in schema.items()},
        }
        return validate(DatasetTable, document, Path("schema"), misdeclared).config()

    def _load(
        self, frame: Frame, dataset: DatasetConfig, named: Sequence[str]
    ) -> tuple[LoadedData, model.Schema, pd.Index]:
        """Parse the columns like those of a file; return them with the index of their records."""
        table = as_table(frame)
        allowed = named or self._policy.attributes
        declared = schema_of(dataset, None, 0)
        unknown = [name for name in named if name not in declared.by_name]
        if unknown:
            hint = f"declared attributes: {', '.join(declared.names)}"
            raise UsageError(f"no attribute {', '.join(map(repr, unknown))}", hint)
        chosen = tuple(
            attribute for attribute in declared.attributes if not allowed or attribute.name in allowed
        )
        # The source drops records with a missing value, since it knows their index.
        others = others_of(dataset, chosen)
        source = FrameReader(
            table,
            dropping=dataset.dropping,
            identifiers=dict(zip(dataset.identifier, dataset.normal_forms, strict=True)),
            others=[attribute.name for attribute in others],
            na_values=dataset.na_values,
        )
        strict, findings = dataset.without_dropping(), Findings()
        loaded = gather(Reading(strict, chosen, source, findings, others))
        findings.check(dataset.name, _SOURCE)
        schema = schema_of(dataset, allowed, loaded.n_records, self._policy.limits)
        index = table.index if isinstance(table, pd.DataFrame) else pd.RangeIndex(table.num_rows)
        return loaded, schema, index[np.flatnonzero(source.kept)]

    @contextmanager
    def _open_state(self, dataset: DatasetConfig, loaded: LoadedData) -> Iterator[tuple[Records, PinnedData]]:
        """Open the state, and pin the data with what recognises them."""
        records = self._records()
        with (
            records.db,
            closing(in_memory(dataset, loaded, source_key=records.own_keys.source_key())) as data,
        ):
            yield records, data

    def _records(self) -> Records:
        return Records.open(self.folder, utc_now)


def _rank_noise_texts(asked: str | Decimal | Mapping[str, str | Decimal] | None) -> list[str]:
    if asked is None:
        return []
    if isinstance(asked, Mapping):
        return [f"{name}={value}" for name, value in asked.items()]
    # A text may have the form of the command line, too: "0.05,age=0.2".
    return str(asked).split(",")


def _plain_table(table: Any) -> Any:
    """Return an attribute's settings as in a file, with decimals as they were written."""
    return {key: _plain(value) for key, value in table.items()} if isinstance(table, Mapping) else table


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, datetime):
        return value.date() if value.time() == time.min else value
    if isinstance(value, Mapping):
        return _plain_table(value)
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
