"""Parties with certificates of their own making: a CA, an aggregator that may hold its key, and owners."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

from aggregator.config import AggregatorConfig, AggregatorSection, EnrolmentSection
from common.settings import TlsSection
from common.trust.credentials import switch_pair
from deploy.development_ca import DevelopmentCa, Issued

TRUST_DOMAIN = "release.test"
HOSTS = ("localhost", "127.0.0.1")


class Validity(TypedDict, total=False):
    """From when until when a certificate is valid; what is left out is as usual."""

    not_before: datetime
    not_after: datetime


def valid_for(days: float) -> Validity:
    """Return the validity of a certificate of ninety days that ends in so many."""
    ends = datetime.now(UTC) + timedelta(days=days)
    return {"not_before": ends - timedelta(days=90), "not_after": ends}


class Parties:
    """A folder of certificates, named as the tests' helpers expect them.

    Args:
        folder: Where to, made if absent.
        hub: Validity of the aggregator's certificate.
        owners: Validity of each owner's certificate.
    """

    def __init__(self, folder: Path, hub: Validity | None = None, **owners: Validity) -> None:
        self.folder, self.ca = folder, DevelopmentCa(TRUST_DOMAIN)
        folder.mkdir(parents=True, exist_ok=True)
        self.ca.issued.write(folder, "ca")
        self.ca.aggregator("hub", HOSTS, **(hub or Validity())).write(folder, "hub")
        for name, validity in owners.items():
            self.ca.owner(name, **validity).write(folder, f"owner-{name}")

    def files(self, name: str) -> TlsSection:
        """Return the files of `hub` or of `owner-ID`."""
        return TlsSection(self.folder / "ca.pem", self.folder / f"{name}.pem", self.folder / f"{name}.key")

    def issue(self, name: str) -> Issued:
        """Return a new key and certificate of `hub` or of `owner-ID`."""
        if name == "hub":
            return self.ca.aggregator("hub", HOSTS)
        return self.ca.owner(name.removeprefix("owner-"))

    def renew(self, name: str) -> Issued:
        """Put a new key and certificate into the files of `hub` or of `owner-ID`, as any CA might."""
        issued, files = self.issue(name), self.files(name)
        switch_pair(files.cert, files.key, issued.certificate_pem, issued.key_pem)
        return issued

    def aggregator(self, place: Path, *, holds_ca_key: bool) -> AggregatorConfig:
        """Return the configuration of the aggregator."""
        section = AggregatorSection(
            "hub", TRUST_DOMAIN, place / "state", place / "releases", place / "c" / "s", listen="127.0.0.1:0"
        )
        enrolment = EnrolmentSection(self.folder / "ca.key" if holds_ca_key else None)
        return AggregatorConfig(
            path=place / "aggregator.toml", aggregator=section, tls=self.files("hub"), enrolment=enrolment
        )


class Heard(logging.Handler):
    """Hands on what both sides log, so that tests wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._changed = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Take one entry, from whatever thread."""
        self.records.append(record)
        self._loop.call_soon_threadsafe(self._changed.set)

    def listen(self) -> None:
        """Hand on to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def count(self, event: str, **fields: Any) -> int:
        """Return how often something was logged."""
        return sum(
            record.getMessage() == event and fields.items() <= vars(record).items() for record in self.records
        )

    async def wait_for(self, event: str, times: int = 1, **fields: Any) -> None:
        """Wait until something has been logged so often."""
        await self.wait_until(lambda: self.count(event, **fields) >= times)

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; looked at whenever anything is logged."""
        async with asyncio.timeout(90):
            while not holds():
                self._changed.clear()
                await self._changed.wait()
