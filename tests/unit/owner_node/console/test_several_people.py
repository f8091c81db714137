"""A plan that several persons must approve: at pages and at the terminal, and what one person cannot do."""

from datetime import timedelta

import pytest

from common.clock import utc_now
from owner_node.release.approvals import Person
from owner_node.release.decisions import Decisions
from tests.browser import browser
from tests.fakes.oidc_provider import oidc_provider, sign_in
from tests.fakes.owner_console import owner_console

PLAN = "/plans/hub/r1"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def provider(tmp_path):
    """A provider that knows three approvers."""
    with oidc_provider(tmp_path) as made:
        made.knows_mail("17", "dora@north.example")
        made.knows_mail("18", "otto@north.example")
        made.knows_mail("19", "vera@north.example")
        yield made


@pytest.fixture
def console(tmp_path, provider):
    """A console of a policy that asks three persons."""
    section = provider.section("dora@north.example", "17", "otto@north.example", "vera@north.example")
    with owner_console(tmp_path, approvers=3, oidc=section) as made:
        yield made


def approve(console) -> None:
    """Approve at the page, as whoever is signed in."""
    form = console.approval()
    assert console.ask("POST", f"{PLAN}/approve", form).status == 303


def at_terminal(console, person: Person) -> None:
    """Approve as `owner-node approve` does."""
    Decisions(console.offering.records.db, utc_now).approve("r1", "", person, timedelta(hours=1))


def test_three_different_persons_are_needed(console, provider):
    """Two who sign in, twice each, and users at the terminal who may be the same two, are two of three."""
    agreed = lambda: console.offering.node.invitations.decided("r1")  # noqa: E731
    for subject in ("17", "18", "17", "18"):
        sign_in(console, provider, subject)
        approve(console)
        assert not agreed()
    at_terminal(console, Person("otto"))
    at_terminal(console, Person("vera"))
    assert not agreed()
    assert "2 of 3 different persons" in console.ask("GET", PLAN).body
    sign_in(console, provider, "19")
    approve(console)
    assert agreed()
    lines = console.offering.records.history.entries(event="approved")
    assert [line.details["by"] for line in lines] == [
        "dora@north.example", "otto@north.example", "dora@north.example", "otto@north.example",
        "otto", "vera", "vera@north.example",
    ]  # fmt: skip
    assert len({line.plan_digest for line in lines}) == 1


def test_a_stolen_cookie_is_one_person(console, provider):
    """Whoever has another's cookie is that person, however often: two more are needed."""
    sign_in(console, provider, "17")
    for _ in range(4):
        approve(console)
    assert not console.offering.node.invitations.decided("r1")
    shown = console.ask("GET", PLAN).body
    assert "1 of 3 different persons have approved it: dora@north.example" in shown


def test_two_accounts_with_one_address_are_one_person(console, provider):
    """Both match the one entry of the configuration: the second approval counts no second person."""
    for subject in ("17", "20"):
        provider.knows_mail(subject, "dora@north.example")
        sign_in(console, provider, subject)
        approve(console)
    assert "1 of 3 different persons have approved it" in console.ask("GET", PLAN).body


@pytest.mark.needs("chromium")
def test_a_browser_signs_in_at_another_site(tmp_path):
    """The provider is another site: the strict cookie goes with the page that follows the sign-in."""
    with oidc_provider(tmp_path, "127.0.0.2") as provider:
        provider.knows_mail("17", "dora@north.example")
        section = provider.section("dora@north.example")
        with owner_console(tmp_path, oidc=section) as console, browser() as chromium:
            page = chromium.open(console.origin)
            page.leads_to_page(
                lambda: page.evaluate("document.querySelector('a[href=\"/sign-in\"]').click()")
            )
            assert page.evaluate("location.origin") == provider.issuer
            page.evaluate("document.querySelector('input[name=sub]').value = '17'")
            page.leads_to_page(lambda: page.evaluate("document.querySelector('button').click()"))
            # The page that says "You are signed in" leads on by itself.
            page.leads_to_page(lambda: None)
            assert page.evaluate("location.pathname") == "/"
            assert "dora@north.example" in page.evaluate("document.body.innerText")
            assert page.evaluate("document.cookie") == ""
