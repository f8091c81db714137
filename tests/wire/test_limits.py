"""Every text of every message, at its largest allowed value and beyond, between a real client and server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from aggregator.api.server_tls import RECEIVE_LIMIT, server_credentials, server_options
from aggregator.drive import messages
from common.canonical import canonical
from common.cli import console
from common.errors import ProtocolError, TesseraError
from common.files import CHUNK_BYTES
from common.model.plan import LARGEST_PLAN
from common.model.schema import LARGEST_SCHEMA, Attribute, AttributeType, IdentifierRules, Schema
from common.settings import TlsSection
from common.trust.credentials import read_identity
from common.wire.limits import LONGEST, MESSAGE_LIMIT, check_lengths
from common.wire.software import software_here
from common.wire.status import from_rpc_error
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from owner_node.cli import application
from owner_node.config import load
from owner_node.connection.client import AggregatorClient, _call, _stream
from tests.wire.test_bounds import wide_pair
from tests.wire.test_operations import pair, refused
from tests.wire.test_owner_daemon import ended, heard, owner, running

__all__ = ["heard"]

METHODS = {each.name: each for each in wire.DESCRIPTOR.services_by_name["OwnerService"].methods}
TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def kind(descriptor: Any) -> type[Message]:
    """Return the class of a message."""
    return getattr(wire, descriptor.name)


def paths(descriptor: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every text of a message, at any depth."""
    for field in descriptor.fields:
        if field.message_type is not None:
            yield from paths(field.message_type, (*above, field.name))
        elif field.type in TEXTS:
            yield (*above, field.name)


def fill(message: Any, chosen: tuple[str, ...], longer: bool) -> None:
    """Set every text of a message to its limit; the last of a path is one longer if wanted."""
    for field in message.DESCRIPTOR.fields:
        on_path = bool(chosen) and chosen[0] == field.name
        if field.containing_oneof is not None and not on_path:
            continue
        if field.message_type is not None:
            part = getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
            part.SetInParent()
            fill(part, chosen[1:] if on_path else (), longer)
        elif field.type in TEXTS:
            letter = b"x" if field.type == FieldDescriptor.TYPE_BYTES else "x"
            text = letter * (LONGEST[field.name] + (longer and chosen == (field.name,)))
            if field.is_repeated:
                getattr(message, field.name).append(text)
            else:
                setattr(message, field.name, text)


def filled(descriptor: Any, chosen: tuple[str, ...], *, longer: bool = False) -> Any:
    """Return a message whose texts are as long as they may be."""
    message = kind(descriptor)()
    fill(message, chosen, longer)
    return message


def test_the_table_has_every_text_and_no_other() -> None:
    """A new field has to state its limit, else it would get one that was meant for names."""
    names = {path[-1] for each in wire.DESCRIPTOR.message_types_by_name.values() for path in paths(each)}
    assert names == set(LONGEST)


def test_the_limits_hold_what_is_sent() -> None:
    """Pieces of files, documents and schemas are made no longer than the other side accepts."""
    assert LONGEST["data"] >= CHUNK_BYTES
    assert LONGEST["plan"] == LARGEST_PLAN == messages.LARGEST_DOCUMENT
    assert LONGEST["schema"] == LARGEST_SCHEMA


@asynccontextmanager
async def answering(certificates: Path, answers: dict[str, Any]) -> AsyncIterator[AggregatorClient]:
    """Serve prepared answers with the options of the aggregator; yields the owner's client."""

    async def one(_request: Any, context: Any) -> Any:
        return answers[context_method(context)]

    async def several(_request: Any, context: Any) -> AsyncIterator[Any]:
        yield answers[context_method(context)]

    def context_method(context: Any) -> str:
        return str(dict(context.invocation_metadata())["method"])

    handlers = {}
    for name, method in METHODS.items():
        make = (
            grpc.stream_unary_rpc_method_handler if method.client_streaming
            else grpc.unary_stream_rpc_method_handler if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )  # fmt: skip
        handlers[name] = make(
            several if method.server_streaming else one,
            request_deserializer=kind(method.input_type).FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
    hub = TlsSection(*(certificates / name for name in ("ca.pem", "hub.pem", "hub.key")))
    own = TlsSection(*(certificates / name for name in ("ca.pem", "owner-a.pem", "owner-a.key")))
    server = grpc.aio.server(options=server_options(8))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("tessera.v1.OwnerService", handlers),)
    )
    port = server.add_secure_port("localhost:0", server_credentials(lambda: read_identity(hub)))
    await server.start()
    try:
        async with AggregatorClient(f"localhost:{port}", own) as client:
            yield client
    finally:
        await server.stop(0)


async def received(client: AggregatorClient, name: str) -> Any:
    """Call a method as the client does, and return the first message of its answer."""
    method, stub = METHODS[name], getattr(client._stub, name)
    metadata = (("method", name),)
    if method.server_streaming:
        return await anext(_stream(lambda: stub(kind(method.input_type)(), metadata=metadata)))
    if method.client_streaming:
        return await _call(lambda: stub(iter([kind(method.input_type)()]), metadata=metadata))
    return await _call(lambda: stub(kind(method.input_type)(), metadata=metadata))


@pytest.mark.parametrize("name", METHODS)
async def test_answers_at_their_limits(certificates, name):
    """An owner takes every text of every answer at its limit, all at once, and names the one beyond it."""
    answers: dict[str, Any] = {}
    async with answering(certificates, answers) as client:
        for path in paths(METHODS[name].output_type) if METHODS[name].output_type.fields else ():
            answers[name] = filled(METHODS[name].output_type, path)
            assert answers[name].ByteSize() < MESSAGE_LIMIT
            message = await received(client, name)
            assert message == answers[name]
            check_lengths(message)
            answers[name] = filled(METHODS[name].output_type, path, longer=True)
            with pytest.raises(ProtocolError, match=f"the field '{path[-1]}' of a message has"):
                # Work is checked piece by piece, after the answer.
                check_lengths(await received(client, name))


@pytest.mark.parametrize("name", METHODS)
async def test_requests_at_their_limits(launch, records, monkeypatch, name):
    """The aggregator judges every text of every request at its limit, and names the one beyond it."""
    monkeypatch.setattr("aggregator.api.rates._BURST", 10_000)
    aggregator = await launch()
    found = aggregator.owner("a", ["age"], records)
    await found.connect()
    method = METHODS[name]

    async def answered(request: Any) -> TesseraError | None:
        assert request.ByteSize() < RECEIVE_LIMIT
        call = getattr(found.calls, name)(iter([request]) if method.client_streaming else request)
        try:
            if method.server_streaming:
                async for _ in call:
                    break
                call.cancel()
            elif name == "Poll":
                async with asyncio.timeout(1):
                    await call
            else:
                await call
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            return from_rpc_error(error) if isinstance(error, grpc.RpcError) else None
        return None

    for path in paths(method.input_type):
        error = await answered(filled(method.input_type, path))
        assert error is None or "of a message has" not in error.message, (path, error)
        error = await answered(filled(method.input_type, path, longer=True))
        assert error is not None, path
        assert f"the field '{path[-1]}' of a message has" in error.message, (path, error)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_attributes": 10_001},
        {"name": "x" * 257},
        {"records_rounded": str(2**35)},
        {"document": b"{}"},
    ],
)
async def test_a_schema_that_is_not_accepted_ends_its_release_at_once(launch, records, changes):
    """It never becomes another: the operator hears whose it is and why, not "no answer" at the deadline."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    names = [changes.get("name", "age"), *map(str, range(changes.get("n_attributes", 1) - 1))]
    attributes = tuple(Attribute(each, AttributeType.BOOLEAN, 0, 1) for each in names)
    document = Schema(attributes, None, 1, 60).to_document()
    document["records_rounded"] = changes.get("records_rounded", "60")
    schema = changes.get("document", canonical(document))
    described = wire.Described(schema=schema, software=software_here())
    error = await refused(owners[0].calls.Answer(wire.AnswerRequest(release="r1", described=described)))
    view = await aggregator.show()
    assert (error.code, view.state, view.error.code) == ("protocol", "failed", "protocol")
    assert "owner a: " in view.error.message


async def test_operators_see_the_largest_schemas_and_plans(launch, records):
    """What owners may send, and what is planned of it, fits the messages of the control socket."""
    aggregator = await launch()
    await wide_pair(aggregator, records, 1_520_000, "r1")
    async with asyncio.timeout(90):
        async for view in aggregator.calls.Watch(control.ReleaseRequest(release="r1")):
            if view.plan:
                break
    assert LARGEST_PLAN * 0.9 < len(view.plan) < LARGEST_PLAN
    shown = await aggregator.calls.ShowSchema(control.SchemaRequest(owner="a", dataset="cohort"))
    assert len(shown.schema) > 1_500_000


@pytest.mark.parametrize(("n_attributes", "n_labels", "characters"), [(4_000, 0, 0), (20, 2, 40_000)])
async def test_conflicts_without_number(launch, records, n_attributes, n_labels, characters):
    """What does not fit together is reported as far as a message holds it, and the rest is counted."""
    aggregator = await launch()
    owners = await pair(aggregator, records)
    for each in owners:
        labels = tuple(f"{each.owner}{number}".ljust(characters, "x") for number in range(n_labels))
        kind = AttributeType.CATEGORY if labels else AttributeType.INTEGER
        upper = len(labels) - 1 if labels else ord(each.owner)
        attributes = tuple(
            Attribute(f"{number:04}".ljust(200, "x"), kind, 0, upper, categories=labels)
            for number in range(n_attributes)
        )
        each.schema = Schema(attributes, IdentifierRules(1, ("trim",)), 1, 60)
    ends = await asyncio.gather(*(each.run() for each in owners))
    assert [end.state for end in ends] == ["conflict", "conflict"]
    check_lengths(ends[0])
    view = await aggregator.show()
    assert view.state == "conflict"
    n_conflicts = 2 * n_attributes if n_labels else n_attributes
    assert f"{n_conflicts} conflicts" in view.error.message
    assert len(json.loads(view.error.details)["conflicts"]) <= n_conflicts
    assert len(view.error.message) < 400_000


@pytest.mark.parametrize("policy", ["", 'attributes = ["age"]'])
async def test_a_schema_above_the_limit(launch, certificates, tmp_path, capsys, heard, policy):
    """`check` names the limit and the list to shorten; a release ends at once, and says the same."""
    aggregator = await launch()
    folder = tmp_path / "a"
    settings = owner(folder, "a", aggregator.daemon.address, certificates)
    labels = [f"{number:037d}" for number in range(100_000)]
    (folder / "a.csv").write_text("age,ward\n" + "".join(f"{n % 90},{labels[n]}\n" for n in range(60)))
    (folder / "owner.toml").write_text(
        f"""
[owner]
id = "a"
trust_domain = "release.test"
state_dir = "state"
[[aggregator]]
name = "hub"
address = "{aggregator.daemon.address}"
[tls]
ca = "{settings.tls.ca}"
cert = "{settings.tls.cert}"
key = "{settings.tls.key}"
[policy]
{policy}
[[dataset]]
name = "cohort"
source = "a.csv"
total_epsilon = "4"
[dataset.attributes.age]
type = "integer"
min = 0
max = 120
[dataset.attributes.ward]
type = "category"
categories = {labels!r}
"""
    )
    arguments = ["check", "--config", str(folder / "owner.toml")]
    code = await asyncio.to_thread(lambda: console.run(application(), "owner-node", arguments))
    told = capsys.readouterr()
    assert code == (0 if policy else 2), told.err
    async with running(load(folder / "owner.toml")):
        await heard.wait_for("connected")
        await aggregator.start("a", release="r1")
        state = await ended(aggregator, "r1")
    error = (await aggregator.show("r1")).error
    if policy:
        assert state == "published"
        return
    assert "the schema has 4,000," in told.err
    assert f"at most {LARGEST_SCHEMA:,}" in told.err
    assert "'ward' (100,000 categories)" in told.err
    assert (state, error.code) == ("failed", "configuration")
    assert "owner a: the schema of the data set exceeds a limit of messages" in error.message
