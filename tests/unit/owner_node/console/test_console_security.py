"""The pages of an owner, asked as strangers and other sites would ask them."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from starlette.routing import Route

from common.clock import utc_now
from common.web.doors import IDLE_SECONDS, LINK_SECONDS, MOST_WRONG
from common.web.site import Site
from owner_node.console.application import OwnerPages
from owner_node.release.approvals import Person
from owner_node.release.decisions import Decisions
from owner_node.state.session import SessionState
from tests.fakes.owner_console import OwnerConsole, owner_console

PLAN = "/plans/hub/r1"


@pytest.fixture
def console(tmp_path):
    """A console that listens; nobody is signed in."""
    with owner_console(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def closed_console(tmp_path_factory):
    """A console that listens, for tests in which nobody signs in and nothing changes."""
    with owner_console(tmp_path_factory.mktemp("console")) as made:
        yield made


def approval(console: OwnerConsole, **changes: str) -> dict[str, str]:
    """Return the form that approves the plan."""
    return console.approval() | changes


def waiting(console: OwnerConsole):
    """Return the session of the plan."""
    found = console.offering.records.sessions.get("hub", "r1")
    assert found is not None
    return found


def events(console: OwnerConsole) -> list[str]:
    """Return the events of the history."""
    return [line.event for line in console.offering.records.history.entries()]


@pytest.mark.parametrize(
    "path",
    [
        "/", PLAN, "/ledger", "/history", "/data", "/data/cohort", "/explore",
        "/explore/running", "/explore/kept/0123456789abcdef", "/connections", "/connections/check-up",
    ],
)  # fmt: skip
def test_strangers_see_nothing(closed_console, path):
    """Without a visit every page is one sentence, which names neither a plan nor a budget."""
    answer = closed_console.ask("GET", path)
    assert (answer.status, "r1" in answer.body, "cohort" in answer.body) == (401, False, False)
    assert closed_console.ask("GET", path, headers={"Cookie": "tessera-visit=guess"}).status == 401


def test_a_link_works_once_and_for_ten_minutes(console):
    """Who finds the link in a terminal's history later does not get in."""
    link = console.link()
    assert console.ask("GET", link).status == 303
    assert console.ask("GET", link).status == 401
    late = console.link()
    console.later[0] += LINK_SECONDS + 1
    assert console.ask("GET", late).status == 401


def test_wrong_links_are_counted(console):
    """Guessing is not even looked at after ten wrong links in a minute; a minute later a link works."""
    for _ in range(MOST_WRONG):
        assert console.ask("GET", "/enter?key=guess").status == 401
    assert console.ask("GET", console.link()).status == 429
    console.later[0] += 61
    assert console.ask("GET", console.link()).status == 303


def test_a_visit_ends_after_fifteen_idle_minutes_and_on_demand(console):
    """A forgotten browser shows nothing, and neither does one that was signed out."""
    console.sign_in()
    console.later[0] += IDLE_SECONDS - 1
    assert console.ask("GET", "/").status == 200
    console.later[0] += IDLE_SECONDS + 1
    assert console.ask("GET", "/").status == 401
    console.sign_in()
    assert console.ask("POST", "/leave", {"csrf": console.csrf()}).status == 200
    assert console.ask("GET", "/").status == 401


@pytest.mark.parametrize("host", ["attacker.example", "127.0.0.1", "localhost:1"])
def test_another_host_name_is_refused(console, host):
    """A name that an attacker points to this machine (DNS rebinding) reaches no page, signed in or not."""
    console.sign_in()
    assert console.ask("GET", "/", headers={"Host": host}).status == 421


def test_headers_of_every_answer(console):
    """No script or style of others, no frame, nothing kept; no script sees the cookie."""
    entered = console.ask("GET", console.link())
    cookie = entered.header("set-cookie").lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    for path in ("/", "/enter?key=x", "/nothing", "/static/console.css"):
        answer = console.ask("GET", path)
        policy = answer.header("content-security-policy")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.header("cache-control") == "no-store"
        assert answer.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize(
    ("headers", "changes"),
    [
        ({"Origin": "http://attacker.example"}, {}),
        ({"Origin": "null"}, {}),
        ({}, {"csrf": "guess"}),
        ({}, {"csrf": ""}),
        ({"Cookie": ""}, {}),
    ],
)
def test_other_sites_change_nothing(console, headers, changes):
    """A change needs the visit, its token and a page of this console that sends it."""
    console.sign_in()
    form, before = approval(console, **changes), events(console)
    assert console.ask("POST", f"{PLAN}/approve", form, headers).status in (401, 403)
    assert console.ask("POST", f"{PLAN}/refuse", form | {"reason": "x"}, headers).status in (401, 403)
    assert (events(console), waiting(console).state) == (before, SessionState.AWAITING_APPROVAL)


def test_a_token_of_another_visit_changes_nothing(console):
    """The token of one person's forms is worth nothing in another person's visit."""
    console.sign_in("mallory")
    other = console.csrf()
    console.sign_in("vera")
    assert console.ask("POST", f"{PLAN}/approve", approval(console, csrf=other)).status == 403
    assert waiting(console).state is SessionState.AWAITING_APPROVAL


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"confirm": "r2"}, 400), ({"valid": "for ever"}, 400), ({"digest": ""}, 400),
        ({"digest": "0" * 64}, 409), ({"digest": "0"}, 400),
        ({"source": "0" * 64}, 409), ({"source": ""}, 409),
    ],
)  # fmt: skip
def test_only_the_plan_that_was_shown_is_approved(console, changes, status):
    """Another digest, another release id or no digest approve nothing."""
    console.sign_in()
    before = events(console)
    assert console.ask("POST", f"{PLAN}/approve", approval(console, **changes)).status == status
    assert events(console) == before


@pytest.mark.parametrize(
    ("action", "slip", "says"),
    [
        ("approve", {"confirm": "r2"}, "the release id that was typed is another one"),
        ("refuse", {"reason": " "}, "a reason has 1 to"),
    ],
)
def test_a_slip_leads_back_to_the_plan(console, action, slip, says):
    """A mistyped id or a missing reason shows the plan again, with what is wrong above it."""
    console.sign_in()
    page = console.ask("POST", f"{PLAN}/{action}", approval(console, **slip)).body
    assert f"Nothing was decided: {says}" in page
    assert f'action="{PLAN}/{action}"' in page


def test_a_person_approves(console):
    """The history names the person of the link, the digest and the end; the page says so."""
    console.sign_in()
    answer = console.ask("POST", f"{PLAN}/approve", approval(console))
    assert (answer.status, answer.header("location")) == (303, PLAN)
    line = console.offering.records.history.entries(event="approved")[0]
    assert (line.plan_digest, line.details["by"]) == (waiting(console).plan_digest, "vera")
    assert "vera approved this plan" in console.ask("GET", PLAN).body


def test_a_person_refuses(console):
    """The reason stays in the owner's history; a refusal without one is refused."""
    console.sign_in()
    form = {"csrf": console.csrf(), "digest": waiting(console).plan_digest}
    assert console.ask("POST", f"{PLAN}/refuse", form | {"reason": " "}).status == 400
    assert waiting(console).state is SessionState.AWAITING_APPROVAL
    assert console.ask("POST", f"{PLAN}/refuse", form | {"reason": "not our question"}).status == 303
    assert waiting(console).state is SessionState.REFUSED
    assert "Refused by vera: not our question" in console.ask("GET", PLAN).body


def test_one_visit_approves_nothing_that_needs_two_persons(tmp_path):
    """A second approval of the same person counts once; another person's approval is the second."""
    with owner_console(tmp_path, approvers=2) as console:
        node = console.offering.node
        for name, agreed in (("vera", False), ("vera", False), ("otto", True)):
            console.sign_in(name)
            assert console.ask("POST", f"{PLAN}/approve", approval(console)).status == 303
            assert node.invitations.decided("r1") is agreed
            page = console.ask("GET", PLAN).body
            assert ("This plan is approved." in page) is agreed
            assert ("waits for another person" in page) is not agreed
        assert "2 of 2 different persons have approved it: vera, otto" in console.ask("GET", PLAN).body


@pytest.mark.parametrize("body", [b"x" * 70_000, b"\xff\xfe", b"csrf"])
def test_forms_that_cannot_be_read(console, body):
    """A body that is too long or no form ends with an answer, not with a fault."""
    console.sign_in()
    assert console.ask("POST", f"{PLAN}/approve", body).status in (400, 413)


def test_unknown_releases_and_methods(console):
    """What is not there is said; nothing else is possible."""
    console.sign_in()
    assert console.ask("GET", "/plans/hub/r9").status == 400
    page = console.ask("GET", "/plans/hub/r9").body
    assert "There is no release" in page
    assert '<a href="/ledger">' in page, "whoever has signed in keeps the menu"
    assert console.ask("PUT", PLAN).status == 405
    assert console.ask("GET", f"{PLAN}/approve").status == 405
    assert console.ask("GET", "/history?before=abc&release=%00").status == 200


def test_texts_of_others_are_escaped(tmp_path):
    """Markup in a purpose or a filter is shown, not run."""
    with owner_console(tmp_path, purpose="research & <b>care</b>") as console:
        console.sign_in()
        for path in ("/", PLAN):
            page = console.ask("GET", path).body
            assert "research &amp; &lt;b&gt;care&lt;/b&gt;" in page
        page = console.ask("GET", "/history?event=%22%3E%3Cscript%3E%E2%80%AE").body
        assert "&lt;script&gt;\\u202e" in page


def every_page(console: OwnerConsole) -> Iterator[tuple[str, set[str]]]:
    """Return path and methods of every page of the application itself, so that a new one is tested, too."""
    site = Site("owner_node.console", "Test", (), console.doors, "")
    pages = OwnerPages(lambda: console.offering.config, site).routes()
    for route in pages:
        assert isinstance(route, Route)
        path = route.path.format(aggregator="hub", release="r1", dataset="cohort", name="x")
        yield path, route.methods or set()


def test_every_change_needs_its_token_and_a_page_of_this_console(console):
    """Whatever takes a POST refuses one of another site, one without the token, and one of a viewer."""
    console.sign_in()
    changes = [path for path, methods in every_page(console) if "POST" in methods]
    assert {f"{PLAN}/approve", f"{PLAN}/refuse", "/connections/check-up"} < set(changes)
    csrf = console.csrf()
    viewer = f"{console.cookie.partition('=')[0]}={console.doors.begin(Person('viewer'), decides=False)}"
    for path in [*changes, "/leave"]:
        for headers, token in (
            ({"Origin": "http://attacker.example"}, csrf), ({"Origin": ""}, csrf), ({}, "guess"), ({}, ""),
        ):  # fmt: skip
            assert console.ask("POST", path, {"csrf": token}, headers).status == 403, path
        if path != "/leave":
            assert console.ask("POST", path, {"csrf": csrf}, {"Cookie": viewer}).status == 403, path


def test_strangers_reach_no_page(console):
    """Every page that there is wants a visit first."""
    for path, methods in every_page(console):
        for method in methods:
            assert console.ask(method, path).status == 401, path


def test_no_page_has_a_script_of_its_own(console):
    """The policy would block it; and no page is kept, framed or shown to others."""
    console.sign_in()
    shown = 0
    for path, methods in every_page(console):
        if "GET" not in methods:
            continue
        page = console.ask("GET", path)
        assert page.header("cache-control") == "no-store"
        assert "frame-ancestors 'none'" in page.header("content-security-policy")
        found = re.findall(r"<script[^>]*>|\son\w+=|\sstyle=|javascript:|<style", page.body)
        assert all(each.startswith('<script src="/static/') for each in found), path
        shown += page.status == 200
    assert shown > 8


def test_reasons_and_names_of_others_are_escaped(console):
    """Markup, and characters that turn the reading direction, in a reason and in the name of a person."""
    nasty = "<img src=x onerror=alert(1)>\u202egnp.exe\x1b[8m"
    console.sign_in()
    while "<progress" in console.ask("GET", PLAN).body:
        pass
    decisions = Decisions(console.offering.records.db, utc_now)
    person = Person(nasty, "https://login.example 1")
    decisions.approve("r1", "", person, timedelta(hours=1))
    decisions.refuse("r1", "", person, nasty)
    pages = [console.ask("GET", path).body for path in (PLAN, f"{PLAN}/decision", "/history", "/")]
    assert not [each for page in pages for each in ("<img", "\u202e", "\x1b") if each in page]
    for page in pages[:2]:
        assert "&lt;img src=x onerror=alert(1)&gt;\\u202egnp.exe\\x1b[8m" in page


def test_no_value_of_a_record_is_on_a_page(console):
    """Every identifier of the source is searched for on every page, after all of them have computed."""
    identifiers = [line.split(",")[0] for line in console.offering.source.read_text().splitlines()[1:]]
    console.sign_in()
    pages = []
    for path, methods in every_page(console):
        if "GET" in methods:
            while "<progress" in (page := console.ask("GET", path).body):
                pass
            pages.append(page)
    assert any("Every attack" in page for page in pages)
    shown = re.sub(r'name="csrf" value="[^"]*"', "", "".join(pages))
    assert not [each for each in identifiers if re.search(rf"\b{re.escape(each)}\b", shown)]
