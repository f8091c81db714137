"""Commands that charge for a result ask again where it is expected to be worthless; `--yes` is no answer."""

import typer

from common.cli import console
from common.errors import ExitCode
from owner_node.masking.foreseen import Forecast


def require_worth(expected: Forecast, *, anyway: bool, otherwise: str) -> None:
    """End the command with exit code 4 unless the result is worth something, or a person wants it anyway.

    Args:
        otherwise: What is said if the person does not agree, such as "nothing was charged".

    Raises:
        UsageError: If the result is worthless, and there is no terminal to ask at.
    """
    if anyway or not expected.worthless:
        return
    if not console.can_ask():
        expected.check_worth(anyway=False)
    if not console.confirm(f"{expected.loss[:1].upper()}{expected.loss[1:]}. Continue anyway?"):
        console.note(otherwise)
        raise typer.Exit(int(ExitCode.REFUSED))
