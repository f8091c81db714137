"""What an owner is told about its own data before it consents, and what it lets others know of that."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from common.errors import ExitCode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import (
    ask,
    declared,
    identifiers,
    ledger,
    logs,
    people,
    policy,
    released,
    spends,
    write,
)

SIZE = 200
LIMIT = "0.3"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two owners, the first of whom limits what may leave unchanged."""
    folder: Path = tmp_path_factory.mktemp("forecast")
    for position, owner in enumerate(("a", "b")):
        write(folder, owner, "patients", people(identifiers(SIZE * position, SIZE), seed=position))
    limits = policy(max_unchanged_share=LIMIT)
    make_setup(folder, {"a": limits + declared("patients"), "b": declared("patients")})
    share_linkage_key(folder, ["a", "b"])
    with LocalCluster(folder) as running:
        running.start()
        yield running


def history(cluster: LocalCluster, release: str, event: str) -> list[dict[str, Any]]:
    """Return lines of owner a's history."""
    lines = ask(cluster, "owner-node", "history", "--release", release, owner="a")[1]["history"]
    return [line for line in lines if line["event"] == event]


def test_a_limit_ends_a_release_and_says_no_more_than_that(cluster: LocalCluster) -> None:
    """The owner reads rule and share, others that a policy refused; nothing is spent."""
    code, document = released(cluster, "limited", attributes="emergency,severity", epsilon="20", k="5")
    assert code == ExitCode.REFUSED
    assert "a: refused by owner policy" in json.dumps(document)
    (line,) = history(cluster, "limited", "refused")
    found = re.fullmatch(
        rf"policy\.max_unchanged_share = {LIMIT}: (0\.\d+) of the values are expected to leave unchanged",
        line["rule"],
    )
    assert found is not None, line["rule"]
    told_to_others = json.dumps(document) + (cluster.folder / "logs" / "aggregator.log").read_text()
    assert found[1] not in told_to_others
    assert "unchanged" not in told_to_others
    for owner in ("a", "b"):
        assert spends(cluster, owner) == []
        with ledger(cluster, owner) as book:
            kinds = [str(entry.kind) for entry in book.entries() if str(entry.kind) in ("reserve", "return")]
        assert kinds in ([], ["reserve", "return"])


def test_within_the_limit_the_forecast_is_in_the_history(cluster: LocalCluster) -> None:
    """An accepted release has the owner's own figures in its history, and they are nowhere else."""
    code, document = released(cluster, "useful", attributes="income,admitted", epsilon="1", k="20")
    assert code == ExitCode.DONE, document
    (line,) = history(cluster, "useful", "accepted")
    foreseen = line["details"]["forecast"]
    assert [each["name"] for each in foreseen["attributes"]] == ["income", "admitted"]
    assert Decimal(foreseen["unchanged_values"]) <= Decimal(LIMIT)
    folder = Path(document["directory"])
    public = (folder / "manifest.json").read_text() + (folder / "report.html").read_text()
    public += (cluster.folder / "logs" / "aggregator.log").read_text()
    assert foreseen["mean_sse"] not in public
    assert "forecast" not in public


def test_data_without_use_are_warned_of(cluster: LocalCluster) -> None:
    """An epsilon so small that the means would do is warned of in the owner's log, before it is charged."""
    code, _ = released(cluster, "useless", attributes="income,admitted", epsilon="0.01", k="5")
    assert code == ExitCode.DONE
    assert "the fragment is expected to be worth less than its means" in logs(cluster)
