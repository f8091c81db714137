"""Messages to people: by mail, or to a webhook, when something needs them.

A message is made from a line of the audit records, and delivered as those are (`common.daemon.audit`): in
order, at least once, retried with backoff, and never in the way of a release. It holds ids, a time and a
sentence of this program; no text of another party, and never a value of a record, an identifier or a token.
"""

import hmac
import json
import smtplib
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from hashlib import sha256
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import Field, PlainValidator

from common.daemon.audit import AuditSink
from common.daemon.settings import parse_web_address
from common.errors import ConfigurationError
from common.files import read_secret
from common.settings import Contradictions, FilePath, Listed, Section

_SECONDS = 10.0
_AGAIN = "nothing is lost: it is sent again until it is accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpSection(Section):
    """The table `[notify.smtp]`: a mail server."""

    host: Annotated[str, Field(description="name of the mail server")]
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    """Port of the mail server."""
    starttls: bool = True
    """Whether the connection is encrypted (STARTTLS) before anything is sent."""
    sender: Annotated[str, Field(description="address that messages come from")]
    to: Annotated[Listed[str], Field(min_length=1, description="addresses of the people to notify")]
    user: str = ""
    """Name to sign in with; empty for no sign-in."""
    password_file: FilePath | None = None
    """A private file whose first line is the password."""
    ca: FilePath | None = None
    """The authorities' certificates of the server, PEM; without it those of the system."""

    def __post_init__(self) -> None:
        if bool(self.user) != (self.password_file is not None):
            missing = "password_file" if self.user else "user"
            raise Contradictions([(missing, " is missing: user and password_file sign in together")])


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSection(Section):
    """The table `[notify.webhook]`: an address that takes JSON."""

    url: Annotated[
        str, PlainValidator(parse_web_address), Field(description="https address that takes the messages")
    ]
    secret_file: Annotated[FilePath, Field(description="private file whose first line signs messages")]


@dataclass(frozen=True, slots=True)
class NotifySection(Section):
    """The table `[notify]`: who is told when something needs a person."""

    smtp: SmtpSection | None = None
    webhook: WebhookSection | None = None


@dataclass(frozen=True, slots=True)
class Notices:
    """Which records people are told about, and in which words."""

    sentences: Mapping[str, str]
    """A sentence for each event, with places for `aggregator`, `release` and `owner`."""

    def messages(self, records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages for the records that have a sentence."""
        return [
            {name: record[name] for name in ("sequence", "time", "owner", "event", "aggregator", "release")}
            | {"text": self.sentences[record["event"]].format(**record)}
            for record in records
            if record["event"] in self.sentences
        ]


def notice_sinks(section: NotifySection, notices: Notices, party: str) -> tuple[AuditSink, ...]:
    """Return the sinks that tell people; nothing is opened before the first message.

    Args:
        section: The table `[notify]`.
        notices: What people are told.
        party: Who tells it, such as "owner north".
    """
    found: list[AuditSink] = []
    if section.smtp is not None:
        found.append(MailSink(section.smtp, notices, party))
    if section.webhook is not None:
        found.append(WebhookSink(section.webhook, notices))
    return tuple(found)


class MailSink:
    """Sends one mail for all messages of a batch."""

    def __init__(self, section: SmtpSection, notices: Notices, party: str) -> None:
        self.name = f"mail:{section.host}:{section.port}:{','.join(section.to)}"
        self._section, self._notices, self._party = section, notices, party

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Send a mail if a record needs one.

        Raises:
            ConfigurationError: If the server did not take it.
        """
        messages, about = self._notices.messages(records), self._section
        if not messages:
            return
        mail = EmailMessage()
        mail["From"], mail["To"] = about.sender, ", ".join(about.to)
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        mail["Subject"] = f"Tessera {self._party}: {messages[0]['text']}{more}"
        mail.set_content("".join(f"{each['time']}  {each['text']}\n" for each in messages))
        try:
            with smtplib.SMTP(about.host, about.port, timeout=_SECONDS) as server:
                if about.starttls:
                    server.starttls(context=ssl.create_default_context(cafile=about.ca))
                if about.user and about.password_file is not None:
                    server.login(about.user, read_secret(about.password_file))
                server.send_message(mail)
        except (OSError, smtplib.SMTPException) as error:
            raise ConfigurationError(
                f"mail server {about.host}:{about.port} takes no mail: {type(error).__name__}", hint=_AGAIN
            ) from None


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the message is for the configured address alone."""


@dataclass(slots=True)
class WebhookSink:
    """Posts each message as JSON, signed by HMAC-SHA256 in the header `X-Tessera-Signature`."""

    section: WebhookSection
    notices: Notices
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = f"webhook:{self.section.url}"

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Post the messages of some records.

        Raises:
            ConfigurationError: If one was not taken.
        """
        for message in self.notices.messages(records):
            body = json.dumps(message, sort_keys=True).encode()
            mark = hmac.new(read_secret(self.section.secret_file).encode(), body, sha256).hexdigest()
            headers = {"Content-Type": "application/json", "X-Tessera-Signature": f"sha256={mark}"}
            request = Request(self.section.url, body, headers)  # noqa: S310 - https, or this machine: `parse_web_address`
            try:
                with build_opener(_NoRedirects).open(request, timeout=_SECONDS):
                    pass
            except (URLError, OSError) as error:
                reason = type(error).__name__
                if isinstance(error, HTTPError):
                    reason = str(error.code)
                    error.close()
                host = urlsplit(self.section.url).hostname
                raise ConfigurationError(
                    f"webhook at {host} takes no messages: {reason}", hint=_AGAIN
                ) from None
