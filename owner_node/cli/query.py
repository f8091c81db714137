"""`owner-node query`: noisy answers to single questions about an owner's own data, charged to its budget."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.cli import console
from common.cli.console import ConfigOption, JsonOption, YesOption
from common.clock import utc_now
from common.errors import UsageError
from common.planning.arguments import parse_id
from common.words.numbers import bound_text, left_text
from owner_node import config
from owner_node.config import DatasetConfig
from owner_node.loading import schema_of
from owner_node.loading.advice import left_out_lines
from owner_node.local.charge import Standing, load_to_charge, new_id
from owner_node.local.query import answer_query, error_text, prepare_query
from owner_node.masking.questions import Asked, Question, QuestionKind, promises, range_texts
from owner_node.release.records import Records

if TYPE_CHECKING:
    from owner_node.local.query import Query


app = typer.Typer(help="Ask one question about one attribute; the answer has noise.", no_args_is_help=True)

DatasetOption = Annotated[str, typer.Option("--dataset", help="Name of the data set.")]
AttributeOption = Annotated[str, typer.Option("--attribute", help="Name of the attribute.")]
EpsilonOption = Annotated[str, typer.Option("--epsilon", help="Privacy budget of the answer.")]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="Id of the answer; the same id and question return the same answer without a charge.",
        show_default="made",
    ),
]


def _statistic(kind: str, says: str) -> None:
    """Make the command that asks for one statistic."""

    @app.command(kind, help=says)
    def ask(
        dataset: DatasetOption,
        attribute: AttributeOption,
        epsilon: EpsilonOption,
        config_file: ConfigOption = None,
        work_id: IdOption = None,
        yes: YesOption = False,
        as_json: JsonOption = False,
    ) -> None:
        _ask(Asked(kind, epsilon), dataset, attribute, config_file, work_id, yes=yes, as_json=as_json)


_statistic("median", "Ask for the median of an attribute that has an order.")
_statistic("maximum", "Ask for the largest value of an attribute that has an order.")
_statistic("sum", "Ask for the sum of a number.")
_statistic("mean", "Ask for the mean of a number.")
_statistic(
    "second-maximum",
    "Ask for the second largest value: mostly far less noise than the largest, and close to it.",
)


@app.command()
def quantile(
    dataset: DatasetOption,
    attribute: AttributeOption,
    epsilon: EpsilonOption,
    share: Annotated[str, typer.Option("--share", help="Share of the records up to the value, such as 0.9.")],
    config_file: ConfigOption = None,
    work_id: IdOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ask for the value that a share of the records does not exceed."""
    asked = Asked("quantile", epsilon, share)
    _ask(asked, dataset, attribute, config_file, work_id, yes=yes, as_json=as_json)


@app.command()
def count(
    dataset: DatasetOption,
    attribute: AttributeOption,
    epsilon: EpsilonOption,
    equals: Annotated[
        str | None, typer.Option("--equals", help="Count this value.", show_default=False)
    ] = None,
    at_least: Annotated[
        str | None, typer.Option("--at-least", help="Count values from this one on.", show_default=False)
    ] = None,
    below: Annotated[
        str | None, typer.Option("--below", help="Count values below this one.", show_default=False)
    ] = None,
    config_file: ConfigOption = None,
    work_id: IdOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ask how many records have a value, or one in a range."""
    asked = Asked("count", epsilon, equals=equals, at_least=at_least, below=below)
    _ask(asked, dataset, attribute, config_file, work_id, yes=yes, as_json=as_json)


@app.command()
def histogram(
    dataset: DatasetOption,
    attribute: AttributeOption,
    epsilon: EpsilonOption,
    bins: Annotated[
        str | None,
        typer.Option(
            "--bins", help="Lower ends of the ranges: 20,40,60. Not for categories.", show_default=False
        ),
    ] = None,
    config_file: ConfigOption = None,
    work_id: IdOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ask how many records have each category, or a value in each range; all counts for one epsilon."""
    cuts = [text.strip() for text in bins.split(",")] if bins else []
    asked = Asked("histogram", epsilon, bins=cuts)
    _ask(asked, dataset, attribute, config_file, work_id, yes=yes, as_json=as_json)


def _ask(
    asked: Asked,
    dataset: str,
    attribute: str,
    config_file: Path | None,
    work_id: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    owner = config.load(config_file)
    chosen = owner.dataset(dataset)
    named = parse_id(work_id) if work_id else new_id("query", utc_now)
    question = _question(asked, chosen, attribute)
    records = Records.open(owner.owner.state_dir, utc_now)
    with (
        records.db,
        closing(load_to_charge(owner, chosen, [attribute], records)) as data,
    ):
        query = prepare_query(
            question, chosen, data, records, policy=owner.policy, work_id=named, today=utc_now().date()
        )
        work = query.work
        for line in () if as_json else left_out_lines(data.counts.left_out):
            console.print_line(line)
        new = work.standing() is Standing.NEW
        if new:
            work.judge()
            left = work.remaining()
            if not as_json:
                _show_promises(query)
            ask = (
                f"Charge {bound_text(query.work.charge)} of the {left_text(left)} that budget "
                f"{query.work.budget!r} has left?"
            )
            console.require_yes(ask, yes=yes, otherwise="nothing was charged")
        answer = answer_query(query)
        _show(query, answer, charged=new, as_json=as_json)


def _question(asked: Asked, dataset: DatasetConfig, name: str) -> Question:
    """Read the question about one attribute."""
    declared = schema_of(dataset, None, 0)
    attribute = declared.by_name.get(name)
    if attribute is None:
        raise UsageError(
            f"data set {dataset.name!r} has no attribute {name!r}",
            f"declared attributes: {', '.join(declared.names)}",
        )
    return asked.about(attribute, dataset.max_records_per_person)


def _show_promises(query: "Query") -> None:
    question = query.question
    console.print_line(f"{question.kind} of {question.attribute.name}, ε {bound_text(question.epsilon)}")
    for line in promises(question):
        console.print_line(f"- {line}")
    console.print_line()


def _show(query: "Query", answer: tuple[str, ...], *, charged: bool, as_json: bool) -> None:
    question, work = query.question, query.work
    left = work.remaining()
    ranges = range_texts(question)
    if as_json:
        document: dict[str, Any] = {
            "id": work.id, "question": str(question.kind), "attribute": question.attribute.name,
            "epsilon": question.epsilon, "charged": work.charge if charged else 0, "budget": work.budget,
            "remaining": left, "promises": list(promises(question)), "error_95": error_text(query),
            "left_out": work.data.counts.left_out,
        }  # fmt: skip
        if question.kind is QuestionKind.HISTOGRAM:
            counts = [{**ends, "count": number} for ends, number in zip(ranges, answer, strict=True)]
            console.print_json({**document, "answer": counts})
        else:
            console.print_json({**document, "answer": answer[0], "range": ranges[0] if ranges else None})
        return
    if question.kind is QuestionKind.HISTOGRAM:
        rows = [
            (" to ".join(ends.values()), int(number)) for ends, number in zip(ranges, answer, strict=True)
        ]
        console.table("", (question.attribute.name, "records"), rows)
    else:
        where = f" ({' to '.join(ranges[0].values())})" if ranges else ""
        console.print_line(f"{question.kind} of {question.attribute.name}{where}: {answer[0]}")
    error = error_text(query)
    what = "each count is" if question.kind is QuestionKind.HISTOGRAM else "answers are"
    console.print_line(
        f"95 % of the time {what} within {error} of the exact one"
        if error
        else "How far the noise moves the answer depends on the data, so it is not stated."
    )
    what = f"charged {bound_text(work.charge)}" if charged else "charged nothing: answered before"
    console.print_line(f"{what}; budget {work.budget!r} has {left_text(left)} left; id {work.id}")
