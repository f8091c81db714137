"""The list of commands of a program. A command's module is imported when the command is called.

So every module imports what it needs at its top, `--help` needs none of it, and a daemon has only the
libraries of its own command in memory.
"""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]

from common.cli.console import print_line


@dataclass(frozen=True, slots=True)
class Command:
    """One line of `--help`."""

    place: str
    """Module and name, "package.module:name", of a function or of a `typer.Typer` with subcommands."""
    about: str
    """What it does, in one line of a terminal."""


class _Commands(Mapping[str, Any]):
    """The commands by name, each made when it is asked for."""

    def __init__(self, listed: Mapping[str, Command]) -> None:
        self.listed = listed
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _make(name, self.listed[name].place)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.listed)

    def __len__(self) -> int:
        return len(self.listed)


def _make(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    # What modules make stays until the end. Looking through it for garbage, now and at the end, is a sixth of
    # the time of a command that shows something.
    gc.disable()
    target = getattr(import_module(module), attribute)
    gc.freeze()
    gc.enable()
    app = _plain_typer()
    if isinstance(target, typer.Typer):
        # A family without a verb is a usage error like any other, not a page of help.
        app.add_typer(target, name=name, no_args_is_help=False)
    else:
        app.command(name)(target)
    made = typer.main.get_command(app)
    return getattr(made, "commands", {name: made})[name]


class _Program(TyperGroup):
    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the names that a word may be completed to, without importing the commands."""
        listed: Mapping[str, Command] = self.commands.listed  # type: ignore[attr-defined]
        fitting = [
            CompletionItem(name, help=command.about)
            for name, command in listed.items()
            if name.startswith(incomplete)
        ]
        return [*fitting, *super(TyperGroup, self).shell_complete(ctx, incomplete)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.about) for name, command in self.commands.listed.items()])  # type: ignore[attr-defined]


def _plain_typer(**settings: Any) -> typer.Typer:
    # Without rich markup, help and errors are plain text and rich stays out of the daemons' memory.
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )


def program(name: str, about: str, version: str, commands: Mapping[str, Command]) -> Any:
    """Return the command line of a program, for `console.run`."""
    # Registers how shells ask for completions: _OWNER_NODE_COMPLETE=source_bash owner-node
    completion_init()
    app = _plain_typer(help=about, cls=_Program)

    def show_version(asked: bool) -> None:
        if asked:
            print_line(f"{name} {version}")
            raise typer.Exit

    @app.callback()
    def options(
        _version: Annotated[
            bool,
            typer.Option(
                "--version", help="Show the version and exit.", callback=show_version, is_eager=True
            ),
        ] = False,
    ) -> None:
        pass

    options.__doc__ = about
    group = typer.main.get_command(app)
    group.commands = _Commands(commands)  # type: ignore[attr-defined]
    return group
