"""The frame of both command lines: tables, `--json`, questions, progress, errors and exit codes.

Results go to standard output; progress, questions and errors go to standard error, so that with `--json`
standard output holds exactly one document. Tables are drawn on a terminal and aligned text elsewhere; rich is
imported only when there is a terminal to draw on.

An option that is given without a value is refused: usually it is a script's variable that is not set. Left
out, most options mean "all" or "the default". An empty value would mean the same by accident: every attribute
released where one was meant, or a new id and a new charge at each run.
"""

import codecs
import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO, TypeVar

import typer

from common.errors import (
    CannotPrintError,
    CannotStoreError,
    ConfigurationError,
    ExitCode,
    InternalError,
    TesseraError,
    UsageError,
    one_line,
)
from common.files import disk_reason, forbidden
from common.log import LogLevel, for_journal, is_journal, places
from common.model.privacy import read_whole_number

if TYPE_CHECKING:
    from rich.table import Table

Cell = object
"""What a table shows: text, a number, a boolean, or None for nothing."""
Rows = Sequence[Sequence[Cell]]
"""Lines of a table, each as long as its headings."""

_CONTINUE_HINT = "add --yes to continue without being asked"
_UNBROKEN = 12
"""Cells up to this length are not broken where a terminal is narrow."""
_BETWEEN_DRAWN, _BETWEEN_PLAIN = 3, 1
"""Width of what is between two columns, with lines and without."""
_HEADINGS_ALONE = "    \n    \n ━━ \n    \n    \n    \n    \n    \n"
"""The only line is below the headings, in the notation of rich."""


def draw(title: str, columns: Sequence[str], rows: Rows, width: int) -> "Table":
    """Draw a table; without upright lines where it would be too wide, so that no number has to be broken."""
    from rich.box import Box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, title_justify="left", show_edge=False)
    natural = _widths([columns, *map(_texts, rows)])
    sizes: list[int] | None = None
    if sum(natural) + _BETWEEN_DRAWN * len(columns) > width:
        table.box, table.padding = Box(_HEADINGS_ALONE), (0, 0)
        room = width - _BETWEEN_PLAIN * (len(columns) - 1)
        sizes = fit_widths(natural, _widths([[""] * len(columns), *map(_texts, rows)]), room)
    for i, (column, right) in enumerate(zip(columns, numeric(len(columns), rows), strict=True)):
        table.add_column(
            Text(column),
            justify="right" if right else "left",
            overflow="fold",
            width=None if sizes is None else sizes[i],
        )
    for row in rows:
        table.add_row(*map(Text, _texts(row)))
    return table


def fit_widths(natural: Sequence[int], cells: Sequence[int], room: int) -> list[int] | None:
    """Return widths in which only headings and long texts are broken; None if there are none.

    Args:
        cells: The same of the cells without their headings.
    """
    least = [max(1, min(cell, _UNBROKEN)) for cell in cells]
    if sum(least) > room:
        return None
    sizes = list(natural)
    while sum(sizes) > room:
        widest = max(range(len(sizes)), key=lambda i: (sizes[i] > least[i], sizes[i]))
        sizes[widest] -= 1
    return sizes


def align(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """Return the lines of a table as text without lines."""
    texts = [list(columns), *map(_texts, rows)]
    widths, right_aligned = _widths(texts), numeric(len(columns), rows)
    for line in texts:
        cells = zip(line, widths, right_aligned, strict=True)
        yield "  ".join(c.rjust(width) if right else c.ljust(width) for c, width, right in cells).rstrip()


def cell_text(cell: Cell) -> str:
    """Return a cell as text, in one line."""
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return one_line(format(cell, "f") if isinstance(cell, Decimal) else str(cell))


def _texts(row: Sequence[Cell]) -> list[str]:
    return [cell_text(cell) for cell in row]


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def numeric(n_columns: int, rows: Rows) -> list[bool]:
    """Return which columns hold numbers, and nothing but numbers and gaps."""

    def numbers(position: int) -> bool:
        cells = [row[position] for row in rows if row[position] is not None]
        return bool(cells) and all(isinstance(c, int | Decimal) and not isinstance(c, bool) for c in cells)

    return [numbers(position) for position in range(n_columns)]


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file.", show_default=False, metavar="FILE"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
AnywayOption = Annotated[
    bool, typer.Option("--anyway", help="Go on although the result is expected to be worthless.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="Level of detail of the log.")]


def whole_number(text: str | int) -> int:
    """Read a number of an option, in ASCII digits; the types of options take those of all scripts."""
    try:
        return read_whole_number(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _port(text: str | int) -> int:
    number = whole_number(text)
    if not 0 <= number <= _LARGEST_PORT:
        raise typer.BadParameter(f"{number} is not in the range 0<=x<={_LARGEST_PORT}.")
    return number


_LARGEST_PORT = 65535
PortOption = Annotated[
    int,
    typer.Option(
        "--port", help="Port to listen at; 0 for any free one.", parser=_port, metavar="INTEGER RANGE"
    ),
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the link in the browser.")]

GRPC_SETTINGS = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""What gRPC reads when it is imported: it writes no lines of its own into the log, which is read as JSON, and
handles no forks. Its handlers end some new processes by SIGABRT or SIGSEGV while there are calls, and a fork
starts Spark's Java process."""

_E = TypeVar("_E", bound=BaseException)
_log = logging.getLogger(__name__)


def main(make: Callable[[], Any], name: str) -> NoReturn:
    """Run the command line of this process and exit with its code."""
    _leave_ascii()
    for variable, value in GRPC_SETTINGS.items():
        os.environ.setdefault(variable, value)
    try:
        code = run(make(), name)
    except KeyboardInterrupt:
        # Before the command began, or when it had just ended.
        code = ExitCode.INTERRUPTED
    # Python flushes standard error once more at exit, and ends with 120 where it cannot be written.
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)
    sys.exit(code)


def _leave_ascii() -> None:
    """Start this process again in UTF-8 where names of files could only have ASCII characters.

    Python does so by itself in the locale C, unless PYTHONUTF8=0 or -X utf8=0 keeps it from that.
    """
    again = ["-X", "utf8=1"]
    if codecs.lookup(sys.getfilesystemencoding()).name == "ascii" and sys.orig_argv[1:3] != again:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *again, *sys.orig_argv[1:]])  # noqa: S606 - this program


def run(command: Any, name: str, argv: Sequence[str] | None = None) -> int:
    """Run a command line and turn every error into a message and an exit code.

    A command ends well by returning None, with an exit code of its own by returning it or by
    `raise typer.Exit(code)`, and badly by raising a `TesseraError`.

    Args:
        argv: Arguments without the program's name; those of the process unless given.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    try:
        _check_given(arguments)
        result = command.main(args=arguments, prog_name=name, standalone_mode=False)
        with _printing():
            sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
        return ExitCode.INTERNAL
    except SystemExit as end:  # the library's own end, for example when a pipe's reader has gone
        return end.code if isinstance(end.code, int) else ExitCode.INTERNAL
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except BaseException as fault:  # noqa: BLE001 - the last line of defence: no traceback reaches a user
        error = _as_ours(fault, name)
        if isinstance(error, CannotPrintError):
            _discard(sys.stdout)
        return report(error, as_json=as_json)
    return result if isinstance(result, int) and not isinstance(result, bool) else ExitCode.DONE


def _check_given(arguments: Sequence[str]) -> None:
    """Refuse empty arguments: a variable of a script that is not set, or the current folder by mistake."""
    for before, argument in pairwise(["", *arguments]):
        option, mark, value = before if before.startswith("-") else "", "=", argument
        if argument.startswith("--"):
            option, mark, value = argument.partition("=")
        if mark and not value.strip():
            raise UsageError(
                f"{option or 'an argument'} is empty",
                "give it a value, or leave it out; in a script, check whether a variable is not set",
            )


def _discard(stream: TextIO) -> None:
    """Discard all further output to a stream, including the interpreter's flush at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _printing() -> Iterator[None]:
    """Explain why standard output cannot be written in this block; a reader that left is no error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _print_error(error) from None


def _print_error(error: OSError) -> CannotPrintError:
    return CannotPrintError(
        f"the output cannot be written: {error.strerror or type(error).__name__}",
        "the command may still have done its work; make room, or write to another place",
    )


def _as_ours(fault: BaseException, name: str) -> TesseraError:
    """Turn any error into one of the catalogue; an unknown one becomes an internal fault without its text."""
    if isinstance(fault, BaseExceptionGroup):
        known = next(_leaves(fault, TesseraError), None)
        if known is not None:
            return known
        fault = next(_leaves(fault, BaseException), fault)
    if isinstance(fault, TesseraError):
        return fault
    if isinstance(fault, typer.TyperException):
        context = getattr(fault, "ctx", None)
        command = context.command_path if context is not None else name
        return UsageError(fault.format_message().rstrip("."), f"{command} --help lists what there is")
    if isinstance(fault, PermissionError) and fault.filename is not None:
        return forbidden(fault)
    if isinstance(fault, UnicodeEncodeError) and codecs.lookup(fault.encoding).name != "utf-8":
        return ConfigurationError(
            f"a name cannot be written in {fault.encoding}, the encoding of names of files here",
            hint="set the environment variable PYTHONUTF8=1, or a locale in UTF-8 such as LC_ALL=C.UTF-8",
        )
    trace = places(fault)
    if isinstance(fault, OSError) and trace[-2:][0].endswith(" in echo"):
        return _print_error(fault)  # the library's own output, such as `--help`
    if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return CannotStoreError(disk_reason(fault), hint="make room there, then retry")
    _log.debug("internal fault", exc_info=fault)
    return InternalError(
        f"internal fault ({type(fault).__name__} at {trace[-2] if len(trace) > 1 else 'an unknown place'})",
        "this is a fault of the program; please report it with this line",
    )


def _leaves(group: BaseExceptionGroup[Any], kind: type[_E]) -> Iterator[_E]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error, kind)
        elif isinstance(error, kind):
            yield error


def report(error: TesseraError, *, as_json: bool) -> int:
    """Show an error and return its exit code.

    It is shown as `error:` and `hint:` lines, or as the JSON document where that can be written.
    """
    if as_json and not isinstance(error, CannotPrintError):
        with suppress(CannotPrintError, BrokenPipeError):
            print_json(error.to_document())
            return int(error.exit_code)
        _discard(sys.stdout)
    _write_error(f"error: {_indent(error.message)}")
    if error.hint:
        _write_error(f"hint: {_indent(error.hint)}")
    return int(error.exit_code)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on standard output: keys sorted, decimals as text, equal input equal bytes."""
    ascii_only = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    _write(
        sys.stdout,
        json.dumps(document, indent=2, sort_keys=True, ensure_ascii=ascii_only, default=_plain),
    )


def print_line(text: str = "") -> None:
    """Print one line of the result on standard output, whatever is in the text."""
    _write(sys.stdout, one_line(text))


def note(text: str) -> None:
    """Print one line about what is going on, on standard error."""
    _write(sys.stderr, one_line(text))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a table on standard output: drawn on a terminal, plain aligned text elsewhere.

    Args:
        title: A line above the table; empty for none.
        rows: One sequence of cells per line, as long as `columns`. Columns of numbers are aligned right.
    """
    title, columns, lines = one_line(title), [*map(one_line, columns)], [tuple(row) for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(file=sys.stdout)
        with _printing():
            console.print(draw(title, columns, lines, console.width))
        return
    if title:
        print_line(title)
    for line in align(columns, lines):
        print_line(line)


@contextmanager
def web_packages() -> Iterator[None]:
    """Import what web pages need within this block."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"the web pages need the package {missing.name}", "pip install 'tessera-release[console]'"
        ) from None


def can_ask() -> bool:
    """Return whether a person can be asked at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, default: str) -> str:
    """Ask a person at the terminal for a text; an empty answer means the default."""
    sys.stderr.write(f"{one_line(question)} [{default}] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() or default


def confirm(question: str, hint: str = _CONTINUE_HINT) -> bool:
    """Ask a person to agree; everything but "y" or "yes" means no."""
    if not can_ask():
        raise UsageError("there is no terminal to ask at", hint)
    return ask(question, "y/N").lower() in ("y", "yes")


def require_yes(question: str, *, yes: bool, otherwise: str, hint: str = _CONTINUE_HINT) -> None:
    """End the command with exit code 4 unless `--yes` was given or a person agrees.

    Args:
        otherwise: What is said if the person does not agree, such as "nothing was changed".
    """
    if not (yes or confirm(question, hint)):
        note(otherwise)
        raise typer.Exit(int(ExitCode.REFUSED))


@contextmanager
def progress(
    title: str, columns: Sequence[str], *, silent: bool = False
) -> Iterator[Callable[[Iterable[Sequence[Cell]]], None]]:
    """Show a table that changes, on standard error: live on a terminal, one line per changed row elsewhere.

    Args:
        columns: Headings; the first column names the row.

    Yields:
        A function to call with the whole table whenever something may have changed.
    """
    if silent:
        yield lambda _rows: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(file=sys.stderr), auto_refresh=False) as live:
            yield lambda rows: live.update(
                draw(title, columns, [*map(tuple, rows)], live.console.width), refresh=True
            )
    else:
        note(title)
        yield _ChangedRows(columns)


class _ChangedRows:
    """Prints a row when it is new or differs from what was printed for it last."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._printed: dict[str, list[str]] = {}

    def __call__(self, rows: Iterable[Sequence[Cell]]) -> None:
        for row in rows:
            name, *cells = (cell_text(cell) for cell in row)
            if self._printed.get(name) != cells:
                self._printed[name] = cells
                pairs = zip(self._columns[1:], cells, strict=True)
                note(f"{name}: " + ", ".join(f"{column} {cell}" for column, cell in pairs))


def _indent(text: str) -> str:
    """Return an error's lines; only the first begins at the margin, so that none passes for one of ours."""
    first, *others = map(one_line, text.split("\n"))
    return "\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in others)])


def _write(stream: TextIO, line: str) -> None:
    # A name that the terminal's encoding lacks is shown escaped; it must not end a command.
    encoding = stream.encoding or "utf-8"
    # What cannot be said on standard error must not stop the work.
    with _printing() if stream is sys.stdout else suppress(OSError):
        stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()


def _write_error(text: str) -> None:
    _write(sys.stderr, for_journal(logging.ERROR, text) if is_journal(sys.stderr) else text)


def _plain(value: object) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value.value if isinstance(value, Enum) else str(value)
