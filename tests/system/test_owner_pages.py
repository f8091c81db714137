"""People decide on pages, with real daemons: two owners in a browser, until the release is published.

Every page is opened with the keyboard alone where a person acts, at the width of a telephone, in light and in
dark; axe finds nothing on any of them, and no page holds an identifier of the data.
"""

from collections.abc import Iterator

import pytest

from common.errors import ExitCode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import AGGREGATOR
from tests.browser import Page, browser
from tests.consoles import OWNERS, SYNTHETIC, decide, hospitals_that_decide, link_of, start_release
from tests.system.small_owners import answer_of, ask, spends

pytestmark = pytest.mark.needs("chromium")
NARROW = 360
PATIENTS = 500
"""Of a hospital. Attacks on more take longer; a release of fewer is worthless, which asks for a tick, too."""
SETTLED = "!document.querySelector('progress, [hx-trigger=load]')"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two hospitals that ask a person about every plan."""
    with hospitals_that_decide(tmp_path_factory.mktemp("pages"), PATIENTS) as running:
        yield running


@pytest.fixture(scope="module")
def pages(cluster) -> Iterator[dict[str, Page]]:
    """The consoles of both, each opened with the link that its command printed."""
    with browser() as chromium:
        yield {owner: chromium.open(link_of(cluster, "owner-node", owner), width=NARROW) for owner in OWNERS}


def text_of(page: Page) -> str:
    """Return what a page says."""
    found: str = page.evaluate("document.body.innerText")
    return found


def tab_to(page: Page, condition: str) -> None:
    """Press Tab until the focused element fulfils a condition on `e`."""
    for _ in range(80):
        page.press("Tab", 9)
        if page.evaluate(f"(e => {condition})(document.activeElement)"):
            return
    raise AssertionError(f"the keyboard does not reach {condition}")


def write(page: Page, name: str, text: str) -> None:
    """Reach a field with the keyboard and write into it."""
    tab_to(page, f"e.name === '{name}'")
    page.do("Input.insertText", text=text)


def check(page: Page, path: str) -> None:
    """Open a page, and check it in light and dark: nothing that axe finds, nothing wider than the screen."""
    page.go(page.evaluate("location.origin") + path)
    page.wait_for(SETTLED)
    assert (path, page.faults()) == (path, [])


def test_two_owners_approve_on_pages_until_it_is_published(cluster, pages):
    """Each finds the plan in the inbox, sees what attacks find, types the id; the release is published."""
    command = start_release(cluster, "stay", "2")
    for owner, page in pages.items():
        cluster.owner(owner).wait_for("waiting for a person", release="stay")
        page.go(page.evaluate("location.origin"))
        assert "1 plan waits for a decision" in text_of(page)
        tab_to(page, "e.matches('a.button')")
        page.leads_to_page(lambda page=page: page.press("Enter", 13))
        page.wait_for(SETTLED)
        shown = text_of(page)
        assert "Re-identified, as expected:" in shown
        assert "This organisation's limit of 10 %" in shown
        digest = ask(cluster, "owner-node", "requests", owner=owner)[1]["requests"][0]["plan_digest"]
        assert digest in shown
        write(page, "confirm", "stay")
        page.leads_to_page(lambda page=page: page.press("Enter", 13))
        # "until" when, or "on" which day, if the release goes on already.
        assert "approved this plan " in text_of(page)
    code, document = answer_of(command)
    assert (code, document["state"]) == (ExitCode.DONE, "published")
    for owner, page in pages.items():
        cluster.owner(owner).wait_for("concluded", release="stay")
        assert len(spends(cluster, owner, "stay")) == 1
        page.go(f"{page.evaluate('location.origin')}/plans/{AGGREGATOR}/stay")
        assert "This release is published." in text_of(page)


def test_an_owner_refuses_on_a_page(cluster, pages):
    """The aggregator hears that a person refused; the reason is in this owner's history alone."""
    command, page = start_release(cluster, "costs", "2"), pages["north"]
    cluster.owner("north").wait_for("waiting for a person", release="costs")
    page.go(f"{page.evaluate('location.origin')}/plans/{AGGREGATOR}/costs")
    write(page, "reason", "no ethics vote")
    tab_to(page, "e.matches('button.refuse')")
    page.leads_to_page(lambda: page.press("Enter", 13))
    assert "no ethics vote" in text_of(page)
    code, document = answer_of(command)
    assert (code, document["error"]["message"]) == (
        ExitCode.REFUSED,
        "owner north: a person at the owner refused",
    )
    page.go(f"{page.evaluate('location.origin')}/history")
    write(page, "release", "costs")
    page.leads_to_page(lambda: page.press("Enter", 13))
    assert "no ethics vote" in text_of(page)
    assert "stay" not in page.evaluate("document.querySelector('tbody').innerText")


def test_an_exploration_is_started_kept_and_deleted(cluster, pages):
    """The form runs it with progress; the page has no smallest or largest value; Delete removes it."""
    page = pages["north"]
    page.go(f"{page.evaluate('location.origin')}/explore")
    for name, text in (
        ("epsilon", "1"),
        ("rank_noise", "0.3"),
        ("attributes", "age,ward"),
        ("repetitions", "2"),
    ):
        page.fill(name, text)
    page.leads_to_page(lambda: page.press("Enter", 13))
    page.wait_for("document.querySelector('#exploring .notice.good')")
    kept = cluster.owner("north").config.parent / "state" / "explorations"
    assert sorted(path.suffix for path in kept.iterdir()) == [".html", ".json"]
    tab_to(page, "e.closest('#exploring') && e.matches('a')")
    page.leads_to_page(lambda: page.press("Enter", 13))
    shown = text_of(page)
    assert "What a release of patients would be worth" in shown
    assert "before and after" not in shown
    page.go(f"{page.evaluate('location.origin')}/explore")
    tab_to(page, "e.innerText === 'Delete'")
    page.leads_to_page(lambda: page.press("Enter", 13))
    assert "None is kept yet" in text_of(page)
    assert list(kept.iterdir()) == []


def test_a_synthetic_release_is_decided_on_a_page(cluster, pages):
    """The pages say δ wherever they say ε, promise nothing about masked values, and are accessible, too."""
    command = start_release(cluster, "drawn", "1", product=SYNTHETIC)
    page, drawn = pages["north"], f"/plans/{AGGREGATOR}/drawn"
    cluster.owner("north").wait_for("waiting for a person", release="drawn")
    check(page, drawn)
    shown = text_of(page)
    assert "ε 1, δ 0.000001" in shown
    assert "policy.total_delta allows 0.00001" in shown
    assert "bounded by ε and δ alone" in shown
    assert "expected total variation" in shown
    assert "not measured" not in shown
    for owner, own in pages.items():
        decide(cluster, owner, own, "drawn")
    code, document = answer_of(command)
    assert (code, document["state"]) == (ExitCode.DONE, "published")
    cluster.owner("north").wait_for("concluded", release="drawn")
    for path in (drawn, f"{drawn}/decision"):
        check(page, path)
        assert "ε 1, δ 0.000001" in text_of(page)
    assert "Masked" not in text_of(page)


def test_every_page_is_accessible_on_a_telephone(cluster, pages):
    """With a real release behind them; the browser complains of nothing and asks only this console."""
    page = pages["harbour"]
    origin = page.evaluate("location.origin")
    page.asked_for.clear()
    page.complaints.clear()
    start_release(cluster, "waits", "2")
    cluster.owner("harbour").wait_for("waiting for a person", release="waits")
    waits = f"/plans/{AGGREGATOR}/waits"
    for path in (
        "/", waits, f"/plans/{AGGREGATOR}/stay", "/ledger", "/history", "/data",
        "/data/patients", "/explore", "/explore/running", "/connections", "/connections/check-up",
    ):  # fmt: skip
        check(page, path)
    assert not [each for each in page.asked_for if not each.startswith((origin, "data:"))]
    assert page.complaints == []
