"""`owner-node backup` and `owner-node restore`: a whole copy of this owner's state, and the way back.

A restored ledger may lack charges. So a restored owner does no work until `ledger recover` has charged what
the aggregators show, and a person has stated what no aggregator knows.
"""

from pathlib import Path

from common.cli import console
from common.cli.backup import SourceArgument, TargetArgument, place_of, show_made, show_restored
from common.clock import utc_now
from common.daemon import backup as backups
from common.errors import IntegrityError
from owner_node import config
from owner_node.ledger.ledger import Ledger
from owner_node.release.trial import trial_folder
from owner_node.state.database import FILE_NAME, OwnerDatabase
from owner_node.state.outbox import PARCELS
from owner_node.state.presence import LOCK_NAME, PROGRESS_NAME, daemon_lock
from owner_node.state.rounds import FORGET_SECRETS
from owner_node.state.sessions import FORGET_KEPT_KEYS

_RECOVER = (
    "owner-node ledger recover charges what the aggregators show; state what mask and query charged since "
    "the backup with --charge BUDGET=EPSILON, 0 for nothing"
)


def backup(
    target: TargetArgument, config_file: console.ConfigOption = None, as_json: console.JsonOption = False
) -> None:
    """Write configuration, certificates, keys and state into one file, also while the daemon runs."""
    owner = config.load(config_file)
    with OwnerDatabase(owner.owner.state_dir) as db:
        made = backups.make(_holdings(owner.path), db, target, utc_now())
    show_made(
        made,
        target,
        [
            "the sources of data sets",
            "passwords that come from the environment",
            "what audits of synthetic releases need",
        ],
        as_json=as_json,
    )


def restore(
    source: SourceArgument, config_file: console.ConfigOption = None, as_json: console.JsonOption = False
) -> None:
    """Restore a backup into a state directory without a database; then ledger recover is needed."""
    place = place_of(config_file, config.FILE_NAME)
    restored = backups.restore(
        source, place, _holdings, lambda folder: _halt(folder, _holdings(place).state_dir)
    )
    show_restored(restored, [_RECOVER, "start the daemon"], as_json=as_json)


def _holdings(path: Path) -> backups.Holdings:
    owner = config.load(path)
    secrets = {
        f"dataset.{dataset.name}.{key}": getattr(dataset, key)
        for dataset in owner.datasets
        for key in ("password_file", "credentials_file")
    }
    return backups.Holdings(
        party=f"owner {owner.owner.id}",
        configuration=owner.path,
        keys=backups.named_files(tls=owner.tls, console=owner.console, notify=owner.notify, **secrets),
        state_dir=owner.owner.state_dir,
        database=FILE_NAME,
        workspace=owner.engine.workspace(owner.owner.state_dir),
        # A recovered owner answers no round. Whoever has a backup could take the noise off published sums.
        left_out=frozenset({LOCK_NAME, PROGRESS_NAME, trial_folder(owner.owner.state_dir).name, PARCELS}),
        removing=(FORGET_SECRETS, FORGET_KEPT_KEYS),
    )


def _halt(folder: Path, state_dir: Path) -> None:
    """Stop the work of a restored ledger, before it takes its place."""
    with daemon_lock(state_dir), OwnerDatabase(folder) as db, db.transaction() as tx:
        reason = IntegrityError(
            "the state was restored from a backup, and the ledger may lack charges",
            _RECOVER,
            {"restored": utc_now()},
        )
        Ledger(db, utc_now).losses.stop(tx, reason)
