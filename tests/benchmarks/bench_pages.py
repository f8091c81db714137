"""The owner's pages with a thousand releases in the history: how soon a browser paints them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.benchmarks.result import Result
from tests.browser import Page, browser
from tests.fakes.long_history import add_published
from tests.fakes.owner_console import owner_console

RELEASES = 1000
TURNS = 5
PAINT_LIMIT = 0.3
PAGES = ("/", "/plans/hub/r1", "/ledger", "/history", "/data", "/explore", "/connections")
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]"


def run() -> Iterator[Result]:
    """Open every page in Chromium, in turns; the very first page, which loads libraries, counts by itself."""
    with tempfile.TemporaryDirectory(prefix="pages-") as folder, owner_console(Path(folder)) as console:
        add_published(console.offering.records, RELEASES)
        with browser() as program:
            page = program.open(console.origin + console.link())
            turns = [[_painted(page, console.origin + path) for path in PAGES] for _ in range(TURNS + 1)]
    yield _result("the first page of a console", [turns[0][0]])
    for path, times in zip(PAGES, zip(*turns[1:], strict=True), strict=True):
        yield _result(f"owner page {path}", times)


def _result(name: str, seconds: list[float] | tuple[float, ...]) -> Result:
    middle = median(seconds)
    return Result(f"{name}, first paint / 0.3 s", middle / PAINT_LIMIT, 1.0, f"{middle * 1000:.0f} ms")


def _painted(page: Page, address: str) -> float:
    """Return the seconds from asking for a page to its first painted text."""
    page.go(address)
    page.wait_for(_PAINT)
    return float(page.evaluate(f"{_PAINT}.startTime")) / 1000
