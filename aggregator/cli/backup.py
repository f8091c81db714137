"""`aggregator backup` and `aggregator restore`: a whole copy of the aggregator's state, and the way back."""

from pathlib import Path

from aggregator import config
from aggregator.store.database import FILE_NAME, AggregatorDatabase
from aggregator.store.intake import ASIDE
from common.cli import console
from common.cli.backup import SourceArgument, TargetArgument, place_of, show_made, show_restored
from common.clock import utc_now
from common.daemon import backup as backups

_LEFT_OUT = frozenset({"aggregator.lock", "control", "incoming", ASIDE})
_FOLLOWING = (
    "start the daemon; ask again, under new ids, for releases since the backup: their charge stays",
    "revoke again what was revoked after the backup: those certificates are valid again",
)


def backup(
    target: TargetArgument, config_file: console.ConfigOption = None, as_json: console.JsonOption = False
) -> None:
    """Write configuration, certificates, keys and state into one file, also while the daemon runs."""
    loaded = config.load(config_file)
    with AggregatorDatabase(loaded.aggregator.state_dir / FILE_NAME) as db:
        made = backups.make(_holdings(loaded.path), db, target, utc_now())
    missing = [f"published releases: {loaded.aggregator.release_dir}", "fragments of releases under way"]
    show_made(made, target, missing, as_json=as_json)


def restore(
    source: SourceArgument, config_file: console.ConfigOption = None, as_json: console.JsonOption = False
) -> None:
    """Restore a backup into a state directory without a database."""
    place = place_of(config_file, config.FILE_NAME)
    restored = backups.restore(source, place, _holdings, lambda _folder: None)
    show_restored(restored, _FOLLOWING, as_json=as_json)


def _holdings(path: Path) -> backups.Holdings:
    loaded = config.load(path)
    return backups.Holdings(
        party=f"aggregator {loaded.aggregator.name}",
        configuration=loaded.path,
        keys=backups.named_files(
            tls=loaded.tls, enrolment=loaded.enrolment, console=loaded.console, notify=loaded.notify
        ),
        state_dir=loaded.aggregator.state_dir,
        database=FILE_NAME,
        workspace=loaded.engine.workspace(loaded.aggregator.state_dir),
        left_out=_LEFT_OUT,
    )
