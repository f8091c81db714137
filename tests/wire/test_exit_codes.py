"""`aggregator release` at a real daemon: exit codes of what cannot be asked, and of what an owner answers."""

import asyncio
import json
from pathlib import Path

import pytest

from aggregator.cli import application
from common.cli import console
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as owner_wire
from tests.fakes.scripted_owner import all_until

CONFIGURATION = """
[aggregator]
name = "hub"
trust_domain = "release.test"
state_dir = "state"
release_dir = "releases"
control_socket = "{socket}"
[tls]
ca = "ca.pem"
cert = "hub.pem"
key = "hub.key"
"""
ASKED = (
    *("--dataset", "cohort", "--layout", "horizontal", "--owners", "a,b"),
    *("--epsilon", "1", "--k", "5", "--id", "r1", "--json"),
)


@pytest.fixture
async def parties(launch, records):
    """A running aggregator with two connected owners."""
    aggregator = await launch()
    owners = [
        aggregator.owner(name, ["age", "income"], part)
        for name, part in (("a", records[:30]), ("b", records[30:]))
    ]
    for owner in owners:
        await owner.connect()
    return aggregator, owners


@pytest.fixture
def release(parties, tmp_path, monkeypatch, capsys):
    """A function that runs `aggregator release`; it returns the exit code and the error that was printed."""
    monkeypatch.chdir(tmp_path)
    socket = parties[0].config.aggregator.control_socket
    Path("aggregator.toml").write_text(CONFIGURATION.format(socket=socket))

    async def run(*options: str) -> tuple[int, dict]:
        command = ["release", *ASKED, *options]
        code = await asyncio.to_thread(console.run, application(), "aggregator", command)
        return code, json.loads(capsys.readouterr().out)["error"]

    return run


async def test_what_cannot_be_asked(parties, release):
    """It is refused with a hint before any owner hears of it, and nothing is started: exit 2."""
    code, error = await release()
    assert (code, error["code"], "--yes" in error["hint"]) == (2, "usage", True)
    for options in (
        *(("--epsilon", each) for each in ("0", "-1", "one", "nan", "0.0000000000001")),
        *(("--k", each) for each in ("2", "many")),
        *(("--owners", each) for each in ("a,unknown", "a,a")),
        *(("--mechanism", each) for each in ("ir", "magic")),
        ("--dataset", "other"),
        ("--layout", "diagonal"),
        ("--format", "xml"),
        ("--weights", "x=1"),
        ("--rank-noise", "2"),
        ("--max-overlap", "3"),
        ("--min-common", "5"),
        ("--on-mismatch", "intersect"),
        ("--out", "state"),
    ):
        code, error = await release("--yes", *options)
        assert (code, error["code"], bool(error["hint"])) == (2, "usage", True), options
    aggregator, _ = parties
    assert not (await aggregator.calls.ListReleases(control.ListReleasesRequest())).releases


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("balance", 5), ("refused", 4), ("bad_data", 4), ("unusable_data", 4), ("data_changed", 4)],
)
async def test_why_an_owner_did_not_go_on(parties, release, code, exit_code):
    """The exit code says it, and the error names the owner."""
    _, owners = parties
    command = asyncio.create_task(release("--yes", "--anyway"))
    work, _ = await all_until(owners, "consent")
    failure = owner_wire.Failure(code=code, message="for the test")
    await owners[0].calls.Answer(
        owner_wire.AnswerRequest(release="r1", plan_digest=work.plan_digest, failure=failure)
    )
    ended, error = await command
    assert (ended, error["code"], error["details"]["owner"]) == (exit_code, code, "a")
