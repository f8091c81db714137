"""Mutations of every message that owners and operators send, over real connections to a real aggregator."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from aggregator.protocol.states import State
from common.wire.answers import METADATA_KEY
from common.wire.software import software_here
from common.wire.status import from_rpc_error
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from tests.fakes.scripted_owner import ScriptedOwner, all_until, connected_pair
from tests.fuzz.memory import bounded_memory
from tests.fuzz.mutations import mutations

_OWNER, _CONTROL = "/tessera.v1.OwnerService/", "/tessera.v1.ControlService/"
ENDS = {State.CONFLICT, State.REFUSED, State.FAILED, State.CANCELLED, State.EXPIRED}
_UNREADABLE = "google.protobuf.message.DecodeError"
"""What gRPC itself says of bytes that are no message."""


def _same(data: bytes) -> bytes:
    return data


async def _sent(channel: grpc.aio.Channel, method: str, data: bytes, seconds: float = 5) -> None:
    """Send bytes as a request; what comes back must be an answer or an error of the catalogue."""
    call = channel.unary_unary(method, request_serializer=_same, response_deserializer=_same)
    with contextlib.suppress(grpc.aio.AioRpcError):
        try:
            await call(data, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            _check(error)
            raise


async def _streamed(channel: grpc.aio.Channel, method: str, data: bytes, seconds: float = 5) -> None:
    """Send bytes as a request that a stream answers, and take its first message."""
    call = channel.unary_stream(method, request_serializer=_same, response_deserializer=_same)(
        data, timeout=seconds
    )
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        _check(error)
    finally:
        # A call that is left open counts against the connection's limit until its deadline.
        call.cancel()


def _check(error: grpc.aio.AioRpcError) -> None:
    trailing: Any = error.trailing_metadata() or ()
    packed, code = METADATA_KEY in dict(trailing), from_rpc_error(error).code
    refused = any(each in str(error.details()) for each in (_UNREADABLE, "larger than max"))
    assert packed or refused or code == "not_connected", error
    assert not packed or code != "internal", error


async def _in_crowds(calls: Iterator[Any]) -> None:
    """Make calls a few at a time, each made up when it is its turn."""
    while crowd := list(islice(calls, 8)):
        await asyncio.gather(*crowd)


@pytest.fixture
async def siege(launch, records) -> AsyncIterator[tuple[Any, list[ScriptedOwner]]]:
    """An aggregator with two owners and a release; afterwards it still makes one."""
    aggregator = await launch()
    owners = await connected_pair(aggregator, records)
    yield aggregator, owners
    for owner in owners:
        await owner.connect()
    await _published(aggregator, owners, "good")


async def _published(aggregator: Any, owners: list[ScriptedOwner], release: str) -> None:
    """Make a release, and end every other that is due."""
    view = await aggregator.start("a", "b", release=release)
    assert view.state == "inviting"
    while (state := (await aggregator.show(release)).state) != "published":
        assert state not in ENDS
        for owner in owners:
            for work in await owner.poll():
                if work.release == release:
                    await owner.answer(work)
                else:
                    await _give_up(owner, work)


async def _give_up(owner: ScriptedOwner, work: wire.Work) -> None:
    """End a release that was left behind."""
    if work.WhichOneof("step") == "conclude":
        await owner.answer(work)
        return
    failure = wire.Failure(code="refused", message="")
    with contextlib.suppress(grpc.aio.AioRpcError):
        await owner.calls.Answer(wire.AnswerRequest(release=work.release, failure=failure))


async def _answers(aggregator: Any, owners: list[ScriptedOwner]) -> dict[str, Message]:
    """Return a true answer of every kind, none of them given yet."""
    a, b = owners
    await aggregator.start("a", "b")
    found: dict[str, Message] = {}
    work = wire.Work()
    for step in ("describe", "consent", "link", "mask"):
        work, other = await all_until(owners, step)
        if step == "link":
            answer = await a.link(work)
        else:
            answer = {"describe": a.describe, "consent": a.consent, "mask": a.seal}[step](work)
        found[step] = answer
        if step != "mask":
            await a.calls.Answer(answer)
        await b.answer(other)
    found["waiting"] = wire.AnswerRequest(release="r1", plan_digest=work.plan_digest, waiting=wire.Waiting())
    told = wire.Failure(code="refused", message="no")
    found["failure"] = wire.AnswerRequest(release="r1", failure=told)
    found["acknowledged"] = wire.AnswerRequest(release="r1", acknowledged=wire.Acknowledged())
    blob = a.key(work, wire.BLOB_KIND_FRAGMENT, a.fragment)
    found["upload"] = wire.UploadChunk(blob=blob, data=a.fragment[:1000])
    return found


async def test_answers(siege) -> None:
    """No answer, however changed, ends the daemon or is taken for an internal fault."""
    aggregator, owners = siege
    found = await _answers(aggregator, owners)
    found.pop("upload")
    with bounded_memory():
        for message in found.values():
            await _in_crowds(_sent(owners[0].channel, f"{_OWNER}Answer", data) for data in mutations(message))


async def test_other_calls_of_owners(siege) -> None:
    """Connects, polls, upload states, uploads, renewals, recalls: answered, or refused in words."""
    aggregator, owners = siege
    found = await _answers(aggregator, owners)
    channel = owners[0].channel
    upload = found["upload"]
    assert isinstance(upload, wire.UploadChunk)
    busy = [wire.WorkKey(release="r1", step="mask")]
    unary = {
        "Connect": wire.ConnectRequest(software=software_here(), datasets=["cohort"]),
        "UploadState": wire.UploadStateRequest(blob=upload.blob),
        "FetchSchema": wire.FetchSchemaRequest(dataset="../aggregator"),
        "Renew": wire.RenewRequest(request=b"-----BEGIN CERTIFICATE REQUEST-----\n"),
    }
    with bounded_memory():
        for name, message in unary.items():
            await _in_crowds(_sent(channel, f"{_OWNER}{name}", data) for data in mutations(message))
        polls = mutations(wire.PollRequest(busy=busy, ledger_head=owners[0].head(3)))
        await _in_crowds(_sent(channel, f"{_OWNER}Poll", data, 0.02) for data in polls)
        streamed = {
            "Recall": wire.RecallRequest(),
            "Select": wire.SelectRequest(release="r1", plan_digest=upload.blob.plan_digest),
        }
        for name, message in streamed.items():
            await _in_crowds(_streamed(channel, f"{_OWNER}{name}", data) for data in mutations(message))
        await _in_crowds(_uploaded(channel, data) for data in mutations(upload))


async def test_downloads(siege) -> None:
    """Whatever is asked of a published release, and from whichever byte on: sent, or refused in words."""
    aggregator, owners = siege
    await _published(aggregator, owners, "r1")
    asked = wire.DownloadRequest(release="r1", file="manifest.json", offset=7)
    with bounded_memory():
        await _in_crowds(_streamed(owners[0].channel, f"{_OWNER}Download", data) for data in mutations(asked))


async def _uploaded(channel: grpc.aio.Channel, data: bytes) -> None:
    """Send bytes as the first chunk of an upload that ends with them."""
    call = channel.stream_unary(f"{_OWNER}Upload", request_serializer=_same, response_deserializer=_same)

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    try:
        await call(chunks(), timeout=5)
    except grpc.aio.AioRpcError as error:
        _check(error)


async def test_calls_of_operators(siege) -> None:
    """Nothing that comes over the control socket ends the daemon either."""
    aggregator, _ = siege
    ask = control.StartRequest(
        release="r5", dataset="cohort", layout="horizontal", groups=[control.OwnerGroup(owners=["a", "b"])],
        epsilon="1", k="5", weights=["age=1"], formats=["csv"], purpose="care", dry_run=True,
    )  # fmt: skip
    socket = aggregator.config.aggregator.control_socket
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        with bounded_memory():
            await _in_crowds(_sent(channel, f"{_CONTROL}Start", data) for data in mutations(ask))
            named = control.ReleaseRequest(release="r1")
            for name in ("Confirm", "Show", "Cancel", "Delete"):
                await _in_crowds(_sent(channel, f"{_CONTROL}{name}", data) for data in mutations(named))
            listed = {
                "Status": control.StatusRequest(),
                "ListOwners": control.ListOwnersRequest(after="a"),
                "ListReleases": control.ListReleasesRequest(after="r1"),
                "ListActions": control.ListActionsRequest(after=3, release="r1"),
            }
            for name, message in listed.items():
                await _in_crowds(_sent(channel, f"{_CONTROL}{name}", data) for data in mutations(message))
            await _in_crowds(_streamed(channel, f"{_CONTROL}Watch", data) for data in mutations(named))
