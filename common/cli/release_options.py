"""Options that describe a release, and arguments that name one, worded once for all commands that take them.

The options are texts here: `common.planning.arguments` has the table of them, and reads them.
"""

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from common.errors import UsageError
from common.planning.arguments import ARGUMENTS, Kind
from common.trust.identity import parse_fingerprint


def option(name: str) -> Any:
    """Return the option of an argument of a release, for an annotation."""
    arg = ARGUMENTS[name]
    shown = arg.shown or (arg.kind is not Kind.FLAG and bool(arg.default))
    return typer.Option(arg.option_of(name), help=arg.help, metavar=arg.metavar, show_default=shown)


def takes_release_arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every argument of a release, before its own; it takes them as keywords."""
    types = {Kind.FLAG: bool, Kind.FOLDER: Path | None, Kind.FILE: Path | None}
    usual: dict[Kind, object] = {Kind.FLAG: False, Kind.FOLDER: None, Kind.FILE: None}
    table = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if arg.default is None else usual.get(arg.kind, arg.default),
            annotation=Annotated[types.get(arg.kind, str), option(name)],
        )
        for name, arg in ARGUMENTS.items()
    ]
    own = [
        parameter
        for parameter in signature(command).parameters.values()
        if parameter.kind is Parameter.KEYWORD_ONLY
    ]
    command.__signature__ = Signature([*table, *own])  # type: ignore[attr-defined]  # typer reads it
    return command


Dataset = Annotated[str, option("dataset")]
LayoutName = Annotated[str, option("layout")]
Owners = Annotated[str, option("owners")]
Groups = Annotated[str, option("groups")]
Epsilon = Annotated[str, option("epsilon")]
K = Annotated[str, option("k")]
MechanismId = Annotated[str, option("mechanism")]
RankNoise = Annotated[str, option("rank_noise")]
Attributes = Annotated[str, option("attributes")]
Weights = Annotated[str, option("weights")]
Purpose = Annotated[str, option("purpose")]
ProductName = Annotated[str, option("product")]
Delta = Annotated[str, option("delta")]
Colluding = Annotated[str, option("colluding")]
Audit = Annotated[str, option("audit")]
Pairs = Annotated[str, option("pairs")]
MaxOverlap = Annotated[str, option("max_overlap")]
OnMismatch = Annotated[str, option("on_mismatch")]

ReleaseId = Annotated[str, typer.Argument(metavar="ID", help="Release id.", show_default=False)]
Published = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="Release folder, or the file of a synthetic table.", show_default=False
    ),
]
KeyPins = Annotated[
    list[str] | None,
    typer.Option(
        "--owner", help="Fingerprint that an owner's key must have; repeatable.",
        metavar="ID=FINGERPRINT", show_default=False,
    ),
]  # fmt: skip


_PIN = "write --owner ID=FINGERPRINT with all digits: aggregator owners --json has them; ask the owner, too"


def parse_pins(pins: Sequence[str]) -> dict[str, str]:
    """Read `--owner ID=FINGERPRINT` options.

    Raises:
        UsageError: If one has another form, or an owner is named twice.
    """
    parsed: dict[str, str] = {}
    for pin in pins:
        owner, _, digits = pin.partition("=")
        try:
            key = parse_fingerprint(digits)
        except ValueError as problem:
            raise UsageError(f"--owner {pin}: {problem}", _PIN) from None
        if not owner or owner in parsed:
            raise UsageError(f"--owner {pin} names no owner, or one twice", _PIN)
        parsed[owner] = key
    return parsed
