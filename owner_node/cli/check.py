"""`owner-node check`: is the configuration valid, are the data usable, and what would be sent about them?"""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common import console
from common.errors import DataError, TesseraError
from common.schema import Attribute, AttributeType, CategoryOrder, Schema
from owner_node import config
from owner_node.config import DatasetConfig, OwnerConfig

if TYPE_CHECKING:
    from owner_node.sources import LoadedData

_LONGEST_DOMAIN = 60

DatasetOption = Annotated[
    str | None, typer.Option("--dataset", help="Check only this data set.", show_default=False)
]


def check(
    config_file: console.ConfigOption = None,
    dataset: DatasetOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Validate configuration and data, and show what would be sent about them. Sends and spends nothing."""
    owner = config.load(config_file)
    chosen = [owner.dataset(dataset)] if dataset else list(owner.datasets)
    results, errors = [], []
    for each in chosen:
        try:
            results.append(_examine(each, owner))
        except DataError as error:
            errors.append(error)
    if not (as_json and errors):
        _show(owner, results, as_json=as_json)
    if errors:
        raise _together(errors)


def _examine(dataset: DatasetConfig, owner: OwnerConfig) -> dict[str, Any]:
    """Load one data set and describe it; the description of an owner's data for the owner itself."""
    from owner_node.sources import load, schema_of
    from owner_node.sources.advice import advice

    loaded = load(dataset)
    schema = schema_of(dataset, owner.policy.attributes, loaded.n_records, owner.policy.min_k)
    return {
        "name": dataset.name,
        "source": dataset.place,
        "budget": dataset.budget,
        "total_epsilon": str(dataset.total_epsilon),
        "schema": schema.to_document(),
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
        settings.append(f"{attribute.decimals} decimals")
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
    return f"{columns}, {steps}; at most {schema.max_records_per_person} record(s) per person"


def _show(owner: OwnerConfig, results: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        about = {"configuration": str(owner.path), "owner": owner.owner.id}
        warnings = list(_identity_warnings(owner))
        console.print_json(
            {**about, "policy": dict(_policy(owner)), "datasets": results, "warnings": warnings}
        )
        return
    console.print_line(f"configuration {owner.path} of owner {owner.owner.id!r} is valid")
    for warning in _identity_warnings(owner):
        console.print_line(f"warning: {warning}")
    console.print_line()
    console.table("policy in force, written or by default", ("key", "value"), list(_policy(owner)))
    for result in results:
        console.print_line()
        _show_dataset(result)


def _identity_warnings(owner: OwnerConfig) -> Iterator[str]:
    """Tell what `owner-node run` would refuse; before enrolment there is nothing to run with yet."""
    from owner_node.credentials import own_credentials

    try:
        own_credentials(owner, lambda: datetime.now(UTC))
    except TesseraError as error:
        yield f"owner-node run would not start: {error.message}"


def _policy(owner: OwnerConfig) -> Iterator[tuple[str, str]]:
    """Yield every key of the policy with what it amounts to."""
    for key, value in asdict(owner.policy).items():
        if isinstance(value, tuple):
            yield key, ", ".join(map(str, value)) or "any"
        else:
            yield key, "no limit" if value is None else str(value)


def _show_dataset(result: dict[str, Any]) -> None:
    headings = ("attribute", "type", "domain", "values", "settings", "rounded", "clamped")
    keys = ("name", *headings[1:])
    title = f"data set {result['name']!r}: {result['source']}"
    console.table(title, headings, [[each[key] for key in keys] for each in result["attributes"]])
    told = int(result["schema"]["records_rounded"])
    console.print_line(f"records: {result['records']:,} (known only here), told as {told:,}")
    if result["dropped"]:
        console.print_line(f"dropped: {result['dropped']:,} records with a missing value")
    console.print_line(f"identifier: {result['identifier']}")
    console.print_line(f"budget: {result['budget']!r}, total epsilon {result['total_epsilon']}")
    for warning in result["warnings"]:
        console.print_line(f"warning: {warning}")


def _together(errors: list[DataError]) -> DataError:
    """Make one error of those of all data sets."""
    if len(errors) == 1:
        return errors[0]
    return DataError(
        "\n".join(error.message for error in errors),
        "\n  ".join(dict.fromkeys(error.hint for error in errors)),
        {"datasets": [error.details for error in errors]},
    )
