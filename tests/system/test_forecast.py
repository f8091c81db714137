"""What an owner is told about its own data before it consents, and what it lets others know of that."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from common.errors import ExitCode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import (
    answer_of,
    ask,
    declared,
    identifiers,
    ledger,
    people,
    policy,
    spends,
    start_release,
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
    limits = policy(approval="manual", max_unchanged_share=LIMIT)
    make_setup(folder, {"a": limits + declared("patients"), "b": declared("patients")})
    share_linkage_key(folder, ["a", "b"])
    with LocalCluster(folder) as running:
        running.start()
        yield running


def history(cluster: LocalCluster, release: str, event: str) -> list[dict[str, Any]]:
    """Return lines of owner a's history."""
    lines = ask(cluster, "owner-node", "history", "--release", release, owner="a")[1]["history"]
    return [line for line in lines if line["event"] == event]


def asked(cluster: LocalCluster, release: str, **options: str) -> tuple[Popen[str], dict[str, Any]]:
    """Start a release; return its command and the plan that the person at owner a sees."""
    command = start_release(cluster, release, **options)
    cluster.owner("a").wait_for("waiting for a person", release=release)
    code, plan = ask(cluster, "owner-node", "show", release, owner="a")
    assert code == ExitCode.DONE, plan
    return command, plan


def test_a_limit_is_said_first_and_others_learn_nothing_of_it(cluster: LocalCluster) -> None:
    """The person reads limit and share, and refuses; others hear that, and nothing is spent."""
    command, plan = asked(cluster, "limited", attributes="emergency,severity", epsilon="20", k="5")
    (said,) = plan["verdict"]["exceeded"]
    share = format(Decimal(plan["forecast"]["unchanged_values"]), "f")
    assert Decimal(share) > Decimal(LIMIT)
    assert "policy.max_unchanged_share allows at most 30 %" in said
    assert (
        ask(cluster, "owner-node", "refuse", "limited", "--reason", "too much", owner="a")[0] == ExitCode.DONE
    )
    code, document = answer_of(command)
    assert code == ExitCode.REFUSED
    told_to_others = json.dumps(document) + (cluster.folder / "logs" / "aggregator.log").read_text()
    assert share not in told_to_others
    assert "unchanged" not in told_to_others
    for owner in ("a", "b"):
        assert spends(cluster, owner) == []
        with ledger(cluster, owner) as book:
            kinds = [str(entry.kind) for entry in book.entries() if str(entry.kind) in ("reserve", "return")]
        assert kinds in ([], ["reserve", "return"])


def test_within_the_limit_the_forecast_is_in_the_history(cluster: LocalCluster) -> None:
    """An approved release has the owner's own figures in its history, and they are nowhere else."""
    command, plan = asked(cluster, "useful", attributes="income,admitted", epsilon="1", k="20")
    assert plan["verdict"]["exceeded"] == []
    assert ask(cluster, "owner-node", "approve", "useful", "--yes", owner="a")[0] == ExitCode.DONE
    code, document = answer_of(command)
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
    """An epsilon so small that the means would do is said before a person agrees, and agreed to."""
    command, plan = asked(cluster, "useless", attributes="income,admitted", epsilon="0.01", k="5")
    assert plan["verdict"]["loss"]
    assert plan["verdict"]["worthless"]
    assert ask(cluster, "owner-node", "approve", "useless", "--yes", owner="a")[0] != ExitCode.DONE
    assert (
        ask(cluster, "owner-node", "approve", "useless", "--yes", "--anyway", owner="a")[0] == ExitCode.DONE
    )
    assert answer_of(command)[0] == ExitCode.DONE
