"""What Prometheus is told about an owner node. Only imported where `[metrics]` names a port.

Exact decimals become binary floats here and nowhere else: a budget is decided about in the ledger.
"""

from prometheus_client.core import Metric

from common import __version__
from common.credentials import Credentials
from common.metrics import bytes_counted, gauge, step_seconds
from common.tally import Tally
from owner_node.config import OwnerConfig
from owner_node.state.records import Records
from owner_node.state.session import State


class Metrics:
    """How the daemon is, as families of metrics.

    Args:
        config: The owner's configuration.
        records: The owner's state.
        credentials: The owner's identity of now.
        tally: What was counted.
    """

    def __init__(self, config: OwnerConfig, records: Records, credentials: Credentials, tally: Tally) -> None:
        self._config, self._records = config, records
        self._credentials, self._tally = credentials, tally

    def families(self) -> list[Metric]:
        """Return how things stand; may be called in any thread, and blocks while owner.db is written."""
        certificate = self._credentials.current_signer().certificate
        return [
            gauge(
                "tessera_owner_info",
                "The owner, and the version that its node runs; always 1.",
                [((self._config.owner.id, __version__), 1)],
                ("owner", "version"),
            ),
            gauge(
                "tessera_owner_certificate_expires_timestamp_seconds",
                "Until when the owner's certificate is valid, in Unix time.",
                [((), certificate.not_valid_after_utc.timestamp())],
            ),
            gauge(
                "tessera_owner_halted",
                "Whether all work is stopped because the ledger lacks what was signed, 1 or 0.",
                [((), self._records.ledger.halt.reason() is not None)],
            ),
            self._connected(),
            self._sessions(),
            *self._budgets(),
            bytes_counted(
                "tessera_owner_sent_bytes",
                "Bytes of tokens and fragments that were sent since the start.",
                self._tally,
            ),
            step_seconds(
                "tessera_owner_step_seconds",
                "How long this owner worked at each step of releases, since the start.",
                self._tally,
            ),
        ]

    def _connected(self) -> Metric:
        standing = {each.aggregator for each in self._records.presence.state().connections if each.connected}
        return gauge(
            "tessera_owner_connected",
            "Whether the connection to an aggregator stands, 1 or 0.",
            [((each.name,), each.name in standing) for each in self._config.aggregators],
            ("aggregator",),
        )

    def _sessions(self) -> Metric:
        counted = self._records.sessions.counted()
        return gauge(
            "tessera_owner_sessions",
            "How many releases are in each state at this owner, those that ended included.",
            [((str(state),), counted.get(state, 0)) for state in State],
            ("state",),
        )

    def _budgets(self) -> list[Metric]:
        balances = [
            ((each.name, each.budget), self._records.ledger.balance(each.budget, each.total_epsilon))
            for each in self._config.datasets
        ]
        labels = ("dataset", "budget")
        return [
            gauge(
                "tessera_owner_budget_total_epsilon",
                "What the budget of a data set holds for its lifetime.",
                [(of, float(balance.total)) for of, balance in balances],
                labels,
            ),
            gauge(
                "tessera_owner_budget_reserved_epsilon",
                "What of it is reserved for releases under way.",
                [(of, float(balance.reserved)) for of, balance in balances],
                labels,
            ),
            gauge(
                "tessera_owner_budget_remaining_epsilon",
                "What is left of it, reservations taken off.",
                [(of, float(balance.remaining)) for of, balance in balances],
                labels,
            ),
        ]
