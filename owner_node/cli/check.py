"""`owner-node check`: validate configuration and data, and show what would be sent about them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.cli import console
from common.cli.release_options import (
    Audit,
    Colluding,
    Delta,
    Groups,
    K,
    LayoutName,
    MaxOverlap,
    MechanismId,
    OnMismatch,
    Owners,
    ProductName,
    Purpose,
    RankNoise,
)
from common.clock import utc_now
from common.errors import DataError, TesseraError, UsageError
from common.model.schema import LARGEST_SCHEMA, Schema
from common.words.numbers import count_text
from owner_node import config
from owner_node.cli.check_release import ask_policy, read_options, show_answer, show_refusal
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.ledger.ledger import Ledger
from owner_node.linking.match_check import HEADINGS, row
from owner_node.loading.advice import left_out_lines
from owner_node.release.attempts import Allowance, Attempts
from owner_node.state.database import OwnerDatabase
from owner_node.state.sessions import Sessions
from owner_node.views.budgets import unrecorded
from owner_node.views.data import config_warnings, data_document, policy_lines, policy_parts

if TYPE_CHECKING:
    from owner_node.cli.check_release import Hypothetical


DatasetOption = Annotated[
    str | None, typer.Option("--dataset", help="Check only this data set.", show_default=False)
]
EpsilonOption = Annotated[
    str,
    typer.Option(
        "--epsilon", help="Evaluate the policy for a release with this epsilon.", show_default=False
    ),
]
AggregatorOption = Annotated[
    str,
    typer.Option(
        "--aggregator", help="The requesting aggregator; default: the first configured.", show_default=False
    ),
]
AttributesOption = Annotated[
    str,
    typer.Option(
        "--attributes",
        help="Only these attributes; in several groups those of each: 'a,b;c'.",
        metavar="a,b",
        show_default=False,
    ),
]


def check(
    config_file: console.ConfigOption = None,
    dataset: DatasetOption = None,
    epsilon: EpsilonOption = "",
    layout: LayoutName = "",
    owners: Owners = "",
    groups: Groups = "",
    mechanism: MechanismId = "",
    rank_noise: RankNoise = "",
    k: K = "",
    aggregator: AggregatorOption = "",
    purpose: Purpose = "",
    attributes: AttributesOption = "",
    product: ProductName = "",
    delta: Delta = "",
    colluding: Colluding = "",
    audit: Audit = "",
    max_overlap: MaxOverlap = "",
    on_mismatch: OnMismatch = "",
    as_json: console.JsonOption = False,
) -> None:
    """Validate configuration and data, and show what would be sent about them. Sends and spends nothing.

    With --epsilon it also shows how the policy would decide on such a release: accept, ask a person, or
    refuse.
    """
    owner = config.load(config_file)
    chosen = [owner.dataset(dataset)] if dataset else list(owner.datasets)
    about = {
        "layout": layout, "owners": owners, "groups": groups, "mechanism": mechanism, "k": k,
        "rank_noise": rank_noise,
        "aggregator": aggregator, "purpose": purpose, "attributes": attributes,
        "product": product, "delta": delta, "colluding": colluding, "audit": audit,
        "max_overlap": max_overlap, "on_mismatch": on_mismatch,
    }  # fmt: skip
    asked = _question(owner, chosen, epsilon, about)
    results, errors = [], []
    for declared in chosen:
        try:
            results.append(data_document(declared, owner, examples=True))
        except DataError as error:
            errors.append(error)
    if errors:
        if not as_json:
            _show(owner, results, as_json=False)
        raise _combine(errors)
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        problem = unrecorded(owner, Ledger(db, utc_now))
    if problem is not None:
        if not as_json:
            _show(owner, results, as_json=False)
        raise problem
    if asked is None:
        _show(owner, results, as_json=as_json)
    else:
        _show_with_answer(owner, chosen[0], results, asked, as_json=as_json)


def _attempts(owner: OwnerConfig) -> list[Allowance]:
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        attempts = Attempts(Sessions(db, utc_now), utc_now)
        return list(attempts.allowances(owner))


def _question(
    owner: OwnerConfig, chosen: list[DatasetConfig], epsilon: str, about: dict[str, str]
) -> "Hypothetical | None":
    if not epsilon:
        given = [f"--{name.replace('_', '-')}" for name, text in about.items() if text]
        if given:
            raise UsageError(f"{', '.join(given)} goes with --epsilon", "say which epsilon is asked about")
        return None
    if len(chosen) != 1:
        raise UsageError("a release is about one data set", "name it: --dataset NAME")
    return read_options(owner, chosen[0], epsilon=epsilon, **about)


def _show_with_answer(
    owner: OwnerConfig,
    dataset: DatasetConfig,
    results: list[dict[str, Any]],
    asked: "Hypothetical",
    *,
    as_json: bool,
) -> None:
    schema = Schema.from_document(results[0]["schema"])
    if not as_json:
        _show(owner, results, as_json=False)
        console.print_line()
    try:
        answer = ask_policy(owner, dataset, schema, asked)
    except TesseraError as error:
        if not as_json:
            show_refusal(error)
        raise
    if as_json:
        _show(owner, results, as_json=True, release=answer)
    else:
        show_answer(answer)


def _show(
    owner: OwnerConfig, results: list[dict[str, Any]], *, as_json: bool, release: dict[str, Any] | None = None
) -> None:
    if as_json:
        about = {"configuration": str(owner.path), "owner": owner.owner.id}
        warnings = list(config_warnings(owner))
        console.print_json(
            {**about, "policy": dict(policy_lines(owner)), "datasets": results, "warnings": warnings}
            | {"attempts": [allowance.to_document() for allowance in _attempts(owner)]}
            | ({} if release is None else {"release": release})
        )
        return
    console.print_line(f"configuration {owner.path} of owner {owner.owner.id!r} is valid")
    for warning in config_warnings(owner):
        console.print_line(f"warning: {warning}")
    console.print_line()
    written, _ = policy_parts(owner)
    if written:
        console.table("policy, as this file sets it", ("key", "value"), written)
    keys = "all other keys of the policy" if written else "all keys of the policy"
    console.print_line(f"{keys} have their defaults (owner-node check --json lists them)")
    for result in results:
        console.print_line()
        _show_dataset(result)
    for allowance in _attempts(owner):
        console.print_line(str(allowance))


def _show_dataset(result: dict[str, Any]) -> None:
    headings = ("attribute", "type", "domain", "values", "settings", "rounded", "clamped")
    keys = ("name", *headings[1:])
    title = f"data set {result['name']!r}: {result['source']}"
    console.table(title, headings, [[attribute[key] for key in keys] for attribute in result["attributes"]])
    stated = int(result["schema"]["records_rounded"])
    console.print_line(f'records: {result["records"]:,} (others see "at least {stated:,}")')
    if events := result.get("events"):
        console.print_line(
            f"one record a person: {count_text(events['events'], 'event')} of "
            f"{count_text(events['persons'], 'person')}, at most {events['most']:,} of one; epsilon is about "
            "all events of a person"
        )
        for name, (before, after) in events["means"].items():
            console.print_line(f"  clamping changes the mean of {name!r} from {before:.6g} to {after:.6g}")
    for line in left_out_lines(result):
        console.print_line(line)
    console.print_line(f"schema: {result['schema_bytes']:,} bytes, at most {LARGEST_SCHEMA:,} can be sent")
    console.print_line(f"identifier: {result['identifier']}")
    if "match" in result:
        console.table("match keys", HEADINGS, list(map(row, result["match"])))
    console.print_line(f"budget: {result['budget']!r}, total epsilon {result['total_epsilon']}")
    console.print_line(f"engine: {result['engine']['text']}")
    for warning in result["warnings"]:
        console.print_line(f"warning: {warning}")


def _combine(errors: list[DataError]) -> DataError:
    """Combine the errors of all data sets into one."""
    if len(errors) == 1:
        return errors[0]
    return DataError(
        "\n".join(error.message for error in errors),
        "\n  ".join(dict.fromkeys(error.hint for error in errors)),
        {"datasets": [error.details for error in errors]},
    )
