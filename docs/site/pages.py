"""Pages of the site that are made from the programs, so that they cannot say anything else: a hook of MkDocs.

Reference of both command lines from their `--help`, of both configuration files from the tables that read
them, of the manifest from the documents in it, of exit codes from the errors, of the protocol from `proto/`.
Files of the checkout that pages link to. And the notebooks as files for Jupyter.
"""

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import griffe
import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from grpc_tools import protoc
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic.fields import FieldInfo

import aggregator.cli
import aggregator.config
import owner_node.cli
import owner_node.config
from common import errors
from common.canonical import Document
from common.model import fragment, match_quality, matches, plan, rounds, schema, structural_zeros, task
from common.settings import Section

ROOT = Path(__file__).parents[2]
_OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)\)")
_NOTEBOOKS = "notebooks/"
_CELL = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
"""A block of Python, and what it showed."""
_CONFIGURATIONS = {
    "owner.toml": (owner_node.config._File, "deploy/samples/owner.full.toml"),  # noqa: SLF001 - the file's form
    "aggregator.toml": (aggregator.config._File, "deploy/samples/aggregator.full.toml"),  # noqa: SLF001
}
_PROGRAMS = {"owner-node": owner_node.cli, "aggregator": aggregator.cli}
_PROTOCOLS = {
    "owner.proto": "An owner node and the aggregator: gRPC over mutual TLS",
    "control.proto": "The aggregator's commands and its daemon: gRPC over a Unix socket",
}
_SIGNED = (
    plan.Plan, plan.Linking, plan.Synthesis, task.Task, task.PlannedAttribute, task.Modelled,
    schema.Attribute, schema.Derivation, schema.IdentifierRules, schema.MatchPass, fragment.Addendum,
    matches.Match, match_quality.MatchQuality, match_quality.PassQuality, fragment.Consent,
    fragment.FragmentStatement, fragment.KeyProof, rounds.RoundDocument, rounds.SignedKey,
    structural_zeros.StructuralZero, structural_zeros.ExcludedValues,
)  # fmt: skip
"""The documents of a manifest, and the documents in these."""
_IN_UNITS = ("lower", "upper")
"""Fields of an attribute that are in no document: `min` and `max` stand for them."""
MANIFEST = {
    "format": "version of this form, 1",
    "release": "the id of the release, and the name of its folder",
    "version": "version of the software that published it",
    "layout": "`horizontal`, `vertical` or `mixed`",
    "purpose": "what the release is for, in the operator's words",
    "times": "when it was `planned` and `published`, ISO 8601 with a time zone",
    "totals": "records, ε, ε joint and, with rank noise, ε table of one person, over all owners",
    "composition": "how the ε of the owners adds up",
    "guarantee": "what is promised, in sentences",
    "invariants": "what is not hidden, in sentences",
    "schema": "the columns: name, declared domain, type in the Parquet file",
    "owners": "by owner: records, ε, k, attributes, the signed `consent`, the signed `fragment` statement",
    "aggregator": "its id, and the PEM chain of its certificate",
    "plan": "the signed plan",
    "addendum": "the signed addendum: what linking found",
    "product": "`synthetic`; masked releases have none of these three keys",
    "synthesis": "how the records were made, and `relations`: the pairs whose tables were counted",
    "rounds": "what opened each round, signed, and last the document that closed them",
    "files": "digest and size of every other file, `manifest.sig` aside",
}
"""The keys of `manifest.json`."""


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and the files of the checkout that pages link to."""
    for name, text in generated().items():
        files.append(File.generated(config, name, content=text))
    for page in list(files.documentation_pages()):
        if page.src_uri.startswith(_NOTEBOOKS):
            name = page.src_uri.removesuffix(".md") + ".ipynb"
            files.append(File.generated(config, name, content=notebook(page.content_string)))
            continue
        for target in _OUTSIDE.findall(page.content_string):
            source = ROOT / target
            files.append(File.generated(config, f"source/{target}.txt", content=source.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links to files of the checkout into links to their copies."""
    if page.file.src_uri.startswith(_NOTEBOOKS):
        return markdown
    top = "../" * page.file.src_uri.count("/")
    return _OUTSIDE.sub(rf"]({top}source/\1.txt)", markdown)


def notebook(page: str) -> str:
    """Return a page as a notebook of Jupyter: every block of Python is a cell, without what it showed."""
    # Splitting at a pattern with one group gives text and code in turn.
    parts = enumerate(each.strip("\n") for each in _CELL.split(page))
    cells: list[dict[str, Any]] = []
    for i, text in parts:
        if text:
            form: dict[str, Any] = {"outputs": [], "execution_count": None} if i % 2 else {}
            kind = "code" if i % 2 else "markdown"
            cells.append({"id": f"cell-{i}", "cell_type": kind, "metadata": {}, "source": text} | form)
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}, indent=1)


def generated() -> dict[str, str]:
    """Return the generated pages by name, in Markdown."""
    pages = {
        f"reference/{name}.md": _program(name, module.application()) for name, module in _PROGRAMS.items()
    }
    for name, (table, sample) in _CONFIGURATIONS.items():
        pages[f"reference/{name.replace('.', '-')}.md"] = _configuration(name, table, sample)
    pages["reference/manifest.md"] = "\n".join(_manifest())
    pages["reference/exit-codes.md"] = "\n".join(_exit_codes())
    pages["reference/wire.md"] = "\n".join(_wire())
    return pages


# --- command lines -------------------------------------------------------------------------------------


def _program(name: str, application: Any) -> str:
    lines = [f"# {name}: every command and option", "", application.help or "", ""]
    return "\n".join([*lines, *_commands(application, name)])


def _commands(command: Any, words: str) -> Iterator[str]:
    below: Mapping[str, Any] = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield from (
            f"## {words}",
            "",
            command.help or "",
            "",
            "```",
            command.get_usage(_context(command, words)),
            "```",
            "",
        )
        yield from _options(command, words)
    for name, each in below.items():
        yield from _commands(each, f"{words} {name}")


def _context(command: Any, words: str) -> Any:
    return command.context_class(command, info_name=words)


def _options(command: Any, words: str) -> Iterator[str]:
    records = [each.get_help_record(_context(command, words)) for each in command.params]
    rows = [record for record in records if record is not None]
    if rows:
        yield from ("| | |", "|---|---|")
        yield from (f"| `{_cell(name)}` | {_cell(text).replace('<', '&lt;')} |" for name, text in rows)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


# --- configuration files -------------------------------------------------------------------------------


def _configuration(name: str, table: type[Section], sample: str) -> str:
    head = [
        f"# {name}: every table and key",
        "",
        "Paths are relative to the folder of the file. Unknown keys are refused.",
        f"[A complete file](../{sample}) explains each key with an example.",
        "",
    ]
    return "\n".join([*head, *_tables(table, "")])


def _tables(table: type[Section], path: str) -> Iterator[str]:
    """Describe the keys of a table, then the tables in it."""
    inner: list[tuple[type[Section], str]] = []
    rows = []
    described = _docstrings(table)
    hints = get_type_hints(table, include_extras=True)
    for each in fields(table):
        info = FieldInfo.from_annotation(hints[each.name])
        key = f"{path}.{info.alias or each.name}" if path else info.alias or each.name
        below = next(_sections(hints[each.name]), None)
        if below is not None:
            inner.append((below, key + (".*" if "dict" in str(hints[each.name]) else "")))
        else:
            meaning, example = described.get(each.name, "").rstrip("."), info.description or ""
            if example.startswith("such as"):
                meaning += f", {example}"
            meaning = _cell(meaning or example)
            meaning = meaning[:1].upper() + meaning[1:]
            rows.append(f"| `{info.alias or each.name}` | {_cell(_default(each))} | {meaning} |")
    if rows:
        title = table.__doc__ or ""
        yield from (f"## [{path}]" if path else "## At the top", "", title.split("\n\n")[0].strip(), "")
        yield from ("| Key | Without it | Meaning |", "|---|---|---|", *rows, "")
    for below, key in inner:
        yield from _tables(below, key)


def _sections(annotation: Any) -> Iterator[type[Section]]:
    """Find the table in a type: itself, or what a list or dictionary of tables holds."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for each in get_args(annotation):
        yield from _sections(each)


def _docstrings(described: type) -> dict[str, str]:
    """Return the texts below the fields of a class, those of its base classes too."""
    return {name: each.docstring.value for name, each in _members(described).items() if each.docstring}


def _members(described: type) -> dict[str, griffe.Attribute]:
    """Return the fields of a class and of its base classes, as they are written."""
    found: dict[str, griffe.Attribute] = {}
    for base in reversed(described.__mro__):
        package, _, module = base.__module__.partition(".")
        if package in ("aggregator", "common", "owner_node"):
            found |= _package(package)[f"{module}.{base.__name__}"].attributes
    return found


@cache
def _package(name: str) -> griffe.Object | griffe.Alias:
    return griffe.load(name)


def _default(field: "Field[Any]") -> str:
    if field.default is MISSING:
        return "computed" if field.default_factory is not MISSING else "**required**"
    value = field.default
    if value is None or value in ((), ""):
        return "–"
    if isinstance(value, timedelta):
        return f"{int(value.total_seconds())} s"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- the release folder --------------------------------------------------------------------------------


def _manifest() -> Iterator[str]:
    yield from (
        "# The release folder and its manifest",
        "",
        "| File | Holds |",
        "|---|---|",
        "| `data.parquet`, `data.csv` | the released records, in one or both formats |",
        "| `counts.parquet` | of a synthetic release: the noisy counts that its records were drawn from |",
        "| `manifest.json` | everything that is needed to judge the release offline |",
        "| `manifest.sig` | the aggregator's signature of the bytes of `manifest.json` |",
        "| `report.html` | the same for people, without scripts |",
        "",
        "`aggregator verify DIR` and `owner-node verify DIR` check all of it. A signed part has four keys:",
        "`document`, `digest` (SHA-256 of its canonical JSON), `signature` (Base64) and `certificates` (PEM,",
        "the signer's first). Canonical JSON has sorted keys and no blanks, and its numbers are texts.",
        "A signed document can leave out a field that is empty, 0, null or `false`.",
        "",
        "## manifest.json",
        "",
        "| Key | Holds |",
        "|---|---|",
        *(f"| `{key}` | {meaning} |" for key, meaning in MANIFEST.items()),
        "",
    )
    for document in _SIGNED:
        described = _docstrings(document)
        yield from (f"## {document.__name__}", "", _cell((document.__doc__ or "").split("\n\n")[0]), "")
        yield from ("| Field | Type | Meaning |", "|---|---|---|")
        for key, name, kind in _fields_of(document):
            meaning = re.sub(r"\bNone\b", "null", _cell(described.get(name, "")).rstrip("."))
            yield f"| `{key}` | {_json_type(kind)} | {meaning} |"
        yield ""


def _fields_of(document: type[Document]) -> Iterator[tuple[str, str, Any]]:
    """Yield of everything in a document: its key, the name of the field or property, and its type."""
    hints = get_type_hints(document)
    for each in fields(document):
        if each.name in _IN_UNITS:
            continue
        yield each.metadata.get("name", each.name), each.name, hints[each.name]
    for name in document.derived:
        computed = getattr(document, name, None)
        if computed is None:
            continue
        made_by = computed.func if isinstance(computed, cached_property) else computed.fget
        yield name, name, get_type_hints(made_by)["return"]


def _json_type(kind: Any) -> str:
    """Name a type as a reader of canonical JSON sees it."""
    inner = [_json_type(each) for each in get_args(kind) if each not in (type(None), Ellipsis)]
    if type(None) in get_args(kind):
        return f"{inner[0]}, or null"
    if get_origin(kind) is tuple:
        return f"list of {inner[0]}"
    if get_origin(kind) is Mapping:
        return f"object: {inner[0]} to {inner[1]}"
    if isinstance(kind, type) and issubclass(kind, Document):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return " or ".join(f"`{each}`" for each in kind)
    return {str: "text", bool: "`true` or `false`", int: "integer", Decimal: "decimal"}[kind]


# --- exit codes and errors -----------------------------------------------------------------------------


def _exit_codes() -> Iterator[str]:
    meanings = _docstrings(errors.ExitCode)
    yield from (
        "# Exit codes and errors",
        "",
        "Both programs end with these codes. With `--json` an error is the document",
        '`{"error": {"code", "message", "hint", "details"}}` with one of the error codes below.',
        "",
        "| Exit code | Meaning |",
        "|---|---|",
        *(f"| {each.value} | {_cell(meanings[each.name])} |" for each in errors.ExitCode),
        "",
        "## Errors",
        "",
        "| Error code | Exit code | Meaning |",
        "|---|---|---|",
    )
    for each in [errors.TesseraError, *_below(errors.TesseraError)]:
        if "code" in vars(each):
            text = (errors.InternalError if each is errors.TesseraError else each).__doc__ or ""
            yield f"| `{each.code}` | {each.exit_code.value} | {_cell(text.split(chr(10) * 2)[0])} |"
    yield ""


def _below(kind: type[errors.TesseraError]) -> Iterator[type[errors.TesseraError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


# --- the wire protocol ---------------------------------------------------------------------------------

_SERVICE, _MESSAGE, _METHOD, _FIELD = 6, 4, 2, 2
"""Numbers of these parts in a descriptor, by which comments name their places."""


def _wire() -> Iterator[str]:
    yield from (
        "# Wire protocol",
        "",
        "Made from the comments of `proto/`. The page Architecture describes how a release is driven.",
        "",
    )
    for file in _descriptors():
        comments = {tuple(each.path): each for each in file.source_code_info.location}
        yield from (f"## {_PROTOCOLS[Path(file.name).name]}", "", f"`proto/{file.name}`", "")
        for number, service in enumerate(file.service):
            yield from ("| Call | Does |", "|---|---|")
            for place, method in enumerate(service.method):
                said = _comment(comments, (_SERVICE, number, _METHOD, place))
                sent = ("stream " if method.client_streaming else "") + method.input_type.rpartition(".")[2]
                got = ("stream " if method.server_streaming else "") + method.output_type.rpartition(".")[2]
                yield f"| `{method.name}({sent})` → `{got}` | {said} |"
            yield ""
        for number, message in enumerate(file.message_type):
            yield from _message(message, (_MESSAGE, number), comments)


def _message(message: DescriptorProto, path: tuple[int, ...], comments: Mapping[Any, Any]) -> Iterator[str]:
    if not message.field:
        return
    yield from (f"### {message.name}", "", _comment(comments, path), "")
    yield from ("| Field | Type | Meaning |", "|---|---|---|")
    for place, each in enumerate(message.field):
        said = _comment(comments, (*path, _FIELD, place))
        yield f"| `{each.name}` = {each.number} | {_kind(each, message)} | {said} |"
    yield ""


def _kind(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    name = field.type_name.rpartition(".")[2]
    entry = next((each for each in message.nested_type if each.name == name), None)
    if entry is not None:
        return f"map of {_kind(entry.field[0], entry)} to {_kind(entry.field[1], entry)}"
    kind = name or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"list of {kind}" if field.label == FieldDescriptorProto.LABEL_REPEATED else kind


def _comment(comments: Mapping[Any, Any], path: tuple[int, ...]) -> str:
    found = comments.get(path)
    return _cell(f"{found.leading_comments} {found.trailing_comments}").replace("<", "&lt;") if found else ""


def _descriptors() -> Iterable[FileDescriptorProto]:
    """Compile `proto/`, with comments."""
    files = sorted(map(str, (ROOT / "proto").rglob("*.proto")), reverse=True)
    common_types = str(Path(grpc_tools.__file__).parent / "_proto")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        arguments = [f"-I{ROOT / 'proto'}", f"-I{common_types}", "--include_source_info"]
        if protoc.main(["", *arguments, f"--descriptor_set_out={out}", *files]):
            raise RuntimeError("proto/ cannot be compiled")
        return FileDescriptorSet.FromString(out.read_bytes()).file
