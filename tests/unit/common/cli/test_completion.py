"""Completion in a real bash, with the script that the programs print."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[4]
PROGRAM = """#!{python}
import sys
sys.path.insert(0, {project!r})
from {package}.cli import main
main()
"""
ASK = """
source <(_{variable}_COMPLETE=source_bash {name})
COMP_WORDS=({words} "{last}")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_{function}_completion {name}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("name", "words", "last", "expected"),
    [
        ("owner-node", "", "linka", {"linkage-key"}),
        ("owner-node", "", "en", {"enroll"}),
        ("owner-node", "enroll", "in", {"install"}),
        ("owner-node", "mask", "--eps", {"--epsilon"}),
        ("aggregator", "", "rel", {"release", "releases"}),
        ("aggregator", "release", "--lay", {"--layout"}),
        ("aggregator", "", "--v", {"--version"}),
    ],
)
def test_bash_completes(tmp_path, name, words, last, expected):
    """Commands, their subcommands and their options."""
    package = name.replace("-", "_")
    program = tmp_path / name
    program.write_text(PROGRAM.format(python=sys.executable, project=str(PROJECT), package=package))
    program.chmod(0o755)
    script = ASK.format(
        variable=package.upper(), function=package, name=name, words=f"{name} {words}", last=last
    )
    ended = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert (set(ended.stdout.split()), ended.stderr) == (expected, "")


def test_names_are_completed_without_their_modules():
    """The list of commands is known without importing any: pressing the key costs no libraries."""
    from owner_node.cli import application

    code = "import sys; from owner_node.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code],
        cwd=PROJECT,
        env={"COMP_WORDS": "owner-node ", "COMP_CWORD": "1", "_OWNER_NODE_COMPLETE": "complete_bash"},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert set(application().commands) <= set(ended.stdout.split())
    assert "owner_node.cli.mask" not in ended.stderr
    assert "owner_node.cli" in ended.stderr
