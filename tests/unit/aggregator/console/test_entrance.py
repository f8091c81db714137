"""The operators' log has who opened the aggregator's pages."""

import threading
import time
from contextlib import closing
from http.client import HTTPConnection

import pytest

from aggregator.config import AggregatorConfig, AggregatorSection
from aggregator.console.serving import Operator, application
from aggregator.store.database import FILE_NAME, AggregatorDatabase
from aggregator.store.operator_log import OperatorLog
from common.settings import TlsSection
from common.web.doors import Doors
from common.web.server import listen, server


@pytest.fixture
def settings(tmp_path):
    """The configuration of an aggregator that does not run."""
    none = tmp_path / "none.pem"
    section = AggregatorSection(
        name="hub", trust_domain="release.test", listen="localhost:0", state_dir=tmp_path / "state",
        release_dir=tmp_path / "releases",
    )  # fmt: skip
    section.state_dir.mkdir(mode=0o700)
    return AggregatorConfig(
        path=tmp_path / "aggregator.toml", aggregator=section, tls=TlsSection(none, none, none)
    )


def test_links_are_noted(settings):
    """A link that works names its person, a wrong one nobody."""
    doors: Doors[Operator] = Doors(time.monotonic)
    place = listen("127.0.0.1:0")
    running = server(application(lambda: settings, doors, place.address), doors)
    thread = threading.Thread(target=running.run, args=([place.listener],))
    thread.start()
    try:
        for key, status in (("guess", 401), (doors.new_key(Operator("vera")), 303)):
            with closing(HTTPConnection(place.address.hosts[0], timeout=30)) as connection:
                connection.request("GET", f"/enter?key={key}")
                assert connection.getresponse().status == status
    finally:
        running.should_exit = True
        thread.join()
    with AggregatorDatabase(settings.aggregator.state_dir / FILE_NAME) as db:
        found = [(each.name, each.user, each.arguments["address"]) for _, each in OperatorLog(db).actions()]
    assert found == [("sign-in-failed", "", "127.0.0.1"), ("signed-in", "vera", "127.0.0.1")]
