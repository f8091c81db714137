"""A gRPC server and an owner that calls it over real TLS, with certificates made for one test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from aggregator.api.server_tls import peer_certificate, server_credentials, server_options
from common.errors import IdentityError, TesseraError
from common.settings import TlsSection
from common.trust.credentials import read_identity
from common.trust.handshake import explain_handshake
from common.trust.identity import Party, PartyKind, party_of_certificate
from deploy.development_ca import DevelopmentCa, Issued
from owner_node.connection.client import channel_credentials, channel_options

TRUST_DOMAIN = "tests.example"
HOSTS = ("localhost", "127.0.0.1")
OWNER = Party(PartyKind.OWNER, "a", TRUST_DOMAIN)
# Later than any certificate that a test makes, however long after its import that is.
NOW = datetime.now(UTC) + timedelta(minutes=40)
DAY = timedelta(days=1)
Files = tuple[Path, Path, Path]


class Folder:
    """Writes certificates of one CA and returns the three paths that TLS takes."""

    def __init__(self, directory: Path, authority: DevelopmentCa) -> None:
        self._directory = directory
        self._ca, _ = authority.issued.write(directory, "ca")
        self._count = 0

    def files(self, issued: Issued, ca: DevelopmentCa | None = None) -> Files:
        """Write a certificate and its key; return the paths of CA, certificate and key."""
        self._count += 1
        cert, key = issued.write(self._directory, f"party-{self._count}")
        trusted = self._ca
        if ca is not None:
            trusted, _ = ca.issued.write(self._directory, f"ca-{self._count}")
        return trusted, cert, key


def serving_with(ca: Path, cert: Path, key: Path) -> grpc.ServerCredentials:
    """Return the credentials of a server whose files stay as they are."""
    identity = read_identity(TlsSection(ca, cert, key))
    return server_credentials(lambda: identity)


def credentials_from(ca: Path, cert: Path, key: Path) -> grpc.ChannelCredentials:
    """Return an owner's credentials, read from its files."""
    return channel_credentials(read_identity(TlsSection(ca, cert, key)))


@asynccontextmanager
async def serving(
    credentials: grpc.ServerCredentials | None, now: datetime = NOW, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """Run a server whose one method answers who called, or with the code of the identity error."""

    async def who(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            return party_of_certificate(peer_certificate(context, TRUST_DOMAIN, now)).uri.encode()
        except IdentityError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, error.message)

    handler = grpc.unary_unary_rpc_method_handler(who)
    server = grpc.aio.server(options=server_options(100))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Who", {"Ask": handler}),))
    if credentials is None:
        port = server.add_insecure_port(f"{host}:0")
    else:
        port = server.add_secure_port(f"{host}:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def ask(port: int, files: Files | None, host: str = "127.0.0.1", request: bytes = b"") -> str:
    """Call the server as an owner would; without files, in plaintext."""
    address, options = f"{host}:{port}", channel_options()
    if files is None:
        channel = grpc.aio.insecure_channel(address, options)
    else:
        channel = grpc.aio.secure_channel(address, credentials_from(*files), options)
    async with channel:
        answer: Any = await channel.unary_unary("/test.Who/Ask", bytes, bytes)(request, timeout=20)
        return bytes(answer).decode()


async def refused_with(port: int, files: Files | None, host: str = "127.0.0.1") -> grpc.StatusCode:
    """Call the server, which must fail; return the status."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(port, files, host)
    return caught.value.code()


async def explain(
    port: int, files: Files, host: str = "127.0.0.1", now: datetime = NOW
) -> TesseraError | None:
    """Ask for the reason beside the running server."""
    return await asyncio.to_thread(explain_handshake, (host, port), *files, now, 3.0)
