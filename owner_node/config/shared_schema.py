"""A schema file: the part of a `[[dataset]]` that the owners of a release declare alike.

One owner exports it, or an aggregator offers it, and every other owner makes its own `owner.toml` from it. It
has the keys of `owner.toml`, but no source, budget or policy, and taxonomies as lines instead of files. It is
input from somebody else: whatever is not part of a schema is refused.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from common.errors import ConfigurationError, UsageError
from common.model.schema import AttributeType
from common.settings import read, toml, validate
from owner_node.config import OwnerConfig
from owner_node.config.dataset import DatasetConfig, DatasetTable, misdeclared

SETTINGS = (
    "name",
    "identifier",
    "normalise",
    "normalise_also",
    "match",
    "max_records_per_person",
    "missing",
    "structural_zeros",
)
"""Keys of a data set that owners declare alike, besides its attributes."""
_OWN = {"source": "data.csv", "total_epsilon": "1"}
"""What a schema lacks to be a data set."""


def export_schema(config: OwnerConfig, name: str) -> str:
    """Return the text of a schema file.

    Raises:
        UsageError: If there is no such data set.
    """
    name = config.dataset(name).name
    table = next(dataset for dataset in read(config.path)["dataset"] if dataset["name"] == name)
    if "events" in table.get("person", {}):
        raise UsageError(
            f"data set {name!r} has a table of events, which a schema file does not hold",
            "copy [dataset.person] and the attributes from owner.toml",
        )
    for attribute in table["attributes"].values():
        if isinstance(attribute.get("taxonomy"), str):
            hierarchy = config.path.parent / attribute["taxonomy"]
            attribute["taxonomy"] = hierarchy.read_text(encoding="utf-8-sig").splitlines()
        if "person" in table and AttributeType(attribute["type"]).accepted:
            attribute["outside"] = "clamp"
    head = f"# Schema of the data set {toml(name)}, for owner-node init DATA --schema FILE.\n"
    return head + "\n".join([settings_text(table), *attribute_texts(table, "attributes")])


def read_schema(path: Path) -> dict[str, Any]:
    """Read a schema file.

    Returns:
        Its document, which a `[[dataset]]` can hold.

    Raises:
        ConfigurationError: With all problems.
    """
    document = read(path)
    foreign = sorted(set(document) - {*SETTINGS, "attributes"})
    declared = document.get("attributes")
    foreign += [
        f"attributes.{name}.taxonomy"
        for name, table in (declared.items() if isinstance(declared, dict) else ())
        if isinstance(table, dict) and isinstance(table.get("taxonomy"), str)
    ]
    if foreign:
        raise ConfigurationError(
            f"{path} is not a schema file",
            [f"{key}: is no part of a schema" for key in foreign],
            "make it with owner-node schema export",
        )
    validate(DatasetTable, document | _OWN, path, misdeclared)
    return document


def present(document: Mapping[str, Any], columns: Collection[str], place: str) -> dict[str, Any]:
    """Return a schema with the attributes that a source has: owners of a vertical release share one schema.

    Raises:
        UsageError: If it has none of them.
    """
    attributes = {
        name: table for name, table in document["attributes"].items() if table.get("follows", name) in columns
    }
    if not attributes:
        raise UsageError(
            f"{place} has no attribute of the schema: {', '.join(document['attributes'])}",
            f"its columns: {', '.join(columns)}",
        )
    rules = [rule for rule in document.get("structural_zeros", ()) if attributes.keys() >= rule.keys()]
    others = {key: value for key, value in document.items() if key != "structural_zeros"}
    return {**others, **({"structural_zeros": rules} if rules else {}), "attributes": attributes}


def with_schema_of(path: Path, schema: Mapping[str, Any]) -> tuple[dict[str, Any], DatasetConfig]:
    """Return the data set that a schema is for: its table as it is, and what the schema makes of it.

    The table may still have places to fill in that the schema fills.

    Raises:
        UsageError: If there is none of the schema's name.
        ConfigurationError: With all problems of the data set with this schema.
    """
    tables = read(path).get("dataset", [])
    table = next((candidate for candidate in tables if candidate.get("name") == schema["name"]), None)
    if table is None:
        raise UsageError(
            f"{path} has no data set {schema['name']!r}",
            "add it: owner-node init DATA --schema FILE --append",
        )
    whole = with_schema(table, schema) | {"total_epsilon": _OWN["total_epsilon"]}
    return table, validate(DatasetTable, whole, path, misdeclared).config()


def with_schema(table: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a data set with the settings and attributes of a schema in the place of its own."""
    own = {key: value for key, value in table.items() if key not in (*SETTINGS, "attributes")}
    return {**own, **schema}


def settings_text(document: Mapping[str, Any]) -> str:
    """Return the settings of a schema as lines of TOML."""
    return "".join(f"{key} = {toml(document[key])}\n" for key in SETTINGS if key in document)


def attribute_texts(document: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yield one TOML table per attribute of a schema.

    Args:
        place: Dotted name of the table that holds the attributes.
    """
    for name, table in document["attributes"].items():
        lines = [f"[{place}.{toml(name)}]", *(f"{key} = {toml(value)}" for key, value in table.items())]
        yield "\n".join(lines) + "\n"
