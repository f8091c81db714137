"""Messages to people, through a real mail server with STARTTLS and a real web server."""

import hmac
import json
import socket
import ssl
from hashlib import sha256
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message
from aiosmtpd.smtp import AuthResult

from common.daemon.notify import MailSink, Notices, SmtpSection, WebhookSection, WebhookSink
from common.errors import ConfigurationError
from common.settings import validate
from deploy.development_ca import DevelopmentCa
from owner_node.notices import NOTICES
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


@pytest.mark.parametrize("url", ["http://hub.example/x", "ftp://hub.example/x", "https://", "hub.example", 7])
def test_webhooks_are_encrypted_or_local(secret, url):
    """A message that can be read on its way tells when an organisation decides what."""
    with pytest.raises(ConfigurationError, match="url"):
        validate(WebhookSection, {"url": url, "secret_file": str(secret)}, secret)


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
        MailSink(about, NOTICES, "owner north").write(
            [record(1, "invited"), record(2, "refused"), record(3, "ended")]
        )
        MailSink(about, NOTICES, "owner north").write([record(4, "invited")])
    finally:
        server.stop()
    (mail,) = received.mails
    assert signed_in == [b"Geheim7"]
    assert "r1" in mail["Subject"]
    assert "and 1 more" in mail["Subject"]
    assert "Zq7Qz" not in mail.as_string()
    with pytest.raises(ConfigurationError, match="takes no mail"):
        MailSink(about, NOTICES, "owner north").write([record(5, "ended")])


def test_every_sentence_can_be_filled():
    """No event of the table lacks a word."""
    records = [record(number, event) for number, event in enumerate(NOTICES.sentences)]
    assert len(NOTICES.messages(records)) == len(NOTICES.sentences) > 5
    assert Notices({}).messages(records) == []
