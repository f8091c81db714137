"""`owner-node check`: validate configuration and data, and show what would be sent about them."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.cli import console
from common.cli.release_options import (
    Groups,
    K,
    LayoutName,
    MaxOverlap,
    MechanismId,
    OnMismatch,
    Owners,
    Purpose,
    RankNoise,
)
from common.clock import utc_now
from common.errors import DataError, TesseraError, UsageError
from common.model.mechanisms import declared_mechanism
from common.model.schema import Attribute, AttributeType, CategoryOrder, Schema
from owner_node import config
from owner_node.cli.check_release import ask_policy, check_sums, read_options, show_answer, show_refusal
from owner_node.config import DatasetConfig, OwnerConfig
from owner_node.connection.credentials import own_credentials
from owner_node.ledger.ledger import Ledger
from owner_node.linking import linkage_key
from owner_node.release.attempts import Allowance, Attempts
from owner_node.sources import load, schema_of
from owner_node.sources.advice import advice
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.presence import DaemonPresence
from owner_node.state.sessions import Sessions
from owner_node.views.budgets import unrecorded

if TYPE_CHECKING:
    from owner_node.cli.check_release import Hypothetical
    from owner_node.sources import LoadedData


_LONGEST_DOMAIN = 60

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
        "max_overlap": max_overlap, "on_mismatch": on_mismatch,
    }  # fmt: skip
    asked = _question(owner, chosen, epsilon, about)
    results, errors = [], []
    for each in chosen:
        try:
            results.append(_examine(each, owner))
        except DataError as error:
            errors.append(error)
    if errors:
        if not as_json:
            _show(owner, results, as_json=False)
        raise _together(errors)
    problem = _unrecorded(owner)
    if problem is not None:
        if not as_json:
            _show(owner, results, as_json=False)
        raise problem
    if asked is None:
        _show(owner, results, as_json=as_json)
    else:
        _show_with_answer(owner, chosen[0], results, asked, as_json=as_json)


def _unrecorded(owner: OwnerConfig) -> TesseraError | None:
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        return unrecorded(owner, Ledger(db, utc_now))


def _attempts(owner: OwnerConfig) -> list[Allowance]:
    with OwnerDatabase(owner.owner.state_dir, make=False) as db:
        attempts = Attempts(History(db, utc_now), Sessions(db, utc_now), utc_now)
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


def _examine(dataset: DatasetConfig, owner: OwnerConfig) -> dict[str, Any]:
    """Load one data set and describe it, for its owner only."""
    loaded = load(dataset, examples=True)
    schema = schema_of(dataset, owner.policy.attributes, loaded.n_records, owner.policy.limits)
    check_sums(owner, dataset, schema)
    return {
        "name": dataset.name,
        "source": dataset.place,
        "budget": dataset.budget,
        "total_epsilon": str(dataset.total_epsilon),
        "schema": json.loads(schema.to_bytes()),
        "attributes": [_describe(attribute, loaded) for attribute in schema.attributes],
        "records": loaded.n_records,
        "dropped": loaded.counts.dropped,
        "identifier": _identifier_text(schema),
        "warnings": list(advice(dataset, schema, loaded)),
    }


def _describe(attribute: Attribute, loaded: "LoadedData") -> dict[str, Any]:
    return {
        "name": attribute.name,
        "type": str(attribute.type),
        "domain": _domain_text(attribute),
        "values": attribute.n_values,
        "settings": _settings_text(attribute),
        "rounded": loaded.counts.rounded.get(attribute.name, 0),
        "clamped": loaded.counts.clamped.get(attribute.name, 0),
    }


def _domain_text(attribute: Attribute) -> str:
    if attribute.type is AttributeType.BOOLEAN:
        return "false, true"
    if attribute.type is not AttributeType.CATEGORY:
        return f"{attribute.text(attribute.lower)} … {attribute.text(attribute.upper)}"
    labels = ", ".join(attribute.categories)
    return labels if len(labels) <= _LONGEST_DOMAIN else f"{labels[: _LONGEST_DOMAIN - 1]}…"


def _settings_text(attribute: Attribute) -> str:
    settings = []
    if attribute.type is AttributeType.NUMBER:
        settings.append(f"decimals = {attribute.decimals}")
    if attribute.outside == "clamp":
        settings.append("clamps")
    if attribute.ordered:
        settings.append("ordered")
    if attribute.order is CategoryOrder.FREQUENCY:
        settings.append("by frequency")
    if attribute.taxonomy:
        settings.append(f"taxonomy {attribute.taxonomy[:12]} by {attribute.method}")
    return ", ".join(settings)


def _identifier_text(schema: Schema) -> str:
    rules = schema.identifier
    if rules is None:
        return "none"
    columns = "1 column" if rules.n_columns == 1 else f"{rules.n_columns} columns"
    steps = f"normalised by {', '.join(rules.normalise)}" if rules.normalise else "compared as written"
    for column, also in enumerate(rules.also, 1):
        steps += f", column {column} also by {', '.join(also)}" if also else ""
    return f"{columns}, {steps}; at most {schema.max_records_per_person} record(s) per person"


def _show(
    owner: OwnerConfig, results: list[dict[str, Any]], *, as_json: bool, release: dict[str, Any] | None = None
) -> None:
    if as_json:
        about = {"configuration": str(owner.path), "owner": owner.owner.id}
        warnings = list(_warnings(owner))
        console.print_json(
            {**about, "policy": dict(_policy(owner)), "datasets": results, "warnings": warnings}
            | {"attempts": [each.to_document() for each in _attempts(owner)]}
            | ({} if release is None else {"release": release})
        )
        return
    console.print_line(f"configuration {owner.path} of owner {owner.owner.id!r} is valid")
    for warning in _warnings(owner):
        console.print_line(f"warning: {warning}")
    console.print_line()
    console.table("policy of this file, written or by default", ("key", "value"), list(_policy(owner)))
    for result in results:
        console.print_line()
        _show_dataset(result)
    for allowance in _attempts(owner):
        console.print_line(str(allowance))


def _warnings(owner: OwnerConfig) -> Iterator[str]:
    yield from _policy_warnings(owner)
    yield from _identity_warnings(owner)
    yield from _linkage_key_warnings(owner)
    try:
        with OwnerDatabase(owner.owner.state_dir, make=False) as db:
            outdated = DaemonPresence(db, utc_now).state().outdated(owner.digest)
    except TesseraError as error:
        yield f"whether the daemon runs with this owner.toml is not known: {error.message}"
    else:
        yield from [outdated] if outdated else []


def _policy_warnings(owner: OwnerConfig) -> Iterator[str]:
    """Yield what the policy refuses in every release."""
    allowed = owner.policy.mechanisms
    refused = {
        f"{dataset.name}.{attribute.name}": attribute.method
        for dataset in owner.datasets
        for attribute in dataset.attributes
        if declared_mechanism(attribute) not in (None, *allowed)
    }
    if refused:
        methods = ", ".join(f'method = "{each}"' for each in dict.fromkeys(refused.values()))
        yield (
            f"releases of {', '.join(refused)} are refused: declared to be drawn from a taxonomy "
            f"({methods}), which policy.mechanisms does not list"
        )


def _linkage_key_warnings(owner: OwnerConfig) -> Iterator[str]:
    """Yield a warning if releases with other owners cannot be linked yet."""
    if any(dataset.identifier for dataset in owner.datasets):
        try:
            linkage_key.load(owner.owner.state_dir)
        except TesseraError as error:
            yield f"releases with other owners would fail: {error.message}; {error.hint}"


def _identity_warnings(owner: OwnerConfig) -> Iterator[str]:
    """Yield the error with which `owner-node run` would not start, such as a missing certificate."""
    try:
        own_credentials(owner, utc_now)
    except TesseraError as error:
        yield f"owner-node run would not start: {error.message}"


def _policy(owner: OwnerConfig) -> Iterator[tuple[str, str]]:
    """Yield every key of the policy with its effective value."""
    for key, value in asdict(owner.policy).items():
        if isinstance(value, tuple):
            yield key, ", ".join(map(str, value)) or "any"
        else:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            yield key, "no limit" if value is None else shown


def _show_dataset(result: dict[str, Any]) -> None:
    headings = ("attribute", "type", "domain", "values", "settings", "rounded", "clamped")
    keys = ("name", *headings[1:])
    title = f"data set {result['name']!r}: {result['source']}"
    console.table(title, headings, [[each[key] for key in keys] for each in result["attributes"]])
    stated = int(result["schema"]["records_rounded"])
    console.print_line(f'records: {result["records"]:,} (others see "at least {stated:,}")')
    if result["dropped"]:
        console.print_line(f"dropped: {result['dropped']:,} records with a missing value")
    console.print_line(f"identifier: {result['identifier']}")
    console.print_line(f"budget: {result['budget']!r}, total epsilon {result['total_epsilon']}")
    for warning in result["warnings"]:
        console.print_line(f"warning: {warning}")


def _together(errors: list[DataError]) -> DataError:
    """Combine the errors of all data sets into one."""
    if len(errors) == 1:
        return errors[0]
    return DataError(
        "\n".join(error.message for error in errors),
        "\n  ".join(dict.fromkeys(error.hint for error in errors)),
        {"datasets": [error.details for error in errors]},
    )
