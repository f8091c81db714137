"""owner.db: the durable state of an owner in one file, so that related changes commit in one transaction.

The ledger and the history are append-only: triggers refuse every change and deletion, and a new entry
must carry the next sequence number. That prevents mistakes; the hash chain (`owner_node.state.chain`) detects
deliberate changes.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from common.database import SqliteDatabase, Transaction, append_only
from common.errors import CannotStoreError, TesseraError

__all__ = ["FILE_NAME", "CannotStoreError", "Clock", "OwnerDatabase", "Transaction"]

Clock = Callable[[], datetime]
"""Returns the time, with its time zone."""
FILE_NAME = "owner.db"


def _chain_triggers(table: str, skipping: str = "") -> tuple[str, ...]:
    """Return the triggers of a hash chain; entries of the kind `skipping` may leave numbers out."""
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    following = f"(SELECT coalesce(max(sequence), 0) + 1 FROM {table})"  # noqa: S608 - our names
    out_of_turn = f"NEW.sequence IS NOT {following}"
    if skipping:
        out_of_turn += f" AND NOT (NEW.kind = '{skipping}' AND NEW.sequence > {following})"
    return (
        *append_only(table),
        # INSERT OR REPLACE deletes without firing the trigger against deletion.
        f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {out_of_turn} {refuse}",
    )


_LEDGER_TABLE = (
    # note: what else an entry records, as canonical JSON; rank_loss: NULL where it is unbounded or unknown;
    # delta: NULL for 0.
    # Changes of a total, acknowledged losses and opened rounds are entries as well.
    """CREATE TABLE ledger (
        sequence INTEGER PRIMARY KEY, time TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('reserve', 'spend', 'return', 'budget', 'recover', 'round')),
        budget TEXT NOT NULL, aggregator TEXT NOT NULL, release TEXT NOT NULL, plan_digest TEXT NOT NULL,
        charge TEXT NOT NULL, epsilon TEXT NOT NULL, epsilon_joint TEXT, accounting TEXT NOT NULL,
        rank_loss TEXT, note TEXT, previous TEXT NOT NULL, hash TEXT NOT NULL, delta TEXT)""",
    "CREATE UNIQUE INDEX ledger_reserved_once ON ledger (aggregator, release) WHERE kind = 'reserve'",
    """CREATE UNIQUE INDEX ledger_settled_once ON ledger (aggregator, release, kind)
        WHERE kind IN ('spend', 'return')""",
    "CREATE INDEX ledger_budget ON ledger (budget)",
    # The unneeded part of a reservation is returned before the rest is spent; a spend is never returned.
    """CREATE TRIGGER ledger_spent_for_ever BEFORE INSERT ON ledger WHEN NEW.kind = 'return'
        AND EXISTS (SELECT 1 FROM ledger WHERE kind = 'spend'
            AND aggregator = NEW.aggregator AND release = NEW.release)
        BEGIN SELECT RAISE(ABORT, 'a spend is never returned'); END""",
    # A recovery continues after the numbers of the lost entries.
    *_chain_triggers("ledger", skipping="recover"),
)
_LEDGER = (
    *_LEDGER_TABLE,
    # Why all work is stopped, until `ledger recover`.
    """CREATE TABLE ledger_halt (
        id INTEGER PRIMARY KEY CHECK (id = 1), time TEXT NOT NULL,
        message TEXT NOT NULL, hint TEXT NOT NULL, details TEXT NOT NULL)""",
    # The newest ledger head that this owner signed.
    """CREATE TABLE ledger_signed (
        id INTEGER PRIMARY KEY CHECK (id = 1), sequence INTEGER NOT NULL, hash TEXT NOT NULL)""",
)
_HISTORY = (
    """CREATE TABLE history (
        sequence INTEGER PRIMARY KEY, time TEXT NOT NULL, aggregator TEXT NOT NULL, release TEXT NOT NULL,
        event TEXT NOT NULL, decision TEXT NOT NULL, rule TEXT NOT NULL, purpose TEXT NOT NULL,
        epsilon TEXT NOT NULL, plan_digest TEXT NOT NULL, details TEXT NOT NULL,
        previous TEXT NOT NULL, hash TEXT NOT NULL)""",
    "CREATE INDEX history_release ON history (aggregator, release)",
    "CREATE INDEX history_event ON history (event)",
    *_chain_triggers("history"),
    # Up to which line each audit sink has received the history.
    "CREATE TABLE audit_sinks (sink TEXT PRIMARY KEY, sequence INTEGER NOT NULL)",
)
_SESSIONS = (
    # Plans by digest, compressed, until their session ends without a charge.
    "CREATE TABLE plans (digest TEXT PRIMARY KEY, plan BLOB NOT NULL)",
    # deadline: until when the aggregator waits for a consent. refusal: the answer to a repeated question.
    # fragment_certificate: the chain that the fragment was signed with; the key may be renewed later.
    # forecast, attacks: expected effect of masking on the owner's own data, never disclosed.
    # left_out: records that loading dropped, by column and reason, never disclosed.
    # release_key: derived from the linkage key of that generation, for this release alone.
    """CREATE TABLE sessions (
        aggregator TEXT NOT NULL, release TEXT NOT NULL, state TEXT NOT NULL, dataset TEXT NOT NULL,
        purpose TEXT NOT NULL, plan_digest TEXT NOT NULL, plan_signature BLOB,
        aggregator_certificate BLOB, key_check TEXT NOT NULL, source_digest TEXT NOT NULL,
        addendum BLOB, addendum_signature BLOB, fragment_digest TEXT NOT NULL, fragment_size INTEGER,
        n_records INTEGER, fragment_signature BLOB, receipt BLOB, receipt_signature BLOB,
        manifest_digest TEXT NOT NULL, reason TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
        schema BLOB,
        deadline INTEGER,
        refusal TEXT NOT NULL DEFAULT '',
        fragment_certificate BLOB,
        forecast TEXT NOT NULL DEFAULT '',
        key_generation INTEGER NOT NULL DEFAULT 0,
        release_key BLOB,
        answered INTEGER NOT NULL DEFAULT 0,
        epsilon TEXT NOT NULL DEFAULT '',
        kept_digest TEXT NOT NULL DEFAULT '',
        attacks TEXT NOT NULL DEFAULT '',
        left_out TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (aggregator, release))""",
)
_ROUNDS = (
    # Of synthetic releases, while they may go on: the private key for masks, and the seed of the noise.
    # partners: what linking found of the records, and which owners of other groups have them; once fetched.
    """CREATE TABLE sum_keys (
        aggregator TEXT NOT NULL, release TEXT NOT NULL, key BLOB NOT NULL, partners BLOB,
        PRIMARY KEY (aggregator, release))""",
    # What opened each round, and what was answered: the only answer to it. digest: of all answers up to this.
    # attached and answer: NULL once nobody can ask for them again.
    """CREATE TABLE rounds (
        aggregator TEXT NOT NULL, release TEXT NOT NULL, round INTEGER NOT NULL, document BLOB NOT NULL,
        attached BLOB, answer BLOB, digest TEXT NOT NULL, signature BLOB NOT NULL,
        certificate BLOB NOT NULL, PRIMARY KEY (aggregator, release, round))""",
)
_DAEMON = (
    # configuration: the path of the owner.toml that the daemon runs with.
    """CREATE TABLE daemon (
        id INTEGER PRIMARY KEY CHECK (id = 1), pid INTEGER NOT NULL, version TEXT NOT NULL,
        started TEXT NOT NULL, configuration TEXT NOT NULL DEFAULT '')""",
    """CREATE TABLE connections (
        aggregator TEXT PRIMARY KEY,
        connected INTEGER NOT NULL, since TEXT NOT NULL, reason TEXT NOT NULL)""",
)
_KEYS = (
    # Public keys that this owner signed with: its signatures outlive the CA that certified the keys.
    """CREATE TABLE own_keys (
        fingerprint TEXT PRIMARY KEY, public_key BLOB NOT NULL, first_used TEXT NOT NULL)""",
    # Key of the digests of columns in the ledger: the digests disclose no value to a reader of the ledger.
    "CREATE TABLE source_key (id INTEGER PRIMARY KEY CHECK (id = 1), key BLOB NOT NULL)",
)
_LEDGER_WITH_ROUNDS = (
    # SQLite changes no constraint of a table, so entries move to a new one; the old indices and triggers go.
    "ALTER TABLE ledger RENAME TO ledger_before",
    _LEDGER_TABLE[0],
    "INSERT INTO ledger SELECT * FROM ledger_before ORDER BY sequence",
    "DROP TABLE ledger_before",
    *_LEDGER_TABLE[1:],
    # Of development versions, which kept there what opened a round.
    "DROP TABLE IF EXISTS openings",
)


class OwnerDatabase(SqliteDatabase):
    """The owner's database.

    Args:
        state_dir: The owner's state directory; created, for this user alone, where it is absent.
        make: False to only read: without a database, an empty one in memory is used.

    Raises:
        ConfigurationError: If the directory or file cannot be used, or another version wrote it.
        IntegrityError: If the file is damaged.
    """

    schema = (*_LEDGER, *_HISTORY, *_SESSIONS, *_ROUNDS, *_DAEMON, *_KEYS)
    migrations = (
        ("ALTER TABLE ledger ADD COLUMN delta TEXT",),
        _ROUNDS,
        _LEDGER_WITH_ROUNDS,
        ("ALTER TABLE sessions ADD COLUMN attacks TEXT NOT NULL DEFAULT ''",),
        ("ALTER TABLE sessions ADD COLUMN left_out TEXT NOT NULL DEFAULT ''",),
    )

    def __init__(self, state_dir: Path, *, make: bool = True) -> None:
        super().__init__(state_dir / FILE_NAME, create=make)
        self.state_dir = state_dir

    def damage_error(self, reason: str) -> TesseraError:
        """Return the error for a file that is no intact database, with what a ledger needs after a loss."""
        error = super().damage_error(reason)
        error.hint = "put the newest backup back, then charge what it lacks: owner-node ledger recover"
        return error
