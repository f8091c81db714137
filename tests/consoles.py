"""Two hospitals whose people decide in a browser, with real daemons, and the pages that commands open."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

from deploy.demo_data import hospitals
from deploy.local_cluster import LocalCluster
from deploy.local_process import LocalProcessError
from deploy.local_setup import AGGREGATOR, make_setup, share_linkage_key
from tests.browser import Page
from tests.fakes.owner_console import APPRAISING, Answer

OWNERS = ("north", "harbour")
PURPOSE = "Does length of stay depend on ward and severity? Study plan 2026-11, ethics vote 114/26"
_RULES = (
    '[policy]\napproval = "manual"\nmax_reidentified = "0.1"\nmax_unchanged_share = "0.5"\n'
    'co_owners = ["north", "harbour"]\n'
)
_DATASET = "patients"
MASKED = ("--k", "auto", "--rank-noise", "0.3")
SYNTHETIC = ("--product", "synthetic", "--delta", "0.000001")
"""What is asked for beside ε."""


@dataclass
class Visitor:
    """A person's browser reduced to a cookie."""

    link: str
    cookie: str = ""

    @property
    def origin(self) -> str:
        """The address of the console."""
        return self.link.partition("/enter")[0]

    @contextmanager
    def sent(
        self,
        method: str,
        path: str,
        form: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Iterator[HTTPResponse]:
        """Send one request; the answer's body is not read yet."""
        connection = HTTPConnection(self.origin.removeprefix("http://"), timeout=60)
        own = {"Cookie": self.cookie, "Origin": self.origin} if self.cookie else {}
        connection.request(method, path, urlencode(form or {}), own | (headers or {}))
        with closing(connection), connection.getresponse() as response:
            yield response

    def ask(
        self,
        method: str,
        path: str,
        form: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send one request."""
        with self.sent(method, path, form, headers) as response:
            answer = Answer(response.status, response.read().decode("utf-8", "replace"), response)
        # As a page does in a browser, while the data of a plan are loaded.
        return self.ask("GET", path) if APPRAISING in answer.body else answer

    def sign_in(self) -> None:
        """Follow the one-time link."""
        answer = self.ask("GET", self.link.removeprefix(self.origin))
        assert answer.status == 303
        self.cookie = answer.header("set-cookie").split(";")[0]

    def csrf(self) -> str:
        """Return what the forms of this visit carry."""
        return self.ask("GET", "/").body.split('name="csrf" value="')[1].split('"')[0]

    def post(self, path: str, **form: str) -> Answer:
        """Send a form of this visit."""
        return self.ask("POST", path, {"csrf": self.csrf()} | form)

    def show(self, page: Page) -> None:
        """Give a browser the cookie of this visit."""
        name, _, value = self.cookie.partition("=")
        page.do(
            "Network.setCookie", name=name, value=value, url=self.origin, httpOnly=True, sameSite="Strict"
        )


@contextmanager
def hospitals_that_decide(folder: Path, most: int | None = None) -> Iterator[LocalCluster]:
    """Start an aggregator and two hospitals that ask a person about every plan.

    Args:
        most: Patients of a hospital; all that the demonstration has if None.
    """
    owners = [replace(each, table=each.table[:most]) for each in hospitals(1) if each.owner in OWNERS]
    make_setup(folder, {each.owner: each.settings.replace("[policy]\n", _RULES) for each in owners})
    for each in owners:
        each.write(folder / "owners")
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as cluster:
        cluster.start()
        yield cluster


def link_of(cluster: LocalCluster, program: str, owner: str = "", *options: str) -> str:
    """Start the console of a party; returns the one-time link that the command prints."""
    process = cluster.start_cli(program, "console", "--port", "0", *options, owner=owner)
    assert process.stdout is not None
    line = process.stdout.readline()
    if "http://" not in line:
        raise LocalProcessError(
            f"no link was printed: {line}", process.stderr.read() if process.stderr else ""
        )
    return line[line.index("http://") :].strip()


def start_release(
    cluster: LocalCluster,
    release: str,
    epsilon: str,
    purpose: str = PURPOSE,
    product: Sequence[str] = MASKED,
) -> subprocess.Popen[str]:
    """Ask both hospitals for a release; returns the command, which waits for its end."""
    return cluster.start_cli(
        *("aggregator", "release", "--dataset", _DATASET, "--layout", "horizontal"),
        *("--owners", ",".join(OWNERS), "--epsilon", epsilon, *product),
        *("--purpose", purpose, "--id", release, "--yes", "--anyway", "--json"),
    )


def decide(cluster: LocalCluster, owner: str, page: Page, release: str, refuse: str = "") -> None:
    """Wait until a plan waits for a person, open it, and approve it, or refuse it with a reason."""
    cluster.owner(owner).wait_for("waiting for a person", release=release)
    page.go(f"{page.evaluate('location.origin')}/plans/{AGGREGATOR}/{release}")
    action = "refuse" if refuse else "approve"
    page.wait_for(f"document.querySelector('form[action$=\"/{action}\"]')")
    page.fill(*(("reason", refuse) if refuse else ("confirm", release)))
    page.leads_to_page(lambda: page.click(f'form[action$="/{action}"] button'))
