"""The aggregator's pages with real daemons behind them: a release from the form to its files."""

import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

import pytest

from aggregator.protocol.events import Cancelled, Started
from aggregator.store.journal import Journal
from common.planning.arguments import parse_arguments
from common.release.verification import verify_release
from common.trust.bundle import Bundle
from common.trust.enrolment import make_request, new_key
from common.trust.identity import Party, PartyKind, fingerprint
from deploy.local_cluster import LocalCluster
from deploy.local_setup import HOST, free_port, make_setup, section, share_linkage_key
from tests.browser import browser
from tests.consoles import Visitor, link_of
from tests.system.small_owners import (
    ATTRIBUTES,
    Attributes,
    ask,
    declared,
    identifiers,
    people,
    policy,
    write,
)

OWNERS = ("a", "b")
HOSTILE = "<script>document.title='x'</script> & \"more\""
ATTRIBUTES_HOSTILE: Attributes = {
    **ATTRIBUTES,
    "ward": {"type": "category", "categories": ["medicine", "surgery", "paediatrics", "eye, ear", HOSTILE]},
}
FIRST_PAINT_SECONDS = 0.3
MANY = 1000


def visitor(cluster: LocalCluster, *options: str) -> Visitor:
    """Ask for a link, of pages that are served or of those that the command serves, and sign in."""
    made = Visitor(link_of(cluster, "aggregator", "", *options))
    made.sign_in()
    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """An aggregator that is a CA, its pages, and two owners; the first asks a person."""
    folder = tmp_path_factory.mktemp("console")
    for position, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(60 * position, 60), seed=position))
    says = declared("patients", attributes=ATTRIBUTES_HOSTILE)
    make_setup(folder, {"a": policy(approval="manual") + says, "b": policy(min_k=5) + says})
    with (folder / "aggregator" / "aggregator.toml").open("a") as config:
        config.write(section("[enrolment]", {"ca_key": "../tls/ca.key"}))
        config.write(section("[console]", {"listen": f"{HOST}:{free_port()}"}))
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        running.serve_console()
        yield running


@pytest.fixture(scope="module")
def operator(cluster: LocalCluster) -> Visitor:
    """A person who operates."""
    return visitor(cluster, "--operate")


@pytest.fixture(scope="module")
def reader(cluster: LocalCluster) -> Visitor:
    """A person with a link as it is by default."""
    return visitor(cluster)


def start_form(release: str, **changes: str) -> dict[str, str]:
    """Return the fields of the form for a release of both owners."""
    usual = {
        "dataset": "patients", "release": release, "layout": "horizontal", "owner:a": "on", "owner:b": "on",
        "epsilon": "1", "k": "5", "format:csv": "on", "purpose": "quality of care", "what": "release",
        "anyway": "on",
    }  # fmt: skip
    return usual | changes


def state(cluster: LocalCluster, release: str) -> str:
    """Return the state of a release as the command line says it."""
    return str(ask(cluster, "aggregator", "show", release)[1]["state"])


def actions(cluster: LocalCluster) -> list[dict[str, str]]:
    """Return what operators did."""
    found: list[dict[str, str]] = ask(cluster, "aggregator", "history")[1]["actions"]
    return found


@pytest.fixture(scope="module")
def published(cluster: LocalCluster, operator: Visitor) -> str:
    """A release that was started from the form in a browser, with the keyboard, and watched to its end."""
    with browser() as chromium:
        page = chromium.open("about:blank")
        operator.show(page)
        page.go(f"{operator.origin}/new?dataset=patients")
        focus = "document.activeElement.name"
        for name, value in (
            ("purpose", "quality of care"),
            ("owner:a", " "),
            ("owner:b", " "),
            ("epsilon", "1"),
        ):
            while page.evaluate(focus) != name:
                page.press("Tab", 9)
            if value == " ":
                page.evaluate("document.activeElement.click()")
            else:
                page.do("Input.insertText", text=value)
        page.leads_to_page(lambda: page.press("Enter", 13))
        release = str(page.evaluate("location.pathname")).rpartition("/")[2]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d-patients-[0-9a-f]{4}", release)
        page.evaluate("window.same = true")
        page.wait_for("document.querySelector('form[action$=\"/confirm\"] button')")
        assert "Promised to one person" in page.evaluate("document.body.innerText")
        # Sixty records make no useful result: that has to be ticked.
        page.evaluate("document.querySelector('form[action$=\"/confirm\"] [name=anyway]').click()")
        page.evaluate("document.querySelector('form[action$=\"/confirm\"] button').focus()")
        page.leads_to_page(lambda: page.press("Enter", 13))
        page.wait_for("document.querySelector('#owners').innerText.includes('a person decides')")
        page.evaluate("window.same = true")
        assert ask(cluster, "owner-node", "approve", release, "--yes", "--anyway", owner="a")[0] == 0
        page.wait_for("document.querySelector('#changing').innerText.includes('The release is published.')")
        page.wait_for("document.querySelector('#settled a[href$=\"/report\"]')")
        # Everything came by itself: this is still the page that was loaded before the owner's approval.
        assert page.evaluate("window.same") is True
        assert page.complaints == []
    return release


@pytest.mark.needs("chromium")
def test_what_was_published_is_downloaded(cluster, operator, published):
    """Every file is that of the folder; the log has who started and confirmed; the report runs nothing."""
    folder = Path(ask(cluster, "aggregator", "show", published)[1]["directory"])
    verify_release(folder)
    page = operator.ask("GET", f"/releases/{published}").body
    for path in folder.iterdir():
        with operator.sent("GET", f"/releases/{published}/files/{path.name}") as answer:
            assert (answer.status, answer.read()) == (200, path.read_bytes())
            assert "attachment" in str(answer.getheader("content-disposition"))
        assert path.name in page
    report = operator.ask("GET", f"/releases/{published}/report")
    assert report.body == (folder / "report.html").read_text()
    assert "script-src" not in report.header("content-security-policy")
    assert "sandbox" in report.header("content-security-policy")
    while "<progress" in (verified := operator.ask("GET", f"/releases/{published}/verification").body):
        pass
    assert "Everything that can be checked offline holds" in verified
    done = [(each["action"], each["outcome"]) for each in actions(cluster) if each["release"] == published]
    assert done == [("release", "done"), ("confirm", "done")]


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("name", ["..%2Fmanifest.json", "nothing", "%2Fetc%2Fpasswd", ".."])
def test_no_other_file_is_served(operator, published, name):
    """Names that lead out of the folder lead nowhere."""
    assert operator.ask("GET", f"/releases/{published}/files/{name}").status in (400, 404)


@pytest.mark.needs("chromium")
def test_every_page_is_accessible_and_asks_only_this_console(cluster, operator, published):
    """No violation of axe in light and dark, nothing wider than a telephone, no complaint of the browser."""
    request = make_request(new_key(), Party(PartyKind.OWNER, "c", "demo.example"))
    assert operator.post("/certificates/requests", request=request.decode()).status == 303
    serial = ask(cluster, "aggregator", "enroll", "list")[1]["certificates"][0]["serial"]
    here = f"/releases/{published}"
    paths = (
        *("/", here, f"{here}/history", f"{here}/verification", "/owners", "/owners/a", "/new"),
        *("/new?dataset=patients", "/certificates", f"/certificates/{serial}"),
    )
    with browser() as chromium:
        page = chromium.open("about:blank", width=360)
        operator.show(page)
        for path in paths:
            page.go(operator.origin + path)
            page.wait_for("!document.querySelector('[hx-trigger^=load]')")
            page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
            assert (path, page.faults()) == (path, [])
        assert not [
            each for each in page.asked_for if not each.startswith((operator.origin, "data:", "about:"))
        ]
        assert page.complaints == []


@pytest.mark.needs("chromium")
def test_texts_of_owners_are_escaped(operator, published):
    """Markup in a label of an owner's schema is shown, not run."""
    page = operator.ask("GET", "/owners/a").body
    assert "&lt;script&gt;document.title" in page
    assert "<script>document" not in page
    with browser() as chromium:
        shown = chromium.open("about:blank")
        operator.show(shown)
        shown.go(operator.origin + "/owners/a")
        assert shown.evaluate("document.title") == "a – Tessera aggregator central"
    assert "\\u202e" in operator.ask("GET", "/?after=%E2%80%AE").body


CHANGES: Sequence[tuple[str, dict[str, str]]] = (
    ("/new", start_form("hostile")),
    ("/releases/{release}/confirm", {"digest": ""}),
    ("/releases/{release}/cancel", {}),
    ("/releases/{release}/resume", {}),
    ("/releases/{release}/delete", {"confirm": "{release}"}),
    ("/certificates/requests", {"request": "x"}),
    ("/certificates/requests/00/approve", {"heard": "x"}),
    ("/certificates/requests/00/refuse", {}),
    ("/certificates/00/revoke", {"confirm": "a"}),
)


@pytest.mark.needs("chromium")
def test_a_console_that_reads_changes_nothing(cluster, reader, published):
    """Every change is refused in words, its form is not shown, and the daemon is not even asked."""
    before = actions(cluster)
    for path, form in CHANGES:
        answer = reader.post(
            path.format(release=published), **{k: v.format(release=published) for k, v in form.items()}
        )
        assert (path, answer.status) == (path, 403)
        assert "change nothing" in answer.body
        assert reader.ask("GET", path.format(release=published)).status in (200, 400, 404, 405)
    assert (actions(cluster), state(cluster, published)) == (before, "published")
    for path in ("/new?dataset=patients", f"/releases/{published}", "/certificates"):
        assert re.findall(r'method="post" action="([^"]*)"', reader.ask("GET", path).body) == ["/leave"]


@pytest.mark.needs("chromium")
@pytest.mark.parametrize(
    ("headers", "form", "status"),
    [
        ({"Origin": "http://attacker.example"}, {}, 403), ({"Origin": "null"}, {}, 403),
        ({}, {"csrf": "guess"}, 403), ({"Cookie": ""}, {}, 401), ({"Host": "attacker.example"}, {}, 421),
    ],
)  # fmt: skip
def test_other_sites_change_nothing(cluster, operator, published, headers, form, status):
    """A change needs the visit, its token and a page of this console that sends it."""
    before = actions(cluster)
    token = operator.csrf()
    for path, fields in CHANGES:
        sent = {"csrf": token} | fields | form
        assert operator.ask("POST", path.format(release=published), sent, headers).status == status
    assert (actions(cluster), state(cluster, published)) == (before, "published")


def test_a_mistake_leads_back_to_the_form(cluster, operator):
    """The daemon's words are on the page, with what was typed; nothing was started."""
    for changes, words in (
        ({"epsilon": "0"}, "Epsilon must be positive"),
        ({"owner:b": "off", "layout": "vertical", "weights": "x"}, "Weights go with another budget split"),
        ({"layout": "mixed"}, "Owners are named by --owners or by --groups"),
        ({"purpose": "two\nlines"}, "No owner accepts this purpose"),
        ({"facts": "structural_zeros = [\n{ age = 3 }]"}, "Facts has 1 problem"),
        ({"facts": "structural_zeros = [\n{ age = [3] }]"}, "--facts: only with --product synthetic"),
    ):
        answer = operator.post("/new", **start_form("mistake", **changes))
        assert answer.status == 400
        assert words in answer.body
        assert 'value="mistake"' in answer.body
    assert ask(cluster, "aggregator", "show", "mistake")[0] != 0


def test_a_plan_alone_is_made_and_deleted(cluster, operator):
    """A plan asks nobody for consent; its data go once its id was typed, and its history stays."""
    assert operator.post("/new", **start_form("alone", what="plan")).header("location") == "/releases/alone"
    cluster.aggregator.wait_for("planned", release="alone")
    page = operator.ask("GET", "/releases/alone").body
    assert "This is a plan alone" in page
    assert "Limits of b" in operator.ask("GET", "/new?dataset=patients").body
    assert operator.post("/releases/alone/delete", confirm="another").status == 400
    assert operator.post("/releases/alone/delete", confirm="alone").status == 303
    assert (
        "planned, deleted" in operator.ask("GET", "/").body
        or "plan only, deleted" in operator.ask("GET", "/").body
    )
    assert "The data were deleted" in operator.ask("GET", "/releases/alone/history").body


def test_only_the_plan_that_was_shown_is_confirmed(cluster, operator):
    """Another digest confirms nothing; a release is cancelled, and there is nothing to resume."""
    operator.post("/new", **start_form("shown"))
    cluster.aggregator.wait_for("planned", release="shown")
    assert operator.post("/releases/shown/confirm", digest="0" * 64).status == 400
    assert state(cluster, "shown") == "planned"
    assert operator.post("/releases/shown/cancel").status == 303
    assert state(cluster, "shown") == "cancelled"
    assert "there is nothing to resume" in operator.post("/releases/shown/resume").body


def test_a_worthless_plan_is_confirmed_only_on_purpose(cluster, operator):
    """Unless the form said so, the page of the plan asks for a tick, and the daemon for that."""
    form = start_form("useless")
    del form["anyway"]
    operator.post("/new", **form)
    cluster.aggregator.wait_for("planned", release="useless")
    page = operator.ask("GET", "/releases/useless").body
    assert 'name="anyway" required' in page
    assert "The result is expected to be worthless: for " in page
    digest = ask(cluster, "aggregator", "show", "useless")[1]["plan_digest"]
    refused = operator.post("/releases/useless/confirm", digest=digest)
    assert (refused.status, "no owner was asked" in refused.body) == (400, True)
    assert state(cluster, "useless") == "planned"
    assert operator.post("/releases/useless/confirm", digest=digest, anyway="on").status == 303
    assert state(cluster, "useless") == "consenting"
    operator.post("/releases/useless/cancel")


@pytest.mark.needs("chromium")
def test_a_halted_release_is_resumed(cluster, operator, published):
    """A folder in the way halts a release; its page says so, and resumes it once the folder is gone."""
    other = Path(ask(cluster, "aggregator", "show", published)[1]["directory"])
    in_the_way = other.with_name("halted")
    operator.post("/new", **start_form("halted"))
    cluster.aggregator.wait_for("planned", release="halted")
    shutil.copytree(other, in_the_way)
    digest = ask(cluster, "aggregator", "show", "halted")[1]["plan_digest"]
    assert operator.post("/releases/halted/confirm", digest=digest).status == 303
    cluster.owner("a").wait_for("waiting for a person", release="halted")
    assert ask(cluster, "owner-node", "approve", "halted", "--yes", "--anyway", owner="a")[0] == 0
    cluster.aggregator.wait_for("step waits", release="halted")
    page = operator.ask("GET", "/releases/halted").body
    assert "It is halted: " in page
    assert "Resume this release" in page
    shutil.rmtree(in_the_way)
    assert operator.post("/releases/halted/resume").status == 303
    cluster.aggregator.wait_for("published", release="halted")
    assert "The release is published." in operator.ask("GET", "/releases/halted").body


def test_a_stream_ends_with_the_visit(cluster):
    """Who signs out is told nothing more of what goes on, not even over a connection that is open."""
    person = visitor(cluster)
    heard: list[bytes] = []
    with person.sent("GET", "/live", headers={"Accept": "text/event-stream"}) as stream:
        assert stream.status == 200
        assert stream.readline() == b"event: change\n"
        listening = threading.Thread(target=lambda: heard.append(stream.read()))
        listening.start()
        assert person.post("/leave").status == 200
        cluster.cli(
            *("aggregator", "plan", "--dataset", "patients", "--layout", "horizontal", "--owners", "a,b"),
            *("--epsilon", "1", "--k", "5", "--id", "later"),
        )
        listening.join(30)
    assert heard
    assert heard[0].endswith(b"event: over\ndata: over\n\n")


def test_a_request_is_approved_refused_and_revoked(cluster, operator):
    """A certificate is issued for the key that was compared alone; the owner's file is the CA's answer."""
    for name, decision in (("d", "approve"), ("e", "refuse")):
        key = new_key()
        mark = fingerprint(key.public_key())
        request = make_request(key, Party(PartyKind.OWNER, name, "demo.example")).decode()
        assert operator.post("/certificates/requests", request=request).status == 303
        page = operator.ask("GET", "/certificates").body
        assert f"A request of {name}" in page
        place = page.split(f"/{name}</code>")[1].split('action="')[1].split("/approve")[0]
        if decision == "refuse":
            assert operator.post(f"{place}/refuse").status == 303
            assert operator.post(f"{place}/approve", heard=mark).status == 400
            continue
        assert operator.post(f"{place}/approve", heard="0" * 64).status == 400
        assert operator.post(f"{place}/approve", heard="nonsense").status == 400
        answer = operator.post(f"{place}/approve", heard=mark)
        assert answer.status == 303
        where = answer.header("location")
        bundle = Bundle.from_bytes(operator.ask("GET", f"{where}/bundle").body.encode())
        assert bundle.party.name == "d"
        assert fingerprint(bundle.chain()[0].public_key()) == mark
        assert operator.post(f"{where}/revoke", confirm="other").status == 400
        assert operator.post(f"{where}/revoke", confirm="d").status == 303
        assert "revoked" in operator.ask("GET", where).body
    log = ask(cluster, "aggregator", "enroll", "list")[1]["log"]
    assert [(each["action"], each["owner"]) for each in log] == [
        ("approve", "d"),
        ("revoke", "d"),
        ("refuse", "e"),
    ]
    assert operator.post("/certificates/requests", request="-----BEGIN nothing").status == 400


def test_a_thousand_releases_are_shown_at_once_and_without_the_daemon(tmp_path):
    """The first page comes at once; pages lead to the oldest release; the daemon need not run."""
    make_setup(tmp_path, {"a": policy() + declared("patients", attributes={"age": ATTRIBUTES["age"]})})
    write(tmp_path, "a", "patients", people(identifiers(0, 60), seed=1))
    place = tmp_path / "aggregator" / "state"
    place.mkdir(mode=0o700)
    journal = Journal(place / "aggregator.db")
    for number in range(MANY):
        owners = [f"o{each}" for each in range(120 if number == MANY - 1 else 2)]
        asked = parse_arguments(
            release=f"r{number}", dataset="patients", layout="horizontal", groups=[owners], epsilon="1"
        )
        at = 1_700_000_000 + number
        journal.append(asked.release, Started(at=at, request=asked, allowed={}))
        journal.append(asked.release, Cancelled(at=at, code="cancelled", message="cancelled"))
    journal.close()
    with LocalCluster(tmp_path) as running:
        running.aggregator.start()
        running.aggregator.wait_for("ready")
        reader = visitor(running)
        reader.ask("GET", "/")
        seconds, page = [], ""
        for _ in range(5):
            begun = monotonic()
            page = reader.ask("GET", "/").body
            seconds.append(monotonic() - begun)
        assert min(seconds) < FIRST_PAINT_SECONDS
        seen = set(re.findall(r'href="/releases/(r\d+)"', page))
        while older := re.search(r'href="(/\?after=r\d+)">Older', page):
            page = reader.ask("GET", older[1]).body
            seen |= set(re.findall(r'href="/releases/(r\d+)"', page))
        assert len(seen) == MANY
        page = reader.ask("GET", "/releases/r999?owners=1").body
        assert "51 to 100 of 120" in page
        assert [f">{owner}</a>" in page for owner in ("o49", "o50", "o99", "o100")] == [
            False,
            True,
            True,
            False,
        ]
        assert "101 to 120 of 120" in reader.ask("GET", "/releases/r999/state?owners=2").body
        running.aggregator.stop(10)
        page = reader.ask("GET", "/").body
        assert "The daemon is not running" in page
        assert reader.ask("GET", "/live").body == "event: lost\ndata: lost\n\n"
        assert 'href="/releases/r999"' in page
        assert reader.ask("GET", "/releases/r999").status in (400, 502)
