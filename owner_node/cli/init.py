"""`owner-node init`: the first owner.toml for a data file.

Settings that can be guessed are filled in; a person decides the rest, domains above all. A domain that is
taken from the data discloses its extremes: the age of the oldest person, or the highest income. So the file
states the range of the data only rounded and in comments, and the domain is a text that no command accepts.
"""

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from anyascii import anyascii

from common.cli import console
from common.errors import UsageError, did_you_mean
from common.files import write_atomic
from common.model.privacy import parse_epsilon
from common.model.schema import MISSING_CATEGORY, MOST_DECIMALS
from common.settings import read, toml
from owner_node.cli.enroll import print_request, write_request
from owner_node.config import identity_in
from owner_node.config.shared_schema import attribute_texts, present, read_schema, settings_text
from owner_node.sources.guessing import LARGE_SHARE, MOST_LABELS, ColumnGuess, FileGuess, guess, source_path
from owner_node.sources.objects import ObjectSource
from owner_node.values.match_keys import SUGGESTED

FILL_IN = "FILL IN"
"""What a person has to replace; every command that reads the file refuses it."""
_HEAD = """\
# Made by owner-node init{source}.
# A first guess: go through it, line by line. Whatever is still "{fill}" has to be filled in by a person;
# owner-node check names all of it. Every other option, with its default, in the folder of the installation:
# share/tessera/samples/owner.full.toml. Paths are relative to the folder of this file.

[owner]
# This owner's id, as its certificate will name it: a-z, 0-9, '.', '-', '_'. Agree on it with the aggregator.
id = {id}
# The trust domain, the same for all owners and the aggregator.
trust_domain = {trust_domain}
# Folder of the ledger, the sessions and the linkage key; made private. Back it up.
state_dir = "state"

[[aggregator]]
# The aggregator's name in its certificate, and where to dial.
name = {aggregator}
address = {address}

# owner-node enroll request and install make these files.
[tls]
ca = "tls/ca.pem"
cert = "tls/own.pem"
key = "tls/own.key"

# What is agreed to without asking a person. Without further keys: whatever the budget below covers.
[policy]
min_k = 10
# max_epsilon_per_release = 1
# approval = "manual"
# A limit on the share of persons that an intruder re-identifies who knows these attributes of everybody (all
# without known), tested on every plan. It needs approval = "manual"; without it there is no limit.
# owner-node explore --max-reidentified finds the rank noise that keeps it.
# max_reidentified = "0.05"
# known = ["age", "sex"]
"""
_DATASET = """\
[[dataset]]
# The name that releases ask for; owners of one release use the same.
name = {dataset}
source = {path}
# What all releases of this data may charge together, for ever. A decimal such as "2.0".
{budget}total_epsilon = {total_epsilon}
"""
_PUBLIC_FILE = 0o644
_LONGEST_NAME = 60
_SHOWN_DETERMINING = 3
_SHOWN_RULES = 20

FileArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE]",
        help="File with the data (CSV, Parquet, SPSS, Stata, SAS), or the address of an object in a store "
        "(s3://, gs://, abfss://); without it only identity and connection.",
        show_default=False,
    ),
]  # fmt: skip
OutOption = Annotated[Path, typer.Option("--out", help="Where to write it.", metavar="FILE")]
IdOption = Annotated[str | None, typer.Option("--id", help="This owner's id.", show_default=False)]
TrustDomainOption = Annotated[
    str | None, typer.Option("--trust-domain", help="The parties' trust domain.", show_default=False)
]
AggregatorOption = Annotated[
    str | None,
    typer.Option("--aggregator", help="The aggregator.", metavar="NAME=HOST:PORT", show_default=False),
]


SchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="Schema file to take the attributes from (owner-node schema export or fetch).",
        metavar="FILE", show_default=False,
    ),
]  # fmt: skip
TotalOption = Annotated[
    str | None,
    typer.Option(
        "--total-epsilon", help="What all releases of these data may charge together.", show_default=False
    ),
]
RequestOption = Annotated[
    Path | None,
    typer.Option(
        "--request", help="Also make a key and write the request for its certificate here.",
        metavar="FILE", show_default=False,
    ),
]  # fmt: skip
AppendOption = Annotated[bool, typer.Option("--append", help="Add the data set to an existing owner.toml.")]


def init(
    source: FileArgument = None,
    out: OutOption = Path("owner.toml"),
    schema: SchemaOption = None,
    append: AppendOption = False,
    owner: IdOption = None,
    trust_domain: TrustDomainOption = None,
    aggregator: AggregatorOption = None,
    total_epsilon: TotalOption = None,
    request: RequestOption = None,
    as_json: console.JsonOption = False,
) -> None:
    """Write a commented owner.toml with guessed types; domains are left for a person to fill in.

    With --schema, attributes and domains are those that another owner or the aggregator has written down, as
    far as the file has them. Without FILE, the data set is added later, with --append.
    """
    file = None if source is None else _place(source)
    _check_arguments(file, out, append=append, about_data=schema or total_epsilon)
    if request is not None and (append or None in (owner, trust_domain, aggregator)):
        raise UsageError(
            "--request goes with --id, --trust-domain and --aggregator of a new owner.toml",
            "an owner.toml that exists: owner-node enroll request --out FILE",
        )
    name, _, address = (aggregator or f"{FILL_IN}={FILL_IN}").partition("=")
    if not name or not address:
        raise UsageError("--aggregator is malformed", "write --aggregator NAME=HOST:PORT")
    before = _before(out) if append else ""
    shared = None if schema is None else read_schema(schema)
    guessed = None if file is None else guess(file)
    part = _Part("", {}, [f"{out}: identity and connection, no data set"])
    if file is not None and guessed is not None:
        total = None if total_epsilon is None else parse_epsilon(total_epsilon)
        part = _part(file, out, guessed, shared, total, tomllib.loads(before), as_json=as_json)
    text = part.text
    if not append:
        text = "\n".join(filter(None, (
            head(
                file, guessed, owner=owner or FILL_IN, trust_domain=trust_domain or FILL_IN, aggregator=name,
                address=address,
            ),
            text,
        )))  # fmt: skip
    settings = None if request is None else identity_in(tomllib.loads(text), out)
    try:
        write_atomic(out, (before + text).encode(), _PUBLIC_FILE)
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written: {error.strerror}", "name a file in a folder that is there"
        ) from None
    key = "" if settings is None or request is None else write_request(settings, request)
    if as_json:
        about = {"file": out.absolute()} | part.document
        console.print_json(about | ({"request": request, "fingerprint": key} if key else {}))
        return
    for line in part.lines:
        console.print_line(line)
    if f'= "{FILL_IN}"' in text:
        console.print_line(f'fill in what says "{FILL_IN}", then: owner-node check --config {out}')
    if request is not None:
        print_request(request, key)
    elif not append:
        console.print_line(f"for a certificate: owner-node enroll request --config {out} --out FILE")
    if guessed is not None and shared is None:
        console.note("domains are not taken from the data: they would disclose its extremes to everyone")


def _place(source: str) -> Path | str:
    """Return the path of a file, or the address of an object, once it is checked."""
    if not ObjectSource.begins.match(source):
        return Path(source)
    try:
        return ObjectSource.normal(source, Path)
    except ValueError as problem:
        text = str(problem)
    raise UsageError(f"the address of the object cannot be used: {text}", "correct it")


def _check_arguments(file: Path | str | None, out: Path, *, append: bool, about_data: object) -> None:
    if append != out.exists():
        what = f"there is no {out} to append to" if append else f"{out} already exists"
        hint = "leave --append out" if append else "name another file with --out, or add --append"
        raise UsageError(what, f"{hint}; nothing was changed")
    if file is None and (append or about_data):
        raise UsageError("--append, --schema and --total-epsilon go with a data file", "name it: init FILE")


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of an owner.toml about one data set."""

    text: str
    document: dict[str, Any]
    """What `--json` says about it."""
    lines: list[str]
    """What is said on a terminal."""


def _before(out: Path) -> str:
    """Return the text of an owner.toml that a data set is appended to."""
    read(out)
    text = out.read_text(encoding="utf-8")
    return f"{text.rstrip()}\n\n" if text.strip() else ""


def _part(
    file: Path | str,
    out: Path,
    guessed: FileGuess,
    shared: dict[str, Any] | None,
    total_epsilon: Decimal | None,
    before: Mapping[str, Any],
    *,
    as_json: bool,
) -> _Part:
    """Return the part about a data file.

    Args:
        as_json: Whether nobody is asked.
    """
    columns = [column.name for column in guessed.columns]
    absent = [] if shared is None else [column for column in shared["attributes"] if column not in columns]
    if shared is not None:
        shared = present(shared, columns, str(file))
    name = _name(file) if shared is None else shared["name"]
    tables = before.get("dataset", [])
    if any(table.get("name") == name for table in tables):
        raise UsageError(
            f"{out} has a data set {name!r} already; nothing was changed",
            f"a changed schema: owner-node schema apply FILE --config {out}; other data need another name",
        )
    folder = out.absolute().parent
    place = file if isinstance(file, str) else os.path.realpath(file)
    twins = [
        table
        for table in tables
        if "source" in table and place in (table["source"], os.path.realpath(folder / table["source"]))
    ]
    twin = twins[0] if twins else None
    known = None if twin is None else str(twin.get("total_epsilon"))
    if twin is not None and total_epsilon is not None and known != format(total_epsilon, "f"):
        raise UsageError(
            f"data set {twin.get('name')!r} has the same source: both have one budget, with one total",
            "leave --total-epsilon out; nothing was changed",
        )
    reasons = {} if shared else _reasons(file, guessed)
    decimals = {
        column.name: _decimals(column, as_json=as_json)
        for column in guessed.columns
        if column.type == "number" and shared is None
    }
    text = dataset_text(
        file,
        out,
        guessed,
        decimals=decimals,
        shared=shared,
        twin=twin,
        total_epsilon=total_epsilon,
    )
    types = {column.name: column.type for column in guessed.columns if column.type}
    why = {column.name: column.why for column in guessed.columns if column.type} if shared is None else {}
    if shared is not None:
        types = {column: table["type"] for column, table in shared["attributes"].items()}
    identifier = (shared or {}).get("identifier", [])
    used = {*types, *([identifier] if isinstance(identifier, str) else identifier)}
    left_out = [column for column in columns if column not in used]
    document = {
        "records": guessed.n_records, "attributes": types, "decimals": decimals, "not_declared": left_out,
        "reasons": reasons, "absent": absent, "doubts": guessed.doubts, "why": why,
        "suggested": {"identifier": guessed.identifier, "max_records_per_person": guessed.most_records},
    }  # fmt: skip
    lines = [f"{out}: {len(types)} of {len(columns)} columns declared, {guessed.n_records} records"]
    if shared is None:
        lines += _say_undeclared(file, guessed, reasons)
    elif left_out:
        lines.append(f"not declared, and so never read: {', '.join(left_out)}")
    lines += [f"ambiguous: {doubt}; correct [dataset.csv] if this is wrong" for doubt in guessed.doubts]
    for column in absent:
        meant = did_you_mean(column, left_out)
        line = f"in the schema, but no column of {file}, so not declared: {column}"
        lines.append(f"{line}; {meant}" if meant else line)
    return _Part(text, document, lines)


def _reasons(file: Path | str, guessed: FileGuess) -> dict[str, str]:
    """Return why columns are not declared, by their names; it is an error if none is declared."""
    reasons = {column.name: column.reason for column in guessed.columns if column.reason}
    if not any(column.type for column in guessed.columns):
        faults = {column.name: column.fault for column in guessed.columns if column.fault}
        lines = [f"column {_column_text(name)}: {reason}" for name, reason in (reasons | faults).items()]
        message = "\n  ".join([f"{file} has no column that can be an attribute", *lines])
        raise UsageError(message, "check that this is the file, and that its first line names the columns")
    return reasons


def _say_undeclared(file: Path | str, guessed: FileGuess, reasons: Mapping[str, str]) -> Iterator[str]:
    for name, reason in reasons.items():
        yield f"not declared, and so never read: {_column_text(name)}: {reason}"
    for name, fault in {column.name: column.fault for column in guessed.columns if column.fault}.items():
        yield f"cannot be declared: {_column_text(name)}: {fault}; rename it in {file}"


def _column_text(column: str) -> str:
    """Return a column's name for display; the file decides what it holds."""
    return toml(column if len(column) <= _LONGEST_NAME else f"{column[:_LONGEST_NAME]}…")


def _decimals(column: ColumnGuess, *, as_json: bool) -> int:
    """Return the decimal places of a number; where some are left out, ask a person or say what was chosen."""
    chosen, most = column.decimals, column.most_decimals
    if chosen == most or as_json:
        return chosen
    about = f"column {column.name!r}: numbers have up to {most} decimal places, as computed numbers do"
    if not console.can_ask():
        console.note(f"{about}; {chosen} are kept, finer numbers are rounded")
        return chosen
    while True:
        answer = console.ask(f"{about}. How many to keep?", str(chosen))
        if answer.isascii() and answer.isdecimal() and int(answer) <= MOST_DECIMALS:
            return int(answer)
        console.note(f"expected a whole number from 0 to {MOST_DECIMALS}")


def head(
    source: Path | str | None,
    guess: FileGuess | None,
    *,
    owner: str = FILL_IN,
    trust_domain: str = FILL_IN,
    aggregator: str = FILL_IN,
    address: str = FILL_IN,
) -> str:
    """Return the beginning of an owner.toml: identity, connection and policy.

    Args:
        address: The aggregator's address, host:port.
    """
    about = ""
    if source is not None and guess is not None:
        counts = f"{guess.n_records} records, {len(guess.columns)} columns"
        # Escaped, so that a name cannot end the comment.
        about = f" from {toml(source_path(source).name)[1:-1]}: {counts}"
    return _HEAD.format(
        source=about, fill=FILL_IN, id=toml(owner), trust_domain=toml(trust_domain),
        aggregator=toml(aggregator), address=toml(address),
    )  # fmt: skip


def dataset_text(
    source: Path | str,
    written_to: Path,
    guess: FileGuess,
    *,
    decimals: Mapping[str, int] | None = None,
    shared: Mapping[str, Any] | None = None,
    twin: Mapping[str, Any] | None = None,
    total_epsilon: Decimal | None = None,
) -> str:
    """Return the text of a data set of an owner.toml.

    Args:
        written_to: File that the text is written to; paths in it are relative to its folder.
        decimals: Decimal places by column, where they are not those of the guess.
        shared: Document of a schema file, which the attributes are taken from; None: they are guessed.
        twin: Another data set of the same source, whose budget this one shares.
    """
    path = source.absolute() if isinstance(source, Path) else source
    folder = written_to.absolute().parent
    shown = path.relative_to(folder) if isinstance(path, Path) and path.is_relative_to(folder) else path
    total, budget = FILL_IN if total_epsilon is None else format(total_epsilon, "f"), ""
    if twin is not None:
        total = str(twin.get("total_epsilon", total))
        budget = "# One budget with the other data set of this source: it is about the same people.\n"
        budget += f"budget = {toml(twin.get('budget') or twin['name'])}\n"
    name = _name(source) if shared is None else shared["name"]
    parts = [
        _DATASET.format(dataset=toml(name), path=toml(str(shown)), budget=budget, total_epsilon=toml(total))
    ]
    if shared is not None:
        named = {key: value for key, value in shared.items() if key != "name"}
        parts += [settings_text(named), *_form(guess), *attribute_texts(shared, "dataset.attributes")]
        return "\n".join(parts)
    declared = [column for column in guess.columns if column.type]
    parts += [*_identifier(guess), *_rules(guess), *_form(guess), *_person_table(guess)]
    kept = {column.name: column.decimals for column in declared} | dict(decimals or {})
    parts += ["\n".join(_attribute(column, guess, kept[column.name], kept)) + "\n" for column in declared]
    return "\n".join(parts)


def _identifier(guess: FileGuess) -> Iterator[str]:
    others = [column for column in guess.columns if not column.type]
    names = ", ".join(toml(column.name) for column in others)
    distinct = (column.name for column in others if column.distinct and column.n_values and not column.fault)
    named = guess.identifier or next(distinct, "")
    why = "its name says so" if guess.identifier else "all of its values are different"
    yield (
        "# Column, or list of columns, that identifies a person, and steps that make identifiers of owners\n"
        "# comparable. Needed wherever owners may hold the same people; it never leaves this owner.\n"
        + (
            f"# identifier = {toml(named)}  # why: {why}\n"
            if named
            else "# No column of this file looks like one.\n"
        )
        + (
            "# In this file persons have several records, as with events, visits or repeating instruments:\n"
            f"# up to {guess.most_records}, rounded up to one digit. Make one record of each person, by\n"
            "# [dataset.person] below, or declare a limit that holds for everybody; noise and k grow:\n"
            f"# max_records_per_person = {guess.most_records}  # why: values of {toml(named)} repeat\n"
            if guess.most_records > 1
            else ""
        )
        + '# normalise = ["trim", "casefold"]\n'
        "# Without a common identifier: match keys, the same at all owners, tried by owner-node link-check.\n"
        '# A national id would be the first pass: keys = ["national_id:digits"]. match_columns names\n'
        "# the columns of this file.\n"
        f"{''.join(_suggest_passes())}"
        '# match_columns = { forename = "FORENAME", surname = "SURNAME" }\n'
        + (
            f"# Not declared below, and so never read, unless named here or there: {names}.\n"
            if names
            else ""
        )
    )


def _person_table(guess: FileGuess) -> Iterator[str]:
    """Yield rules that make one record of each person, as comments, where persons have several."""
    declared = [column for column in guess.columns if column.type]
    if guess.most_records < 2 or not declared:
        return
    dates = [column for column in declared if column.type == "date"]
    order = dates[0].name if dates else FILL_IN
    rules = {"date": "earliest", "integer": "mean", "number": "mean"}
    head = (
        "# One record a person, made of these records, so that epsilon speaks of persons. Choose a rule for\n"
        "# each attribute (the others: share/tessera/samples/owner.full.toml). The domains below are then\n"
        "# those of what the rule makes.\n"
        f"# [dataset.person]  # why: values of {toml(guess.identifier)} repeat\n"
        f"# by = {toml(guess.identifier)}\n"
    )
    ordered = any(column.type not in rules for column in declared)
    by_date = f"# order = {toml(order)}  # why: the first column of dates; it orders events for rule first\n"
    columns = [
        f"# {name} = {{ rule = {toml(rules.get(column.type, 'first'))}, of = {name} }}\n"
        for column in declared
        for name in [toml(column.name)]
    ]
    yield f"{head}{by_date if ordered else ''}# [dataset.person.columns]\n{''.join(columns)}"


def _rules(guess: FileGuess) -> Iterator[str]:
    """Yield the rules that values which never occur together suggest, as comments."""
    by_name = {column.name: column for column in guess.columns}

    def values(name: str, labels: Collection[str]) -> str:
        texts = (_value(by_name[name], label) for label in labels)
        return f"{toml(name)} = [{', '.join(texts)}]"

    rules = []
    for (first, second), pairs in guess.never.items():
        absent: dict[str, list[str]] = {}
        for label, other in pairs:
            absent.setdefault(label, []).append(other)
        alike: dict[tuple[str, ...], list[str]] = {}
        for label, others in absent.items():
            alike.setdefault(tuple(others), []).append(label)
        rules += [
            f"#     {{ {values(first, labels)}, {values(second, others)} }},\n"
            for others, labels in alike.items()
        ]
    if rules:
        left_out = len(rules) - _SHOWN_RULES
        yield (
            "# In this file, these values are frequent and never occur together. If that is public\n"
            "# knowledge and holds for everybody, no synthetic record has them together. Keep the facts:\n"
            f"# structural_zeros = [\n{''.join(rules[:_SHOWN_RULES])}# ]\n"
            + (f"# {left_out} further ones are not listed.\n" if left_out > 0 else "")
        )


def _suggest_passes() -> Iterator[str]:
    """Yield suggested passes of match keys, as comments."""
    yield "# match = [\n"
    for name, keys in SUGGESTED.items():
        yield f"#   {toml({'name': name, 'keys': keys})},\n"
    yield "# ]\n"


def _form(guess: FileGuess) -> Iterator[str]:
    if guess.is_csv:
        form = guess.form
        thousands = f"thousands = {toml(form.thousands)}\n" if form.thousands else ""
        doubts = "".join(f"# Ambiguous: {doubt}.\n" for doubt in guess.doubts)
        yield (
            f"[dataset.csv]\n{doubts}"
            f"delimiter = {toml(form.delimiter)}\n"
            f"decimal = {toml(form.decimal)}\n{thousands}"
            f"encoding = {toml(form.encoding)}\n"
            f"date_format = {toml(form.date_format)}\n"
            f"na_values = [{', '.join(map(toml, form.na_values))}]\n"
        )


def _attribute(
    column: ColumnGuess, guess: FileGuess, decimals: int, declared: Collection[str]
) -> Iterator[str]:
    yield f"[dataset.attributes.{toml(column.name)}]"
    if column.description:
        yield f"# {' '.join(column.description.split())}"
    if column.n_missing:
        share = 100 * column.n_missing / max(guess.n_records, 1)
        yield f"# {share:.1f} % of its values are missing."
        if column.type == "category":
            yield '# They become one more category, at every owner. Or leave these records out: "drop".'
            yield 'missing = "category"'
        else:
            yield "# That is an error, unless these records are left out."
            yield '# missing = "drop"'
            if column.type != "boolean":
                yield '# Or "category" keeps them as missing, and the attribute is counted (dp-hist).'
    yield f"type = {toml(column.type)}  # why: {column.why}"
    if column.type == "category":
        yield from _categories(column)
    elif column.type != "boolean":
        yield from _domain(column, decimals)
    if names := [name for name in column.determined_by if name in declared]:
        listed = " or ".join(map(toml, names[:_SHOWN_DETERMINING]))
        yield f"# In this file, each value of {listed} has one value here."
        yield "# If that is public knowledge and holds for everybody, releases can derive it without charge:"
        yield f"# follows = {toml(names[0])}"
        table = column.determined_by[names[0]].items()
        pairs = (f"{toml(of)} = {_value(column, value)}" for of, value in table)
        yield f"# values = {{ {', '.join(pairs)} }}"
    if column.type == "date" and guess.form.date_format not in column.date_formats:
        yield f"# Its dates are written {column.date_formats[0]}, others are not: export them alike."


def _value(column: ColumnGuess, declared: str) -> str:
    """Return a value of a column, as `ColumnGuess.declared` writes it, in TOML."""
    is_plain = column.type in ("boolean", "integer", "number") and declared != MISSING_CATEGORY
    return declared if is_plain else toml(declared)


def _domain(column: ColumnGuess, decimals: int) -> Iterator[str]:
    yield "# The smallest and the largest value that there can be, for anybody: what is known about the"
    yield "# attribute, the same at every owner. The ends of this file's values would disclose who has them."
    ends = column.rounded_ends()
    if ends is not None:
        low, high = (format(end.normalize(), "f") if end else "0" for end in ends)
        yield f"# (The values of this file lie within {low} and {high}, which is rounded outwards.)"
    yield f"min = {toml(FILL_IN)}"
    yield f"max = {toml(FILL_IN)}"
    if column.type == "number":
        most = f"; some numbers have {column.most_decimals} and are rounded" * (
            column.most_decimals > decimals
        )
        yield f"# Decimal places that are kept{most}. Fewer make coarser, smaller domains."
        yield f"decimals = {decimals}"
    if column.type in ("integer", "number") and (spikes := column.spikes(decimals)):
        listed = ", ".join(format(each.normalize(), "f") for each in spikes)
        yield f"# {1 / LARGE_SHARE:.0%} of this file's records or more have this value, or each of these."
        yield "# Lists of many values lose such a share, unless it is counted by itself. If it is public:"
        yield f"# spikes = [{listed}]"
    if column.type in ("integer", "number") and column.is_skewed:
        yield "# Most values are small and few are far larger, as of amounts and laboratory values. Synthetic"
        yield "# releases then count better in parts of equal ratio. min is 0 or more. If that is public:"
        yield '# scale = "log"'


def _categories(column: ColumnGuess) -> Iterator[str]:
    undeclared = sorted(set(column.labels or ()) - set(column.codebook))
    if column.codebook and not undeclared:
        yield "# The labels that the file declares, also of values that no record has."
        yield f"categories = [{', '.join(map(toml, column.codebook))}]"
        return
    yield "# Every label that may occur, for anybody: a list of texts, the same at every owner. A label that"
    yield "# occurs in this file alone discloses that somebody has it. Labels of this file, to start from:"
    yield f"# [{', '.join(map(toml, [*column.codebook, *undeclared][:MOST_LABELS]))}]"
    yield f"categories = {toml(FILL_IN)}"


def _name(source: Path | str) -> str:
    """Return a name for the data set that the configuration accepts."""
    stem = anyascii(source_path(source).stem)
    letters = "".join(char if char.isalnum() or char in "._-" else "-" for char in stem)
    return letters.lstrip("._-")[:64] or "data"
