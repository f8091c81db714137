"""The decision on paper: what a reader of the print learns, and that it fits on sheets."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pypdfium2
import pytest

from common.clock import utc_now
from common.daemon.console import ConsoleSection, OidcSection
from owner_node.config import PolicyConfig
from owner_node.release.approvals import Person
from owner_node.release.decisions import Decisions
from owner_node.views.appraisal import appraise
from owner_node.views.decision import decision_document
from tests.browser import browser
from tests.fakes.offering import Offering
from tests.fakes.owner_console import owner_console

DECISION = "/plans/hub/r1/decision"
A4 = (595, 842)
"""Points."""


def printed(console, chromium) -> list[str]:
    """Return the text of every sheet that Chromium prints."""
    page = chromium.open(console.origin + console.link())
    page.go(console.origin + DECISION)
    document = pypdfium2.PdfDocument(page.printed())
    assert {tuple(map(round, sheet.get_size())) for sheet in document} == {A4}
    texts = [sheet.get_textpage().get_text_bounded() for sheet in document]
    assert page.complaints == []
    document.close()
    return texts


def signs_in(offering, *approvers: str) -> None:
    """Let people sign in at a provider."""
    section = OidcSection(
        issuer="https://login.example", client_id="a", client_secret_file=Path("secret"), approvers=approvers
    )
    offering.config = replace(offering.config, console=ConsoleSection(oidc=section))
    offering.restart()


@pytest.mark.needs("chromium")
def test_the_print_says_who_decided_what_when_about_which_digest(tmp_path):
    """Two persons, the verdict, the digest in full, the head of the history; nothing of the menu."""
    with owner_console(tmp_path, approvers=2) as console, browser() as chromium:
        signs_in(console.offering, "dora@north.example", "otto@north.example")
        node, decisions = console.offering.node, Decisions(console.offering.records.db, utc_now)
        persons = (
            Person("otto@north.example", "https://login.example 18"),
            Person("dora@north.example", "https://login.example 17"),
        )
        assert appraise(decisions.find("r1"), console.offering.config) == ""
        for person in persons:
            decisions.approve("r1", "", person, timedelta(hours=1))
        assert node.invitations.decided("r1")
        sheets = printed(console, chromium)
        digest = decisions.find("r1").plan_digest
        head = console.offering.records.history.head()
    text = "".join(sheets)
    together = "".join(text.split())
    assert 1 <= len(sheets) <= 4
    assert "Approvedbyotto@north.example,dora@north.example;thedaemonhasnotusedityet." in together
    assert digest in together
    assert head.hash in together
    for each in ("UTC", "age", "What is promised"):
        assert each in text
    assert "Sign out" not in text
    assert "Ledger\n" not in text


@pytest.mark.needs("chromium")
def test_a_refusal_and_an_open_decision(tmp_path):
    """Before the decision the print says so; a refusal has its reason."""
    with owner_console(tmp_path) as console, browser() as chromium:
        assert "Not decided yet." in "".join(printed(console, chromium))
        decisions = Decisions(console.offering.records.db, utc_now)
        decisions.refuse("r1", "", Person("otto"), "not our question")
        text = "".join(printed(console, chromium))
        assert "Refused by otto." in text
        assert "not our question" in text


def test_the_paper_names_whose_approval_was_used(tmp_path):
    """Neither an approval that had expired, nor one for other data, nor of a removed person is on it."""
    offering = Offering(tmp_path, PolicyConfig(approval="manual", approvers=2))
    signs_in(offering, "dora@north.example", "vera@north.example")
    invitations = offering.node.invitations
    plan = offering.plan(invitations.describe("r1", "cohort"), "r1")
    offer = offering.offer(plan)
    assert invitations.consent("r1", plan.digest, offer) is None

    def approve(name: str, subject: str = "") -> None:
        decisions = Decisions(offering.records.db, offering.now)
        decisions.approve("r1", "", Person(name, subject=subject), timedelta(hours=1))

    def paper() -> tuple[str, list[str]]:
        decisions = Decisions(offering.records.db, offering.now)
        found = decision_document(
            decisions.find("r1"), offering.config, decisions.approvals, offering.records.history
        )
        return found["verdict"], [each["by"] for each in found["persons"]]

    def look() -> None:
        assert appraise(Decisions(offering.records.db, offering.now).find("r1"), offering.config) == ""

    look()
    approve("early")
    offering.later = timedelta(hours=2)
    approve("vera@north.example", "https://login.example 16")
    offering.write_source(seed=2)
    approve("dora@north.example", "https://login.example 17")
    look()
    assert invitations.consent("r1", plan.digest, offer) is None
    assert paper() == ("Not decided yet.", [])
    approve("removed", "https://login.example 18")
    approve("otto")
    assert paper()[1] == ["otto"]
    approve("root")
    assert invitations.consent("r1", plan.digest, offer) is not None
    assert paper() == ("Approved by otto, root.", ["otto", "root"])
    offering.records.db.close()
