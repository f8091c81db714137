"""A data set for its owner: what `check` found, and what others would learn about it."""

import json
import secrets
import tomllib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

from common import __version__
from common.clock import utc_now
from common.errors import DataError, TesseraError, UnusableDataError, on_one_line
from common.model.mechanisms import declared_mechanism
from common.model.plan import Layout
from common.model.schema import Attribute, Schema
from common.planning.arguments import ReleaseArguments
from common.planning.planner import make_plan
from common.progress import Progress
from common.words.numbers import count_text
from owner_node.config import DatasetConfig, OwnerConfig, PolicyConfig
from owner_node.connection.credentials import own_credentials
from owner_node.engines.choice import engine_of
from owner_node.engines.pinned import pin
from owner_node.engines.sampling import in_memory
from owner_node.linking import linkage_key
from owner_node.linking.tokens import KEY_SIZE
from owner_node.loading import LoadedData, check_sendable, load, schema_of
from owner_node.loading.advice import advice
from owner_node.loading.hidden import hidden_files
from owner_node.masking.tasks import AttributeTask, mask_tasks, mechanism_of
from owner_node.state.database import OwnerDatabase
from owner_node.state.presence import DaemonPresence

_LONGEST_DOMAIN = 60


def data_document(
    dataset: DatasetConfig, owner: OwnerConfig, *, examples: bool, progress: Progress | None = None
) -> dict[str, Any]:
    """Load one data set and describe it, for its owner only.

    Args:
        examples: Whether an error names wrong labels: on a terminal, never on a page.

    Returns:
        Source, budget, schema (as it is sent), attributes, exact number of records, and warnings.

    Raises:
        DataError: With everything that is wrong with the data.
        UnsendableSchemaError: If no message to an aggregator holds its schema.
    """
    data = pin(dataset, None, owner.engine.kind, owner.workspace, examples=examples, progress=progress)
    with closing(data.records):
        records = data.records.engine
        loaded = LoadedData(in_memory(records).columns, (), records.n_records, data.counts, data.digest)
    schema = schema_of(dataset, owner.policy.attributes, loaded.n_records, owner.policy.limits)
    if owner.aggregators and schema.attributes:
        check_sendable(dataset.name, schema)
    _check_sums(owner, dataset, schema)
    sent = schema.to_bytes()
    return {
        "name": dataset.name,
        "source": dataset.origin.shown,
        "budget": dataset.budget,
        "total_epsilon": str(dataset.total_epsilon),
        "schema": json.loads(sent),
        "schema_bytes": len(sent),
        "attributes": [_describe(attribute, loaded) for attribute in (*schema.attributes, *schema.following)],
        "records": loaded.n_records,
        "dropped": 0,
        "dropped_by": {},
        **loaded.counts.left_out,
        **({} if loaded.counts.persons is None else {"events": asdict(loaded.counts.persons)}),
        "identifier": _identifier_text(schema),
        "warnings": list(advice(dataset, schema, loaded)),
        "engine": engine_of(dataset, owner.engine, owner.workspace, loaded.n_records).to_document(),
    } | _match_keys(dataset)


def _match_keys(dataset: DatasetConfig) -> dict[str, Any]:
    """Describe how many persons match keys distinguish, if any are declared; their columns are read again."""
    if not dataset.match:
        return {}
    from owner_node.linking.match_check import check_passes, tokens_to_try

    loaded = load(dataset, [])
    tokens = list(tokens_to_try(dataset, loaded.identifiers, loaded.n_records, secrets.token_bytes(KEY_SIZE)))
    return {"match": [check.to_document() for check in check_passes(dataset, tokens, loaded.n_records)]}


def _describe(attribute: Attribute, loaded: LoadedData) -> dict[str, Any]:
    return {
        "name": attribute.name,
        "type": str(attribute.type),
        "domain": _domain_text(attribute),
        "values": attribute.n_values,
        "settings": attribute.settings,
        "rounded": loaded.counts.rounded.get(attribute.name, 0),
        "clamped": loaded.counts.clamped.get(attribute.name, 0),
    }


def _domain_text(attribute: Attribute) -> str:
    if not attribute.is_categorical:
        return f"{attribute.min} … {attribute.max}"
    labels = ", ".join(attribute.labels)
    return labels if len(labels) <= _LONGEST_DOMAIN else f"{labels[: _LONGEST_DOMAIN - 1]}…"


def _identifier_text(schema: Schema) -> str:
    rules = schema.identifier
    if rules is None:
        return "none"
    if rules.passes:
        return f"match keys in {count_text(len(rules.passes), 'pass')}"
    columns = count_text(rules.n_columns, "column")
    steps = f"normalised by {', '.join(rules.normalise)}" if rules.normalise else "compared as written"
    for column, also in enumerate(rules.also, 1):
        steps += f", column {column} also by {', '.join(also)}" if also else ""
    return f"{columns}, {steps}; at most {count_text(schema.max_records_per_person, 'record')} per person"


def _check_sums(owner: OwnerConfig, dataset: DatasetConfig, schema: Schema) -> None:
    """Check that the sums of every attribute fit 63 bits in the most generous release of all attributes.

    With less epsilon than budget and policy allow, noise and clusters are larger: what does not fit here fits
    in no release of all attributes.

    Raises:
        DataError: With every attribute whose sums do not fit, and the decimals that do.
    """

    def fits(task: AttributeTask) -> bool:
        try:
            mechanism_of(task).check(task.setting)
        except UnusableDataError:
            return False
        return True

    def with_decimals(task: AttributeTask, decimals: int) -> AttributeTask:
        upper = task.attribute.n_values // 10 ** (task.attribute.decimals - decimals)
        narrower = Attribute(task.attribute.name, task.attribute.type, 0, upper, decimals)
        return replace(task, attribute=narrower)

    if not schema.attributes:
        return  # a plan needs one; the configuration's warnings say that there is none
    # Events are counted, and no masked release has them.
    schema = replace(schema, attributes=tuple(each for each in schema.attributes if each.slot <= 0))
    most = min(dataset.total_epsilon, owner.policy.max_epsilon_per_release or dataset.total_epsilon)
    alone = ReleaseArguments(
        release="hypothetical", dataset=dataset.name, layout=Layout.HORIZONTAL, groups=((owner.owner.id,),),
        epsilon=most,
    )  # fmt: skip
    plan = make_plan(
        alone, {owner.owner.id: schema}, aggregator=f"spiffe://{owner.owner.trust_domain}/aggregator/any",
        created="", version=__version__,
    )  # fmt: skip
    lines, hints = [], []
    for task in mask_tasks(plan, plan.assignment_of(owner.owner.id).attributes, dataset.taxonomies):
        if fits(task):
            continue
        name = task.attribute.name
        lines.append(f"attribute {name!r}: its domain has {task.attribute.n_values:,} values")
        places = task.attribute.decimals if task.attribute.step == 1 else 0
        fewer = next((n for n in reversed(range(places)) if fits(with_decimals(task, n))), None)
        what = "a narrower domain" if fewer is None else f"decimals = {fewer} or fewer, or a narrower domain"
        hints.append(f"attribute {name!r}: declare {what}")
    if lines:
        raise DataError(
            "\n  ".join([f"data set {dataset.name!r}: sums of its values do not fit 63 bits", *lines]),
            "\n  ".join(hints),
            {"dataset": dataset.name, "problems": lines},
        )


def config_warnings(owner: OwnerConfig) -> Iterator[str]:
    """Yield what is valid in owner.toml, but keeps releases from being made."""
    yield from _policy_warnings(owner)
    yield from _identity_warnings(owner)
    yield from _linkage_key_warnings(owner)
    yield from hidden_files(owner)
    try:
        with OwnerDatabase(owner.owner.state_dir, make=False) as db:
            outdated = DaemonPresence(db, utc_now).state().outdated(owner.digest)
    except TesseraError as error:
        yield f"whether the daemon runs with this owner.toml is not known: {on_one_line(error.message)}"
    else:
        yield from [outdated] if outdated else []


def _policy_warnings(owner: OwnerConfig) -> Iterator[str]:
    """Yield names in the policy that match nothing, and what it refuses in every release."""
    yield from (f"{text}; {hint}" for text, hint in owner.unmatched_attributes())
    allowed = owner.policy.mechanisms
    refused = {
        f"{dataset.name}.{attribute.name}": 'missing = "category"'
        if attribute.keeps_missing
        else f'method = "{attribute.method}"'
        for dataset in owner.datasets
        for attribute in dataset.attributes
        if declared_mechanism(attribute) not in (None, *allowed)
    }
    if refused:
        settings = ", ".join(dict.fromkeys(refused.values()))
        yield (
            f"releases of {', '.join(refused)} are refused: {settings} asks for a mechanism "
            "that policy.mechanisms does not list"
        )


def _linkage_key_warnings(owner: OwnerConfig) -> Iterator[str]:
    """Yield a warning if releases with other owners cannot be linked yet."""
    if any(dataset.person_columns for dataset in owner.datasets):
        try:
            linkage_key.load(owner.owner.state_dir)
        except TesseraError as error:
            yield f"releases with other owners would fail: {on_one_line(error.message)}; {error.hint}"


def _identity_warnings(owner: OwnerConfig) -> Iterator[str]:
    """Yield the error with which `owner-node run` would not start, such as a missing certificate."""
    try:
        own_credentials(owner, utc_now)
    except TesseraError as error:
        yield f"owner-node run would not start: {on_one_line(error.message)}"


_WITHOUT = {"known": "all attributes"}
"""What an empty list means, where that is not "any"."""


def policy_parts(owner: OwnerConfig) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the policy as `policy_lines`: what owner.toml sets, and what holds by default."""
    try:
        written = set(tomllib.loads(owner.path.read_text(encoding="utf-8")).get("policy", {}))
    except (OSError, ValueError):
        written = set()
    usual = asdict(PolicyConfig())
    written |= {key for key, value in asdict(owner.policy).items() if value != usual[key]}
    lines = list(policy_lines(owner))
    return [line for line in lines if line[0] in written], [line for line in lines if line[0] not in written]


def policy_lines(owner: OwnerConfig) -> Iterator[tuple[str, str]]:
    """Yield every key of the policy with its effective value."""
    for key, value in asdict(owner.policy).items():
        if isinstance(value, tuple):
            yield key, ", ".join(map(str, value)) or _WITHOUT.get(key, "any")
        else:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            yield key, "no limit" if value is None else shown
