"""The pages of an owner with a thousand releases behind it: as short, and as few queries, as with one."""

import html
import re

import pytest

from owner_node.state.database import OwnerDatabase
from tests.fakes.long_history import add_published
from tests.fakes.owner_console import owner_console

RELEASES = 1000
MOST_BYTES = 100_000
PAGES = (
    "/", "/plans/hub/r1", "/plans/hub/earlier-0500", "/ledger", "/history", "/data", "/explore",
    "/connections",
)  # fmt: skip


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    """A console over a thousand releases; somebody is signed in, and has seen the list and the plan."""
    with owner_console(tmp_path_factory.mktemp("console")) as made:
        add_published(made.offering.records, RELEASES)
        made.sign_in()
        assert made.ask("GET", "/").status == made.ask("GET", "/plans/hub/r1").status == 200
        yield made


@pytest.fixture
def queries(monkeypatch):
    """The queries of every page that is asked for, and how many rows each gave."""
    asked: list[tuple[str, int]] = []
    rows = OwnerDatabase.rows

    def noted(self, statement, values=()):
        found = rows(self, statement, values)
        asked.append((statement, len(found)))
        return found

    monkeypatch.setattr(OwnerDatabase, "rows", noted)
    return asked


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_long(console, path):
    """A page has no more lines than people read, however many releases there were."""
    answer = console.ask("GET", path)
    assert answer.status == 200
    assert len(answer.body) < MOST_BYTES


@pytest.mark.parametrize("path", PAGES)
def test_lists_read_no_plans_and_no_whole_tables(console, queries, path):
    """At most the plan that is shown is read, by the page and by its appraisal; a list reads few rows."""
    console.ask("GET", path)
    assert sum("FROM plans" in statement for statement, _ in queries) <= (
        2 if path.startswith("/plans/") else 1
    )
    assert max((count for _, count in queries), default=0) <= 100


def test_a_new_charge_is_shown_at_once(console):
    """What is remembered of the ledger does not hide what is new."""
    before = console.ask("GET", "/ledger").body
    assert "later" not in before
    with console.offering.records.db.transaction() as tx:
        newest = console.offering.records.ledger.entries()[-1]
        charge = {
            "budget": "cohort", "aggregator": "hub", "release": "later", "plan_digest": newest.plan_digest,
            "charge": "0.25", "epsilon": "0.25", "epsilon_joint": "0.25", "accounting": "joint",
            "rank_loss": None, "delta": None,
        }  # fmt: skip
        console.offering.records.ledger.append(tx, newest.kind.RESERVE, {}, charge)
    after = console.ask("GET", "/ledger").body
    assert "later" in after
    assert "ε 1.75 of 3 left" in after


@pytest.mark.parametrize("path", ["/ledger", "/history"])
def test_older_charges_and_lines_are_on_further_pages(console, path):
    """Every release of the history and the ledger can be reached, a page at a time."""
    seen, following = set(), [path]
    while following:
        body = console.ask("GET", following[0]).body
        seen |= set(re.findall(r">(earlier-\d+)<", body))
        following = [html.unescape(each) for each in re.findall(rf'href="({path}\?before=[^"]*)"', body)]
    assert len(seen) == RELEASES
