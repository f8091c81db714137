"""A person decides, with real daemons: over restarts of any party, in time or too late, yes or no."""

import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from common.errors import ExitCode
from deploy.local_cluster import LocalCluster
from deploy.local_setup import AGGREGATOR, make_setup, section, share_linkage_key
from owner_node.risk.attacks import LINKING
from tests.system.small_owners import (
    answer_of,
    ask,
    declared,
    identifiers,
    ledger,
    logs,
    people,
    policy,
    released,
    spends,
    start_release,
    write,
)

OWNERS = ("a", "b")
SIZE = 60


def made(folder: Path, **deadlines: str) -> LocalCluster:
    """Return a cluster in which owner a asks a person about every plan, and owner b wants to know owner a."""
    for position, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(SIZE * position, SIZE), seed=position))
    rules = {"a": policy(approval="manual"), "b": policy(co_owners=["a"])}
    # Owner b's file cannot be written before somebody makes its folder: no release waits for that.
    files = {"a": "audit.jsonl", "b": "absent/audit.jsonl"}
    audit = {owner: section("[audit]", {"file": file}) for owner, file in files.items()}
    says = {owner: rule + audit[owner] + declared("patients") for owner, rule in rules.items()}
    make_setup(folder, says, deadlines=deadlines)
    share_linkage_key(folder, OWNERS)
    return LocalCluster(folder)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two owners, the first of whom asks a person."""
    with made(tmp_path_factory.mktemp("approval")) as running:
        running.start()
        yield running


@pytest.fixture(autouse=True)
def whole(cluster: LocalCluster) -> None:
    """Every test begins with all daemons running and connected."""
    for owner in cluster.owners.values():
        if not owner.running:
            owner.start()
            owner.wait_for("connected")


def waiting(cluster: LocalCluster, release: str) -> Any:
    """Start a release and return its command when a person is asked."""
    command = start_release(cluster, release, k="5")
    cluster.owner("a").wait_for("waiting for a person", release=release)
    return command


def states(cluster: LocalCluster, release: str) -> dict[str, str]:
    """Return what the aggregator says about its owners."""
    return {each["id"]: each["state"] for each in ask(cluster, "aggregator", "show", release)[1]["owners"]}


def approve(cluster: LocalCluster, release: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Approve at owner a; what waits, whatever it is, unless a digest is named."""
    seen = options if "--digest" in options else (*options, "--yes")
    return ask(cluster, "owner-node", "approve", release, *seen, "--anyway", owner="a")


def events(cluster: LocalCluster, release: str, owner: str = "a") -> list[dict[str, Any]]:
    """Return what an owner's history says of a release."""
    found: list[dict[str, Any]] = ask(cluster, "owner-node", "history", "--release", release, owner=owner)[1][
        "history"
    ]
    return found


def audited(cluster: LocalCluster, owner: str, file: str) -> list[dict[str, Any]]:
    """Return what an owner's audit file says: the history, each line once, without what stays in owner.db."""
    path, until = cluster.owner(owner).config.parent / file, monotonic() + 30
    while True:
        told = [json.loads(line) for line in path.read_text().splitlines()]
        kept = ask(cluster, "owner-node", "history", owner=owner)[1]["history"]
        if len(told) >= len(kept):
            break
        assert monotonic() < until
    assert any("forecast" in line["details"] for line in kept) == (owner == "a")
    for line in kept:
        line["details"] = {
            name: value for name, value in line["details"].items() if name not in ("source", "forecast")
        }
    assert [{"log": "history", "owner": owner, **line} for line in kept] == told[: len(kept)]
    assert [line["sequence"] for line in told] == list(range(1, len(told) + 1))
    return told


def check_published(cluster: LocalCluster, command: Any, release: str) -> None:
    """Check that a release is published, and was charged once."""
    code, document = answer_of(command)
    assert (code, document.get("state")) == (ExitCode.DONE, "published"), document
    assert len(spends(cluster, "a", release)) == 1


def test_the_question_survives_the_daemon(cluster):
    """A daemon that is killed while a person decides asks again, reserves nothing, and goes on at once."""
    command = waiting(cluster, "yes")
    assert states(cluster, "yes") == {"a": "awaiting_approval", "b": "reserved"}
    cluster.restart(cluster.owner("a"))
    cluster.owner("a").wait_for("waiting for a person", release="yes")
    (request,) = ask(cluster, "owner-node", "requests", owner="a")[1]["requests"]
    assert (request["release"], request["rule"]) == ("yes", 'policy.approval = "manual"')
    assert request["charge"] == request["epsilon"] == "0.999999999996"
    with ledger(cluster, "a") as book:
        assert [each.release for each in book.entries()] == []
    code, document = approve(cluster, f"{AGGREGATOR}/yes", "--digest", request["plan_digest"])
    assert (code, document["daemon_told"]) == (ExitCode.DONE, True)
    check_published(cluster, command, "yes")
    assert ask(cluster, "owner-node", "requests", owner="a")[1]["requests"] == []
    (linked,) = [line for line in events(cluster, "yes", "b") if line["event"] == "linked"]
    assert list(linked["details"]["co_owners"]) == ["a"]
    found = [line["event"] for line in events(cluster, "yes")]
    assert found[:4] == ["invited", "awaiting-approval", "approved", "accepted"]


def test_the_audit_file_tells_the_same(cluster):
    """What the history holds is in the audit file, in order, also what a command wrote beside the daemon."""
    command = waiting(cluster, "audited")
    assert approve(cluster, "audited")[0] == ExitCode.DONE
    check_published(cluster, command, "audited")
    cluster.restart(cluster.owner("a"))
    assert "approved" in [line["event"] for line in audited(cluster, "a", "audit.jsonl")]
    cluster.owner("b").wait_for("audit sink fails")
    (cluster.owner("b").config.parent / "absent").mkdir()
    command = waiting(cluster, "audited-again")
    cluster.owner("b").wait_for("audit sink caught up")
    assert approve(cluster, "audited-again")[0] == ExitCode.DONE
    check_published(cluster, command, "audited-again")
    assert "published" in [line["event"] for line in audited(cluster, "b", "absent/audit.jsonl")]


def test_approved_while_the_daemon_is_down(cluster):
    """An approval needs no daemon; the one that starts later goes on with it."""
    command = waiting(cluster, "down")
    cluster.owner("a").kill()
    code, document = approve(cluster, "down")
    assert (code, document["daemon_told"]) == (ExitCode.DONE, False)
    cluster.owner("a").start()
    check_published(cluster, command, "down")


def test_the_aggregator_restarts_meanwhile(cluster):
    """An aggregator that died while a person decided knows afterwards that it waits for one."""
    command = waiting(cluster, "hub-dies")
    cluster.restart(cluster.aggregator)
    assert answer_of(command)[0] == ExitCode.NOT_CONNECTED
    cluster.wait_connected()
    assert states(cluster, "hub-dies")["a"] == "awaiting_approval"
    assert approve(cluster, "hub-dies")[0] == ExitCode.DONE
    code, document = released(cluster, "hub-dies", k="5")
    assert (code, document.get("state")) == (ExitCode.DONE, "published"), document


def test_a_person_refuses(cluster):
    """The operator hears that a person refused, exit 4; why stays in the owner's history."""
    command = waiting(cluster, "no")
    reason = "the ethics committee has not met"
    code, document = ask(cluster, "owner-node", "refuse", "no", "--reason", reason, owner="a")
    assert (code, document["state"]) == (ExitCode.DONE, "refused")
    code, document = answer_of(command)
    assert (code, document["error"]["code"]) == (ExitCode.REFUSED, "refused")
    assert document["error"]["message"] == "owner a: a person at the owner refused"
    assert reason not in json.dumps(document) + logs(cluster)
    line = events(cluster, "no")[2]
    assert (line["event"], line["decision"]) == ("refused", "refuse")
    assert line["rule"].endswith(f": {reason}")
    cluster.owner("b").wait_for("concluded", release="no")
    for owner in OWNERS:
        assert spends(cluster, owner, "no") == []
    assert approve(cluster, "no")[0] == ExitCode.USAGE


def test_refused_while_the_daemon_is_down(cluster):
    """A refusal is answered by the daemon that starts later."""
    command = waiting(cluster, "no-daemon")
    cluster.owner("a").kill()
    assert ask(cluster, "owner-node", "refuse", "no-daemon", "--reason", "no", owner="a")[0] == ExitCode.DONE
    cluster.owner("a").start()
    code, document = answer_of(command)
    assert (code, document["error"]["message"]) == (
        ExitCode.REFUSED,
        "owner a: a person at the owner refused",
    )


def test_an_approval_that_came_to_its_end(cluster):
    """An approval that ended before it could be used accepts nothing; the person is asked again."""
    command = waiting(cluster, "late")
    cluster.owner("a").kill()
    assert approve(cluster, "late", "--valid", "1s")[0] == ExitCode.DONE
    until = monotonic() + 30
    while ask(cluster, "owner-node", "show", "late", owner="a")[1]["approval"]["valid"]:
        assert monotonic() < until
    cluster.owner("a").start()
    cluster.owner("a").wait_for("waiting for a person", release="late")
    assert [each["event"] for each in events(cluster, "late")][-1] == "approval-expired"
    assert states(cluster, "late")["a"] == "awaiting_approval"
    assert approve(cluster, "late")[0] == ExitCode.DONE
    check_published(cluster, command, "late")


def test_another_plan_is_not_approved(cluster):
    """Who names another digest than that of the plan that waits has seen another plan: exit 3."""
    command = waiting(cluster, "other")
    code, document = approve(cluster, "other", "--digest", "0" * 64)
    assert (code, document["error"]["code"]) == (ExitCode.CONFLICT, "conflict")
    assert approve(cluster, "other", "--digest", document["error"]["details"]["plan_digest"][:8])[0] == 2
    assert approve(cluster, "nonesuch")[0] == ExitCode.USAGE
    assert states(cluster, "other")["a"] == "awaiting_approval"
    shown = ask(cluster, "owner-node", "show", "other", owner="a")[1]
    assert shown["plan_digest"] == ask(cluster, "aggregator", "show", "other")[1]["plan_digest"]
    # The plan was tried on the data for the person who decides, and its noise was for nothing else. The
    # policy's intruder has one figure, that of the verdict.
    linking = [each for each in shown["attacks"]["risks"] if each["attack"] in LINKING]
    assert [each["knows"] for each in linking].count(shown["attacks"]["expected"]) == 1
    assert approve(cluster, "other", "--digest", shown["plan_digest"][:12])[0] == ExitCode.DONE
    check_published(cluster, command, "other")


def test_the_deadline_passes_while_a_person_decides(tmp_path):
    """A person who takes too long is too late: exit 8, nothing reserved at anybody, nothing to approve."""
    with made(tmp_path, consent="2s") as cluster:
        cluster.start()
        command = waiting(cluster, "slow")
        code, document = answer_of(command)
        assert (code, document["error"]["code"]) == (ExitCode.ENDED, "deadline")
        assert "no answer from a" in document["error"]["message"]
        for owner in OWNERS:
            cluster.owner(owner).wait_for("concluded", release="slow")
            assert spends(cluster, owner) == []
        with ledger(cluster, "a") as book:
            assert book.entries() == ()
        with ledger(cluster, "b") as book:
            assert [str(each.kind) for each in book.entries()] == ["reserve", "return"]
        code, document = approve(cluster, "slow")
        assert (code, document["error"]["details"]["state"]) == (ExitCode.USAGE, "ended")
