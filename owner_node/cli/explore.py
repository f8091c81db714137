"""`owner-node explore`: the utility and the disclosure risk of releases of an owner's own data."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from common import __version__
from common.cli import console
from common.cli.progress_bar import progress_bar
from common.cli.release_options import Pairs
from common.clock import utc_now
from common.errors import ConfigurationError, UsageError
from common.files import check_writable, write_atomic
from common.model.mechanisms import rules_of
from common.model.privacy import parse_delta, parse_epsilon, read_decimal
from common.model.products import Product
from common.planning.arguments import distinct, of_product, parse_pairs
from common.planning.names import split_names
from common.words.numbers import bound_cell, bound_text, number_text, percent_text
from owner_node import config
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.config.editing import set_rank_noise
from owner_node.explore.advice import name_of
from owner_node.explore.assessment import F_MEASURE, PMSE, GridSetting
from owner_node.explore.models import INSTALLED_WITH
from owner_node.explore.page import render_page, without_noise
from owner_node.explore.questions import (
    EPSILONS,
    KS,
    RANK_NOISES,
    REPETITIONS,
    grid_of,
    one_setting,
    question_of,
)
from owner_node.explore.sweep import INTERRUPTED, ExploredTable, ExploreRequest, check_known, check_question
from owner_node.explore.sweep import explore as sweep
from owner_node.explore.synthetic import TriedTable, try_tables
from owner_node.explore.target import Target, find_rank_noise, sentences
from owner_node.loading.advice import left_out_lines
from owner_node.risk.attacks import INFERENCE
from owner_node.risk.distortion import warnings
from owner_node.risk.risks import reidentified
from owner_node.risk.trials import Randomness
from owner_node.sources.dependencies import determined
from owner_node.views.earlier import released_plans, released_tasks
from owner_node.views.explorations import table_of

if TYPE_CHECKING:
    from owner_node.explore.results import CellResult, Results


FORMATS = (".html", ".json")

DatasetOption = Annotated[str, typer.Option("--dataset", help="Name of the data set.")]
EpsilonOption = Annotated[str, typer.Option("--epsilon", help="Budgets for all attributes together.")]
KOption = Annotated[str, typer.Option("--k", help="Minimum cluster sizes; auto: chosen for every attribute.")]
MechanismOption = Annotated[
    str | None, typer.Option("--mechanism", help="Mechanism ids, or auto.", show_default="auto")
]
RankNoiseOption = Annotated[
    str,
    typer.Option(
        "--rank-noise",
        help="Noise on ranks, as shares of them; A=W sets it for attribute A.",
        metavar="W,W,A=W",
    ),
]
AttributesOption = Annotated[
    str | None, typer.Option("--attributes", help="Only these attributes.", show_default=False)
]
RepetitionsOption = Annotated[
    int,
    typer.Option(
        "--repetitions", help="Draws of noise per setting.", parser=console.whole_number, metavar="INTEGER"
    ),
]
ClassOption = Annotated[
    str | None,
    typer.Option("--class", help="Attribute that a model predicts, to measure utility.", show_default=False),
]
KnownOption = Annotated[
    str | None,
    typer.Option(
        "--known",
        help="Attributes that an intruder knows about everyone.",
        show_default="all; with --max-reidentified, policy.known",
    ),
]
MeasuresOption = Annotated[
    str | None,
    typer.Option(
        "--measures",
        help="Measures beside the mean SSE, or none: relative-error, variance, divergence, correlation, "
        "pmse, f-measure.",
        show_default="all that are installed",
    ),
]
AttacksOption = Annotated[
    str | None,
    typer.Option(
        "--attacks",
        help="Attacks to try, or none: unchanged, linkage, likelihood, structure, interval, inference, "
        "membership, extremes, scales.",
        show_default="all, of useful settings",
    ),
]
ProductOption = Annotated[
    Product,
    typer.Option("--product", help="What would be made: masked records, or records made of noisy counts."),
]
DeltaOption = Annotated[
    str,
    typer.Option("--delta", help="δ of synthetic tables.", metavar="D", show_default="0"),
]
MaxReidentifiedOption = Annotated[
    str | None,
    typer.Option(
        "--max-reidentified",
        help="Find the smallest rank noise at which no attack re-identifies a larger share of persons.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="File to write, .html or .json.", show_default=False)
]


def explore(
    dataset: DatasetOption,
    config_file: console.ConfigOption = None,
    epsilon: EpsilonOption = EPSILONS,
    k: KOption = KS,
    mechanism: MechanismOption = None,
    rank_noise: RankNoiseOption = RANK_NOISES,
    attributes: AttributesOption = None,
    repetitions: RepetitionsOption = REPETITIONS,
    class_attribute: ClassOption = None,
    known: KnownOption = None,
    measures: MeasuresOption = None,
    attacks: AttacksOption = None,
    max_reidentified: MaxReidentifiedOption = None,
    product: ProductOption = Product.MASKED,
    delta: DeltaOption = "",
    pairs: Pairs = "",
    yes: console.YesOption = False,
    out: OutOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Try settings on one data set: what is left of the data, and what an intruder finds. Charges nothing.

    All draws are made for this alone, and none of them is released. The results are for the owner. With
    --max-reidentified, one setting is tried (default: epsilon 1) with more and more rank noise. With
    --product synthetic, synthetic tables are compared with the records.
    """
    owner = config.load(config_file)
    chosen = owner.dataset(dataset)
    of_masked = {
        "--k": k != KS,
        "--mechanism": mechanism is not None,
        "--rank-noise": rank_noise != RANK_NOISES,
        "--class": class_attribute is not None,
        "--known": known is not None,
        "--measures": measures is not None,
        "--attacks": attacks is not None,
        "--max-reidentified": max_reidentified is not None,
        "--out": out is not None,
    }
    if product is Product.SYNTHETIC:
        _refuse_options("--product synthetic", of_masked)
        table = _load(owner, chosen, split_names(attributes), as_json=as_json)
        with progress_bar("tables", silent=as_json) as progress:
            epsilons = [parse_epsilon(text) for text in distinct("epsilon", split_names(epsilon))]
            bits, named = Randomness.of_system().bits, parse_pairs(split_names(pairs))
            tried = try_tables(table, epsilons, parse_delta(delta), repetitions, bits, progress, named)
        _show_tried(table, tried, as_json=as_json)
        return
    if given := [name for name, text in (("--delta", delta), ("--pairs", pairs)) if text]:
        raise of_product(Product.SYNTHETIC, given)
    if max_reidentified is not None:
        _refuse_options(
            "--max-reidentified",
            {
                "--rank-noise": rank_noise != RANK_NOISES,
                "--repetitions": repetitions != REPETITIONS,
                "--class": class_attribute is not None,
                "--measures": measures is not None,
                "--attacks": attacks is not None,
                "--out": out is not None,
            },
        )
        setting = one_setting("1" if epsilon == EPSILONS else epsilon, k, mechanism)
        most, given = _share(max_reidentified), split_names(known)
        table = _load(owner, chosen, split_names(attributes), as_json=as_json)
        check_known(table, given)
        given = given or [name for name in owner.policy.known if name in table.schema.names]
        target = _search(owner, chosen, table, setting, most, given, silent=as_json)
        _report(target, owner, chosen, yes=yes, as_json=as_json)
        return
    _check_out(out)
    grid = grid_of(epsilon, k, mechanism, rank_noise)
    question = question_of(
        grid, repetitions, class_attribute, known=known, measures=measures, attacks=attacks
    )
    if measures is None and not {PMSE, F_MEASURE} & set(question.measures):
        console.note(f"without the measures pmse and f-measure: they need scikit-learn ({INSTALLED_WITH})")
    results = _explore(owner, chosen, split_names(attributes), question, as_json=as_json)
    _report_results(results, out, as_json=as_json)
    if any(cell.problem == INTERRUPTED for cell in results.cells):
        raise KeyboardInterrupt


def _search(
    owner: OwnerConfig,
    dataset: DatasetConfig,
    table: ExploredTable,
    setting: GridSetting,
    most: Decimal,
    known: Sequence[str],
    *,
    silent: bool,
) -> Target:
    earlier = released_tasks(released_plans(owner, dataset.name), owner, dataset, table.schema.by_name)
    with progress_bar("rank noises", silent=silent) as progress:
        return find_rank_noise(table, setting, most, known, Randomness.of_system(), progress, earlier)


def _explore(
    owner: OwnerConfig,
    dataset: DatasetConfig,
    attributes: Sequence[str],
    question: ExploreRequest,
    *,
    as_json: bool,
) -> "Results":
    check_question(question)
    table = _load(owner, dataset, attributes, as_json=as_json)
    about = {"created": utc_now().isoformat(timespec="seconds"), "version": __version__}

    def show(cell: "CellResult") -> None:
        if as_json or cell.mean_sse is None:
            return
        best = reidentified(cell.risks)
        found = "not attacked" if best is None else f"{percent_text(best.rate.mean)} of persons re-identified"
        console.note(f"{name_of(cell)}: mean SSE {number_text(cell.mean_sse.mean)}, {found}")

    with progress_bar("settings", silent=as_json) as progress:
        return sweep(table, question, about, Randomness.of_system(), progress, show=show)


def _load(
    owner: OwnerConfig, dataset: DatasetConfig, attributes: Sequence[str], *, as_json: bool
) -> ExploredTable:
    if not as_json:
        console.note(f"loading data set {dataset.name!r}")
    table = table_of(owner, dataset, attributes)
    if table.sampled_from is not None:
        console.note(
            f"the table does not fit into engine.memory_limit: {table.records.n_records:,} of "
            f"{table.sampled_from:,} records are explored, chosen at random; with all of them, the same k "
            "and epsilon have smaller errors"
        )
    if not as_json:
        for line in left_out_lines(table.left_out):
            console.note(line)
        for name, by in determined(table.records.columns).items():
            console.note(
                f"in these records each value of {' or '.join(by)} has one value of {name}: if that is "
                f'public knowledge, declare follows = "{by[0]}" for {name}, and releases derive it without ε'
            )
    return table


def _share(text: str) -> Decimal:
    try:
        share = read_decimal(text)
    except ValueError:
        share = Decimal("NaN")
    if share.is_finite() and 0 < share <= 1:
        return share
    raise UsageError(f"--max-reidentified is a share above 0 and up to 1, not {text!r}", "for example 0.05")


def _refuse_options(mode: str, given: Mapping[str, bool]) -> None:
    """Refuse the options that a mode has no use for, rather than ignore them."""
    if names := ", ".join(name for name, is_given in given.items() if is_given):
        raise UsageError(f"{mode} does not take {names}", f"leave it out, or {mode}")


_SHOWN_PAIRS = 5


def _show_tried(table: ExploredTable, tried: Sequence[TriedTable], *, as_json: bool) -> None:
    if as_json:
        document = {"dataset": table.dataset, "records": table.records.n_records}
        console.print_json({**document, "tables": [result.to_document() for result in tried]})
        return
    console.table(
        f"synthetic tables of {table.records.n_records:,} records of data set {table.dataset!r}",
        ("ε", "one-way", "expected", "two-way", "expected", ""),
        [
            (
                bound_cell(result.epsilon), f"{result.one_way:.2g}", f"{result.expected.one_way:.2g}",
                f"{result.two_way:.2g}", f"{result.expected.two_way:.2g}",
                "" if result.fits else "too few records",
            )
            for result in tried
        ],
    )  # fmt: skip
    console.print_line(
        "one-way, two-way: total variation between original and synthetic records (0: equal), means over "
        "attributes and over pairs of them. It depends on the data and is for their owner; what is expected "
        "follows from public numbers."
    )
    for result in tried:
        if result.noise:
            console.print_line(f"ε {bound_text(result.epsilon)}: {result.noise}")
        farthest = sorted(result.pairs, key=lambda pair: -result.pairs[pair])[:_SHOWN_PAIRS]
        if farthest:
            pairs = (f"{' and '.join(pair)} {result.pairs[pair]:.2g}" for pair in farthest)
            console.print_line(f"ε {bound_text(result.epsilon)}, farthest pairs: {', '.join(pairs)}")


def _report(target: Target, owner: OwnerConfig, dataset: DatasetConfig, *, yes: bool, as_json: bool) -> None:
    """Print the result of a search, and write it into the configuration if a person agrees."""
    if not as_json:
        for line in sentences(target):
            console.print_line(line)
    noise, written = target.rank_noise, False
    if noise is not None:
        line, before = f'rank_noise = "{noise:f}"', dataset.rank_noise
        if before is not None and before != noise:
            line += f" (instead of {before:f})"
        written = yes or (console.can_ask() and console.confirm(f"Write {line} into {owner.path}?"))
        if written:
            set_rank_noise(owner.path, dataset.name, noise)
            console.note(
                f"{owner.path} has {line} for data set {dataset.name!r}; restart the daemon to use it"
            )
        elif not as_json:
            console.print_line(f"Not written (--yes writes it): {line}, below [[dataset]] in {owner.path}.")
    if as_json:
        console.print_json({**target.to_document(), "written": written})


def _check_out(out: Path | None) -> None:
    """Check that the file can be written, before the work is done."""
    if out is None:
        return
    if out.suffix not in FORMATS:
        raise UsageError(f"{out} has an unknown suffix", f"accepted: {', '.join(FORMATS)}")
    if out.is_dir():
        raise UsageError(f"{out} is a folder", "name a file with --out")
    check_writable(out.absolute().parent)


def _write(out: Path, results: "Results") -> None:
    """Write the results for this user alone: they depend on original data."""
    if out.suffix == ".html":
        text = render_page(results)
    else:
        text = json.dumps(results.to_document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    try:
        write_atomic(out.absolute(), text.encode())
    except OSError as error:
        raise ConfigurationError(
            f"{out} cannot be written: {error.strerror}", hint="name another file with --out"
        ) from None


def _report_results(results: "Results", out: Path | None, *, as_json: bool) -> None:
    """Write the results, and print them."""
    if out is not None:
        try:
            _write(out, results)
        except ConfigurationError:
            # A disk can fill up meanwhile; the work was long.
            if not as_json:
                _show(results, None)
            raise
    if as_json:
        console.print_json(results.to_document())
    else:
        _show(results, out)


def _show(results: "Results", out: Path | None) -> None:
    about, cells = results.about, results.cells
    of_means = about["mean_sse_of_means"]
    console.table(
        f"{about['records']:,} records of data set {about['dataset']!r}, "
        f"{about['repetitions']} draw{'s' * (about['repetitions'] != 1)} of each setting",
        ("mechanism", "ε", "k", "rank noise", "mean SSE", "of means'", *about["intruders"], "inference"),
        [_line(cell, of_means, about["intruders"]) for cell in cells],
    )
    console.print_line(
        f"mean SSE: {of_means:.3g} if every value is replaced by its attribute's mean. Right of it: the "
        "share of persons that the best attack re-identifies, by what the intruder knows, and the share "
        "about whom a value is inferred beyond what is right without the release."
    )
    if any(cell.risks for cell in cells) and not all(cell.risks or cell.problem for cell in cells):
        console.print_line(
            "Attacks were tried on settings that leave enough of the data; --attacks names those for all."
        )
    if alone := without_noise(cells):
        console.print_line(f"Without noise the same clusters (plain individual ranking) have {alone}.")
    if own := ", ".join(f"{name} {text}" for name, text in about["own_rank_noises"].items()):
        console.print_line(f"rank noise in every setting: {own}")
    for problem in sorted({cell.problem for cell in cells if cell.problem}):
        console.print_line(f"not possible: {problem}")
    constant = {attribute.name for cell in cells for attribute in cell.attributes if attribute.sse is None}
    if constant:
        console.print_line(f"without variation, so that changes do not count: {', '.join(sorted(constant))}")
    console.print_line()
    for reason in results.recommendation.reasons:
        console.print_line(reason)
    if distorted := "; ".join(warnings(results.shown.distortions)):
        console.print_line(f"Distorted by {name_of(results.cells[results.shown.cell])}: {distorted}.")
    if out is not None:
        console.print_line(f"written to {out}; it depends on original data: for this organisation alone")


def _line(cell: "CellResult", of_means: float, intruders: Sequence[str]) -> tuple[object, ...]:
    noise = Decimal(cell.rank_noise) if rules_of(cell.mechanism).listed else None
    error, inferred = cell.mean_sse, cell.excess((INFERENCE,))
    risks = (cell.reidentified(knows) for knows in intruders)
    return (
        *(cell.mechanism, Decimal(cell.epsilon), cell.k, noise),
        *((None, None) if error is None else (number_text(error.mean), percent_text(error.mean / of_means))),
        *(None if risk is None else percent_text(risk.rate.mean) for risk in risks),
        None if inferred is None else percent_text(inferred),
    )
