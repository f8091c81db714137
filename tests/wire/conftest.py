"""A real aggregator daemon in this process, with real certificates, for the tests of its calls."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from aggregator.config import AggregatorConfig, AggregatorSection, DeadlineSettings
from aggregator.daemon import AggregatorDaemon
from aggregator.drive.deadlines import Deadlines
from aggregator.protocol.release import Release
from common.settings import TlsSection
from common.wire.v1 import control_pb2 as control
from common.wire.v1.control_pb2_grpc import ControlServiceStub
from deploy.development_ca import DevelopmentCa
from tests.fakes.releases import random_tokens
from tests.fakes.scripted_owner import ScriptedOwner

TRUST_DOMAIN = "release.test"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of an aggregator and of owners a, b, c, d and stranger."""
    folder = tmp_path_factory.mktemp("certificates")
    ca = DevelopmentCa(TRUST_DOMAIN)
    (folder / "ca.pem").write_bytes(ca.issued.certificate_pem)
    for name in ("hub", "other"):
        ca.aggregator(name, ["localhost", "127.0.0.1"]).write(folder, name)
    for owner in ("a", "b", "c", "d", "stranger"):
        ca.owner(owner).write(folder, f"owner-{owner}")
    return folder


@dataclass
class Aggregator:
    """A running daemon and the ways to reach it."""

    daemon: AggregatorDaemon
    config: AggregatorConfig
    calls: Any
    certificates: Path
    stack: AsyncExitStack

    def owner(self, name: str, names: Any, tokens: np.ndarray, **options: Any) -> ScriptedOwner:
        """Return an owner that hangs up when the test is over."""
        owner = ScriptedOwner(name, self.daemon.address, self.certificates, names, tokens, **options)
        self.stack.push_async_callback(owner.close)
        return owner

    async def start(self, *owners: str, layout: str = "horizontal", **changes: Any) -> control.ReleaseView:
        """Start a release over the control socket."""
        groups = [[owner] for owner in owners] if layout == "vertical" else [owners]
        arguments: dict[str, Any] = {
            "dataset": "cohort",
            "layout": layout,
            "groups": [control.OwnerGroup(owners=group) for group in groups],
            "epsilon": "1",
            "k": "5",
            "confirmed": True,
            "anyway": True,
            "release": "r1",
        } | changes
        return await self.calls.Start(control.StartRequest(**arguments))

    async def show(self, release: str = "r1") -> control.ReleaseView:
        """Look at a release."""
        return await self.calls.Show(control.ReleaseRequest(release=release))


@pytest.fixture
async def launch(tmp_path: Path, certificates: Path) -> AsyncIterator[Callable[..., Any]]:
    """A function that starts the aggregator of this test, again if it was stopped."""
    async with AsyncExitStack() as stack:

        async def start(name: str = "hub", **deadlines: timedelta) -> Aggregator:
            place = tmp_path if name == "hub" else tmp_path / name
            section = AggregatorSection(
                name, TRUST_DOMAIN, place / "state", place / "releases", place / "c" / "s",
                listen="127.0.0.1:0",
            )  # fmt: skip
            tls = TlsSection(
                certificates / "ca.pem", certificates / f"{name}.pem", certificates / f"{name}.key"
            )
            config = AggregatorConfig(
                path=tmp_path / "aggregator.toml",
                aggregator=section,
                tls=tls,
                deadlines=DeadlineSettings(**deadlines),
            )
            daemon = AggregatorDaemon(config)
            await daemon.start()
            stack.push_async_callback(daemon.stop)
            channel = await stack.enter_async_context(
                grpc.aio.insecure_channel(f"unix:{section.control_socket}")
            )
            return Aggregator(daemon, config, ControlServiceStub(channel), certificates, stack)

        yield start


@pytest.fixture
def pass_deadline(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that lets the deadline of a release's step pass: no busy machine makes it pass earlier."""
    watching, watch = [], Deadlines.watch

    def watched(self: Deadlines, release: Release) -> None:
        watching.append(self)
        watch(self, release)

    def passed(release: str = "r1") -> None:
        watching[-1]._ends[release] = 0.0
        watching[-1]._check(release)

    monkeypatch.setattr(Deadlines, "watch", watched)
    return passed


@pytest.fixture
def records() -> np.ndarray:
    """Tokens of sixty records."""
    return random_tokens(np.random.default_rng(3), 60)
