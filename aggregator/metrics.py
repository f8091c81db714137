"""What Prometheus is told about an aggregator. Only imported where `[metrics]` names a port."""

import asyncio
from collections import Counter

from prometheus_client.core import Metric

from aggregator.api.control_service import About
from aggregator.drive.conductor import Conductor
from aggregator.drive.presence import Presence
from aggregator.protocol.states import State
from aggregator.store.journal import Journal, KnownOwner
from common import __version__
from common.daemon.metrics import Tally, bytes_counted, gauge, step_seconds

_MOST_OWNERS = 1000
"""Most owners with series of their own: those that were seen last."""
_ANSWER_SECONDS = 4.0


class Metrics:
    """How the daemon is, as families of metrics.

    Args:
        about: The daemon.
        conductor: The releases.
        journal: The owners.
        presence: Who is connected.
        tally: What was counted.
    """

    def __init__(
        self, about: About, conductor: Conductor, journal: Journal, presence: Presence, tally: Tally
    ) -> None:
        self._about, self._conductor, self._journal = about, conductor, journal
        self._presence, self._tally = presence, tally
        self._loop = asyncio.get_running_loop()

    def families(self) -> list[Metric]:
        """Return how things stand; called in any thread but the daemon's, which owns what is looked at.

        Raises:
            TimeoutError: If the daemon has no time to answer.
        """
        return asyncio.run_coroutine_threadsafe(self._look(), self._loop).result(_ANSWER_SECONDS)

    async def _look(self) -> list[Metric]:
        owners = self._journal.owners()
        last_seen = sorted(owners.values(), key=lambda each: each.last_seen, reverse=True)[:_MOST_OWNERS]
        return [
            gauge(
                "tessera_aggregator_info",
                "The aggregator, and the version that it runs; always 1.",
                [((self._about.name, __version__), 1)],
                ("name", "version"),
            ),
            gauge(
                "tessera_aggregator_certificate_expires_timestamp_seconds",
                "Until when the aggregator's certificate is valid, in Unix time.",
                [((), self._about.certificate_expires)],
            ),
            *self._of_owners(last_seen, len(owners)),
            *self._of_releases(),
            bytes_counted(
                "tessera_aggregator_received_bytes",
                "Bytes of tokens and fragments that were received since the start.",
                self._tally,
            ),
            step_seconds(
                "tessera_aggregator_step_seconds",
                "How long releases were in each state before they left it, since the start.",
                self._tally,
            ),
        ]

    def _of_owners(self, owners: list[KnownOwner], n_known: int) -> list[Metric]:
        return [
            gauge(
                "tessera_aggregator_known_owners",
                "How many owners have ever connected.",
                [((), n_known)],
            ),
            gauge(
                "tessera_aggregator_connected_owners",
                "How many owners are connected.",
                [((), self._presence.count())],
            ),
            gauge(
                "tessera_aggregator_owner_connected",
                "Whether an owner is connected, 1 or 0.",
                [((each.id,), self._presence.connected(each.id)) for each in owners],
                ("owner",),
            ),
            gauge(
                "tessera_aggregator_owner_certificate_expires_timestamp_seconds",
                "Until when the certificate is valid that an owner connected with last, in Unix time.",
                [((each.id,), each.certificate_expires) for each in owners],
                ("owner",),
            ),
        ]

    def _of_releases(self) -> list[Metric]:
        releases = self._conductor.releases
        states = Counter(release.state for release in releases)
        waiting = sum(bool(self._conductor.waiting(each.id)) for each in releases if not each.ended)
        return [
            gauge(
                "tessera_aggregator_releases",
                "How many releases are in each state, those that ended included.",
                [((str(state),), states[state]) for state in State],
                ("state",),
            ),
            gauge(
                "tessera_aggregator_releases_waiting",
                "How many releases wait for something of this machine, such as room on its disk.",
                [((), waiting)],
            ),
        ]
