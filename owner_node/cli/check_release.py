"""What `owner-node check --epsilon` asks: what would this owner's policy say to such a release?"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from common import __version__
from common.cli import console
from common.errors import TesseraError, UsageError
from common.model.plan import Layout, Plan
from common.model.privacy import parse_epsilon, plain
from common.model.schema import Schema
from common.words.linking import allowed
from common.words.numbers import bound_cell
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.config.database import place_of
from owner_node.consent.judge import Accept, Refuse, judge
from owner_node.ledger.ledger import Ledger
from owner_node.release.attempts import Attempts
from owner_node.state.database import Database
from owner_node.state.history import History
from owner_node.state.own_keys import OwnKeys

if TYPE_CHECKING:
    from owner_node.consent.hypothetical import Question
    from owner_node.masking.foreseen import Forecast


def question(
    owner: OwnerConfig,
    *,
    epsilon: str,
    layout: str,
    owners: str,
    groups: str,
    mechanism: str,
    rank_noise: str,
    k: str,
    aggregator: str,
    purpose: str,
    attributes: str,
    max_overlap: str,
    on_mismatch: str,
) -> "Question":
    """Read the options of a hypothetical release.

    Raises:
        UsageError: If one cannot be used, or they do not fit together.
    """
    from common.planning.arguments import one_of, parse_k, parse_mechanism, parse_rank_noise
    from owner_node.consent.hypothetical import Question

    kind = Layout(one_of("layout", layout or "horizontal", [each.value for each in Layout]))
    size = parse_k(k)
    chosen = parse_mechanism(mechanism, size)
    names, found = [each.name for each in owner.aggregators], _groups(owner.owner.id, kind, owners, groups)
    if not aggregator and not names:
        raise UsageError("no aggregator is configured", "name one: --aggregator NAME")
    return Question(
        parse_epsilon(epsilon),
        kind,
        found,
        aggregator or names[0],
        chosen,
        size,
        parse_rank_noise(_names(rank_noise), chosen),
        purpose,
        tuple(_names(each) for each in attributes.split(";")) if attributes else (),
        *_exceptions(max_overlap, on_mismatch, found),
    )


def ask_policy(
    owner: OwnerConfig, dataset: DatasetConfig, schema: Schema, asked: "Question"
) -> dict[str, Any]:
    """Ask what the policy would say now; nothing is reserved, sent or counted.

    Raises:
        RefusedError, BalanceError, UnusableDataError: What the owner would refuse with; every rule that
            objects is in its details.
    """
    from owner_node.consent.hypothetical import hypothetical_plan

    names = {"owner": owner.owner.id, "dataset": dataset.name, "trust_domain": owner.owner.trust_domain}
    plan = hypothetical_plan(asked, schema, **names, version=__version__)
    assignment = plan.assignment_of(owner.owner.id)
    with Database(owner.owner.state_dir, make=False) as db:
        ledger, attempts = Ledger(db, _now), Attempts(History(db, _now), _now)
        remaining = ledger.balance(dataset.budget, dataset.total_epsilon).remaining
        verdict = judge(
            plan, assignment, owner_id=owner.owner.id, aggregator_name=asked.aggregator,
            trust_domain=owner.owner.trust_domain, policy=owner.policy, dataset=dataset, schema=schema,
            balance=remaining, today=_now().date(),
            rank_lost=ledger.rank_losses(dataset.budget).told,
        )  # fmt: skip
        if isinstance(verdict, Refuse):
            raise verdict.error
        ledger.check_budget(dataset.budget, dataset.total_epsilon, place_of(dataset))
        attempts.check(dataset.budget)
        forecast = _foreseen(owner, dataset, plan, ledger, OwnKeys(db, _now).known_source_key())
    return _document(plan, assignment.owner, verdict, remaining, forecast)


def _document(
    plan: Plan, own: str, verdict: Accept, remaining: Decimal, forecast: "Forecast"
) -> dict[str, Any]:
    assignment = plan.assignment_of(own)
    return {
        "answer": "ask" if verdict.asks else "accept",
        "rule": verdict.asks or 'policy.approval = "auto"',
        "layout": str(plan.layout),
        "linking": list(allowed(plan)),
        "owners": list(plan.owners),
        "epsilon": verdict.epsilon,
        "epsilon_joint": verdict.epsilon_joint,
        "epsilon_table": plan.assignment_of(own).epsilon_table,
        "rank_loss": verdict.rank_loss,
        "accounting": verdict.accounting,
        "charge": verdict.charge,
        "budget": verdict.budget,
        "remaining": remaining,
        "remaining_after": plain(remaining - verdict.charge),
        "attributes": [each.to_document() for each in assignment.attributes],
        "forecast": forecast.to_document(),
    }


def _foreseen(
    owner: OwnerConfig, dataset: DatasetConfig, plan: Plan, ledger: Ledger, source_key: bytes | None
) -> "Forecast":
    """Foresee what masking would do to the data, and what ledger and policy say to them."""
    from common.errors import RefusedError
    from owner_node.masking.forecast import forecast
    from owner_node.masking.foreseen import is_close, objections
    from owner_node.release.preparation import prepare

    prepared = prepare(dataset, plan, plan.assignment_of(owner.owner.id), None, source_key)
    ledger.check_budget(dataset.budget, dataset.total_epsilon, place_of(dataset), prepared.known_by)
    found = forecast(prepared.columns, prepared.tasks)
    if is_close(found, owner.policy):
        found = forecast(prepared.columns, prepared.tasks, closely=True)
    rules = objections(found, owner.policy)
    if rules:
        raise RefusedError(
            rules[0],
            "a larger epsilon or another k changes what is expected",
            {"rule": rules[0], "rules": list(rules)},
        )
    return found


def _now() -> datetime:
    return datetime.now(UTC)


def _names(text: str) -> tuple[str, ...]:
    from common.planning.arguments import distinct

    return distinct("name", [each.strip() for each in text.split(",") if each.strip()])


def _groups(own: str, layout: Layout, owners: str, groups: str) -> tuple[tuple[str, ...], ...]:
    if groups and owners:
        raise UsageError("--owners and --groups say the same in two ways", "use one of them")
    if groups:
        found = [_names(group) for group in groups.split(";")]
    else:
        named = _names(owners)
        everybody = named if own in named else (own, *named)
        found = [(each,) for each in everybody] if layout is Layout.VERTICAL else [everybody]
    fits = {
        Layout.HORIZONTAL: len(found) == 1,
        Layout.VERTICAL: all(len(group) == 1 for group in found),
        Layout.MIXED: len(found) > 1,
    }[layout]
    everyone = [each for group in found for each in group]
    once = len(set(everyone)) == len(everyone)
    if layout is Layout.MIXED:
        # There an owner can be in several groups, which are told apart by their owners.
        once = len({frozenset(group) for group in found}) == len(found)
    if not fits or own not in everyone or not once or not all(found):
        raise UsageError(
            f"the owners do not make a {layout} release of {own}",
            f"--owners a,b, each once, or --groups 'a,b;c' for a mixed layout, with {own} among them",
        )
    return tuple(found)


def _exceptions(max_overlap: str, on_mismatch: str, groups: Sequence[Sequence[str]]) -> tuple[int, bool]:
    """Read what linking would be allowed to find."""
    from common.model.plan import ON_MISMATCH
    from common.planning.arguments import one_of

    largest = max(map(len, groups))
    if max_overlap and not (max_overlap.isascii() and max_overlap.isdigit() and len(max_overlap) < 10):
        raise UsageError(f"--max-overlap {max_overlap!r} is no count", "write a whole number from 1 on")
    overlap = int(max_overlap or 1)
    if not 1 <= overlap <= largest:
        raise UsageError(
            f"--max-overlap {overlap} does not fit groups of at most {largest} owners",
            f"ask about 1 to {largest}",
        )
    intersects = one_of("--on-mismatch", on_mismatch or "stop", ON_MISMATCH) == "intersect"
    if intersects and len(groups) == 1:
        raise UsageError("one group of owners has nothing to be intersected with", "name several groups")
    return overlap, intersects


def show_answer(document: dict[str, Any]) -> None:
    """Print what the policy would say."""
    says = {"accept": "would accept", "ask": "would ask a person about"}[document["answer"]]
    owners = ", ".join(document["owners"])
    console.print_line(f"the policy {says} a {document['layout']} release of {owners}, by {document['rule']}")
    after = f"{document['remaining']:f} left, {document['remaining_after']:f} after it"
    console.print_line(
        f"charge {document['charge']:f} from budget {document['budget']!r} "
        f"({document['accounting']} accounting): {after}"
    )
    for line in document["linking"]:
        console.print_line(line)
    foreseen = {each["name"]: each for each in document["forecast"]["attributes"]}
    columns = (
        "attribute",
        "mechanism",
        "k",
        "rank noise",
        "ε",
        "ε joint",
        "expected error",
        "of these data",
        "unchanged",
    )
    console.table(
        "how every attribute would be masked; errors as shares of those of its mean",
        columns,
        [
            (
                each["name"], each["mechanism"], each["k"], each.get("rank_noise"),
                bound_cell(each["epsilon"]), bound_cell(each["epsilon_joint"]),
                f"{each['expected_error']:.3g}",
                *(foreseen[each["name"]][key] for key in ("error", "unchanged")),
            )
            for each in document["attributes"]
        ],
    )  # fmt: skip


def show_refusal(error: TesseraError) -> None:
    """Print every rule that objects; the deciding one follows as the error."""
    rules = error.details.get("rules", [])
    if len(rules) > 1:
        console.print_line("every rule that objects:")
        for rule in rules:
            console.print_line(f"- {rule}")
