"""The metrics that an aggregator exposes to Prometheus."""

import asyncio
from collections import Counter

from prometheus_client.core import GaugeMetricFamily, Metric

from aggregator.api.control_service import About
from aggregator.api.uploads import RECEIVED_BYTES
from aggregator.ca.enrolment import Enrolment
from aggregator.drive.conductor import STEP_SECONDS, Conductor
from aggregator.drive.presence import OwnerPresence
from aggregator.protocol.states import State
from aggregator.store.journal import Journal
from common import __version__
from common.daemon.metrics import gauges

COUNTED = (RECEIVED_BYTES, STEP_SECONDS)
"""Metrics that are counted as they occur."""
_MOST_OWNERS = 1000
"""Most owners with series of their own: those that connected last."""
_ANSWER_SECONDS = 4.0


class AggregatorMetrics:
    """The current metrics."""

    def __init__(
        self,
        about: About,
        conductor: Conductor,
        journal: Journal,
        presence: OwnerPresence,
        enrolment: Enrolment,
    ) -> None:
        self._about, self._conductor, self._journal, self._presence = about, conductor, journal, presence
        self._enrolment = enrolment
        self._loop = asyncio.get_running_loop()

    def families(self) -> list[Metric]:
        """Return all metrics; called in any thread but that of the event loop, which owns the state."""
        return asyncio.run_coroutine_threadsafe(self._collect(), self._loop).result(_ANSWER_SECONDS)

    async def _collect(self) -> list[Metric]:
        return [
            gauges(
                "tessera_aggregator_info",
                "The aggregator, and the version that it runs; always 1.",
                ("name", "version"),
                [((self._about.name, __version__), 1)],
            ),
            GaugeMetricFamily(
                "tessera_aggregator_certificate_expires_timestamp_seconds",
                "Until when the aggregator's certificate is valid, in Unix time.",
                self._about.certificate_expires,
            ),
            *self._owners(),
            *self._releases(),
        ]

    def _owners(self) -> list[Metric]:
        known, revoked = self._journal.owners(), self._enrolment.revoked_keys()
        # Nobody waits for an owner that was excluded.
        expected = [owner for owner in known.values() if owner.fingerprint not in revoked]
        last_seen = sorted(expected, key=lambda each: each.last_seen, reverse=True)[:_MOST_OWNERS]
        return [
            GaugeMetricFamily(
                "tessera_aggregator_known_owners", "How many owners have ever connected.", len(known)
            ),
            GaugeMetricFamily(
                "tessera_aggregator_connected_owners",
                "How many owners are connected.",
                self._presence.count(),
            ),
            gauges(
                "tessera_aggregator_owner_connected",
                "Whether an owner is connected, 1 or 0.",
                ["owner"],
                [((owner.id,), self._presence.is_connected(owner.id)) for owner in last_seen],
            ),
            gauges(
                "tessera_aggregator_owner_certificate_expires_timestamp_seconds",
                "Until when the certificate is valid that an owner connected with last, in Unix time.",
                ["owner"],
                [((owner.id,), owner.certificate_expires) for owner in last_seen],
            ),
        ]

    def _releases(self) -> list[Metric]:
        releases = self._conductor.releases
        states = Counter(release.state for release in releases)
        waiting = sum(bool(self._conductor.waiting(release.id)) for release in releases if not release.ended)
        return [
            gauges(
                "tessera_aggregator_releases",
                "How many releases are in each state, those that ended included.",
                ["state"],
                [((state,), states[state]) for state in State],
            ),
            GaugeMetricFamily(
                "tessera_aggregator_releases_waiting",
                "How many releases wait for something of this machine, such as room on its disk.",
                waiting,
            ),
        ]
