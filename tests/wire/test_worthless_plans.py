"""A plan whose result is expected to be worthless goes to no owner unless its operator wants it anyway."""

import asyncio
import json
from pathlib import Path

import grpc
import pytest

from aggregator.cli import application
from common.cli import console
from common.wire.v1 import control_pb2 as control
from tests.fakes.scripted_owner import all_until, connected_pair
from tests.wire.test_exit_codes import ASKED, CONFIGURATION

LOST = "the result is expected to be worthless: for 2 of 2 attributes the mean would do as well (age, income)"
"""Of thirty records at each owner, at ε = 1."""


@pytest.fixture
async def hub(launch):
    """A running aggregator."""
    return await launch()


@pytest.fixture
async def owners(hub, records):
    """Two connected owners."""
    return await connected_pair(hub, records)


@pytest.fixture
def run(hub, tmp_path, monkeypatch, capsys):
    """A function that runs a command of the aggregator without a terminal; returns exit code and document."""
    monkeypatch.chdir(tmp_path)
    socket = hub.config.aggregator.control_socket
    Path("aggregator.toml").write_text(CONFIGURATION.format(socket=socket))

    async def answer(*words: str) -> tuple[int, dict]:
        code = await asyncio.to_thread(console.run, application(), "aggregator", [*words])
        return code, json.loads(capsys.readouterr().out)

    return answer


async def planned(hub, owners, release: str = "r1") -> control.ReleaseView:
    """Let the owners describe their data; returns the release once it is planned."""
    for owner, work in zip(owners, await all_until(owners, "describe"), strict=True):
        await owner.answer(work)
    async for view in hub.calls.Watch(control.ReleaseRequest(release=release)):
        if view.state != "inviting":
            return view
    raise AssertionError("the release is not planned")


async def answered(call) -> str:
    """Return the text of the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.details() or ""


async def test_yes_does_not_confirm_a_worthless_plan(hub, owners):
    """It stays planned with the reason; neither the same request nor a bare Confirm changes that."""
    await hub.start("a", "b", anyway=False)
    view = await planned(hub, owners)
    assert (view.state, view.needs_anyway, view.error.code) == ("planned", True, "usage")
    assert view.error.message == f"{LOST}; no owner was asked and nothing is charged"
    assert "--id r1 --anyway" in view.error.hint
    assert LOST in await answered(hub.start("a", "b", anyway=False))
    # The version before confirms with these bytes: it cannot say that a worthless result is wanted.
    bare = control.ConfirmRequest.FromString(control.ReleaseRequest(release="r1").SerializeToString())
    assert LOST in await answered(hub.calls.Confirm(bare))
    assert {each.state for each in (await hub.show()).owners} == {"invited"}


@pytest.mark.parametrize("how", ["again", "confirm"])
async def test_who_wants_it_anyway_gets_it(hub, owners, how):
    """The same id with --anyway is the same release, and goes on; the log says who wanted it."""
    await hub.start("a", "b", anyway=False)
    await planned(hub, owners)
    if how == "again":
        view = await hub.start("a", "b", anyway=True)
    else:
        view = await hub.calls.Confirm(control.ConfirmRequest(release="r1", anyway=True))
    assert (view.state, view.needs_anyway, view.HasField("error")) == ("consenting", False, False)
    actions = (await hub.calls.ListActions(control.ListActionsRequest())).actions
    assert [json.loads(each.arguments).get("anyway") for each in actions] == [None, True]
    await all_until(owners, "consent")


@pytest.mark.parametrize(
    "changes",
    [{"anyway": True}, {"release": "trial-1"}, {"epsilon": "100000", "mechanism": "idp-joint"}],
    ids=["wanted anyway", "a trial charges nothing", "a useful plan"],
)
async def test_what_is_confirmed_in_advance(hub, owners, changes):
    """`--yes` goes on at once where a worthless result is wanted, costs nothing, or is not expected."""
    await hub.start("a", "b", **({"anyway": False} | changes))
    name = changes.get("release", "r1")
    await planned(hub, owners, name)
    await all_until(owners, "consent")
    assert (await hub.show(name)).state == "consenting"


async def test_a_restart_forgets_neither_answer(hub, owners, launch):
    """The journal has what was wanted; the refusal is judged again."""
    await hub.start("a", "b", anyway=False)
    await planned(hub, owners)
    await hub.daemon.stop()
    after = await launch()
    view = await after.show()
    assert (view.state, view.error.code, view.needs_anyway) == ("planned", "usage", True)


async def test_the_command_line_refuses(hub, owners, run):
    """`--yes` and `--detach` obey alike: exit 2 with a way out, from the command or from `watch`."""
    command = asyncio.create_task(run("release", *ASKED, "--yes"))
    await planned(hub, owners)
    code, document = await command
    assert (code, document["error"]["code"], LOST in document["error"]["message"]) == (2, "usage", True)
    code, document = await run("release", *ASKED, "--yes", "--detach")
    assert (code, LOST in document["error"]["message"]) == (2, True)
    code, document = await run("watch", "r1", "--json")
    assert (code, LOST in document["error"]["message"]) == (2, True)
    code, document = await run("release", *ASKED, "--yes", "--detach", "--anyway")
    assert (code, document) == (0, {"release": "r1", "state": "consenting"})


async def test_a_plan_alone_is_only_warned_of(hub, owners, run):
    """`aggregator plan` charges nothing: a worthless plan is a plan."""
    command = asyncio.create_task(run("plan", *ASKED))
    await planned(hub, owners)
    code, document = await command
    assert (code, document["state"], document["error"]) == (0, "planned", None)
