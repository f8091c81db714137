"""Ctrl-C at every moment of watching a release over real gRPC: it always ends the command, at once."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
import pytest

from aggregator.cli.release import watch_until
from aggregator.control.connection import daemon
from common.cli.console import repeat_interrupt
from common.wire.v1.control_pb2 import (
    OwnerProgress,
    ReleaseRequest,
    ReleaseView,
    StatusRequest,
    StatusResponse,
)
from common.wire.v1.control_pb2_grpc import ControlServiceServicer, add_ControlServiceServicer_to_server

_MOMENTS = 100
QUIET = "quiet"


class _Masking(ControlServiceServicer):
    """A daemon whose one release is masked for ever."""

    def Status(self, request: StatusRequest, context: Any) -> StatusResponse:
        """Respond."""
        return StatusResponse()

    def Show(self, request: ReleaseRequest, context: Any) -> ReleaseView:
        """Tell where it is."""
        return ReleaseView(release=request.release, state="masking")

    def Watch(self, request: ReleaseRequest, context: Any) -> Iterator[ReleaseView]:
        """Report changes without end, or press Ctrl-C once the watcher waits for the next one."""
        for state in chain(("consenting", "linking"), repeat("masking")):
            owners = [OwnerProgress(id="a", state=state, connected=True)]
            yield ReleaseView(release=request.release, state=state, owners=owners)
            if request.release == QUIET and state == "masking":
                break
        gone = threading.Event()
        context.add_callback(gone.set)
        os.kill(os.getpid(), signal.SIGINT)
        gone.wait()


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """The configuration of a daemon that serves a release."""
    socket = tmp_path / "c" / "s"
    socket.parent.mkdir()
    path = tmp_path / "aggregator.toml"
    path.write_text(
        f"""
[aggregator]
name = "central"
trust_domain = "example.org"
state_dir = "state"
release_dir = "releases"
control_socket = "{socket}"
[tls]
ca = "ca.pem"
cert = "central.pem"
key = "central.key"
"""
    )
    server = grpc.server(ThreadPoolExecutor(8))
    add_ControlServiceServicer_to_server(_Masking(), server)  # type: ignore[abstract]  # two calls do
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    yield path
    server.stop(None).wait()


class _Presses:
    """Presses Ctrl-C when any function is called for the n-th time.

    Args:
        moment: n; 0 for never.
    """

    def __init__(self, moment: int) -> None:
        self.seen = 0
        """How many calls there were."""
        self._moment = moment

    def __call__(self, _frame: FrameType, event: str, _value: Any) -> None:
        """Look at a call or a return."""
        if event == "call":
            self.seen += 1
            if self.seen == self._moment:
                os.kill(os.getpid(), signal.SIGINT)


def _watch(config: Path, presses: _Presses, last: str = "", release: str = "r1") -> str:
    """Do what `aggregator watch` does until a state is reached, with presses; returns the state."""
    sys.setprofile(presses)
    try:
        with daemon(config) as calls:
            return watch_until(calls, release, lambda view: view.state == last, as_json=True).state
    finally:
        sys.setprofile(None)


@pytest.mark.timeout(120)
def test_ctrl_c_at_any_moment(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two steps of the main thread, it ends the watching of what has no end."""
    # As in both programs.
    monkeypatch.setattr(sys, "unraisablehook", repeat_interrupt)
    # The first time it loads the libraries.
    for idle in (_Presses(0), _Presses(0)):
        assert _watch(config, idle, "masking") == "masking"
    assert idle.seen > _MOMENTS
    for moment in range(1, idle.seen, idle.seen // _MOMENTS):
        assert _interrupted(config, moment), f"a Ctrl-C at call {moment} of {idle.seen} was lost"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_nothing_happens(config: Path) -> None:
    """A watcher that waits for the next change is woken."""
    with pytest.raises(KeyboardInterrupt):
        _watch(config, _Presses(0), release=QUIET)


def _interrupted(config: Path, moment: int) -> bool:
    # Nothing is kept of the error, which keeps the channel: gRPC has one queue for all loops of a process.
    try:
        _watch(config, _Presses(moment))
    except KeyboardInterrupt:
        return True
    return False
