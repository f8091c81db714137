"""`owner-node mask`: a masked copy of one data set, for its owner, charged to its budget."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common import console
from common.errors import ConfigurationError, ExitCode
from owner_node import config
from owner_node.config import DatasetConfig, OwnerConfig

if TYPE_CHECKING:
    from owner_node.local_mask import MaskJob, Originals
    from owner_node.mask_plan import MaskRequest
    from owner_node.records import Records

DatasetOption = Annotated[str, typer.Option("--dataset", help="Name of the data set.")]
EpsilonOption = Annotated[str, typer.Option("--epsilon", help="Budget for all attributes together.")]
OutOption = Annotated[
    Path, typer.Option("--out", help="File to write, .csv or .parquet; a report goes beside it.")
]
KOption = Annotated[
    str, typer.Option("--k", help="Minimum cluster size, or auto: chosen for every attribute.")
]
MechanismOption = Annotated[
    str | None, typer.Option("--mechanism", help="Mechanism id.", show_default="idp-joint")
]
AttributesOption = Annotated[
    str | None, typer.Option("--attributes", help="Mask only these, in this order.", show_default=False)
]
WeightsOption = Annotated[
    str | None,
    typer.Option("--weights", help="Share epsilon by weight: a=2,b=1.", show_default="equal shares"),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="The same id with the same arguments gives the same file again, uncharged.",
        show_default="made",
    ),
]


def mask(
    dataset: DatasetOption,
    epsilon: EpsilonOption,
    out: OutOption,
    config_file: console.ConfigOption = None,
    k: KOption = "auto",
    mechanism: MechanismOption = None,
    attributes: AttributesOption = None,
    weights: WeightsOption = None,
    work_id: IdOption = None,
    yes: console.YesOption = False,
    as_json: console.JsonOption = False,
) -> int:
    """Mask one data set into a file, with the promises of a release of one owner. Charges its budget.

    Works with or without the daemon. Sends nothing.
    """
    owner = config.load(config_file)
    chosen = owner.dataset(dataset)
    request = _request(epsilon, k, mechanism, attributes, weights)
    from owner_node.masked_delivery import check_out

    check_out(out)
    if not as_json:
        console.note(f"loading data set {dataset!r}")
    originals = load_originals(owner, chosen, request)
    from owner_node.records import Records

    records = Records.open(owner.owner.state_dir, _now)
    with records.db:
        return _masked(owner, chosen, request, originals, records, work_id, out, yes=yes, as_json=as_json)


def _now() -> datetime:
    return datetime.now(UTC)


def _request(
    epsilon: str, k: str, mechanism: str | None, attributes: str | None, weights: str | None
) -> "MaskRequest":
    from common.masking_arguments import distinct, parse_k, parse_mechanism, parse_weights
    from common.privacy import parse_epsilon
    from owner_node.mask_plan import MaskRequest

    size = parse_k(k)
    return MaskRequest(
        parse_epsilon(epsilon),
        size,
        parse_mechanism(mechanism or "", size),
        distinct("attribute", _listed(attributes)),
        parse_weights(_listed(weights)),
    )


def _listed(text: str | None) -> list[str]:
    return [each.strip() for each in text.split(",")] if text else []


def load_originals(owner: OwnerConfig, dataset: DatasetConfig, request: "MaskRequest") -> "Originals":
    """Load what is to be masked, and nothing else.

    Raises:
        DataError: If the source cannot be used.
        UsageError: If an attribute is not declared.
    """
    from owner_node.local_mask import Originals
    from owner_node.sources import load, schema_of

    # Attributes that are named and not allowed are for the policy to refuse.
    allowed = request.attributes or owner.policy.attributes
    loaded = load(dataset, allowed or None)
    schema = schema_of(dataset, allowed, loaded.n_records, owner.policy.min_k)
    return Originals(dataset.name, schema, loaded.columns, dataset.taxonomies, loaded.digest)


def _masked(
    owner: OwnerConfig,
    dataset: DatasetConfig,
    request: "MaskRequest",
    originals: "Originals",
    records: "Records",
    work_id: str | None,
    out: Path,
    *,
    yes: bool,
    as_json: bool,
) -> int:
    from common.masking_arguments import parse_id
    from owner_node.local_charge import LocalCharges, Standing, new_id
    from owner_node.local_mask import SHUFFLED, judge_mask, make_masked, prepare_mask
    from owner_node.masked_delivery import check_free, deliver
    from owner_node.masked_tables import MaskedTables

    job = prepare_mask(
        request,
        originals,
        budget=dataset.budget,
        total_epsilon=dataset.total_epsilon,
        policy=owner.policy,
        work_id=parse_id(work_id) if work_id else new_id("mask", _now),
        owner=owner.owner.id,
        order=SHUFFLED,
        now=_now(),
    )
    charges, tables = LocalCharges(records), MaskedTables(owner.owner.state_dir)
    before = charges.standing(job.work)
    if before is Standing.NEW:
        check_free(out)
        judge_mask(job, owner.policy, charges, _now())
        if not _agreed(job, records, yes=yes, as_json=as_json):
            console.note("nothing was charged")
            return ExitCode.REFUSED
    if not as_json:
        made = before is Standing.DELIVERED
        console.note(f"{job.work.id} was made before" if made else f"masking as {job.work.id}")
    report = make_masked(job, charges, tables, "owner-node mask")
    try:
        told = deliver(tables.table_path(job.work.id), report, out)
    except OSError as error:
        raise ConfigurationError(
            f"{out} cannot be written: {error.strerror}",
            hint=f"it is charged and kept: the same command with --id {job.work.id} and another --out",
        ) from None
    _show(job, told, out, records, charged=before is Standing.NEW, as_json=as_json)
    return ExitCode.DONE


def _agreed(job: "MaskJob", records: "Records", *, yes: bool, as_json: bool) -> bool:
    """Show what would be charged and promised, and ask."""
    from common.errors import BalanceError

    work = job.work
    left = records.ledger.balance(work.budget, work.total_epsilon).remaining
    cost = work.charge or Decimal(0)
    if cost > left:
        raise BalanceError(work.budget, format(cost, "f"), format(left, "f"))
    if not as_json:
        _show_plan(job, left)
    return yes or console.confirm(f"Charge {cost:f} to budget {work.budget!r} and mask?")


def _show_plan(job: "MaskJob", left: Decimal) -> None:
    from common.guarantee import invariants, promises

    (task,) = job.plan.tasks
    console.table(
        f"masking data set {task.dataset!r}, ε {job.plan.epsilon:f}",
        ("attribute", "ε", "ε joint", "k", "mechanism", "expected error", ""),
        [
            (
                each.name,
                each.epsilon,
                "unbounded" if each.epsilon_joint is None else each.epsilon_joint,
                each.k,
                each.mechanism,
                f"{each.expected_error:.3g}",
                "its mean would do as well" if each.expected_error >= 1 else "",
            )
            for each in task.attributes
        ],
    )
    for title, lines in (
        ("What is promised", promises(job.plan)),
        ("What is not hidden", invariants(job.plan)),
    ):
        console.print_line()
        console.print_line(title)
        for line in lines:
            console.print_line(f"- {line}")
    console.print_line()
    work = job.work
    console.print_line(
        f"charge: {work.charge or 0:f} of the {left:f} that budget {work.budget!r} has left "
        f"({work.accounting} accounting)"
    )


def _show(
    job: "MaskJob",
    report: dict[str, Any],
    out: Path,
    records: "Records",
    *,
    charged: bool,
    as_json: bool,
) -> None:
    from owner_node.masked_delivery import report_path

    work = job.work
    left = records.ledger.balance(work.budget, work.total_epsilon).remaining
    if as_json:
        console.print_json(
            {
                "id": work.id,
                "charged": work.charge if charged else 0,
                "budget": work.budget,
                "remaining": left,
                "file": str(out),
                "report": report,
            }
        )
        return
    console.print_line(f"masked: {out} ({report['records']} records, shuffled), {report_path(out)}")
    what = f"charged {work.charge or 0:f}" if charged else "charged nothing"
    console.print_line(f"{what}; budget {work.budget!r} has {left:f} left; id {work.id}")
