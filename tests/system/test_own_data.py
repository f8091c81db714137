"""Pages about one's own data at a terminal: from files to releases, with nothing to fill in."""

import re
from pathlib import Path

import pytest

from deploy.local_setup import free_port
from tests.system.pasted import blocks, short_folder
from tests.terminal import terminal

DOCS = Path(__file__).parents[2] / "docs"
COMMAND = re.compile(r"^(?:\w+=\$\()?(?:aggregator|owner-node) ", re.MULTILINE)
RUN = re.compile(r"^owner-node run --config (\S+)", re.MULTILINE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "owners", "most", "n_enrolled", "made"),
    [
        ("own-data.md", ("north", "bay", "coast"), 10, 3, ("first", "second")),
        ("own-data-vertical.md", ("clinic", "registry"), 14, 2, ("first", "second", "third")),
    ],
)
def test_from_files_to_published_releases(name, owners, most, n_enrolled, made):
    """The commands are counted as they are typed; a person only compares fingerprints and agrees to plans."""
    page = (DOCS / name).read_text(encoding="utf-8").replace("8443", str(free_port()))
    counted: list[int] = []
    n_commands = 0
    with short_folder("own-data-") as folder, terminal(folder) as shell:
        for block in blocks(page):
            out = shell.paste(block)
            n_commands += len(COMMAND.findall(block))
            for config in RUN.findall(block):
                # A person is not as fast as a shell: owners are connected by then.
                connected = f"owner-node status --check --config {config} > /dev/null"
                shell.paste(f"until {connected}; do sleep 1; done")
            if "aggregator release" in block:
                assert re.search(rf"release ({'|'.join(made)})[ :].*published", out), out
                counted, n_commands = [*counted, n_commands], 0
        for owner in owners:
            assert '= "FILL IN"' not in (folder / owner / "owner.toml").read_text(encoding="utf-8")
        releases = {each.name for each in (folder / "central" / "releases").iterdir()}
        assert shell.leave() == 0
        assert shell.processes() == [], "the page ends what it started"
    assert set(made) <= releases
    assert len(counted) == len(made)
    assert max(counted) <= most, counted
    questions = [question.partition("[y/N]")[0] for question in shell.answered]
    assert sum("same fingerprint" in each for each in questions) == n_enrolled
    assert len(questions) == n_enrolled + len(made), "fingerprints and plans"
