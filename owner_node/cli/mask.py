"""`owner-node mask`: a masked copy of one data set, for its owner, charged to its budget."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from common.cli import console
from common.cli.progress_bar import shown_progress
from common.cli.release_options import Attributes, Dataset, Epsilon, K, MechanismId, Pairs, RankNoise, Weights
from common.cli.sections import Listing, show
from common.clock import utc_now
from common.errors import ConfigurationError
from common.model.mechanisms import CARRIER_RULE
from common.model.products import Product
from common.planning.arguments import ReleaseArguments, parse_own_arguments
from common.planning.names import split_names
from common.progress import Progress
from common.release.synthetic_table import counts_path, report_path
from common.words import synthetic
from common.words.guarantee import invariants, promises
from common.words.numbers import bound_text, cost_text, left_text
from common.words.product import derived
from owner_node import config
from owner_node.cli.worth import require_worth
from owner_node.config import OwnerConfig
from owner_node.loading import schema_of
from owner_node.loading.advice import left_out_lines
from owner_node.local.charge import LocalData, Standing, load_to_charge, new_id
from owner_node.local.mask import prepare_mask
from owner_node.local.masked_tables import MaskedTables, check_free, check_out, deliver, make_table
from owner_node.local.synthetic import SynthesisJob, prepare_synthesis
from owner_node.release.records import Records
from owner_node.views.details import attribute_table

if TYPE_CHECKING:
    from owner_node.local.mask import MaskJob
    from owner_node.masking.foreseen import Forecast


DeltaOption = Annotated[
    str,
    typer.Option(
        "--delta",
        help="With --product synthetic: δ of (ε, δ)-differential privacy, which needs less noise.",
        show_default="0",
    ),
]
ProductOption = Annotated[
    Product,
    typer.Option("--product", help="What to make: masked records, or records made of noisy counts."),
]
OutOption = Annotated[
    Path, typer.Option("--out", help="File to write, .csv or .parquet; a report goes beside it.")
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="Id of the mask; the same id and arguments return the same file without a charge.",
        show_default="made",
    ),
]


def mask(
    dataset: Dataset,
    epsilon: Epsilon,
    out: OutOption,
    config_file: console.ConfigOption = None,
    k: K = "",
    mechanism: MechanismId = "",
    rank_noise: RankNoise = "",
    attributes: Attributes = "",
    weights: Weights = "",
    product: ProductOption = Product.MASKED,
    delta: DeltaOption = "",
    pairs: Pairs = "",
    work_id: IdOption = None,
    yes: console.YesOption = False,
    anyway: console.AnywayOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Mask one data set into a file, with the promises of a release of one owner. Charges its budget.

    With --product synthetic, records are made of noisy counts, and epsilon protects the whole
    record of a person. Works with or without the daemon. Sends nothing.
    """
    owner = config.load(config_file)
    arguments = parse_own_arguments(
        owner.owner.id,
        work_id or new_id(_MADE[product].prefix, utc_now),
        dataset,
        epsilon=epsilon,
        product=product,
        delta=delta,
        k=k,
        mechanism=mechanism,
        attributes=split_names(attributes),
        pairs=split_names(pairs),
        weights=split_names(weights),
        rank_noise=split_names(rank_noise),
    )
    chosen = owner.dataset(dataset)
    check_out(out)
    if not as_json:
        console.note(f"loading data set {dataset!r}")
    # The policy refuses attributes that are named but not allowed.
    allowed = arguments.attributes or owner.admitted(chosen)
    records = Records.open(owner.owner.state_dir, utc_now)
    with (
        records.db,
        shown_progress(silent=as_json) as progress,
        closing(load_to_charge(owner, chosen, allowed, records, progress)) as data,
    ):
        progress.end()
        schema = schema_of(chosen, allowed, data.n_records, owner.policy.limits)
        given = LocalData(chosen, data, schema, records, owner.policy, utc_now(), chosen.origin.place)
        job = _MADE[product].prepare(arguments, given)
        for line in () if as_json else left_out_lines(data.counts.left_out):
            console.print_line(line)
        _make(job, owner, out, progress, yes=yes, anyway=anyway, as_json=as_json)


class _Made(NamedTuple):
    """How a product is made."""

    prefix: str
    """Begins the ids of such work."""
    prepare: "Callable[[ReleaseArguments, LocalData], MaskJob | SynthesisJob]"


_MADE: Mapping[Product, _Made] = {
    Product.MASKED: _Made("mask", prepare_mask),
    Product.SYNTHETIC: _Made("synthetic", prepare_synthesis),
}


def _make(
    job: "MaskJob | SynthesisJob",
    owner: OwnerConfig,
    out: Path,
    progress: Progress,
    *,
    yes: bool,
    anyway: bool,
    as_json: bool,
) -> None:
    work, before = job.work, job.work.standing()
    if before is Standing.NEW:
        check_free(out)
        if isinstance(job, SynthesisJob):
            work.judge()
            if not as_json:
                _show_model(job, work.remaining())
            job.check_worth(anyway=anyway)
        else:
            expected = job.foresee()
            work.judge(lambda: expected)
            if not as_json:
                _show_plan(job, expected, work.remaining())
            require_worth(expected, anyway=anyway, otherwise="nothing was charged")
        cost = cost_text(work.charge, work.asked.most.delta)
        question = f"Charge {cost} to budget {work.budget!r}?"
        console.require_yes(question, yes=yes, otherwise="nothing was charged")
    if not as_json:
        console.note(f"{work.id} was made before" if before is Standing.DELIVERED else f"making {work.id}")
    try:
        tables = MaskedTables(owner.owner.state_dir)
        made = make_table(job, tables, "owner-node mask", progress)
        counts = tables.counts_path(work.id) if "seed" in made else None
        report = deliver(tables.table_path(work.id), made, out, counts)
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or out} cannot be written: {error.strerror}",
            hint=f"fix that and retry with --id {work.id}: it is not charged again",
        ) from None
    _show(job, report, out, charged=before is Standing.NEW, as_json=as_json)


def _show_plan(job: "MaskJob", expected: "Forecast", left: Decimal) -> None:
    (task,) = job.plan.tasks
    console.print_line(f"masking data set {task.dataset!r}, ε {bound_text(job.plan.epsilon)}")
    carriers = [f"{attribute.name}: {job.plan.carrier_reason(attribute)}" for attribute in task.attributes]
    show(
        [
            attribute_table(
                [attribute.to_document() for attribute in task.attributes], expected.to_document()
            ),
            Listing("What carries the values, and why", [CARRIER_RULE, *carriers]),
        ]
    )
    if expected.loss:
        console.print_line(expected.loss)
    _show_promises(promises(job.plan), invariants(job.plan))
    console.print_line(
        f"charge: {bound_text(job.work.charge)} of the {left_text(left)} that budget {job.work.budget!r} has "
        f"left ({job.work.asked.policy.accounting} accounting)"
    )


def _show_model(job: SynthesisJob, left: Decimal) -> None:
    design, schema = job.design, job.schema
    names, cost = ", ".join(each.name for each in job.released), cost_text(design.epsilon, design.delta)
    console.print_line(f"{design.n_records:,} synthetic records of {names}: {cost} for the whole record")
    if job.worth:
        console.print_line(f"relations between attributes: {job.worth}")
    promised = (
        *synthetic.promises(design.epsilon, design.delta),
        *synthetic.exclusions(schema.structural_zeros),
        *derived(schema.following),
    )
    _show_promises(promised, synthetic.invariants(design.n_records))
    work = job.work
    console.print_line(
        f"charge: {cost_text(work.charge, design.delta)}; budget {work.budget!r} has ε {left_text(left)} left"
    )


def _show_promises(promised: Sequence[str], not_hidden: Sequence[str]) -> None:
    console.print_line()
    show([Listing("What is promised", promised), Listing("What is not hidden", not_hidden)])
    console.print_line()


def _show(
    job: "MaskJob | SynthesisJob",
    report: dict[str, Any],
    out: Path,
    *,
    charged: bool,
    as_json: bool,
) -> None:
    work = job.work
    left, delta = work.remaining(), work.asked.most.delta
    if as_json:
        console.print_json(
            {
                "id": work.id,
                "charged": work.charge if charged else 0,
                "charged_delta": delta if charged else 0,
                "budget": work.budget,
                "remaining": left,
                "file": str(out),
                "report": report,
                "left_out": work.data.counts.left_out,
            }
        )
        return
    files = [f"{out} ({int(report['records']):,} records, {report['order']})"]
    if "counts" in report:
        files.append(f"{counts_path(out)} (noisy counts)")
    console.print_line(f"made: {', '.join(files)}, {report_path(out)}")
    what = f"charged {cost_text(work.charge, delta)}" if charged else "charged nothing"
    console.print_line(f"{what}; budget {work.budget!r} has {left_text(left)} left; id {work.id}")
