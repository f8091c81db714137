"""The verdict on the pages of an owner: with a worthless result, and after a refusal."""

from decimal import Decimal
from html import unescape

from common.clock import utc_now
from common.words.masked import MaskedWords
from owner_node.cli.requests import brief, show_request
from owner_node.release.decisions import Decisions
from owner_node.views.appraisal import appraise
from owner_node.views.plan import plan_document
from tests.fakes.offering import N_RECORDS
from tests.fakes.owner_console import owner_console

PLAN = "/plans/hub/r1"


def test_a_worthless_result_is_approved_only_on_purpose(tmp_path):
    """The page says so first, and an approval without its tick decides nothing."""
    with owner_console(tmp_path, k=str(N_RECORDS)) as console:
        console.sign_in()
        page = console.ask("GET", PLAN).body
        assert "The result is expected to be worthless: for 1 of 1 attribute" in page
        assert page.index("expected to be worthless") < page.index("What leaves")
        form = console.approval()
        refused = console.ask("POST", f"{PLAN}/approve", form)
        assert refused.status == 400
        assert "Nothing was decided" in refused.body
        decisions = Decisions(console.offering.records.db, utc_now)
        assert decisions.approvals.newest(decisions.find("r1")) is None
        assert console.ask("POST", f"{PLAN}/approve", form | {"anyway": "on"}).status == 303
        assert decisions.approvals.newest(decisions.find("r1")) is not None


def test_a_plan_that_a_person_refused_keeps_its_verdict(tmp_path):
    """Page and decision show afterwards what was shown before: attributes, co-owners, limits, the attack."""
    with owner_console(tmp_path, max_reidentified=Decimal("0.9")) as console:
        console.sign_in()
        decisions = Decisions(console.offering.records.db, utc_now)
        config = console.offering.config
        assert appraise(decisions.find("r1"), config) == ""
        before = plan_document(decisions.find("r1"), config, decisions)["verdict"]
        form = {name: text for name, text in console.approval().items() if name in ("csrf", "digest")}
        assert console.ask("POST", f"{PLAN}/refuse", form | {"reason": "no vote"}).status == 303
        assert plan_document(decisions.find("r1"), config, decisions)["verdict"] == before
        pages = [" ".join(console.ask("GET", path).body.split()) for path in (PLAN, f"{PLAN}/decision")]
        for page in pages:
            assert before["intruder"]["says"] in page
            assert before["unchanged"]["says"] in page
            assert "limit of 90 % is kept" in page
            assert "Persons re-identified" in page
        assert "The strongest attack: re-identified by" in pages[1]


def test_who_is_trusted_stands_where_the_decision_is_made(tmp_path, monkeypatch, capsys):
    """On the page above the forms, on the paper to sign, and on the command line above what agrees."""
    line = "This release trusts south to follow the protocol."
    monkeypatch.setattr(MaskedWords, "trusted", lambda _words, _plan, _owner="": (line,))
    with owner_console(tmp_path) as console:
        console.sign_in()
        page = console.ask("GET", PLAN).body
        assert page.index("Your decision") < page.index(line) < page.index("Approve this plan")
        assert line in console.ask("GET", f"{PLAN}/decision").body
        decisions = Decisions(console.offering.records.db, utc_now)
        document = plan_document(decisions.find("r1"), console.offering.config, decisions)
        for details in (False, True):
            show_request(document, details=details)
            shown = capsys.readouterr().out
            assert shown.index(line) < shown.index("to agree")


def test_a_limit_that_is_exceeded_is_said_first(tmp_path):
    """A plan beyond a limit on data waits for a person; page, decision and text begin with that."""
    with owner_console(tmp_path, max_reidentified=Decimal("0.0001")) as console:
        console.sign_in()
        decisions = Decisions(console.offering.records.db, utc_now)
        assert appraise(decisions.find("r1"), console.offering.config) == ""
        document = plan_document(decisions.find("r1"), console.offering.config, decisions)
        found = document["verdict"]
        assert found["intruder"]["kept"] is False
        (line,) = [each for each in found["limits"] if each["rule"] == "max_reidentified"]
        assert (line["kept"], line["found"]) == (False, found["intruder"]["share"])
        (said,) = found["exceeded"]
        assert said.startswith("exceeds a limit of this organisation: persons re-identified ")
        assert said in " ".join(brief(document)[1:5])
        pages = [" ".join(console.ask("GET", path).body.split()) for path in (PLAN, f"{PLAN}/decision")]
        for page in pages:
            comes_down_to = page[page.index("What it comes down to") :]
            assert said[1:] in comes_down_to[:400]


def test_data_that_cannot_be_used_are_said_first(tmp_path):
    """No limit was tried on them, and whoever approves the plan has to know that."""
    with owner_console(tmp_path, usable=False, max_reidentified=Decimal("0.5")) as console:
        console.sign_in()
        decisions = Decisions(console.offering.records.db, utc_now)
        problem = appraise(decisions.find("r1"), console.offering.config)
        document = plan_document(decisions.find("r1"), console.offering.config, decisions, problem)
        said = document["verdict"]["unusable"]
        assert said.startswith("the data could not be used as planned")
        assert said[:60] in " ".join(brief(document)[1:4])
        pages = [" ".join(console.ask("GET", path).body.split()) for path in (PLAN, f"{PLAN}/decision")]
        for page in pages:
            assert said[1:] in unescape(page[page.index("What it comes down to") :][:600])
