"""The aggregator as a process with its command line; owners are scripted, everything else is real."""

import asyncio
import json
import os
import pwd
import signal
import tempfile
from pathlib import Path

import pytest

from deploy.local_process import program_path
from tests.fakes.scripted_owner import ScriptedOwner, all_until
from tests.wire.conftest import TRUST_DOMAIN, certificates, records  # noqa: F401 - fixtures

CONFIGURATION = """
[aggregator]
name = "hub"
trust_domain = "{trust_domain}"
listen = "127.0.0.1:0"
state_dir = "state"
release_dir = "releases"
control_socket = "{socket}"
[tls]
ca = "{certificates}/ca.pem"
cert = "{certificates}/hub.pem"
key = "{certificates}/hub.key"
[deadlines]
invite = "{invite}"
[audit]
file = "audit.jsonl"
"""
ARGUMENTS = (
    *("--dataset", "cohort", "--layout", "horizontal", "--owners", "a,b"),
    *("--epsilon", "1", "--k", "5", "--id", "r1"),
    "--anyway",
)


class Operator:
    """Runs the command line in a folder with a configuration."""

    process: asyncio.subprocess.Process
    address: str

    def __init__(self, folder: Path, certificates: Path, invite: str = "30s") -> None:  # noqa: F811
        self.folder, self.certificates = folder, certificates
        # The path of a Unix socket is short; that of a test's folder need not be.
        self.short = tempfile.TemporaryDirectory(prefix="tessera-")
        text = CONFIGURATION.format(
            trust_domain=TRUST_DOMAIN,
            certificates=certificates,
            invite=invite,
            socket=f"{self.short.name}/c/s",
        )
        (folder / "aggregator.toml").write_text(text)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start a command."""
        return await asyncio.create_subprocess_exec(
            program_path("aggregator"),
            *arguments,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command; returns its exit code and what it printed."""
        process = await self.start(*arguments)
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def serve(self) -> tuple[asyncio.subprocess.Process, str]:
        """Start the daemon; returns it and its address."""
        process = await self.start("serve")
        assert process.stderr is not None
        async for line in process.stderr:
            if b'"ready"' in line:
                entry = json.loads(line)
                self.drain = asyncio.create_task(process.stderr.read())
                return process, entry["address"]
        raise AssertionError("the daemon ended before it was ready")


@pytest.fixture
async def operator(tmp_path, certificates):  # noqa: F811
    """An operator whose daemon runs, and its address."""
    operator = Operator(tmp_path, certificates)
    process, address = await operator.serve()
    operator.process, operator.address = process, address
    yield operator
    if process.returncode is None:
        process.terminate()
    assert await process.wait() in (0, -signal.SIGKILL)
    await operator.drain
    operator.short.cleanup()


@pytest.fixture
async def owners(operator, certificates, records):  # noqa: F811
    """Two connected owners."""
    parts = {"a": records[:30], "b": records[30:]}
    made = [
        ScriptedOwner(name, operator.address, certificates, ["age", "income"], tokens)
        for name, tokens in parts.items()
    ]
    for owner in made:
        await owner.connect()
    yield made
    for owner in made:
        await owner.close()


async def _wait_for_work(owner):
    """Call again and again, as a daemon does."""
    while True:
        await owner.poll()


async def test_release_from_the_command_line(operator, owners, tmp_path):
    """One command makes a release, shows every owner and the folder, and leaves a copy; the same id again
    re-attaches, other arguments are refused.
    """
    command = await operator.start("release", *ARGUMENTS, "--yes", "--details", "--out", "copy")
    await asyncio.gather(*(owner.run() for owner in owners))
    out, err = (each.decode() for each in await command.communicate())
    assert command.returncode == 0, err
    assert "release r1: published" in out
    assert f"release folder: {tmp_path / 'releases' / 'r1'}" in out
    assert "What is not hidden" in out
    assert "a: records" in err
    assert {path.name for path in (tmp_path / "copy").iterdir()} >= {"manifest.json", "data.parquet"}
    code, out, _ = await operator.run("release", *ARGUMENTS, "--yes", "--out", "copy", "--json")
    document = json.loads(out)
    assert (code, document["state"]) == (0, "published")
    assert document["owners"][0] | {"connected": True} == {
        "id": "a", "state": "published", "records": 30, "records_exact": True, "epsilon": "1", "k": 5,
        "connected": True, "progress": None,
        "received": document["owners"][0]["size"], "size": document["owners"][0]["size"],
    }  # fmt: skip
    other = await operator.run("release", *ARGUMENTS, "--yes", "--purpose", "another", "--json")
    assert (other[0], json.loads(other[1])["error"]["code"]) == (2, "usage")
    for command_line in (["status", "--check"], ["show", "r1"], ["watch", "r1"], ["releases"], ["owners"]):
        assert (await operator.run(*command_line))[0] == 0
    # They have not called since the release ended, which can be too long ago on a busy machine.
    for owner in owners:
        await owner.connect()
    waiting = [asyncio.create_task(_wait_for_work(owner)) for owner in owners]
    listed = json.loads((await operator.run("owners", "--json"))[1])["owners"]
    for each in waiting:
        each.cancel()
    assert [(owner["id"], owner["connected"], owner["datasets"]) for owner in listed] == [
        ("a", True, ["cohort"]),
        ("b", True, ["cohort"]),
    ]


async def test_plan_stops_at_the_plan(operator, owners):
    """`plan` shows who would mask what, asks nobody to consent, and ends."""
    command = await operator.start("plan", *ARGUMENTS, "--json")
    ends = await asyncio.gather(*(owner.run() for owner in owners))
    out, _ = await command.communicate()
    document = json.loads(out)
    assert (command.returncode, document["state"]) == (0, "planned")
    assert [task["owner"] for task in document["plan"]["tasks"]] == ["a", "b"]
    assert [end.state for end in ends] == ["cancelled", "cancelled"]


async def test_cancel_ends_the_waiting_command(operator, owners):
    """A cancelled release ends with exit 8 wherever it is watched; cancelling again is harmless."""
    command = await operator.start("release", *ARGUMENTS, "--yes", "--json")
    await all_until(owners, "mask")
    code, out, _ = await operator.run("cancel", "r1")
    assert (code, out) == (0, "release r1 is cancelled; a, b were asked to and may have spent\n")
    assert (await operator.run("cancel", "r1", "--yes"))[0] == 0
    out, _ = await command.communicate()
    assert (command.returncode, json.loads(out)["error"]["code"]) == (8, "cancelled")


async def test_what_operators_did_is_on_record(operator, owners, tmp_path):
    """`delete` removes the data and keeps the history; `history` and the audit file say who did what."""
    command = await operator.start("release", *ARGUMENTS, "--yes", "--detach")
    await asyncio.gather(*(owner.run() for owner in owners))
    assert await command.wait() == 0
    assert (await operator.run("delete", "r1"))[0] == 2
    assert (await operator.run("delete", "none", "--yes"))[0] == 2
    code, out, _ = await operator.run("delete", "r1", "--yes", "--json")
    document = json.loads(out)
    assert (code, document["state"], document["directory"]) == (0, "published", None)
    assert document["deleted"]
    assert document["manifest_digest"]
    assert list((tmp_path / "releases").iterdir()) == []
    assert "published, deleted" in (await operator.run("releases"))[1]
    assert (await operator.run("release", *ARGUMENTS, "--yes"))[0] == 2
    actions = json.loads((await operator.run("history", "--json"))[1])["actions"]
    me = pwd.getpwuid(os.getuid()).pw_name
    assert {action["user"].split(" ")[0] for action in actions} == {me}
    assert [(action["action"], action["outcome"].split(":")[0]) for action in actions] == [
        ("release", "done"),
        ("delete", "done"),
        ("release", "usage"),
    ]
    assert actions[0]["arguments"]["epsilon"] == "1"
    assert [action.pop("release_state") for action in actions] == ["published, deleted"] * 3
    shown = (await operator.run("history", "--release", "r1"))[1]
    assert all(text in shown for text in ("delete", "published, deleted", "epsilon 1", "dataset "))
    operator.process.terminate()
    await operator.process.wait()
    copied = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [copy.pop("sequence") for copy in copied] == [1, 2, 3]
    assert copied == actions


async def test_interrupt_detaches(operator, owners):
    """Ctrl-C leaves the release going and says how to watch it."""
    command = await operator.start("release", *ARGUMENTS, "--yes")
    await all_until(owners, "consent")
    command.send_signal(signal.SIGINT)
    _, err = await command.communicate()
    assert command.returncode == 130
    assert "aggregator watch r1" in err.decode()
    await asyncio.gather(*(owner.run() for owner in owners))
    assert (await operator.run("watch", "r1", "--json"))[0] == 0


async def test_refused_before_anything_starts(operator, owners):
    """Without a terminal and without --yes, and for what cannot be asked, nothing is started: exit 2."""
    for arguments in (("release", *ARGUMENTS), ("release", *ARGUMENTS, "--yes", "--k", "many")):
        assert (await operator.run(*arguments))[0] == 2, arguments
    assert json.loads((await operator.run("releases", "--json"))[1]) == {"releases": []}


async def test_killed_daemon_goes_on(operator, owners, certificates, records):  # noqa: F811
    """After SIGKILL and a new start the release is where it was and is published."""
    detached = asyncio.create_task(operator.run("release", *ARGUMENTS, "--yes", "--detach"))
    await all_until(owners, "mask")
    assert (await detached)[0] == 0
    operator.process.kill()
    await operator.process.wait()
    assert (await operator.run("status"))[0] == 6
    operator.process, address = await operator.serve()
    try:
        again = [
            ScriptedOwner(owner.owner, address, certificates, ["age", "income"], owner.tokens)
            for owner in owners
        ]
        for before, owner in zip(owners, again, strict=True):
            owner.plan, owner.sequence = before.plan, before.sequence
            await owner.connect()
        ends = await asyncio.gather(*(owner.run() for owner in again))
        assert [end.state for end in ends] == ["published", "published"]
        for owner in again:
            await owner.close()
        assert (await operator.run("watch", "r1"))[0] == 0
    finally:
        operator.process.terminate()
        assert await operator.process.wait() == 0


async def test_second_daemon_is_refused(operator):
    """Two daemons over one state would both act; the second says who is there."""
    code, _, err = await operator.run("serve")
    assert code == 2
    assert "locked by aggregator serve" in err


async def test_absent_owner_is_exit_6(tmp_path, certificates, records):  # noqa: F811
    """An owner that is known and does not come is named, and the exit code is 6."""
    operator = Operator(tmp_path, certificates, invite="1s")
    first, address = await operator.serve()
    owner = ScriptedOwner("a", address, certificates, ["age"], records)
    await owner.connect()
    await owner.close()
    first.terminate()
    await first.wait()
    second, _ = await operator.serve()
    arguments = ["a" if each == "a,b" else each for each in ARGUMENTS]
    code, out, _ = await operator.run("release", *arguments, "--yes", "--json")
    assert (code, json.loads(out)["error"]["details"]["owners"]) == (6, ["a"])
    second.terminate()
    assert await second.wait() == 0
    operator.short.cleanup()
