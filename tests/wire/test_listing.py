"""Releases and owners are told in pieces that fit a message, however many there are."""

import asyncio
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from aggregator.ca.enrolment import open_register
from aggregator.protocol.events import Cancelled
from aggregator.store.journal import Journal, KnownOwner
from common.errors import UsageError
from common.files import private_directory
from common.wire.limits import MESSAGE_LIMIT
from common.wire.status import from_rpc_error
from common.wire.v1 import control_pb2 as control
from deploy.local_setup import section
from tests.fakes.protocol_peers import started

MANY_RELEASES = 450
MANY_OWNERS = 40
LONGEST_OFFER = tuple(f"{number:04}".ljust(256, "x") for number in range(1000))
"""As many and as long names of data sets as an owner may offer; forty such owners fit no message."""


@pytest.fixture
async def crowded(launch, tmp_path):
    """A daemon that knows many releases and owners, most of them as large as they may be."""
    journal = Journal(private_directory(tmp_path / "state") / "aggregator.db")
    first = started("a", "b")
    for number in range(MANY_RELEASES):
        request = replace(first.request, release=f"r{number:03}", purpose="p" * 400)
        journal.append(request.release, replace(first, at=number, request=request))
        ended = Cancelled(at=number + 1, code="cancelled", message="m" * 2000, hint="h")
        journal.append(request.release, ended)
    for number in range(MANY_OWNERS):
        journal.seen(KnownOwner(f"o{number:02}", 5, 6, "1.0", LONGEST_OFFER, "f" * 64, 99))
    journal.close()
    return await launch()


async def pieces(call, request_type):
    """Return every answer, asked for as the command line does."""
    answers = [await call(request_type())]
    while answers[-1].last:
        answers.append(await call(request_type(after=answers[-1].last)))
    return answers


async def test_releases_come_in_pieces(crowded):
    """Every release is told once, in its order, and no answer comes near the limit of a message."""
    answers = await pieces(crowded.calls.ListReleases, control.ListReleasesRequest)
    assert len(answers) > 2
    assert max(answer.ByteSize() for answer in answers) < MESSAGE_LIMIT / 2
    told = [view.release for answer in answers for view in answer.releases]
    assert told == [f"r{number:03}" for number in range(MANY_RELEASES)]


async def test_owners_come_in_pieces(crowded):
    """Owners that offer as much as they may do not keep the others from being listed."""
    answers = await pieces(crowded.calls.ListOwners, control.ListOwnersRequest)
    assert max(answer.ByteSize() for answer in answers) < MESSAGE_LIMIT / 2
    told = [view.id for answer in answers for view in answer.owners]
    assert told == [f"o{number:02}" for number in range(MANY_OWNERS)]


async def test_a_piece_after_nothing_known(crowded):
    """Who asks for what comes after an unknown release is told so, and not everything again."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await crowded.calls.ListReleases(control.ListReleasesRequest(after="none"))
    assert isinstance(from_rpc_error(caught.value), UsageError)


def written(crowded, folder: Path) -> Path:
    """Write the file that a command finds the daemon by."""
    is_, tls = crowded.config.aggregator, crowded.config.tls
    about = {
        "name": is_.name, "trust_domain": is_.trust_domain, "state_dir": str(is_.state_dir),
        "release_dir": str(is_.release_dir), "control_socket": str(is_.control_socket),
    }  # fmt: skip
    files = {"ca": str(tls.ca), "cert": str(tls.cert), "key": str(tls.key)}
    path = folder / "aggregator.toml"
    path.write_text(section("[aggregator]", about) + section("[tls]", files), encoding="utf-8")
    return path


@pytest.mark.parametrize(("command", "count"), [("releases", MANY_RELEASES), ("owners", MANY_OWNERS)])
async def test_commands_put_the_pieces_together(crowded, tmp_path, command, count):
    """`aggregator releases` and `aggregator owners` list all that there are."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from aggregator.cli import main; main()",
        command, "--config", written(crowded, tmp_path), "--json",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert len(json.loads(out)[command]) == count


async def _wait_for_connected(aggregator, count):
    while (await aggregator.calls.Status(control.StatusRequest())).connected_owners != count:
        pass


async def test_an_owner_whose_key_was_revoked_is_marked(launch, records):
    """List and status tell which connected owners are refused from their next call on."""
    aggregator = await launch()
    owners = [aggregator.owner(name, ["age"], records) for name in ("a", "b")]
    for owner in owners:
        await owner.connect()
    async with asyncio.TaskGroup() as polls:
        held = [polls.create_task(owner.poll()) for owner in owners]
        await _wait_for_connected(aggregator, 2)
        with open_register(aggregator.config.aggregator.state_dir, lambda: datetime.now(UTC)) as register:
            register.revoke("op", "a")
        await _wait_for_connected(aggregator, 1)
        for poll in held:
            poll.cancel()
    views = (await aggregator.calls.ListOwners(control.ListOwnersRequest())).owners
    assert [(view.id, view.revoked, view.first_seen > 0) for view in views] == [
        ("a", True, True),
        ("b", False, True),
    ]
