"""How long steps that are pure functions are ended: they call a check, which may raise."""

from collections.abc import Callable

Check = Callable[[], object]
"""Called often by a long step; what it raises ends the step."""


def unchecked() -> None:
    """Let a step run to its end."""
