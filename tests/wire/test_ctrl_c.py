"""Ctrl-C while a release is watched over real gRPC ends the command."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from aggregator.cli.release import watch_until
from aggregator.control.connection import daemon
from common.wire.v1.control_pb2 import (
    OwnerProgress,
    ReleaseRequest,
    ReleaseView,
    StatusRequest,
    StatusResponse,
)
from common.wire.v1.control_pb2_grpc import ControlServiceServicer, add_ControlServiceServicer_to_server


class _Masking(ControlServiceServicer):
    """A daemon whose one release is masked for ever."""

    def Status(self, request: StatusRequest, context: Any) -> StatusResponse:
        """Respond."""
        return StatusResponse()

    def Show(self, request: ReleaseRequest, context: Any) -> ReleaseView:
        """Tell where it is."""
        return ReleaseView(release=request.release, state="masking")

    def Watch(self, request: ReleaseRequest, context: Any) -> Iterator[ReleaseView]:
        """Report changes, and press Ctrl-C once the watcher waits for the next one."""
        for state in ("consenting", "linking", "masking"):
            owners = [OwnerProgress(id="a", state=state, connected=True)]
            yield ReleaseView(release=request.release, state=state, owners=owners)
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


def test_ctrl_c_while_nothing_happens(config: Path) -> None:
    """A watcher that waits for the next change is woken."""
    with pytest.raises(KeyboardInterrupt), daemon(config) as calls:
        watch_until(calls, "r1", lambda _view: False, as_json=True)
