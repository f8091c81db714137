"""A lost or restored owner.db with real processes: work stops, is recovered by command, and goes on."""

import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import (
    Attributes,
    ask,
    declared,
    identifiers,
    ledger,
    people,
    released,
    state_dir,
    write,
)

ATTRIBUTES: Attributes = {"age": {"type": "integer", "min": 0, "max": 120}}
WITHOUT_PIPE = shutil.ignore_patterns("*.bell", "*.lock")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two owners with a budget of 5 each."""
    says = {}
    for place, name in enumerate("ab"):
        write(tmp_path, name, "patients", people(identifiers(1000 * place, 90), seed=place))
        says[name] = declared("patients", attributes=ATTRIBUTES, total_epsilon="5")
    make_setup(tmp_path, says)
    share_linkage_key(tmp_path, ["a", "b"])
    with LocalCluster(tmp_path) as running:
        running.start()
        yield running


def remaining(cluster: LocalCluster, total: str = "5") -> Decimal:
    """Return what is left of owner a's budget, its chain checked."""
    with ledger(cluster, "a") as book:
        return book.balance("patients", Decimal(total)).remaining


def mask(cluster: LocalCluster, name: str) -> tuple[int, str]:
    """Mask owner a's data with epsilon 0.5; returns exit code and the code of the error."""
    arguments = [
        "mask",
        "--dataset",
        "patients",
        "--epsilon",
        "0.5",
        "--out",
        name,
        "--id",
        name[:2],
        "--yes",
        "--anyway",
    ]
    code, document = ask(cluster, "owner-node", *arguments, owner="a")
    return code, document.get("error", {}).get("code", "")


def lose(cluster: LocalCluster, backup: Path | None) -> None:
    """Kill owner a, and put an older owner.db back, or none."""
    cluster.owner("a").kill()
    state = state_dir(cluster, "a")
    if backup is None:
        for path in state.glob("owner.db*"):
            path.unlink()
    else:
        shutil.rmtree(state)
        shutil.copytree(backup, state)


@pytest.mark.parametrize("loss", ["backup", "disk"])
def test_recovered(cluster: LocalCluster, tmp_path: Path, loss: str) -> None:
    """After a loss nothing is done until it is recovered; then what was lost is charged, and work goes on."""
    assert released(cluster, "r1")[0] == 0
    backup = tmp_path / "backup"
    shutil.copytree(state_dir(cluster, "a"), backup, ignore=WITHOUT_PIPE)
    assert mask(cluster, "m1.csv") == (0, "")
    assert released(cluster, "r2")[0] == 0
    assert remaining(cluster) == Decimal("2.5")
    lose(cluster, backup if loss == "backup" else None)
    cluster.owner("a").start()
    told = cluster.owner("a").wait_for("not connected")
    assert "this owner has signed entry 6" in str(told["reason"])
    assert "owner-node ledger recover" in str(told["hint"])
    assert mask(cluster, "m2.csv") == (7, "integrity")
    cluster.owner("a").stop()
    code, document = ask(cluster, "owner-node", "ledger", "recover", "--yes", owner="a")
    assert (code, document["error"]["details"]["missing"]) == (2, 4 if loss == "backup" else 6)
    stated = ["ledger", "recover", "--charge", "patients=0.75", "--yes"]
    code, document = ask(cluster, "owner-node", *stated, owner="a")
    assert (code, document["recovered"]) == (0, True), document
    charged = [(each["release"], each["charge"], each["proved"]) for each in document["charges"]]
    assert charged == [("r2", "1", True)] if loss == "backup" else [("r1", "1", True), ("r2", "1", True)]
    assert remaining(cluster) == Decimal("2.25")
    cluster.owner("a").start()
    cluster.owner("a").wait_for("connected")
    assert released(cluster, "r3")[0] == 0
    assert remaining(cluster) == Decimal("1.25")


def test_a_mask_is_not_forgotten(cluster: LocalCluster, tmp_path: Path) -> None:
    """A backup that lacks nothing but a charge of the owner's own is found out, and the data stay charged."""
    backup = tmp_path / "backup"
    shutil.copytree(state_dir(cluster, "a"), backup, ignore=WITHOUT_PIPE)
    assert mask(cluster, "m1.csv") == (0, "")
    cluster.aggregator.wait_for("ledger head", owner="a", sequence=2)
    lose(cluster, backup)
    cluster.owner("a").start()
    told = cluster.owner("a").wait_for("not connected")
    assert "this owner has signed entry 2" in str(told["reason"])
    assert mask(cluster, "m2.csv") == (7, "integrity")
    cluster.owner("a").stop()
    recover = ["ledger", "recover", "--charge", "patients=0.75", "--yes"]
    code, document = ask(cluster, "owner-node", *recover, owner="a")
    assert (code, document["missing"]) == (0, 2)
    assert remaining(cluster) == Decimal("4.25")


def test_a_recovery_by_the_book(cluster: LocalCluster, tmp_path: Path) -> None:
    """It needs the daemon stopped and a person's yes, happens once, and the next loss is found, too."""
    backup = tmp_path / "backup"
    shutil.copytree(state_dir(cluster, "a"), backup, ignore=WITHOUT_PIPE)
    assert released(cluster, "r1")[0] == 0
    lose(cluster, None)
    cluster.owner("a").start()
    cluster.owner("a").wait_for("not connected")
    recover = ["ledger", "recover"]
    code, document = ask(cluster, "owner-node", *recover, "--yes", owner="a")
    assert (code, document["error"]["details"]["holder"]) == (2, "owner-node run")
    cluster.owner("a").stop()
    code, document = ask(cluster, "owner-node", *recover, "--yes", owner="a")
    assert (code, document["error"]["details"]["missing"]) == (2, 2)
    stated = [*recover, "--charge", "patients=0"]
    code, document = ask(cluster, "owner-node", *stated, owner="a")
    assert (code, document["error"]["code"]) == (2, "usage")
    assert "--yes" in document["error"]["hint"]
    code, document = ask(cluster, "owner-node", *stated, "--yes", owner="a")
    assert (code, document["missing"]) == (0, 2)
    assert remaining(cluster) == 4
    again = ask(cluster, "owner-node", *recover, "--yes", owner="a")[1]
    assert again == {"recovered": False, "charges": []}
    lines = ask(cluster, "owner-node", "history", owner="a")[1]["history"]
    assert [line["event"] for line in lines].count("recovered") == 1
    cluster.owner("a").start()
    cluster.owner("a").wait_for("connected")
    assert released(cluster, "r2")[0] == 0
    lose(cluster, backup)
    cluster.owner("a").start()
    assert "has signed entry" in str(cluster.owner("a").wait_for("not connected")["reason"])


def test_a_total_is_changed_by_command_alone(cluster: LocalCluster) -> None:
    """A total raised in owner.toml is refused until the change is recorded, with its reason."""
    assert released(cluster, "r1", epsilon="5")[0] == 0
    config = cluster.owner("a").config
    config.write_text(config.read_text().replace('total_epsilon = "5"', 'total_epsilon = "6"'))
    cluster.restart(cluster.owner("a"))
    shown = cluster.cli("owner-node", "status", owner="a")
    assert "owner-node ledger budget" in shown.stderr
    code, document = released(cluster, "r2", owners="a")
    assert (code, document["error"]["code"]) == (4, "refused")
    change = ["ledger", "budget", "patients", "--total", "6", "--reason", "a second cohort of consents"]
    assert ask(cluster, "owner-node", *change, owner="a")[0] == 2
    code, document = ask(cluster, "owner-node", *change, "--yes", owner="a")
    assert (code, document["before"], document["total"], document["remaining"]) == (0, "5", "6", "1")
    assert released(cluster, "r3", owners="a")[0] == 0
    assert remaining(cluster, total="6") == 0
    entries = ask(cluster, "owner-node", "ledger", "--verify", owner="a")[1]["entries"]
    (told,) = (each["note"] for each in entries if each["kind"] == "budget")
    assert (told["total"], told["reason"]) == ("6", "a second cohort of consents")
    lines = ask(cluster, "owner-node", "history", owner="a")[1]["history"]
    (line,) = (each for each in lines if each["event"] == "budget-changed")
    assert (line["rule"], line["details"]["total"]) == ("a second cohort of consents", "6")


def test_every_aggregator_is_asked(cluster: LocalCluster) -> None:
    """An aggregator that does not answer is named; leaving it out is a person's decision."""
    assert released(cluster, "r1")[0] == 0
    lose(cluster, None)
    cluster.owner("b").stop()
    cluster.aggregator.stop()
    code, document = ask(cluster, "owner-node", "ledger", "recover", "--yes", owner="a")
    assert (code, document["error"]["details"]) == (6, {"aggregator": "central"})
    assert "--without central" in document["error"]["hint"]
    code, document = ask(cluster, "owner-node", "ledger", "recover", "--without", "west", owner="a")
    assert (code, document["error"]["hint"]) == (2, "known aggregators: central")
    code, document = ask(cluster, "owner-node", "ledger", "recover", "--charge", "staff=1", owner="a")
    assert (code, document["error"]["code"]) == (2, "usage")
