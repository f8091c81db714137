"""The table `[notify]`: which people are told when something needs them, and in which words.

This module knows the settings alone; `common.daemon.messengers` delivers the messages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from common.daemon.settings import parse_web_address
from common.settings import Contradictions, FilePath, Listed, Section


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
