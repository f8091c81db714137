"""Messages to people, through a real mail server with STARTTLS and a real web server."""

import asyncio
import hmac
import json
import socket
import ssl
import time
from hashlib import sha256
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message
from aiosmtpd.smtp import AuthResult

from common.daemon.delivery import Delivery
from common.daemon.messengers import MailServer, MailSink, WebhookSink, notice_sinks
from common.daemon.notify import Notices, NotifySection, SmtpSection, WebhookSection
from common.errors import ConfigurationError
from common.settings import validate
from deploy.development_ca import DevelopmentCa
from owner_node.notices import NOTICES
from tests.fakes.deliveries import KeptRecords, deliver
from tests.fakes.dripping_server import dripping_server
from tests.fakes.web_hook import web_hook


def record(sequence: int, event: str, **changes: Any) -> dict[str, Any]:
    """Return a record of the history, with texts that must not go out."""
    return {
        "log": "history", "owner": "north", "sequence": sequence, "time": "2026-01-02T12:00:00+00:00",
        "event": event, "aggregator": "hub", "release": "r1", "purpose": "Zq7Qz", "rule": "Zq7Qz",
        "details": {"by": "Zq7Qz"},
    } | changes  # fmt: skip


@pytest.fixture
def secret(tmp_path):
    """A private file with a secret."""
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text("Geheim7\n")
    return path


def test_a_webhook_gets_signed_messages_without_texts_of_others(secret):
    """Only events with a sentence go out, with ids and our words alone, and signed."""
    with web_hook([200, 200]) as (url, taken):
        sink = WebhookSink(WebhookSection(url=url, secret_file=secret), NOTICES)
        sink.write([record(1, "invited"), record(2, "awaiting-approval"), record(3, "published")])
    assert [json.loads(body)["event"] for body, _ in taken.queue] == ["awaiting-approval", "published"]
    body, signature = taken.queue[0]
    assert signature == "sha256=" + hmac.new(b"Geheim7", body, sha256).hexdigest()
    assert json.loads(body)["text"].startswith("Plan r1 of aggregator hub waits for a decision.")
    assert b"Zq7Qz" not in b"".join(body for body, _ in taken.queue)


@pytest.mark.parametrize("code", [302, 404, 500])
def test_a_webhook_that_does_not_take_a_message_is_an_error(secret, code):
    """So the message is sent again; a redirect is not followed; neither secret nor path is in the error."""
    with web_hook([code]) as (url, _):
        sink = WebhookSink(WebhookSection(url=url, secret_file=secret), NOTICES)
        with pytest.raises(ConfigurationError, match="takes no messages") as caught:
            sink.write([record(1, "published")])
    assert "Geheim7" not in str(caught.value)
    assert "hook" not in caught.value.message.replace("webhook", "")


@pytest.mark.parametrize(
    "url",
    [
        "http://hub.example/x", "ftp://hub.example/x", "https://", "hub.example", 7,
        "https://user:Geheim7@hub.example/x", "https://user@hub.example/x", "https://@hub.example/x",
        "https://hub.example:0/x", "https://hub.example:70000/x", "https://hub.example:x/x",
        "https://hub.example/a b", "https://hub.example/ä", "https://hub.example/x\n",
    ],
)  # fmt: skip
def test_webhooks_are_encrypted_or_local(secret, url):
    """A message that can be read on its way tells when an organisation decides what."""
    with pytest.raises(ConfigurationError, match="url") as caught:
        validate(WebhookSection, {"url": url, "secret_file": str(secret)}, secret)
    assert "Geheim7" not in str(caught.value)


@pytest.mark.parametrize("alone", ["user", "password_file"])
def test_a_name_and_a_password_sign_in_together(secret, alone):
    """One without the other would sign in as nobody, or not at all."""
    table = {"host": "mx", "sender": "a@b.example", "to": ["c@d.example"], alone: str(secret)}
    with pytest.raises(ConfigurationError, match="is missing: user and password_file"):
        validate(SmtpSection, table, secret)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class _Received(Message):
    """Keeps every mail."""

    def __init__(self) -> None:
        super().__init__()
        self.mails: list[Any] = []

    def handle_message(self, message: Any) -> None:
        self.mails.append(message)


def test_a_mail_goes_out_encrypted_and_signed_in(tmp_path, secret):
    """One mail for a batch, after STARTTLS with a server that is checked, with the password of the file."""
    ca = DevelopmentCa("mail.test")
    ca.aggregator("mail", ["127.0.0.1", "localhost"]).write(tmp_path, "mail")
    (tmp_path / "ca.pem").write_bytes(ca.issued.certificate_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "mail.pem", tmp_path / "mail.key")
    received = _Received()
    signed_in: list[bytes] = []

    def check(*arguments: Any) -> AuthResult:
        signed_in.append(arguments[4].password)
        return AuthResult(success=True)

    server = Controller(
        received, "127.0.0.1", free_port(), tls_context=context, require_starttls=True, auth_required=True,
        authenticator=check,
    )  # fmt: skip
    server.start()
    try:
        about = SmtpSection(
            host="localhost", port=server.port, sender="north@example.org", to=("dpo@example.org",),
            user="north", password_file=secret, ca=tmp_path / "ca.pem",
        )  # fmt: skip
        sink = mail_sink(about)
        sink.write([record(1, "invited"), record(2, "refused"), record(3, "ended")])
        sink.write([record(4, "invited")])
    finally:
        server.stop()
    (mail,) = received.mails
    assert signed_in == [b"Geheim7"]
    assert "r1" in mail["Subject"]
    assert "and 1 more" in mail["Subject"]
    assert "Zq7Qz" not in mail.as_string()
    with pytest.raises(ConfigurationError, match="takes no mail"):
        mail_sink(about).write([record(5, "ended")])


def mail_sink(about: SmtpSection) -> MailSink:
    """Return the sink of the first recipient."""
    return MailSink(MailServer(about), about.to[0], NOTICES, "owner north")


def plain_server(**options: Any) -> tuple[Controller, dict[str, Any]]:
    """Return a mail server without TLS, and the settings that reach it."""
    server = Controller(_Received(), "127.0.0.1", free_port(), **options)
    return server, {"host": "127.0.0.1", "port": server.port, "starttls": False, "sender": "a@x.example"}


class Refusing(_Received):
    """Refuses some recipients, and keeps what the others get."""

    async def handle_RCPT(self, _server, _session, envelope, address, _options) -> str:
        """Answer for one recipient."""
        if address.startswith("gone"):
            return "550 Zq7Qz"
        envelope.rcpt_tos.append(address)
        return "250 OK"


async def test_a_refused_recipient_takes_no_message_from_others(caplog):
    """The log names who was refused; the others get the mail once, however often the refused one is tried."""
    server, settings = plain_server()
    server.handler = Refusing()
    server.start()
    try:
        smtp = SmtpSection(**settings, to=("here@x.example", "gone@x.example", "there@x.example"))
        sinks = notice_sinks(NotifySection(smtp=smtp), NOTICES, "owner north")
        source = KeptRecords([record(1, "refused")])
        for _ in range(2):
            await deliver(source, sinks)
    finally:
        server.stop()
    assert sorted(mail["To"] for mail in server.handler.mails) == ["here@x.example", "there@x.example"]
    assert {each.reason for each in caplog.records} == {
        f"mail server 127.0.0.1:{server.port} refuses the recipient gone@x.example: 550"
    }


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@pytest.mark.parametrize("recipients", [1, 3])
def test_a_wrong_password_is_tried_once(secret, recipients):
    """Not by every mechanism, for every recipient and at every retry: that locks an account. A new one is."""
    tried: list[str] = []

    def check(_server, _session, _envelope, mechanism: str, data: Any) -> AuthResult:
        tried.append(f"{mechanism} {data.password.decode()}")
        return AuthResult(success=data.password == b"right", handled=False)

    server, settings = plain_server(auth_required=True, auth_require_tls=False, authenticator=check)
    server.start()
    try:
        to = tuple(f"d{number}@x.example" for number in range(recipients))
        smtp = SmtpSection(**settings, to=to, user="north", password_file=secret)
        sinks = notice_sinks(NotifySection(smtp=smtp), NOTICES, "owner north")
        for _ in range(3):
            for sink in sinks:
                with pytest.raises(ConfigurationError, match=r"refuses the user and password .*: 535"):
                    sink.write([record(1, "refused")])
        assert len(tried) == 1
        secret.write_text("right\n")
        for sink in sinks:
            sink.write([record(1, "refused")])
    finally:
        server.stop()
    assert len(tried) == 1 + recipients


DRIPS = {
    "greeting": (b"", b"2"),
    "greeting lines": (b"", b"220-x\r\n" * 1000),
    "EHLO": (b"220 x\r\n", b"250-x\r\n" * 1000),
}
WEB_DRIPS = {
    "status": (b"", b"H"),
    "headers": (b"HTTP/1.1 500 No\r\n", b"a: b\r\n" * 1000),
    "interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
}


@pytest.fixture
def short(monkeypatch):
    """Deliveries that may take half a second."""
    monkeypatch.setattr("common.daemon.messengers._DELIVERY_SECONDS", 0.5)


@pytest.mark.parametrize("drip", DRIPS)
def test_a_dripping_mail_server_ends_in_time(short, drip):
    """Each byte comes in time, and the answer never: the delivery as a whole has a deadline."""
    with dripping_server(*DRIPS[drip]) as (port, _):
        smtp = SmtpSection(host="127.0.0.1", port=port, starttls=False, sender="a@x.example", to=("d@x",))
        begun = time.monotonic()
        with pytest.raises(ConfigurationError, match="takes no mail: not done within"):
            mail_sink(smtp).write([record(1, "refused")])
    assert time.monotonic() - begun < 5


def test_a_mail_that_was_taken_is_not_sent_again(short):
    """A server that drips at the goodbye has the mail."""
    answers = b"220 x\r\n250 x\r\n250 x\r\n250 x\r\n354 x\r\n250 x\r\n"
    with dripping_server(answers) as (port, _):
        smtp = SmtpSection(host="127.0.0.1", port=port, starttls=False, sender="a@x.example", to=("d@x",))
        mail_sink(smtp).write([record(1, "refused")])


@pytest.mark.parametrize("drip", WEB_DRIPS)
def test_a_dripping_webhook_ends_in_time(short, secret, drip):
    """As for mail servers."""
    with dripping_server(*WEB_DRIPS[drip]) as (port, _):
        sink = WebhookSink(WebhookSection(url=f"http://127.0.0.1:{port}/x", secret_file=secret), NOTICES)
        begun = time.monotonic()
        with pytest.raises(ConfigurationError, match=r"takes no messages: (not done within|500)"):
            sink.write([record(1, "refused")])
    assert time.monotonic() - begun < 5


def test_a_handshake_that_drips_ends_in_time(short, secret):
    """TLS reads from the connection by itself."""
    with dripping_server(b"\x16\x03\x03\x40\x00\x02", b"\x00") as (port, _):
        sink = WebhookSink(WebhookSection(url=f"https://127.0.0.1:{port}/x", secret_file=secret), NOTICES)
        with pytest.raises(ConfigurationError, match="takes no messages"):
            sink.write([record(1, "refused")])


async def test_a_dripping_server_keeps_neither_others_nor_the_stop_waiting(secret):
    """The webhook gets its message while the mail server drips, and the daemon's stop waits for neither."""
    with dripping_server() as (port, reached), web_hook() as (url, taken):
        smtp = SmtpSection(host="127.0.0.1", port=port, starttls=False, sender="a@x.example", to=("d@x",))
        section = NotifySection(smtp, WebhookSection(url=url, secret_file=secret))
        source = KeptRecords([record(1, "refused")])
        delivery = Delivery(source, tuple(notice_sinks(section, NOTICES, "owner north")))
        running = asyncio.create_task(delivery.run())
        assert await asyncio.to_thread(reached.wait, 20)
        assert json.loads((await asyncio.to_thread(taken.get, timeout=20))[0])["event"] == "refused"
        begun = time.monotonic()
        running.cancel()
        await asyncio.wait([running])
    assert time.monotonic() - begun < 5
    assert [name.partition(":")[0] for name in source.cursors] == ["webhook"]


def test_the_address_of_a_webhook_is_in_no_name(secret):
    """A name goes to logs and databases, and the path or query of an address is often its secret."""
    urls = [f"https://Hooks.example/{path}" for path in ("T/Geheim7", "T/Geheim8", "?token=Geheim7")]
    names = [WebhookSink(WebhookSection(url=url, secret_file=secret), NOTICES).name for url in urls]
    assert len(set(names)) == 3
    assert all(each.startswith("webhook:hooks.example:") and "Geheim" not in each for each in names)


def test_every_sentence_can_be_filled():
    """No event of the table lacks a word."""
    records = [record(number, event) for number, event in enumerate(NOTICES.sentences)]
    assert len(NOTICES.messages(records)) == len(NOTICES.sentences) > 5
    assert Notices({}).messages(records) == []
