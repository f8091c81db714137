"""Data sets on a page, and explorations that a page starts, stops, keeps and deletes."""

import re
from urllib.parse import quote

import pytest

from owner_node.cli.doctor import doctor
from tests.fakes.owner_console import OwnerConsole, owner_console
from tests.fakes.owner_folder import make_owner_folder

FORM = {
    "dataset": "cohort", "epsilon": "1", "k": "5", "mechanism": "", "rank_noise": "0.1", "attributes": "",
    "known": "", "repetitions": "2",
}  # fmt: skip
KEPT = re.compile(r'href="(/explore/kept/[0-9a-f]{16})"')


@pytest.fixture
def console(tmp_path):
    """A console at which somebody is signed in."""
    with owner_console(tmp_path) as made:
        made.sign_in()
        yield made


def ended(console: OwnerConsole, path: str) -> str:
    """Return a page when its work has ended, which shows progress before."""
    while "<progress" in (page := console.ask("GET", path).body):
        pass
    return page


def start(console: OwnerConsole, **changes: str) -> int:
    """Ask for an exploration; returns the status."""
    return console.ask("POST", "/explore", FORM | {"csrf": console.csrf()} | changes).status


def test_a_data_set_is_shown_as_others_see_it(console):
    """The page shows the exact number of records, the rounded one that others get, and the message itself."""
    page = ended(console, "/data/cohort")
    others, here = page.split("Known only here")
    assert "at least 60" in others
    assert "&#34;records_rounded&#34;: &#34;60&#34;" in others
    assert "<dd>60</dd>" in here
    assert "The data are as declared" in page or 'class="notice"' in page
    assert console.ask("GET", "/data/none").status == 400


@pytest.mark.parametrize(
    ("path", "current"),
    [
        ("/", 'page">Inbox'),
        ("/plans/hub/r1", 'true">Inbox'),
        ("/data/cohort", 'true">Data'),
        ("/data", 'page">Data'),
    ],
)
def test_the_menu_names_the_part_that_a_page_belongs_to(console, path, current):
    """A plan belongs to the inbox, a data set to the data."""
    assert re.findall(r'aria-current="([^<]*)<', console.ask("GET", path).body) == [current]


def test_wrong_data_are_counted_and_not_quoted(console):
    """After the file changed, `Check again` says how many values are wrong, and never which."""
    ended(console, "/data/cohort")
    with console.offering.source.open("a") as file:
        file.write("p-extra,so-wrong-a-value\n")
    again = {"csrf": console.csrf()}
    assert console.ask("POST", "/data/cohort", again).status == 303
    page = ended(console, "/data/cohort")
    assert "age" in page
    assert 'class="notice bad"' in page
    assert "so-wrong-a-value" not in page
    assert "p-extra" not in page


def test_a_check_up_quotes_no_value(console, capsys):
    """The first record of a file without a header is its column names, which the terminal alone quotes."""
    path = make_owner_folder(console.offering.folder) / "owner.toml"
    data = path.with_name("patients.csv")
    data.write_text("".join(data.read_text().splitlines(keepends=True)[1:]).replace("secret-note-0", "wardd"))
    page = ended(console, "/connections/check-up")
    assert "column &#39;ward&#39;" in page
    assert "wardd" not in page
    doctor(path)
    assert "wardd" in capsys.readouterr().out


def test_a_check_up_that_failed_is_made_again(console, monkeypatch):
    """After an internal fault the next look checks anew; a kept fault could not be got rid of."""
    with monkeypatch.context() as patch:
        patch.setattr("owner_node.console.application.examination", lambda _path, examples: iter([1 // 0]))
        assert "internal fault (ZeroDivisionError" in ended(console, "/connections/check-up")
    assert "Check again" in ended(console, "/connections/check-up")


def test_an_exploration_is_kept_until_it_is_deleted(console):
    """Its page is served without scripts and without the ends of the data, and deleted with its summary."""
    ages = console.offering.source.read_text().split()[1:]
    console.offering.source.write_text("\n".join(["person,age", *ages, "q1,107", ""]))
    assert start(console) == 303
    assert "The exploration is done" in ended(console, "/explore/running")
    (address,) = set(KEPT.findall(console.ask("GET", "/explore").body))
    answer = console.ask("GET", address)
    assert answer.status == 200
    assert "What a release of cohort would be worth" in answer.body
    assert "before and after" not in answer.body
    texts = re.sub(r"<[^>]*>", " ", answer.body)
    assert not re.search(r"(?<![\d.])107(?![\d.])", texts)
    policy = answer.header("content-security-policy")
    assert "sandbox" in policy
    assert "script-src" not in policy
    assert answer.header("cache-control") == "no-store"
    folder = console.offering.config.owner.state_dir / "explorations"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert console.ask("POST", f"{address}/delete", {"csrf": console.csrf()}).status == 303
    assert list(folder.iterdir()) == []
    assert console.ask("GET", address).status == 400


def test_one_exploration_runs_at_a_time_and_can_be_stopped(console):
    """A second one is refused while the first runs; a stopped one keeps nothing."""
    many = {"epsilon": "0.1,0.2,0.5,1,2", "rank_noise": "0,0.1,0.2,0.3", "repetitions": "1000"}
    assert start(console, **many) == 303
    assert start(console) == 400
    assert console.ask("POST", "/explore/running", {"csrf": console.csrf()}).status == 303
    assert "It was stopped" in ended(console, "/explore/running")
    assert "None is kept yet" in console.ask("GET", "/explore").body
    assert start(console) == 303
    assert "The exploration is done" in ended(console, "/explore/running")


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "none"}, {"epsilon": "much"}, {"epsilon": ""}, {"k": "-1"}, {"rank_noise": "2"},
        {"mechanism": "magic"}, {"repetitions": "0"}, {"repetitions": "x"}, {"repetitions": "9" * 5000},
        {"epsilon": ",".join(f"0.{n:03d}" for n in range(1, 202))},
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_asked(console, changes):
    """It is refused with words, before anything is loaded."""
    assert start(console, **changes) == 400
    assert "No exploration is running" in console.ask("GET", "/explore/running").body


def test_what_fails_later_is_said(console):
    """An attribute that does not exist is found when the data are loaded; the page says so."""
    assert start(console, attributes="none") == 303
    page = ended(console, "/explore/running")
    assert 'class="notice bad"' in page
    assert "none" in page


@pytest.mark.parametrize("name", ["../owner.db", "..%2Fowner", "owner.db", "0" * 15, "0" * 16, "\u202e"])
def test_only_kept_explorations_are_served(console, name):
    """No other file of the state folder is reached through their address."""
    assert console.ask("GET", f"/explore/kept/{quote(name)}").status in (400, 404)
    form = {"csrf": console.csrf()}
    assert console.ask("POST", f"/explore/kept/{quote(name)}/delete", form).status in (400, 404)


def test_every_attack_is_on_the_page_of_a_plan(console):
    """The attacks of the one appraisal, those of other intruders too, stand where the decision is made."""
    page = ended(console, "/plans/hub/r1")
    assert "Every attack" in page
    assert "Other intruders" in page
