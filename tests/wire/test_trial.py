"""A trial: a whole release by real daemons over real TLS, without a real record and without a charge."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aggregator.control.asking import named_id
from common.errors import UsageError
from common.model.plan import is_trial
from common.release.verification import verify_release
from owner_node.cli.releases import _verify_own
from owner_node.config import OwnerConfig
from owner_node.config.dataset import MatchTable
from owner_node.ledger.ledger import Ledger
from owner_node.loading.simulated import RECORDS
from owner_node.state.database import OwnerDatabase
from owner_node.state.history import History
from owner_node.state.sessions import Sessions
from tests.wire.test_owner_daemon import Heard, ended, heard, owner, running, share_key

__all__ = ["heard"]


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def allowing(config: OwnerConfig) -> OwnerConfig:
    """Return a configuration that allows trials, whose real records cannot even be read."""
    (cohort,) = config.datasets
    policy = replace(config.policy, allow_trials=True, approval="manual")
    return replace(config, policy=policy, datasets=(replace(cohort, source=f"{cohort.source}.gone"),))


def by_match_keys(config: OwnerConfig) -> OwnerConfig:
    """Return a configuration whose persons two passes link."""
    (cohort,) = config.datasets
    match = (
        MatchTable(name="names+birth", keys=("name:soundex", "born:date")),
        MatchTable(name="name", keys=("name:fold",)),
    )
    cohort = replace(cohort, identifier=(), normalise=(), normalise_also={}, match=match)
    return replace(config, datasets=(cohort,))


@pytest.mark.parametrize("by_keys", [False, True])
@pytest.mark.parametrize("layout", ["horizontal", "vertical"])
async def test_the_whole_way_without_a_record(
    launch: Callable[..., Any],
    tmp_path: Path,
    certificates: Path,
    heard: Heard,
    layout: str,
    by_keys: bool,
) -> None:
    """Published and verified like a release, and it says what it is; the state of releases stays empty."""
    hub = await launch()
    configs = [allowing(owner(tmp_path / name, name, hub.daemon.address, certificates)) for name in "ab"]
    if by_keys:
        configs = list(map(by_match_keys, configs))
    if layout == "vertical":
        (cohort,) = configs[1].datasets
        pay = replace(cohort, attributes=(replace(cohort.attributes[0], name="pay"),))
        configs[1] = replace(configs[1], datasets=(pay,))
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await hub.start("a", "b", release="trial-1", layout=layout)
        assert await ended(hub, "trial-1") == "published"
        folder = hub.config.aggregator.release_dir / "trial-1"
        verified = verify_release(folder)
        assert verified.n_records == (RECORDS if layout == "vertical" else 2 * RECORDS)
        quality = verified.addendum.match_quality
        linked = RECORDS if by_keys and layout == "vertical" else 0
        assert (quality is not None, 0 if quality is None else quality.linked) == (by_keys, linked)
        assert verified.guarantee[0].startswith("This is a trial: the owners made up every record")
        assert json.loads((folder / "manifest.json").read_bytes())["guarantee"][0] == verified.guarantee[0]
        assert "This is a trial" in (folder / "report.html").read_text()
        assert _verify_own(configs[0], folder, verified).n_records == RECORDS
        # The same data cannot be released: there are none.
        await hub.start("a", "b", release="r1", layout=layout)
        assert await ended(hub, "r1") != "published"
    for config in configs:
        with OwnerDatabase(config.owner.state_dir, make=False) as db:
            assert list(Ledger(db, now).entries()) == []
            assert Sessions(db, now).get("hub", "trial-1") is None
            assert list(History(db, now).entries("hub", "trial-1")) == []


@pytest.mark.parametrize(
    ("named", "trial", "chosen"),
    [
        ("study", False, "study"),
        ("", False, ""),
        ("study", True, "trial-study"),
        ("trial-x", True, "trial-x"),
    ],
)
def test_the_id_says_that_it_is_a_trial(named: str, trial: bool, chosen: str) -> None:
    """Folder, manifest and every signed document have the id; a release cannot have that of a trial."""
    assert named_id(named, trial=trial) == chosen
    assert is_trial(named_id("", trial=True))
    with pytest.raises(UsageError, match="ids that begin with 'trial-'"):
        named_id("trial-x", trial=False)


async def test_an_owner_that_allows_no_trials(
    launch: Callable[..., Any], tmp_path: Path, certificates: Path, heard: Heard
) -> None:
    """By default a trial is refused, and nothing of the data is counted for it."""
    hub = await launch()
    configs = [owner(tmp_path / name, name, hub.daemon.address, certificates) for name in "ab"]
    configs[1] = allowing(configs[1])
    share_key(configs)
    async with running(*configs):
        await heard.wait_for("connected", times=2)
        await hub.start("a", "b", release="trial-2")
        assert await ended(hub, "trial-2") == "refused"
    with OwnerDatabase(configs[0].owner.state_dir, make=False) as db:
        (line,) = History(db, now).entries("hub", "trial-2")
        assert line.rule == "policy.allow_trials: trials are not answered"
