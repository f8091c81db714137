"""The processes of the upload benchmark: an aggregator, an owner that uploads, and a bare stream's two ends.

Each is started as `python -m tests.benchmarks.upload_parties ROLE FOLDER [ADDRESS]`, says one line when it is
ready, and then does one thing for every line that it reads, answering with one line of JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from aggregator.api.server_tls import server_credentials, server_options
from aggregator.config import AggregatorConfig, AggregatorSection
from aggregator.daemon import AggregatorDaemon
from common.files import CHUNK_BYTES
from common.model.schema import Attribute, AttributeType, Schema, round_to_leading_digit
from common.progress import Progress
from common.settings import TlsSection
from common.trust.credentials import read_identity
from common.wire.fragment_layout import BATCH_RECORDS
from common.wire.v1 import control_pb2 as control
from common.wire.v1 import owner_pb2 as wire
from common.wire.v1.control_pb2_grpc import ControlServiceStub
from owner_node.connection.client import AggregatorClient, channel_options
from owner_node.state.answers import Fragment
from tests.fakes.scripted_owner import ScriptedOwner, all_until
from tests.fakes.tls_endpoints import credentials_from

TRUST_DOMAIN = "release.test"
FRAGMENT = "fragment"
METHOD = ("bare.Stream", "Send")
LARGEST = 10**8
DISTINCT = {"uint8": 200, "uint16": 60_000, "int32": 500_000, "int64": 0}
"""How many values a masked column has, by what it is then encoded as; 0 stands for too many to encode."""
COLUMNS = ("int32",) * 6 + ("uint16",) * 2 + ("uint8", "int64")
N_BATCHES = 480


def attributes() -> tuple[Attribute, ...]:
    """Return ten numbers."""
    return tuple(Attribute(f"a{i}", AttributeType.INTEGER, 0, LARGEST) for i in range(len(COLUMNS)))


def write_fragment(path: Path, columns: Sequence[str] = COLUMNS, n_batches: int = N_BATCHES) -> None:
    """Write a fragment, about 1 GiB by default: one batch of ten masked attributes, again and again."""
    rng = np.random.default_rng(1)
    fields, arrays = [], []
    for attribute, kind in zip(attributes(), columns, strict=True):
        drawn = np.sort(rng.choice(LARGEST, DISTINCT[kind] or BATCH_RECORDS, replace=False))
        values = pa.array(drawn, pa.int64())
        if DISTINCT[kind]:
            index = pa.array(rng.integers(0, len(drawn), BATCH_RECORDS).astype(kind))
            values = pa.DictionaryArray.from_arrays(index, values)
        fields.append(pa.field(attribute.name, values.type, nullable=False))
        arrays.append(values)
    batch = pa.record_batch(arrays, schema=pa.schema(fields))
    with path.open("wb") as stream, pa.ipc.new_stream(stream, batch.schema) as writer:
        for _ in range(n_batches):
            writer.write_batch(batch)


def n_records_of(path: Path) -> int:
    """Return the number of records of a fragment."""
    with pa.memory_map(str(path)) as stream, pa.ipc.open_stream(stream) as reader:
        return sum(batch.num_rows for batch in reader)


def peak_bytes() -> int:
    """Return the most memory that this process has had since the last call of `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def forget_peak() -> int:
    """Let the peak begin at what is used now, which is returned."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


async def each_line(work: Callable[[str], Awaitable[object]], ready: object) -> None:
    """Say that all is ready, then answer line by line until there are no more."""
    print(json.dumps(ready), flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        print(json.dumps(await work(line)), flush=True)


async def aggregator(folder: Path, listen: str = "127.0.0.1:0") -> None:
    """Run the real daemon; answer with its peak of memory above what it had when it was ready."""
    section = AggregatorSection(
        "hub", TRUST_DOMAIN, folder / "state", folder / "releases", folder / "c" / "s", listen=listen
    )
    tls = TlsSection(folder / "ca.pem", folder / "aggregator.pem", folder / "aggregator.key")
    daemon = AggregatorDaemon(AggregatorConfig(path=folder / "aggregator.toml", aggregator=section, tls=tls))
    await daemon.start()
    idle = forget_peak()

    async def above_idle(_: str) -> int:
        return peak_bytes() - idle

    await each_line(above_idle, daemon.address)
    await daemon.stop()


class UploadingOwner(ScriptedOwner):
    """An owner whose fragment is a file.

    Args:
        owner: Owner id.
        folder: With the certificates and the fragment.
        address: Of the aggregator.
    """

    def __init__(self, owner: str, folder: Path, address: str) -> None:
        self.path = folder / FRAGMENT
        n_records = n_records_of(self.path)
        everyone = np.broadcast_to(np.zeros(16, np.uint8), (n_records, 16))
        super().__init__(owner, address, folder, (), everyone, identifier=False)
        self.schema = Schema(attributes(), None, 1, round_to_leading_digit(n_records))
        files = (folder / "ca.pem", folder / f"owner-{owner}.pem", folder / f"owner-{owner}.key")
        self.client = AggregatorClient(address, TlsSection(*files))
        with self.path.open("rb") as stream:
            self.digest = file_digest(stream, "sha256").hexdigest()

    def fragment_identity(self) -> tuple[str, int]:
        """Return digest and size."""
        return self.digest, self.path.stat().st_size

    def seal(self, work: wire.Work) -> wire.AnswerRequest:
        """State the fragment that is there already."""
        return self.state(work)

    async def upload_file(self, work: wire.Work) -> float:
        """Upload the fragment as the owner node does; return the seconds until the receipt."""
        fragment = Fragment(self.path, *self.fragment_identity())
        start = time.perf_counter()
        await self.client.upload_fragment(work.release, work.plan_digest, fragment, Progress())
        return time.perf_counter() - start

    async def close(self) -> None:
        """Hang up."""
        await self.client.close()
        await super().close()


async def owner(folder: Path, address: str) -> None:
    """Take two owners' parts in a release up to the uploads, upload one owner's, then cancel the release."""
    owners = [UploadingOwner(name, folder, address) for name in ("a", "b")]
    for each in owners:
        await each.connect()
    async with grpc.aio.insecure_channel(f"unix:{folder / 'c' / 's'}") as channel:
        calls = ControlServiceStub(channel)

        async def turn(release: str) -> dict[str, float]:
            await calls.Start(
                control.StartRequest(
                    release=release, dataset="cohort", layout="horizontal", epsilon="1", k="5",
                    confirmed=True, anyway=True, groups=[control.OwnerGroup(owners=["a", "b"])],
                )
            )  # fmt: skip
            [work, _] = await all_until(owners, "collect")
            idle = forget_peak()
            seconds = await owners[0].upload_file(work)
            above = peak_bytes() - idle
            await calls.Cancel(control.ReleaseRequest(release=release))
            await asyncio.gather(*(each.run() for each in owners))
            for each in owners:
                each.concluded = None
            return {"seconds": seconds, "above_idle": above}

        await each_line(turn, "ready")
    for each in owners:
        await each.close()


async def bare_server(folder: Path) -> None:
    """Take streams and do nothing with them."""

    async def send(chunks: AsyncIterator[bytes], _: object) -> bytes:
        n_bytes = 0
        async for chunk in chunks:
            n_bytes += len(chunk)
        return b"%d" % n_bytes

    service, method = METHOD
    handlers = {method: grpc.stream_unary_rpc_method_handler(send)}
    server = grpc.aio.server(options=server_options(100))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    files = TlsSection(folder / "ca.pem", folder / "aggregator.pem", folder / "aggregator.key")
    identity = read_identity(files)
    port = server.add_secure_port("127.0.0.1:0", server_credentials(lambda: identity))
    await server.start()

    async def nothing(_: str) -> None:
        return None

    await each_line(nothing, f"127.0.0.1:{port}")
    await server.stop(None)


async def bare_client(folder: Path, address: str) -> None:
    """Send the fragment's chunks, as they are."""
    path = folder / FRAGMENT
    files = (folder / "ca.pem", folder / "owner-a.pem", folder / "owner-a.key")
    async with grpc.aio.secure_channel(
        address, credentials_from(*files), options=channel_options()
    ) as channel:
        send: Any = channel.stream_unary("/" + "/".join(METHOD), None, None)

        async def chunks() -> AsyncIterator[bytes]:
            with path.open("rb") as stream:
                while chunk := stream.read(CHUNK_BYTES):
                    yield chunk

        async def turn(_: str) -> float:
            start = time.perf_counter()
            received = await send(chunks())
            seconds = time.perf_counter() - start
            if int(received) != path.stat().st_size:
                raise RuntimeError("the bare stream lost something")
            return seconds

        await each_line(turn, "ready")


async def main(role: str, folder: str, *address: str) -> None:
    """Be one of the parties."""
    if role == "aggregator":
        await aggregator(Path(folder), *address)
    elif role == "bare-server":
        await bare_server(Path(folder))
    elif role == "owner":
        await owner(Path(folder), *address)
    elif role == "bare-client":
        await bare_client(Path(folder), *address)
    else:
        raise ValueError(role)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
