"""`aggregator release` and what it does about the states that it happens to see, over a real socket."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from aggregator.cli import application
from common.cli import console
from common.wire.v1.control_pb2 import (
    ErrorView,
    OwnerProgress,
    ReleaseRequest,
    ReleaseView,
    StartRequest,
    StatusRequest,
    StatusResponse,
)
from common.wire.v1.control_pb2_grpc import (
    ControlServiceServicer,
    add_ControlServiceServicer_to_server,
)

AGGREGATOR = """
[aggregator]
name = "central"
trust_domain = "hospitals.example"
state_dir = "state"
release_dir = "releases"
control_socket = "control.sock"

[tls]
ca = "ca.pem"
cert = "central.pem"
key = "central.key"
"""
ASKED = ("--dataset", "patients", "--layout", "horizontal", "--owners", "a,b", "--epsilon", "1", "--id", "r")


class SlowDaemon(ControlServiceServicer):
    """Shows each state of a release for long enough that it is seen."""

    def __init__(self) -> None:
        self.agreed: list[bool] = []
        self.pressed = False
        self.states: tuple[str, ...] = ("inviting", "planned", "consenting", "published")

    def Status(self, request: StatusRequest, context: grpc.ServicerContext) -> StatusResponse:
        """Respond."""
        return StatusResponse()

    def Start(self, request: StartRequest, context: grpc.ServicerContext) -> ReleaseView:
        """Note whether the plan was agreed to beforehand."""
        if self.pressed:
            os.kill(os.getpid(), signal.SIGINT)
        self.agreed.append(request.confirmed)
        return ReleaseView(release="r", state="inviting")

    def Watch(self, request: ReleaseRequest, context: grpc.ServicerContext) -> Iterator[ReleaseView]:
        """Show every state once."""
        for state in self.states:
            view = ReleaseView(release="r", state=state, owners=[OwnerProgress(id="a", connected=True)])
            if state == "halted":
                view.state = "joining"
                view.error.CopyFrom(ErrorView(code="internal", message="not published yet", hint="try again"))
            yield view


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDaemon]:
    """A control service on the socket that the configuration in the current folder names."""
    monkeypatch.chdir(tmp_path)
    Path("aggregator.toml").write_text(AGGREGATOR)
    server = grpc.server(ThreadPoolExecutor(2))
    service = SlowDaemon()  # type: ignore[abstract] # the command makes no other calls
    add_ControlServiceServicer_to_server(service, server)
    server.add_insecure_port("unix:control.sock")
    server.start()
    yield service
    server.stop(None).wait()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    """Run the command without a terminal; returns its exit code and its document."""
    code = console.run(application(), "aggregator", ["release", *ASKED, *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_what_was_agreed_to_is_not_asked_again(daemon, capsys):
    """With --yes nothing is asked when the plan is seen before the daemon has gone on from it."""
    code, document = run(capsys, "--yes")
    assert (code, document["state"]) == (0, "published"), document
    assert daemon.agreed == [True]


def test_a_release_that_ended_is_not_watched_again(daemon, capsys):
    """What ends before there is a plan shows every owner once, not a second time as if it had begun again."""
    daemon.states = ("inviting", "conflict")
    console.run(application(), "aggregator", ["release", *ASKED, "--yes"])
    told = capsys.readouterr().err
    assert (told.count("release r"), told.count("a: records")) == (1, 1), told


@pytest.mark.parametrize("command", [("release", *ASKED, "--yes"), ("watch", "r")])
def test_a_release_that_is_halted_is_not_waited_for(daemon, capsys, command):
    """A command does not wait for what only its operator can do: it ends with 1 and says what that is."""
    daemon.states = ("inviting", "joining", "halted", "published")
    code = console.run(application(), "aggregator", [*command, "--json"])
    assert (code, json.loads(capsys.readouterr().out)["error"]["hint"]) == (1, "try again")


@pytest.mark.parametrize("attributes", ["", " ", ",", " , "])
def test_attributes_that_name_none_are_not_all(daemon, capsys, attributes):
    """A list without a name in it asks for nothing, and never for everything."""
    code, document = run(capsys, "--yes", "--attributes", attributes)
    assert (code, document["error"]["code"]) == (2, "usage")
    assert not daemon.agreed


@pytest.mark.parametrize(
    ("words", "where"),
    [(("--yes",), "aggregator show r"), (("--yes", "--detach", "--id", "q"), "aggregator show q")],
)
def test_ctrl_c_while_a_release_is_started(daemon, capsys, words, where):
    """It may go on, and charge: whoever interrupts the command is told where to look."""
    daemon.pressed = True
    code = console.run(application(), "aggregator", ["release", *ASKED, *words])
    assert (code, capsys.readouterr().err.strip().endswith(where)) == (130, True)
