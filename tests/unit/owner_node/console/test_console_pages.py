"""The pages of an owner in a real browser: by keyboard, on a telephone, light and dark, and with axe."""

import pytest

from owner_node.state.session import SessionState
from tests.browser import browser
from tests.fakes.owner_console import owner_console

pytestmark = pytest.mark.needs("chromium")
PAGES = (
    "/", "/plans/hub/r1", "/plans/hub/r1/decision", "/ledger", "/history", "/data",
    "/data/cohort", "/explore", "/explore/running", "/connections", "/connections/check-up",
)  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A console and a browser."""
    with owner_console(tmp_path_factory.mktemp("console")) as console, browser() as chromium:
        yield console, chromium


def test_every_page_is_accessible_and_asks_only_this_console(served):
    """No violation of axe in light and dark, nothing wider than a telephone, no complaint of the browser."""
    console, chromium = served
    page = chromium.open(console.origin + console.link(), width=360)
    for path in PAGES:
        page.go(console.origin + path)
        page.wait_for("!document.querySelector('progress, [hx-trigger=load]')")
        assert (path, page.faults()) == (path, [])
    assert not [each for each in page.asked_for if not each.startswith((console.origin, "data:"))]
    assert page.complaints == []


@pytest.mark.parametrize(
    ("path", "table", "deciding"),
    [
        ("/plans/hub/r1", "This organisation's limits", 2),
        ("/plans/hub/r1", "How every attribute is masked", 2),
        ("/plans/hub/r1", "Every attack", 3),
        ("/plans/hub/r1/decision", "This organisation's limits", 2),
        ("/ledger", "Charges", 2),
        ("/data", "As ", 2),
    ],
)
def test_a_telephone_shows_what_decides(served, path, table, deciding):
    """At 360 px the columns up to the deciding one are within the screen, without scrolling a table."""
    console, chromium = served
    page = chromium.open(console.origin + console.link(), width=360)
    page.go(console.origin + path)
    page.wait_for("!document.querySelector('progress, [hx-trigger^=load]')")
    cells = f'[...document.querySelectorAll(`[aria-label^="{table}"] tr > :nth-child({deciding})`)]'
    right = page.evaluate(f"Math.max(0, ...{cells}.map(cell => cell.getBoundingClientRect().right))")
    assert 0 < right <= 360


def test_a_plan_is_approved_with_the_keyboard_alone(tmp_path):
    """Tab reaches the field and the button; the page then says who approved."""
    with owner_console(tmp_path) as console, browser() as chromium:
        page = chromium.open(console.origin + console.link())
        page.go(console.origin + "/plans/hub/r1")
        while page.evaluate("document.activeElement.name") != "confirm":
            page.press("Tab", 9)
        page.do("Input.insertText", text="r1")
        page.leads_to_page(lambda: page.press("Enter", 13))
        assert "This plan is approved." in page.evaluate("document.body.innerText")
        assert "vera approved this plan" in page.evaluate("document.body.innerText")
        found = console.offering.records.sessions.get("hub", "r1")
        assert found is not None
        assert found.state is SessionState.AWAITING_APPROVAL


def test_a_plan_that_somebody_else_decided_about_offers_no_forms(served):
    """An open page follows what happens to its plan: here another person refuses it."""
    console, chromium = served
    page = chromium.open(console.origin + console.link())
    page.go(console.origin + "/plans/hub/r1")
    shown = "document.querySelector('section.undecided').checkVisibility()"
    assert page.evaluate(shown)
    console.sign_in("otto")
    form = {name: text for name, text in console.approval().items() if name in ("csrf", "digest")}
    assert console.ask("POST", "/plans/hub/r1/refuse", form | {"reason": "no vote"}).status == 303
    page.wait_for(f"!{shown}")
    assert "Refused by otto: no vote" in page.evaluate("document.body.innerText")
