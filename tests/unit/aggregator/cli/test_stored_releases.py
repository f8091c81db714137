"""`aggregator releases` while no daemon runs: what the journal has."""

import json
from pathlib import Path

import pytest

from aggregator.cli import application
from aggregator.protocol.events import Cancelled
from aggregator.store.journal import Journal
from common.cli import console
from tests.fakes.protocol_peers import started

CONFIGURATION = """
[aggregator]
name = "hub"
trust_domain = "release.test"
listen = "127.0.0.1:0"
state_dir = "state"
release_dir = "releases"
control_socket = "c/s"

[tls]
ca = "ca.pem"
cert = "hub.pem"
key = "hub.key"
"""


def test_releases_without_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are listed as the daemon left them, and the list says so; a state that is absent is not made."""
    (tmp_path / "aggregator.toml").write_text(CONFIGURATION)
    monkeypatch.chdir(tmp_path)

    def listed() -> tuple[int, list[tuple[str, str]], str]:
        code = console.run(application(), "aggregator", ["releases", "--json"])
        captured = capsys.readouterr()
        found = json.loads(captured.out)["releases"]
        return code, [(each["release"], each["state"]) for each in found], captured.err

    assert listed()[:2] == (0, [])
    assert not (tmp_path / "state").exists()
    journal = Journal(tmp_path / "state" / "aggregator.db")
    journal.append("r1", started("a", "b"))
    journal.append("r1", Cancelled(at=9, code="cancelled", message="m"))
    journal.close()
    code, found, said = listed()
    assert (code, found) == (0, [("r1", "cancelled")])
    assert "daemon is not running" in said
