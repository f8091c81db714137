"""Answers to questions about an owner's own data: judged, charged, drawn once and recorded."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from common.model.task import Assignment, PlannedAttribute, Task
from owner_node.config import DatasetConfig, PolicyConfig
from owner_node.consent.plan_rules import PlannedWork
from owner_node.local.charge import LocalWork, Standing
from owner_node.masking.arrays import SystemBits
from owner_node.masking.queries import Values, check_answerable, draw_answer, error_95
from owner_node.masking.questions import Question, QuestionKind, range_texts
from owner_node.release.records import Records

if TYPE_CHECKING:
    from owner_node.engines.pinned import PinnedData


_MEAN_DIGITS = 3
"""Decimal places of a mean beyond those of the attribute, at least."""
_NOISE_DIGITS = 2
"""Places of a mean beyond the first digit of its error: no place that was paid for is lost."""


@dataclass(frozen=True, slots=True, repr=False)
class Query:
    """A question that could be answered."""

    question: Question
    work: LocalWork
    """Its charge, and the data."""
    values: Values
    """The original values."""


def prepare_query(
    question: Question,
    dataset: DatasetConfig,
    data: "PinnedData",
    records: Records,
    *,
    policy: PolicyConfig,
    work_id: str,
    today: date,
) -> Query:
    """Check for every foreseeable error; nothing is charged.

    Raises:
        UnusableDataError: If the data cannot answer it.
    """
    values = data.records.engine.columns[question.attribute.name]
    check_answerable(question, len(values))
    asked = PlannedWork(
        assignment=_assignment(question, dataset), policy=policy, dataset=dataset, today=today
    )
    work = LocalWork(
        records, work_id, _arguments(question, dataset.name), asked, data, at=dataset.origin.place
    )
    return Query(question, work, values)


def _assignment(question: Question, dataset: DatasetConfig) -> Assignment:
    """Return a query as the policy and the ledger see it.

    An answer whose noise is calibrated to the data counts as a value masked by `idp`, a count as one masked
    by `dp`.
    """
    mechanism, epsilon = "dp" if question.kind.has_public_noise else "idp", question.epsilon
    answer = PlannedAttribute(question.attribute.name, mechanism, epsilon, None, epsilon, Decimal(0))
    return Assignment((Task("", dataset.name, 0, 0, (answer,)),))


def answer_query(query: Query) -> tuple[str, ...]:
    """Spend the charge, draw the noise and record the answer: the permanent answer to this id.

    Returns:
        A value, or one number of records per range, as texts.

    Raises:
        BalanceError: If the budget does not cover it.
        ConflictError: If the id was used for other work.
    """
    question, work = query.question, query.work
    if work.standing() is not Standing.DELIVERED:
        work.pay()
        drawn = draw_answer(question, query.values, SystemBits())
        # Recorded before it is shown; if another process was first, its answer is returned.
        texts = [_as_text(question, value, len(query.values)) for value in drawn]
        work.deliver({"answer": texts})
    return tuple(work.result()["answer"])


def _arguments(question: Question, dataset: str) -> dict[str, Any]:
    return {
        "kind": "query",
        "question": str(question.kind),
        "dataset": dataset,
        "attribute": question.attribute.to_document(),
        "epsilon": question.epsilon,
        "max_records_per_person": question.g,
        "ranges": list(range_texts(question)),
        **({} if question.share is None else {"share": question.share}),
    }


def error_text(query: Query) -> str | None:
    """Return how far noise moves 95 of 100 answers at most; None where that depends on the data.

    Of a histogram it is that of each count by itself.
    """
    error, kind = error_95(query.question), query.question.kind
    if error is None:
        return None
    if kind.counts:
        # Counts are rounded: up to half a record further counts as this far.
        return str(ceil(error - 0.5))
    if kind is QuestionKind.MEAN:
        error /= len(query.values)
    units = error * float(query.question.attribute.unit) if kind.adds else error
    return f"{units:.3g}" if units < 1000 else f"{units:.0f}"


def _as_text(question: Question, answer: int, n_records: int) -> str:
    if question.kind.counts:
        return str(answer)
    if question.kind is QuestionKind.MEAN:
        attribute = question.attribute
        error = (error_95(question) or 1.0) * attribute.step / n_records
        digits = max(_MEAN_DIGITS, _NOISE_DIGITS - floor(log10(error)))
        places = Decimal(1).scaleb(-attribute.decimals - digits)
        return (
            f"{(Decimal(answer * attribute.step).scaleb(-attribute.decimals) / n_records).quantize(places):f}"
        )
    return question.attribute.text(answer)
