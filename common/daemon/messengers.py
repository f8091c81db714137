"""Messages to people: by mail, or to a webhook, when something needs them.

A message is made from a line of the audit records, and delivered as those are (`common.daemon.delivery`): in
order, at least once, retried with backoff, and never in the way of a release. It holds ids, a time and a
sentence of this program; no text of another party, and never a value of a record, an identifier or a token.
"""

import hmac
import json
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from email.message import EmailMessage
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from smtplib import (
    SMTP,
    SMTPAuthenticationError,
    SMTPNotSupportedError,
    SMTPRecipientsRefused,
    SMTPResponseException,
)
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from common.daemon.audit import AuditSink
from common.daemon.notify import Notices, NotifySection, SmtpSection, WebhookSection
from common.daemon.process import deadline
from common.daemon.settings import is_local
from common.errors import ConfigurationError
from common.files import read_secret
from common.trust.proxy import dial, proxy_to
from common.trust.signing import chain_pem, load_chain

_SECONDS = 10.0
"""How long the other side may send nothing."""
_DELIVERY_SECONDS = 30.0
"""How long one message may take, from the connection to the answer."""
_REFUSED_SECONDS = 3600.0
"""How long a refused password is not tried again: mail servers lock accounts that are tried often."""
_UNKNOWN_MECHANISM, _WRONG_PASSWORD = 504, 535
_DIGEST_DIGITS = 16
_AGAIN = "nothing is lost: it is sent again until it is accepted"


def notice_sinks(section: NotifySection, notices: Notices, party: str) -> dict[AuditSink, str]:
    """Return the sinks that tell people; nothing is opened before the first message.

    Returns:
        By sink its name in version 0.1, under which a database may have its cursor.
    """
    sinks: dict[AuditSink, str] = {}
    if (smtp := section.smtp) is not None:
        server, former = MailServer(smtp), f"mail:{smtp.host}:{smtp.port}:{','.join(smtp.to)}"
        sinks |= {MailSink(server, to, notices, party): former for to in dict.fromkeys(smtp.to)}
    if section.webhook is not None:
        sinks[WebhookSink(section.webhook, notices)] = f"webhook:{section.webhook.url}"
    return sinks


@contextmanager
def _open_connection(host: str, port: int, *, by_proxy: bool = False) -> Iterator[socket.socket]:
    """Connect for one delivery, which ends in time however slowly the other side answers."""
    proxy = proxy_to(host, port=port) if by_proxy and not is_local(host) else None
    with dial(host, port, _SECONDS, proxy) as connection, deadline(connection, _DELIVERY_SECONDS):
        yield connection


def _reason(error: Exception) -> str:
    """Return why a delivery failed, without words of the other side."""
    return getattr(error, "strerror", None) or type(error).__name__


class _Client(SMTP):
    """A mail client on a connection that has been made."""

    def __init__(self, connection: socket.socket, host: str, port: int) -> None:
        self._connection = connection
        super().__init__(host, port)

    def _get_socket(self, *_: Any) -> socket.socket:
        return self._connection


class MailServer:
    """The mail server of all recipients: one connection at a time."""

    def __init__(self, section: SmtpSection) -> None:
        self.section = section
        self.place = f"{section.host}:{section.port}"
        self._lock = Lock()
        self._refused_password, self._refused_until = "", 0.0

    def send(self, mail: EmailMessage) -> None:
        """Send a mail to its only recipient."""
        about = self.section
        try:
            with self._lock:
                password = "" if about.password_file is None else read_secret(about.password_file)
                if password and password == self._refused_password and time.monotonic() < self._refused_until:
                    raise self._wrong_password()
                with (
                    _open_connection(about.host, about.port) as connection,
                    closing(_Client(connection, about.host, about.port)) as client,
                ):
                    self._send(client, password, mail)
        except SMTPRecipientsRefused as error:
            codes = ", ".join(str(code) for code, _ in error.recipients.values())
            raise ConfigurationError(
                f"mail server {self.place} refuses the recipient {mail['To']}: {codes}",
                hint=f"correct notify.smtp.to; {_AGAIN}",
            ) from None
        except OSError as error:
            reason = str(error.smtp_code) if isinstance(error, SMTPResponseException) else _reason(error)
            raise ConfigurationError(
                f"mail server {self.place} takes no mail: {reason}", hint=_AGAIN
            ) from None

    def _send(self, client: SMTP, password: str, mail: EmailMessage) -> None:
        about = self.section
        if about.starttls:
            authorities = None if about.ca is None else chain_pem(load_chain(about.ca)).decode()
            client.starttls(context=ssl.create_default_context(cadata=authorities))
        if password:
            self._sign_in(client, password)
        client.send_message(mail)
        # The server has the mail: whatever comes after that, it is not sent again.
        with suppress(OSError):
            client.quit()

    def _sign_in(self, client: SMTP, password: str) -> None:
        """Sign in by one mechanism of the server; `SMTP.login` tries a wrong password with each of them."""
        client.user, client.password = self.section.user, password
        client.ehlo_or_helo_if_needed()
        answers: dict[str, Any] = {
            "PLAIN": client.auth_plain,
            "LOGIN": client.auth_login,
            "CRAM-MD5": client.auth_cram_md5,
        }
        offered = client.esmtp_features.get("auth", "").upper().split()
        # Without TLS the one that does not send the password comes first.
        for name in answers if self.section.starttls else reversed(answers):
            if name not in offered:
                continue
            try:
                client.auth(name, answers[name])
            except SMTPAuthenticationError as error:
                if error.smtp_code == _UNKNOWN_MECHANISM:
                    continue
                if error.smtp_code == _WRONG_PASSWORD:
                    self._refused_password = password
                    self._refused_until = time.monotonic() + _REFUSED_SECONDS
                    raise self._wrong_password() from None
                raise
            return
        raise SMTPNotSupportedError

    def _wrong_password(self) -> ConfigurationError:
        return ConfigurationError(
            f"mail server {self.place} refuses the user and password of notify.smtp: {_WRONG_PASSWORD}",
            hint="correct notify.smtp.user or what notify.smtp.password_file holds; a refused password is "
            f"tried once an hour, and {_AGAIN}",
        )


class MailSink:
    """Sends one recipient one mail for all messages of a batch.

    Every recipient has a cursor: one who is refused neither loses messages nor has others sent them twice.
    """

    most = 500

    def __init__(self, server: MailServer, recipient: str, notices: Notices, party: str) -> None:
        self.name = f"mail:{server.place}:{recipient}"
        self._server, self._recipient, self._notices, self._party = server, recipient, notices, party

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Send a mail if a record needs one."""
        messages = self._notices.messages(records)
        if not messages:
            return
        mail = EmailMessage()
        mail["From"], mail["To"] = self._server.section.sender, self._recipient
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        mail["Subject"] = f"Tessera {self._party}: {messages[0]['text']}{more}"
        mail.set_content("".join(f"{message['time']}  {message['text']}\n" for message in messages))
        self._server.send(mail)


class WebhookSink:
    """Posts each message as JSON, signed by HMAC-SHA256 in the header `X-Tessera-Signature`.

    Its name has a digest of the address, which often holds a secret, and names go to logs and databases.
    """

    most = 1
    """A message that was taken is not sent again because of the one after it."""

    def __init__(self, section: WebhookSection, notices: Notices) -> None:
        self._section, self._notices, self._url = section, notices, urlsplit(section.url)
        digest = sha256(section.url.encode()).hexdigest()[:_DIGEST_DIGITS]
        self.name = f"webhook:{self._url.hostname}:{digest}"

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Post the messages of some records."""
        for message in self._notices.messages(records):
            self._post(json.dumps(message, sort_keys=True).encode())

    def _post(self, body: bytes) -> None:
        mark = hmac.new(read_secret(self._section.secret_file).encode(), body, sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "X-Tessera-Signature": f"sha256={mark}",
            "Connection": "close",
        }
        try:
            status = self._status(body, headers)
        except (OSError, HTTPException) as error:
            raise self._refusal(_reason(error)) from None
        # No redirect is followed: the message is for the configured address alone.
        if not 200 <= status < 300:
            raise self._refusal(str(status))

    def _status(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Return the status of the answer."""
        url, host, secure = self._url, self._url.hostname or "", self._url.scheme == "https"
        port = url.port or (443 if secure else 80)
        target = url._replace(scheme="", netloc="", fragment="", path=url.path or "/").geturl()
        with _open_connection(host, port, by_proxy=True) as connection:
            if secure:
                context = ssl.create_default_context()
                client: HTTPConnection = HTTPSConnection(host, port, context=context)
                client.sock = context.wrap_socket(connection, server_hostname=host)
            else:
                client = HTTPConnection(host, port)
                client.sock = connection
            with closing(client):
                client.request("POST", target, body, headers)
                return client.getresponse().status

    def _refusal(self, reason: str) -> ConfigurationError:
        return ConfigurationError(f"webhook at {self._url.hostname} takes no messages: {reason}", hint=_AGAIN)
