"""docs/tutorial.md as a new user goes through it: blocks pasted at a terminal, and a person who decides."""

import re
from collections.abc import Callable, Generator
from pathlib import Path

import pandas as pd

from deploy.local_setup import free_port
from tests.system.pasted import blocks
from tests.terminal import terminal

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
_TRAINING = 32_561
"""Records of Adult's first file, adult.data."""
_RED = 1_599
_LINK = re.compile(r"http://127\.0\.0\.1:\d+/enter\?key=\S+")


def walk_through(
    folder: Path, data: Path, person: Callable[[str], None] | None = None
) -> Generator[tuple[str, str], None, None]:
    """Paste the blocks of the page into a terminal, one after the other, and stop at the first that fails.

    The block that installs is replaced by the installed wheel, and the one that downloads by the same files
    made of `data`.

    Args:
        folder: Where the tutorial's folder is; its path is short.
        data: Folder of the published data sets.
        person: Called with every one-time link that a block prints: does in the browser what the page says.
            None: types what the page says for people without a browser.

    Yields:
        Each block, and what it printed.
    """
    page = PAGE.read_text(encoding="utf-8")
    install, download, *rest = _on_free_ports(page)
    assert "pip install" in install, "the first block installs"
    assert "urlopen" in download, "the second block downloads"
    (instead,) = re.findall(r"Without a browser, `([^`]+)` does the same", page)
    with terminal(folder) as shell:
        shell.paste(download.splitlines()[0])
        write_public_files(data, folder / "public")
        for block in rest:
            out = shell.paste(block)
            for link in dict.fromkeys(_LINK.findall(out)):
                # A person is not as fast as a shell: the plan waits for a decision by then.
                waiting = instead.replace("approve adult-1", "requests")
                shell.paste(f"until {waiting} | grep -q adult-1; do sleep 1; done")
                if person is None:
                    out += shell.paste(instead)
                else:
                    person(link)
            yield block, out
        assert shell.leave() == 0
        assert shell.processes() == [], "the page ends what it started"


def write_public_files(data: Path, folder: Path) -> None:
    """Write the files as UCI publishes them, as far as the tutorial reads them."""
    adult = pd.read_csv(data / "adult.csv", dtype=str, keep_default_na=False).iloc[:_TRAINING]
    lines = [", ".join(record) for record in adult.itertuples(index=False)]
    (folder / "adult.data").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    wine = pd.read_csv(data / "wine_quality.csv", dtype=str, keep_default_na=False)
    wine = wine.drop(columns="colour").rename(columns=lambda name: name.replace("_", " "))
    wine[:_RED].to_csv(folder / "winequality-red.csv", sep=";", index=False)
    wine[_RED:].to_csv(folder / "winequality-white.csv", sep=";", index=False)


def _on_free_ports(page: str) -> list[str]:
    ports = {port: str(free_port()) for port in ("8443", "8441")}
    return [re.sub("|".join(ports), lambda found: ports[found[0]], block) for block in blocks(page)]
