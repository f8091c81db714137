"""Real TLS between real gRPC endpoints: who gets through, who does not, and what each side is told."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.api.server_tls import RECEIVE_LIMIT
from aggregator.ca.authority import Authority, key_usage
from common.errors import ConfigurationError, IdentityError, NotConnectedError, ProtocolError
from common.trust.enrolment import new_key
from common.trust.handshake import explain_handshake
from common.trust.identity import Party, PartyKind
from common.wire.status import from_rpc_error
from deploy.development_ca import CLIENT_AUTH, SERVER_AUTH, DevelopmentCa, Issued
from tests.fakes.tls_endpoints import (
    DAY,
    HOSTS,
    NOW,
    OWNER,
    TRUST_DOMAIN,
    Files,
    Folder,
    ask,
    credentials_from,
    explain,
    refused_with,
    serving,
    serving_with,
)


@pytest.fixture(scope="module")
def authority() -> DevelopmentCa:
    """The CA that both sides trust unless a test says otherwise."""
    return DevelopmentCa(TRUST_DOMAIN)


@pytest.fixture
def folder(tmp_path: Path, authority: DevelopmentCa) -> Folder:
    """Where one test keeps its certificates."""
    return Folder(tmp_path, authority)


async def test_parties_reach_each_other(folder: Folder, authority: DevelopmentCa) -> None:
    """An enrolled owner gets through and is known by its certificate; nothing is left to explain."""
    server, owner = authority.aggregator("main", HOSTS), folder.files(authority.owner("a"))
    async with serving(serving_with(*folder.files(server))) as port:
        assert await ask(port, owner) == f"spiffe://{TRUST_DOMAIN}/owner/a"
        assert await explain(port, owner) is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
async def test_files_of_editors_and_other_systems(
    folder: Folder, authority: DevelopmentCa, encoding: str
) -> None:
    """Both sides, and the explanation, get what was read, not what the libraries would read."""
    both = [folder.files(authority.aggregator("main", HOSTS)), folder.files(authority.owner("a"))]
    for path in {each for files in both for each in files}:
        path.write_bytes(path.read_text().rstrip().replace("\n", "\r\n   ").encode(encoding))
    async with serving(serving_with(*both[0])) as port:
        assert await ask(port, both[1]) == OWNER.uri
        assert await explain(port, both[1]) is None


async def test_an_authority_under_another_one(tmp_path: Path) -> None:
    """An organisation's issuing CA can be trusted without its root; the explanation sees it as gRPC does."""
    root, key = DevelopmentCa(TRUST_DOMAIN), new_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuing")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root.issued.key.public_key()), critical=False
        )
        .sign(root.issued.key, hashes.SHA256())
    )
    ca = tmp_path / "issuing.pem"
    ca.write_bytes(certificate.public_bytes(Encoding.PEM))
    files: list[Files] = []
    for party, hosts in ((Party(PartyKind.AGGREGATOR, "main", TRUST_DOMAIN), HOSTS), (OWNER, ())):
        own = new_key()
        issued = Authority(certificate, key).issue(own.public_key(), party, datetime.now(UTC), hosts)
        files.append((ca, *Issued(issued, own).write(tmp_path, party.name)))
    async with serving(serving_with(*files[0])) as port:
        assert await ask(port, files[1]) == OWNER.uri
        assert await explain(port, files[1]) is None


async def test_wrong_ca_at_the_owner(folder: Folder, authority: DevelopmentCa) -> None:
    """An owner does not speak to an aggregator of another CA, and is told whose certificate it saw."""
    other = DevelopmentCa(TRUST_DOMAIN)
    owner = folder.files(authority.owner("a"), ca=other)
    async with serving(serving_with(*folder.files(authority.aggregator("main", HOSTS)))) as port:
        assert await refused_with(port, owner) is grpc.StatusCode.UNAVAILABLE
        reason = await explain(port, owner)
    assert isinstance(reason, IdentityError)
    assert "aggregator/main" in reason.message
    assert "not issued under the CA" in reason.message


async def test_owner_of_another_ca(folder: Folder, authority: DevelopmentCa) -> None:
    """A certificate with the right name from a stranger's CA does not get in."""
    stranger = folder.files(DevelopmentCa(TRUST_DOMAIN).owner("a"))
    async with serving(serving_with(*folder.files(authority.aggregator("main", HOSTS)))) as port:
        assert await refused_with(port, stranger) is grpc.StatusCode.UNAVAILABLE
        reason = await explain(port, stranger)
    assert isinstance(reason, IdentityError)
    assert "refused this owner's certificate" in reason.message


@pytest.mark.parametrize(
    ("dialled", "names"), [("127.0.0.1", ["main.example"]), ("localhost", ["127.0.0.2"])]
)
async def test_wrong_host_name(
    folder: Folder, authority: DevelopmentCa, dialled: str, names: list[str]
) -> None:
    """The host that was dialled must be in the certificate; both names are told."""
    owner, server = folder.files(authority.owner("a")), folder.files(authority.aggregator("main", names))
    async with serving(serving_with(*server)) as port:
        assert await refused_with(port, owner, dialled) is grpc.StatusCode.UNAVAILABLE
        reason = await explain(port, owner, dialled)
    assert isinstance(reason, IdentityError)
    assert reason.details == {"expected": dialled, "seen": names}


async def test_expired_aggregator(folder: Folder, authority: DevelopmentCa) -> None:
    """An expired aggregator is not spoken to, and the day is told."""
    expired = authority.aggregator("main", HOSTS, not_before=NOW - 9 * DAY, not_after=NOW - DAY)
    owner = folder.files(authority.owner("a"))
    async with serving(serving_with(*folder.files(expired))) as port:
        assert await refused_with(port, owner) is grpc.StatusCode.UNAVAILABLE
        reason = await explain(port, owner)
    assert isinstance(reason, IdentityError)
    assert f"expired on {NOW - DAY:%Y-%m-%d}" in reason.message


async def test_expired_owner(folder: Folder, authority: DevelopmentCa) -> None:
    """An expired owner does not get in, and is told by its own side and by the aggregator's refusal."""
    expired = folder.files(authority.owner("a", not_before=NOW - 9 * DAY, not_after=NOW - DAY))
    async with serving(serving_with(*folder.files(authority.aggregator("main", HOSTS)))) as port:
        assert await refused_with(port, expired) is grpc.StatusCode.UNAVAILABLE
        own_clock_says = await explain(port, expired)
        # With a clock that runs behind, only the aggregator notices.
        aggregator_says = await explain(port, expired, now=NOW - 2 * DAY)
    assert isinstance(own_clock_says, IdentityError)
    assert "owner/a expired on" in own_clock_says.message
    assert isinstance(aggregator_says, IdentityError)
    assert "refused this owner's certificate" in aggregator_says.message


async def test_expiry_on_a_live_connection(folder: Folder, authority: DevelopmentCa) -> None:
    """A certificate that was good when the connection was made is refused once it has expired."""
    server = serving_with(*folder.files(authority.aggregator("main", HOSTS)))
    async with serving(server, now=NOW + 91 * DAY) as port:
        assert await refused_with(port, folder.files(authority.owner("a"))) is grpc.StatusCode.UNAUTHENTICATED


async def test_no_client_certificate(folder: Folder, authority: DevelopmentCa) -> None:
    """A connection without a client certificate is refused before any call."""
    ca, cert, key = folder.files(authority.aggregator("main", HOSTS))
    async with serving(serving_with(ca, cert, key)) as port:
        anonymous = grpc.ssl_channel_credentials(ca.read_bytes())
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", anonymous) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/test.Who/Ask", bytes, bytes)(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_plaintext_client(folder: Folder, authority: DevelopmentCa) -> None:
    """The aggregator's port answers nobody without TLS."""
    async with serving(serving_with(*folder.files(authority.aggregator("main", HOSTS)))) as port:
        assert await refused_with(port, None) is grpc.StatusCode.UNAVAILABLE


async def test_plaintext_server(folder: Folder, authority: DevelopmentCa) -> None:
    """An owner sends nothing to a server without TLS, and is told so."""
    owner = folder.files(authority.owner("a"))
    async with serving(None) as port:
        assert await refused_with(port, owner) is grpc.StatusCode.UNAVAILABLE
        reason = await explain(port, owner)
    assert isinstance(reason, NotConnectedError)
    assert "no TLS is spoken" in reason.message


@pytest.mark.parametrize("hosts", [(), HOSTS])
async def test_owner_posing_as_aggregator(
    folder: Folder, authority: DevelopmentCa, hosts: tuple[str, ...]
) -> None:
    """An owner's certificate cannot serve, not even one that was wrongly issued with host names."""
    impostor, owner = authority.owner("b", hosts=hosts), folder.files(authority.owner("a"))
    async with serving(serving_with(*folder.files(impostor))) as port:
        assert await refused_with(port, owner) is grpc.StatusCode.UNAVAILABLE
        reason = await explain(port, owner)
    assert isinstance(reason, IdentityError)
    assert "owner/b is not for a server" in reason.message


async def test_aggregator_as_client(folder: Folder, authority: DevelopmentCa) -> None:
    """The aggregator's certificate cannot call; its own files say so before anything is sent."""
    server = folder.files(authority.aggregator("main", HOSTS))
    async with serving(serving_with(*server)) as port:
        assert await refused_with(port, server) is grpc.StatusCode.UNAVAILABLE
        reason = await explain(port, server)
    assert isinstance(reason, IdentityError)
    assert "aggregator/main is not for a client" in reason.message


async def test_names_that_tls_lets_through(folder: Folder, authority: DevelopmentCa) -> None:
    """What TLS cannot judge is judged on the call: kind, trust domain, host names, number of names."""
    both = (CLIENT_AUTH, SERVER_AUTH)
    callers = [
        authority.aggregator("other", HOSTS, usages=both),
        authority.owner("a", hosts=["localhost"]),
        authority.issue("spiffe://elsewhere.example/owner/a", hosts=(), usages=(CLIENT_AUTH,)),
        authority.issue(
            f"spiffe://{TRUST_DOMAIN}/owner/a",
            f"spiffe://{TRUST_DOMAIN}/owner/b",
            hosts=(),
            usages=(CLIENT_AUTH,),
        ),
    ]
    server = folder.files(authority.aggregator("main", HOSTS))
    async with serving(serving_with(*server)) as port:
        for caller in callers:
            cert, key = caller.write(server[0].parent, "caller")
            credentials = grpc.ssl_channel_credentials(
                server[0].read_bytes(), key.read_bytes(), cert.read_bytes()
            )
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await channel.unary_unary("/test.Who/Ask", bytes, bytes)(b"", timeout=20)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_request_limit(folder: Folder, authority: DevelopmentCa) -> None:
    """No message arrives at a server that is larger than the largest request of an owner."""
    owner = folder.files(authority.owner("a"))
    async with serving(serving_with(*folder.files(authority.aggregator("main", HOSTS)))) as port:
        assert await ask(port, owner, request=bytes(RECEIVE_LIMIT - 1024))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(port, owner, request=bytes(RECEIVE_LIMIT + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert isinstance(from_rpc_error(caught.value), ProtocolError)


def test_unreachable(folder: Folder, authority: DevelopmentCa) -> None:
    """A closed port and an unknown name are told apart from TLS failures."""
    owner = folder.files(authority.owner("a"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    closed = explain_handshake(("127.0.0.1", port), *owner, NOW, 3.0)
    unknown = explain_handshake(("host.invalid", port), *owner, NOW, 3.0)
    assert isinstance(closed, NotConnectedError)
    assert "refuses connections" in closed.message
    assert isinstance(unknown, NotConnectedError)
    assert "'host.invalid' is not found" in unknown.message


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """Listen without TLS: answer the first bytes with something and hang up, or (None) never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                if answer is None:
                    connection.recv(4096)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None])
def test_something_else_listens(folder: Folder, authority: DevelopmentCa, answer: bytes | None) -> None:
    """A web server, a port that hangs up and one that says nothing are told apart from refusals."""
    owner = folder.files(authority.owner("a"))
    with answering(answer) as port:
        reason = explain_handshake(("127.0.0.1", port), *owner, NOW, 0.5)
    assert isinstance(reason, NotConnectedError)
    assert "no TLS is spoken" in reason.message


def test_wrong_files(folder: Folder, authority: DevelopmentCa) -> None:
    """Files that gRPC would take and fail with are refused when they are loaded."""
    ca, cert, key = folder.files(authority.owner("a"))
    _, _, other_key = folder.files(authority.owner("a"))
    with pytest.raises(ConfigurationError, match="not for the given key"):
        credentials_from(ca, cert, other_key)
    with pytest.raises(ConfigurationError, match="holds a private key, and no certificate"):
        credentials_from(key, cert, key)
    key.chmod(0o640)
    with pytest.raises(ConfigurationError) as caught:
        serving_with(ca, cert, key)
    assert caught.value.hint == f"close it: chmod 600 {key}"
