"""Pictures of every page of the consoles, and of a report, for README and docs: `make screenshots`.

Real daemons make real releases in a temporary folder; Chromium opens the pages that the commands serve. In
the pictures that folder is /srv/tessera and the user is `operator`. The tutorial needs the published data, in
the folder that TESSERA_DATA names.
"""

import argparse
import json
import os
import pwd
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from deploy.local_cluster import LocalCluster
from deploy.local_process import PROGRAMS
from deploy.wheel_environment import PROJECT, programs
from tests.browser import Browser, Page, browser
from tests.consoles import OWNERS, SYNTHETIC, decide, hospitals_that_decide, link_of, start_release
from tests.needs import missing_data
from tests.tutorial import walk_through

PICTURES = PROJECT / "docs" / "images"
WIDTH, NARROW, COLOURS, TALLEST, PLAN, REPORT = 1100, 360, 256, 2400, 1700, 1180
PREFIX = "tessera-"
SETTLED = "!document.querySelector('progress, [hx-trigger=load]')"
"""Whether nothing of a page is still to come."""
NEUTRAL = """
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) for (const [pattern, name] of %s)
    texts.currentNode.data = texts.currentNode.data.replaceAll(new RegExp(pattern, "g"), name);
"""
"""Replaces what is of this machine in the texts of a page."""


def take(
    page: Page, address: str, name: str, pictures: Path, *, scheme: str = "light", tallest: int = TALLEST
) -> None:
    """Open an address, wait until nothing of the page is to come, and write `NAME.png`."""
    page.prefer(scheme)
    page.go(address)
    page.wait_for(SETTLED)
    save(page, pictures / f"{name}.png", tallest)


def save(page: Page, path: Path, tallest: int = TALLEST) -> None:
    """Write a picture of the upper part of a page, with as many colours as text and charts need."""
    from PIL import Image

    user = pwd.getpwuid(os.getuid()).pw_name
    names = [[f"{tempfile.gettempdir()}/{PREFIX}\\w+", "/srv/tessera"], [f"\\b{user}\\b", "operator"]]
    page.evaluate(f"(() => {{ {NEUTRAL % json.dumps(names)} }})()")
    page.screenshot(path)
    with Image.open(path) as picture:
        shown = picture.convert("RGB").crop((0, 0, picture.width, min(picture.height, tallest)))
        shown.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def of_owner(cluster: LocalCluster, chromium: Browser, pictures: Path) -> None:
    """Take the pages of an owner: two releases are published, one was refused, one waits."""
    both = [(owner, chromium.open(link_of(cluster, "owner-node", owner))) for owner in OWNERS]
    for number, epsilon in ((1, "1"), (2, "0.5")):
        release = f"stay-2026-{number}"
        start_release(cluster, release, epsilon)
        for owner, page in both:
            decide(cluster, owner, page, release)
        for owner in OWNERS:
            cluster.owner(owner).wait_for("concluded", release=release)
    start_release(cluster, "ward-costs", "3", purpose="Costs by ward")
    decide(cluster, OWNERS[0], both[0][1], "ward-costs", refuse="No vote of the ethics committee yet")
    start_release(cluster, "stay-2026-3", "1")
    cluster.owner(OWNERS[0]).wait_for("waiting for a person", release="stay-2026-3")

    page = both[0][1]
    origin = page.evaluate("location.origin")
    page.go(f"{origin}/explore")
    page.fill("epsilon", "1,2")
    page.fill("rank_noise", "0.1,0.3")
    page.fill("attributes", "age,stay,ward,severity")
    page.fill("repetitions", "2")
    page.leads_to_page(lambda: page.click("form.decision button"))
    page.wait_for(SETTLED)
    waits = f"{origin}/plans/central/stay-2026-3"
    shown = {
        "inbox": "/", "plan": "/plans/central/stay-2026-3",
        "decided": "/plans/central/stay-2026-1", "ledger": "/ledger", "history": "/history", "data": "/data",
        "dataset": "/data/patients", "explore": "/explore", "connections": "/connections",
    }  # fmt: skip
    for name, path in shown.items():
        take(page, origin + path, f"owner-{name}", pictures)
    take(page, waits, "owner-plan-dark", pictures, scheme="dark")
    page.resize(NARROW)
    take(page, waits, "owner-plan-narrow", pictures)
    page.resize(WIDTH)
    take(page, f"{origin}/explore", "owner-explore", pictures)
    page.leads_to_page(lambda: page.click("ul.cards h3 a"))
    save(page, pictures / "owner-exploration.png")


def of_aggregator(cluster: LocalCluster, chromium: Browser, pictures: Path) -> None:
    """Take the pages of the aggregator: one release is published, one waits for a person at an owner."""
    people = [(owner, chromium.open(link_of(cluster, "owner-node", owner))) for owner in OWNERS]
    start_release(cluster, "stay-2026-1", "1")
    for owner, page in people:
        decide(cluster, owner, page, "stay-2026-1")
    for owner in OWNERS:
        cluster.owner(owner).wait_for("concluded", release="stay-2026-1")
    start_release(cluster, "stay-2026-2", "0.5")
    decide(cluster, OWNERS[0], people[0][1], "stay-2026-2")

    page = chromium.open(link_of(cluster, "aggregator", "", "--operate"))
    origin = page.evaluate("location.origin")
    shown = {
        "published": "/releases/stay-2026-1", "history": "/releases/stay-2026-1/history",
        "verification": "/releases/stay-2026-1/verification", "owners": "/owners", "owner": "/owners/north",
        "new": "/new?dataset=patients", "certificates": "/certificates",
    }  # fmt: skip
    for name, path in shown.items():
        take(page, origin + path, f"aggregator-{name}", pictures)
    page.go(origin)
    page.wait_for("document.querySelector('.stack .bar')")
    save(page, pictures / "aggregator-releases.png")
    page.resize(NARROW)
    page.prefer("dark")
    save(page, pictures / "aggregator-releases-narrow.png")
    page.resize(WIDTH)
    page.prefer("light")
    page.go((cluster.folder / "releases" / "stay-2026-1" / "report.html").as_uri())
    save(page, pictures / "report.png", REPORT)


def of_synthetic(cluster: LocalCluster, chromium: Browser, pictures: Path) -> None:
    """Take the pages of a synthetic release: its plan at an owner, its page at the aggregator, its report."""
    people = [(owner, chromium.open(link_of(cluster, "owner-node", owner))) for owner in OWNERS]
    release = "table-2026-1"
    start_release(cluster, release, "1", product=SYNTHETIC)
    owner, page = people[0]
    cluster.owner(owner).wait_for("waiting for a person", release=release)
    plan = f"{page.evaluate('location.origin')}/plans/central/{release}"
    take(page, plan, "synthetic-plan", pictures)
    for owner, page in people:
        decide(cluster, owner, page, release)
    for owner in OWNERS:
        cluster.owner(owner).wait_for("concluded", release=release)
    page = chromium.open(link_of(cluster, "aggregator"))
    shown = f"{page.evaluate('location.origin')}/releases/{release}"
    take(page, shown, "synthetic-release", pictures, tallest=PLAN)
    page.go((cluster.folder / "releases" / release / "report.html").as_uri())
    save(page, pictures / "synthetic-report.png")


def of_tutorial(folder: Path, data: Path, pictures: Path) -> list[str]:
    """Go through the tutorial in a folder, approve on the page as it says, and take its pictures.

    Returns:
        What each of its blocks printed.
    """
    with browser() as chromium:

        def person(link: str) -> None:
            page = chromium.open(link)
            origin = page.evaluate("location.origin")
            page.wait_for("document.querySelector('a[href$=\"/adult-1\"]')")
            take(page, origin, "tutorial-inbox", pictures, tallest=REPORT)
            take(page, f"{origin}/plans/central/adult-1", "tutorial-plan", pictures, tallest=REPORT)
            page.fill("confirm", "adult-1")
            page.leads_to_page(lambda: page.click('form[action$="/approve"] button'))

        printed = [out for _, out in walk_through(folder, data, person)]
        report = folder / "central" / "releases" / "adult-1" / "report.html"
        for name, path in (("explored", folder / "north" / "explored.html"), ("report", report)):
            save(chromium.open(path), pictures / f"tutorial-{name}.png", REPORT)
    return printed


SETS: dict[str, Callable[[LocalCluster, Browser, Path], None]] = {
    "owner": of_owner,
    "aggregator": of_aggregator,
    "synthetic": of_synthetic,
}
"""Who takes which pictures of two hospitals, by the beginning of their names."""
TUTORIAL = "tutorial"


def main(arguments: list[str]) -> int:
    """Take the pictures of the named sets, by default of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=main.__doc__)
    parser.add_argument("sets", nargs="*", choices=[[], *SETS, TUTORIAL], help="by default all")
    parser.add_argument("--out", type=Path, default=PICTURES, help="where to write them")
    options = parser.parse_args(arguments)
    wanted = options.sets or [*SETS, TUTORIAL]
    if TUTORIAL in wanted and (absent := missing_data()):
        parser.error(absent)
    os.environ[PROGRAMS] = str(programs())
    options.out.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        if name == TUTORIAL:
            with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
                of_tutorial(Path(folder), Path(os.environ["TESSERA_DATA"]), options.out)
            continue
        with (
            tempfile.TemporaryDirectory(prefix=PREFIX) as folder,
            hospitals_that_decide(Path(folder)) as cluster,
            browser() as chromium,
        ):
            SETS[name](cluster, chromium, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
