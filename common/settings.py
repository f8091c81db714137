"""Configuration files: found, read, and either typed values or every problem at once.

Each program describes the shape of its file as pydantic models built on `Section`, with the field types of
`common.daemon.settings`. `validate` turns whatever does not fit into one `ConfigurationError` with a line per
problem: key, value seen, what is accepted. Values of a configuration may be shown; secrets and addresses of
databases are not.
"""

import difflib
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from common.errors import ConfigurationError

SYSTEM_FOLDER = Path("/etc/tessera")
"""Where a configuration is looked for last."""

_Model = TypeVar("_Model", bound=BaseModel)
_Location = tuple[int | str, ...]
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRET = re.compile(r"passw|secret|token|credential|private key|pwd=|-----BEGIN", re.IGNORECASE)
_LONGEST_SHOWN = 60


class Section(BaseModel):
    """A table of a configuration file: exact types, no unknown keys, never changed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class TlsSection:
    """The files that a party proves its identity with."""

    ca: Path
    """Certificates of the authorities that are trusted, PEM."""
    cert: Path
    """This party's certificate and any intermediate ones, PEM."""
    key: Path
    """Its private key, PEM, readable by nobody else."""


@dataclass(frozen=True, slots=True)
class MetricsSection:
    """Where Prometheus finds the metrics of a daemon."""

    listen: str = ""
    """"host:port" of this machine; empty for no metrics."""


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
    """Return the configuration file to use.

    Args:
        config: What `--config` named, or None to look in the usual places.
        name: The usual file name, `owner.toml` or `aggregator.toml`.

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
    """Read a TOML file with its decimals exact.

    Raises:
        ConfigurationError: If it cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise ConfigurationError(f"{path} cannot be read", [reason.lower()]) from None
    except UnicodeDecodeError as problem:
        raise ConfigurationError(
            f"{path} is not UTF-8 text", [f"first bad byte at {problem.start}"]
        ) from None
    except (tomllib.TOMLDecodeError, ArithmeticError, RecursionError) as problem:
        text = str(problem) if isinstance(problem, tomllib.TOMLDecodeError) else "a number cannot be read"
        raise ConfigurationError(
            f"{path} is not TOML", [text], "texts need quotes, and every key may be given once"
        ) from None


def validate(
    model: type[_Model],
    document: Mapping[str, Any],
    path: Path,
    contradictions: Callable[[Mapping[str, Any]], Iterable[Problem]] = lambda _document: (),
) -> _Model:
    """Turn a document into its typed form, or say everything that is wrong with it.

    Args:
        model: Shape of the file.
        document: What `read` returned.
        path: The file; relative paths in it are relative to its folder.
        contradictions: Finds what does not fit together between tables, in the document as it was read.

    Raises:
        ConfigurationError: With every problem.
    """
    problems: list[Problem] = []
    section = None
    try:
        section = model.model_validate(dict(document), context={"folder": path.absolute().parent})
    except ValidationError as failure:
        for each in failure.errors(include_url=False):
            problems += _problems(model, document, each)
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
    "list_type": "a list, [...]",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


def _problems(model: type[BaseModel], document: Mapping[str, Any], error: Any) -> list[Problem]:
    """Put one error of the library into our words, as one problem or as many as a validator found."""
    location: _Location = error["loc"]
    key = _key(document, location)
    if error["type"] == "extra_forbidden":
        known = list(_tables(model, location[:-1]).model_fields)
        return [Problem(key, ": unknown key; " + nearest(str(location[-1]), known))]
    if error["type"] == "missing":
        field = _tables(model, location[:-1]).model_fields.get(str(location[-1]))
        wanted = field.description if field is not None else None
        return [Problem(key, f": missing; {wanted}" if wanted else ": missing")]
    inner = error.get("ctx", {}).get("error")
    if isinstance(inner, Contradictions):
        return [
            Problem(f"{key}.{below}" if below else key, text if text.startswith(" = ") else f": {text}")
            for below, text in inner.found
        ]
    one_value = not isinstance(error["input"], Mapping | list) or not isinstance(inner, ValueError)
    seen = f" = {shown(str(location[-1]), error['input'])}" if one_value else ""
    if isinstance(inner, ValueError):
        return [Problem(key, f"{seen}: {inner}")]
    return [Problem(key, f"{seen}: expected {_expected(error)}")]


def _expected(error: Any) -> str:
    context = error.get("ctx", {})
    if error["type"] == "literal_error":
        return f"one of {context['expected']}".replace("'", '"')
    if error["type"] == "greater_than_equal":
        return f"at least {context['ge']}"
    if error["type"] == "less_than_equal":
        return f"at most {context['le']}"
    if error["type"] == "string_too_short":
        return "a text that is not empty"
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


def _tables(model: type[BaseModel], location: _Location) -> type[BaseModel]:
    """Return the model of the table that a path leads to."""
    named = False
    for step in location:
        if isinstance(step, int) or named:
            named = False
            continue
        field = model.model_fields.get(step)
        inner, named = _inner(field.annotation if field is not None else None)
        model = inner or model
    return model


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model inside a field's type, and whether a name chosen by the user comes before it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (list, dict, Annotated, Union, types.UnionType):
        for argument in arguments:
            inner, _ = _inner(argument)
            if inner is not None:
                return inner, origin is dict
    return None, False


def nearest(name: str, known: Sequence[str]) -> str:
    """Name what was probably meant, or else everything that is known."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def shown(key: str, value: object) -> str:
    """Write a value of a configuration for a person, without secrets and without addresses of databases."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, bool):
        return str(value).lower()
    text = value if isinstance(value, str) else str(value)
    if _URL.match(text) or _SECRET.search(key) or _SECRET.search(text):
        return "(not shown)"
    text = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
    return f'"{text}"' if isinstance(value, str) else text


def is_url(source: str) -> bool:
    """Whether a source is a URL instead of a path."""
    return _URL.match(source) is not None
