"""aggregator.db: everything that the aggregator stores, including the register of certificates.

The daemon's calls are short and block: there are hundreds of releases, and events arrive at the pace of
people and uploads. The operator's `enroll` commands write to the same file, with or without the daemon.
"""

from common.database import SqliteDatabase, append_only
from common.errors import CannotStoreError, ConfigurationError

__all__ = ["FILE_NAME", "AggregatorDatabase", "CannotStoreError"]

FILE_NAME = "aggregator.db"
_RELEASES = (
    """CREATE TABLE events (
        release TEXT NOT NULL, sequence INTEGER NOT NULL, time INTEGER NOT NULL, document TEXT NOT NULL,
        PRIMARY KEY (release, sequence)
    ) STRICT, WITHOUT ROWID""",
    *append_only("events"),
)
_OWNERS = (
    """CREATE TABLE owners (
        id TEXT PRIMARY KEY, first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL,
        version TEXT NOT NULL, datasets TEXT NOT NULL, fingerprint TEXT NOT NULL,
        certificate_expires INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    # Every head, not only the newest: two heads at one place prove that a copy of the owner's state runs.
    """CREATE TABLE ledger_heads (
        owner TEXT NOT NULL, sequence INTEGER NOT NULL, hash TEXT NOT NULL, signature BLOB NOT NULL,
        certificate BLOB NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (owner, sequence)
    ) STRICT, WITHOUT ROWID""",
)
_OPERATORS = (
    """CREATE TABLE operator_log (
        sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, user TEXT NOT NULL, action TEXT NOT NULL,
        release TEXT NOT NULL, details TEXT NOT NULL, outcome TEXT NOT NULL
    ) STRICT""",
    *append_only("operator_log"),
    "CREATE TABLE audit_sinks (name TEXT PRIMARY KEY, sequence INTEGER NOT NULL) STRICT, WITHOUT ROWID",
)
_CERTIFICATES = (
    # parent: digest of the certificate that this one renewed; empty where it renewed none.
    """CREATE TABLE certificates (
        digest TEXT PRIMARY KEY, owner TEXT NOT NULL, fingerprint TEXT NOT NULL, serial TEXT NOT NULL,
        origin TEXT NOT NULL CHECK (origin IN ('approved', 'renewed', 'seen')),
        since INTEGER NOT NULL, expires INTEGER NOT NULL, revoked INTEGER, parent TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX certificates_owner ON certificates (owner)",
    "CREATE INDEX certificates_key ON certificates (fingerprint)",
    "CREATE INDEX certificates_parent ON certificates (parent)",
    "CREATE TABLE revoked_owners (owner TEXT PRIMARY KEY, time INTEGER NOT NULL) STRICT, WITHOUT ROWID",
)


class AggregatorDatabase(SqliteDatabase):
    """The aggregator's database."""

    schema = (*_RELEASES, *_OWNERS, *_OPERATORS, *_CERTIFICATES)

    def damage_error(self, reason: str) -> ConfigurationError:
        """Return the error for a file that is no intact database."""
        return ConfigurationError(
            f"{self.path} cannot be used as the aggregator's database ({reason})",
            hint="check the disk and whose file it is; else restore it from a backup",
        )
