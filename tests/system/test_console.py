"""Pages in a process of their own: over TLS, with people of a provider, with and without the daemon."""

import os
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest

from common.errors import ExitCode
from common.files import write_atomic
from deploy.development_ca import DevelopmentCa
from deploy.local_cluster import LocalCluster
from deploy.local_process import LocalDaemon, LocalProcessError, run_program
from deploy.local_setup import free_port, make_setup, section, share_linkage_key
from tests.benchmarks.daemon_memory import memory
from tests.consoles import Visitor, link_of
from tests.fakes.oidc_provider import oidc_provider
from tests.fakes.owner_console import APPRAISING, Answer
from tests.system.small_owners import (
    answer_of,
    ask,
    declared,
    identifiers,
    people,
    policy,
    start_release,
    write,
)

OWNERS = ("a", "b")
MEMORY_LIMIT = 100e6
STOP_SECONDS = 30.0
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.usefixtures("ordinary_starts"),
]


class Browser:
    """A person's browser at a console with TLS."""

    def __init__(self, port: int, authority: Path) -> None:
        self.port, self.context = port, ssl.create_default_context(cafile=authority)
        self.origin, self.cookies = f"https://localhost:{port}", ""

    def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> Answer:
        """Send one request, with the cookie of the visit."""
        connection = HTTPSConnection("localhost", self.port, timeout=30, context=self.context)
        headers = {"Cookie": self.cookies, "Origin": self.origin}
        connection.request(method, path, urlencode(form) if form else None, headers)
        response = connection.getresponse()
        answer = Answer(response.status, response.read().decode(), response)
        connection.close()
        if answer.cookie():
            self.cookies = answer.cookie()
        return answer

    def sign_in(self, provider, subject: str) -> None:
        """Sign in at the provider."""
        begun = self.ask("GET", "/sign-in")
        back = provider.approves(begun.header("location"), subject).removeprefix(self.origin)
        assert self.ask("GET", back).status == 200
        assert self.cookies.startswith("__Host-tessera-visit-")

    def approve(self, path: str, release: str) -> Answer:
        """Approve the plan that a page shows, with its form."""
        while APPRAISING in (page := self.ask("GET", path).body):
            pass
        form = {
            name: page.split(f'name="{name}" value="')[1].split('"')[0]
            for name in ("csrf", "digest", "source")
        }
        return self.ask(
            "POST", f"{path}/approve", form | {"confirm": release, "valid": "24 hours", "anyway": "on"}
        )


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    """A provider that knows three approvers."""
    with oidc_provider(tmp_path_factory.mktemp("provider")) as made:
        made.knows_mail("17", "dora@north.example")
        made.knows_mail("18", "otto@north.example")
        made.knows_mail("19", "vera@north.example")
        yield made


@pytest.fixture(scope="module")
def port() -> int:
    """The port of owner a's console."""
    return free_port()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, provider, port) -> Iterator[LocalCluster]:
    """Owner a asks three persons, and has pages over TLS; owner b has pages for one-time links."""
    folder = tmp_path_factory.mktemp("console")
    for position, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(60 * position, 60), seed=position))
    web = {
        "listen": f"127.0.0.1:{port}", "url": f"https://localhost:{port}", "certificate": "console.pem",
        "key": "console.key",
    }  # fmt: skip
    about = provider.section()
    oidc = {
        "issuer": about.issuer, "client_id": about.client_id,
        "client_secret_file": str(about.client_secret_file),
        "approvers": ["dora@north.example", "otto@north.example", "vera@north.example"],
    }  # fmt: skip
    asks = policy(approval="manual", approvers=3)
    says = {
        "a": asks + section("[console]", web) + section("[console.oidc]", oidc) + declared("patients"),
        "b": section("[console]", {"listen": f"127.0.0.1:{free_port()}"}) + declared("patients"),
    }
    make_setup(folder, says)
    ca = DevelopmentCa("pages.test")
    ca.aggregator("pages", ["localhost"]).write(folder / "owners" / "a", "console")
    write_atomic(folder / "pages-ca.pem", ca.issued.certificate_pem)
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        for owner in OWNERS:
            running.serve_console(owner)
        yield running


def test_consoles_stay_small(cluster):
    """Under 100 MB while nobody has opened a page, strangers' requests included."""
    about = cluster.owner("b").config.read_text()
    host, port = about.split('listen = "')[1].split('"')[0].split(":")
    with socket.create_connection((host, int(port)), 10) as stranger:
        stranger.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        assert b" 401 " in stranger.makefile("rb").read()
    for console in cluster.consoles:
        assert memory(console, "VmRSS") < MEMORY_LIMIT


def test_three_persons_at_three_pages(cluster, provider, port):
    """People of the provider approve over TLS; a user of the machine may be one of them, and adds nothing."""
    command = start_release(cluster, "three", k="5")
    cluster.owner("a").wait_for("waiting for a person", release="three")
    given = ask(cluster, "owner-node", "approve", "three", "--yes", "--anyway", owner="a")
    assert (given[0], given[1]["approvals"]) == (ExitCode.DONE, 1)
    for subject in ("17", "18", "19"):
        browser = Browser(port, cluster.folder / "pages-ca.pem")
        assert browser.ask("GET", "/").status == 401
        browser.sign_in(provider, subject)
        assert browser.approve("/plans/central/three", "three").status == 303
    code, document = answer_of(command)
    assert (code, document["state"]) == (ExitCode.DONE, "published")
    lines = ask(cluster, "owner-node", "history", "--release", "three", owner="a")[1]["history"]
    approved = [line["details"]["by"] for line in lines if line["event"] == "approved"]
    assert approved[1:] == ["dora@north.example", "otto@north.example", "vera@north.example"]


def test_the_command_leads_to_the_pages_that_are_served(cluster, port):
    """A link of `owner-node console` opens them once; with a provider the command names the address."""
    config = cluster.owner("b").config
    told = _said(cluster, "b")
    link = told.rpartition(" ")[2]
    host, _, path = link.removeprefix("http://").partition("/")
    for status in (b" 303 ", b" 401 "):
        with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), 10) as visitor:
            visitor.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            assert status in visitor.makefile("rb").readline()
    assert list((config.parent / "state" / "links").iterdir()) == []
    assert f"sign in: https://localhost:{port}" in _said(cluster, "a")


def _said(cluster: LocalCluster, owner: str) -> str:
    config = cluster.owner(owner).config
    ended = run_program("owner-node", ["console", "--config", config], config.parent)
    assert ended.returncode == ExitCode.DONE
    return ended.stdout.strip()


@pytest.mark.parametrize(
    ("left_out", "says"),
    [
        (r"\n(certificate|key) = .*console.*", "console.listen"),
        (r"\nurl = .*", "console.url"),
        (r"\[console.oidc\]\n(\w+ = .*\n)*", "console.listen"),
    ],
)
def test_a_console_for_a_network_needs_tls_and_a_provider(cluster, tmp_path, left_out, says):
    """The daemon says what is missing, and does not start."""
    text = cluster.owner("a").config.read_text().replace('listen = "127.0.0.1', 'listen = "0.0.0.0')
    text = re.sub(left_out, "", text)
    config = tmp_path / "owner.toml"
    config.write_text(text)
    ended = run_program("owner-node", ["run", "--config", config], tmp_path)
    assert ended.returncode == ExitCode.USAGE
    assert says in ended.stderr


def test_pages_go_on_without_the_daemon(cluster):
    """They say that it does not run, and show what it left; a second process does not serve them."""
    config = cluster.owner("b").config
    second = run_program("owner-node", ["console", "--serve", "--config", config], config.parent)
    assert (second.returncode, "console --serve" in second.stderr) == (ExitCode.USAGE, True)
    visitor = Visitor(link_of(cluster, "owner-node", "b"))
    visitor.sign_in()
    assert cluster.owner("b").kill() != ExitCode.DONE
    assert "daemon is not running" in visitor.ask("GET", "/").body
    assert "three" in visitor.ask("GET", "/history").body
    cluster.owner("b").start()
    cluster.owner("b").wait_for("connected")
    assert "daemon is not running" not in visitor.ask("GET", "/").body


def test_work_of_a_page_ends_with_the_console(cluster):
    """SIGTERM ends a console in which a large exploration runs: it does not wait for its settings."""
    visitor = Visitor(link_of(cluster, "owner-node", "b"))
    visitor.sign_in()
    asked = {
        "dataset": "patients", "epsilon": ",".join(map(str, range(1, 11))), "k": "3,4,5,6,7",
        "rank_noise": "0,0.1,0.2,0.3", "mechanism": "idp-joint", "repetitions": "1000",
    }  # fmt: skip
    assert visitor.post("/explore", **asked).status == 303
    while " of 200 are done" not in (page := visitor.ask("GET", "/explore/running").body):
        assert "<progress" in page
    assert cluster.consoles[-1].stop(STOP_SECONDS) == ExitCode.DONE


@pytest.mark.parametrize("ends", ["terminate", "kill"])
def test_one_command_for_a_person_at_a_desk(cluster, ends):
    """`run --with-console` starts daemon and pages; the pages end with the daemon, however that ends."""
    cluster.owner("b").stop()
    config = cluster.owner("b").config
    both = LocalDaemon(
        "owner-node", "b", config, cluster.folder / "logs" / "both.log", ("run", "--with-console")
    )
    both.start()
    host, port = config.read_text().split('listen = "')[1].split('"')[0].split(":")
    try:
        both.wait_for("connected")
        both.wait_for("ready", address=f"{host}:{port}")
        visitor = Visitor(link_of(cluster, "owner-node", "b"))
        visitor.sign_in()
        assert "daemon is not running" not in visitor.ask("GET", "/").body
        if ends == "terminate":
            assert both.stop(STOP_SECONDS) == ExitCode.DONE
        else:
            os.kill(both.pid, signal.SIGKILL)
        # The log ends when the last process that writes it has ended.
        with pytest.raises(LocalProcessError, match="ended before"):
            both.wait_for("never", timeout=STOP_SECONDS)
    finally:
        both.kill()
