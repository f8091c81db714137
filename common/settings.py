"""Configuration files: found, read, and turned into frozen dataclasses, or every problem at once.

A table of a file is a frozen dataclass derived from `Section`, which is also the run-time form. Its fields
have the types of `common.daemon.settings`, so that pydantic can fill it from a file; code that makes one
itself hands in values as they are at run time. `validate` turns whatever does not fit into one
`ConfigurationError` with a line per problem: key, value seen, what is accepted. Values of a configuration may
be shown; secrets and addresses of databases are not.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from common.errors import ConfigurationError, did_you_mean

SYSTEM_FOLDER = Path("/etc/tessera")
"""Searched last for a configuration."""

_Section = TypeVar("_Section", bound="Section")
_Item = TypeVar("_Item")
_Location = tuple[int | str, ...]
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRET = re.compile(r"passw|secret|token|credential|private key|pwd=|-----BEGIN", re.IGNORECASE)
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Section:
    """A table of a configuration file: exact types, no unknown keys."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Take the table itself as a dictionary; "strict" is about its values."""
        schema = handler(source)
        cast("dict[str, Any]", handler.resolve_ref_schema(schema))["strict"] = False
        return schema


def parse_path(value: object, info: ValidationInfo) -> Path:
    """Read a path; a relative one starts at the folder of the configuration file."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("expected a path")
    if value.startswith("~"):
        raise ValueError('expected a path in full: "~" is not expanded')
    return Path(os.path.normpath(cast("dict[str, Path]", info.context)["folder"] / value))


def matching(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    """Return the validator of a text that matches a pattern."""

    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


FilePath = Annotated[Path, PlainValidator(parse_path)]
Listed: TypeAlias = Annotated[
    tuple[_Item, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
]
"""A list of a file."""


@dataclass(frozen=True, slots=True)
class TlsSection(Section):
    """The table `[tls]`: the files that a party proves its identity with."""

    ca: Annotated[FilePath, Field(description="the authorities' certificates, PEM")]
    cert: Annotated[FilePath, Field(description="this party's certificate, PEM")]
    """This party's certificate, followed by any intermediate certificates, PEM."""
    key: Annotated[FilePath, Field(description="its private key, PEM")]
    """Its private key, PEM, readable by its user alone."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration."""

    key: str
    """Path of the key, for example `policy.min_k`."""
    text: str
    """Value seen and what is accepted, as the rest of the line."""

    def __str__(self) -> str:
        return f"{self.key}{self.text}"


class Contradictions(ValueError):
    """Several problems that one validator found: pairs of a key below it (or "") and what is wrong.

    What is wrong may begin with the value seen, as " = value: ".
    """

    def __init__(self, found: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(text for _, text in found))
        self.found = tuple(found)


# --- finding and reading -----------------------------------------------------------------------------------


def locate(config: Path | None, name: str) -> Path:
    """Return the configuration file to use: what `--config` named, or one in the usual places.

    Raises:
        ConfigurationError: If there is none, saying where it was looked for.
    """
    candidates = [config] if config is not None else [Path(name), SYSTEM_FOLDER / name]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.absolute()
    looked = ", ".join(str(candidate.absolute()) for candidate in candidates)
    raise ConfigurationError(
        "there is no configuration file", [f"looked for {looked}"], "name the file with --config FILE"
    )


def read(path: Path) -> dict[str, Any]:
    """Read a TOML file with its decimals exact."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        hint = "check the path and whose file it is"
        raise ConfigurationError(f"{path} cannot be read", [reason.lower()], hint) from None
    except UnicodeDecodeError as problem:
        raise ConfigurationError(
            f"{path} is not UTF-8 text", [f"first bad byte at {problem.start}"]
        ) from None
    return parse_toml(text, path)


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return the document of a TOML text with its decimals exact; `path` names it in errors."""
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, ArithmeticError, RecursionError) as problem:
        reason = str(problem) if isinstance(problem, tomllib.TOMLDecodeError) else "a number cannot be read"
        raise ConfigurationError(
            f"{path} is not TOML",
            [reason],
            "texts need quotes, as do names with other characters than A-Z, a-z, 0-9, '_' and '-'; "
            "every key may be given once",
        ) from None


def toml(value: object) -> str:
    """Write a text, an integer, a decimal, a boolean, a date, or a list or table of those as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case int() | str():
            # TOML's basic strings know every escape that JSON writes, but have none for DEL.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
        case Mapping():
            return f"{{ {', '.join(f'{toml(key)} = {toml(item)}' for key, item in value.items())} }}"
        case Sequence():
            return f"[{', '.join(map(toml, value))}]"
    raise TypeError(f"{type(value).__name__} is not written as TOML here")


def validate(
    table: type[_Section],
    document: Mapping[str, Any],
    path: Path,
    contradictions: Callable[[Mapping[str, Any]], Iterable[Problem]] = lambda _document: (),
) -> _Section:
    """Turn a document into its typed form, or report everything that is wrong with it.

    Args:
        path: The file; relative paths in it are relative to its folder.
        contradictions: Finds what does not fit together between tables, in the document as it was read.
    """
    problems: list[Problem] = []
    section = None
    try:
        context = {"folder": path.absolute().parent}
        section = TypeAdapter(table).validate_python(dict(document), context=context)
    except ValidationError as failure:
        for error in failure.errors(include_url=False):
            problems += _problems(table, document, error)
    problems += contradictions(document)
    if problems or section is None:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise ConfigurationError(
            f"{path} has {count}", list(dict.fromkeys(map(str, problems))), "correct the file and try again"
        )
    return section


# --- problems in words -------------------------------------------------------------------------------------

_WORDS = {
    "string_type": "a text in quotes",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "tuple_type": "a list, [...]",
    "dict_type": "a table",
    "dataclass_type": "a table",
}


def _problems(table: type[Section], document: Mapping[str, Any], error: Any) -> list[Problem]:
    """Translate one error of pydantic: one problem, or as many as a validator found."""
    location: _Location = error["loc"]
    key = _key(document, location)
    if error["type"] in ("unexpected_keyword_argument", "missing"):
        keys = _keys_at(table, location[:-1])
        if error["type"] != "missing":
            return [Problem(key, ": unknown key; " + nearest(str(location[-1]), list(keys)))]
        wanted = keys[str(location[-1])].description
        return [Problem(key, f": missing; {wanted}" if wanted else ": missing")]
    inner = error.get("ctx", {}).get("error")
    if isinstance(inner, Contradictions):
        return [
            Problem(".".join(filter(None, (key, below))), text if text.startswith(" = ") else f": {text}")
            for below, text in inner.found
        ]
    one_value = not isinstance(error["input"], Mapping | list) or not isinstance(inner, ValueError)
    seen = f" = {value_text(str(location[-1]), error['input'])}" if one_value else ""
    if isinstance(inner, ValueError):
        return [Problem(key, f"{seen}: {inner}")]
    return [Problem(key, f"{seen}: expected {_expectation(error)}")]


def _expectation(error: Any) -> str:
    context = error.get("ctx", {})
    if error["type"] == "literal_error":
        return f"one of {context['expected']}".replace("'", '"')
    if error["type"] == "greater_than_equal":
        return f"at least {context['ge']}"
    if error["type"] == "less_than_equal":
        return f"at most {context['le']}"
    if error["type"] == "string_too_short":
        return "a text that is not empty"
    if error["type"] == "too_short":
        return "at least one" if context["min_length"] == 1 else f"at least {context['min_length']}"
    return _WORDS.get(error["type"], str(error["type"]).replace("_", " "))


def _key(document: Mapping[str, Any], location: _Location) -> str:
    """Write the path of a key; an entry of a list of tables goes by its name where it has one."""
    text, here = "", document
    for step in location:
        try:
            here = here[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            here = {}
        if isinstance(step, int):
            name = here.get("name") if isinstance(here, Mapping) else None
            text += f"[{name}]" if isinstance(name, str) and name else f"[{step + 1}]"
        else:
            text += f".{step}" if text else step
    return text


def _keys_at(table: type[Section], location: _Location) -> dict[str, FieldInfo]:
    """Return the keys of the table that a path leads to."""
    keys, named = _keys(table), False
    for step in location:
        # A position in a list, or a name that the file chose, is no key.
        if named or isinstance(step, int):
            named = False
            continue
        annotation = keys[step].annotation
        named = get_origin(annotation) is dict
        if (inner := _table_in(annotation)) is not None:
            keys = _keys(inner)
    return keys


def _keys(table: type[Section]) -> dict[str, FieldInfo]:
    hints = get_type_hints(table, include_extras=True)
    keys = {field.name: FieldInfo.from_annotation(hints[field.name]) for field in fields(table)}
    return {key.alias or name: key for name, key in keys.items()}


def _table_in(annotation: Any) -> type[Section] | None:
    """Return the table in the type of a field: itself, or that of the entries of a list or dictionary."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((table for part in get_args(annotation) if (table := _table_in(part)) is not None), None)


def nearest(name: str, known: Sequence[str]) -> str:
    """Suggest the most similar known name, or else list all of them."""
    return did_you_mean(name, known) or f"known: {', '.join(known)}"


def value_text(key: str, value: object) -> str:
    """Write a value of a configuration for a person, without secrets and without addresses of databases."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, bool):
        return str(value).lower()
    text = value if isinstance(value, str) else str(value)
    if _URL.match(text) or _SECRET.search(key) or _SECRET.search(text):
        return "(not shown)"
    text = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
    return f'"{text}"' if isinstance(value, str) else text
