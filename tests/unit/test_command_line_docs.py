"""docs/command-line.md names the commands and options that there are."""

import re
from pathlib import Path

import pytest

import aggregator.cli
import owner_node.cli

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")


def commands(command, words: str) -> dict[str, set[str]]:
    """Return every command below one, by its words, with its visible options."""
    below = getattr(command, "commands", None)
    visible = [option for option in command.params if not getattr(option, "hidden", False)]
    own = {words: {name for option in visible for name in option.opts if name.startswith("--")}}
    if below is None:
        return own
    return (own if command.invoke_without_command and words.count(" ") else {}) | {
        key: options
        for name, each in below.items()
        for key, options in commands(each, f"{words} {name}").items()
    }


@pytest.mark.parametrize(
    ("program", "application"),
    [("aggregator", aggregator.cli.application), ("owner-node", owner_node.cli.application)],
)
def test_every_command_is_described(program, application):
    """No command is missing from the page, and none is described that is not there."""
    found = commands(application(), program)
    described = re.findall(rf"^\| `({program} [a-z -]+)` \|", PAGE, flags=re.MULTILINE)
    assert sorted(described) == sorted(found)


def test_every_option_of_a_release_is_described():
    """The arguments of a release are all there, and no other."""
    found = commands(aggregator.cli.application(), "aggregator")
    described = set(re.findall(r"^\| `(--[a-z-]+)` \|", PAGE, flags=re.MULTILINE))
    common = {"--config", "--json", "--help"}
    assert found["aggregator plan"] - common == described
    assert found["aggregator release"] - common == described | {"--trial", "--dry-run", "--yes", "--detach"}
