"""Synthetic releases by separate processes: made, verified, killed in every round, decided by a person."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pandas as pd
import pytest

import tessera
from common.release.verification import verify_release
from deploy.local_cluster import LocalCluster
from deploy.local_setup import AGGREGATOR, make_setup, share_linkage_key
from owner_node.release.own_fragment import check_announced, verify_answered
from owner_node.state.database import OwnerDatabase
from owner_node.state.rounds import AnsweredRound, Rounds
from owner_node.state.sessions import Sessions
from tests.system.small_owners import (
    answer_of,
    ask,
    declared,
    identifiers,
    people,
    policy,
    released,
    spends,
    start_release,
    state_dir,
    write,
)

OWNERS = ("a", "b", "c")
SIZE = 2000
PAUSE_SECONDS = 0.002
"""Between two looks at the rounds of another process, which needs the processor, too."""
ATTEMPTS = 8
"""How often a release is made until the process dies in the very round that is meant."""
RULES = [{"age": {"max": 15}, "ward": ["surgery"]}, {"severity": ["severe"], "emergency": [False]}]
"""What no record is, though some of the owners' are."""
MUCH = "20"
"""An epsilon about which a person at owner a is asked."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Three owners with other persons each, one of which asks a person about much epsilon."""
    folder = tmp_path_factory.mktemp("synthetic")
    says = {}
    for place, owner in enumerate(OWNERS):
        write(folder, owner, "patients", people(identifiers(SIZE * place, SIZE), seed=place))
        rules = policy(manual_above_epsilon="6" if owner == "a" else MUCH)
        says[owner] = rules + declared("patients", total_epsilon="1000", structural_zeros=RULES)
    make_setup(folder, says)
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


@contextmanager
def state(cluster: LocalCluster, owner: str) -> Iterator[OwnerDatabase]:
    """Open an owner's database beside its daemon."""
    with OwnerDatabase(state_dir(cluster, owner), make=False) as db:
        yield db


def answered(cluster: LocalCluster, owner: str, release: str, number: int) -> tuple[AnsweredRound, ...]:
    """Return an owner's rounds as soon as it has answered so many."""
    until = monotonic() + 60
    with state(cluster, owner) as db:
        while monotonic() < until:
            found = Rounds(db).answered(AGGREGATOR, release)
            if len(found) >= number:
                return found
            sleep(PAUSE_SECONDS)
    raise AssertionError(f"{owner} never answered round {number} of {release}")


def verified_records(cluster: LocalCluster, release: str, folder: str) -> tuple[int, dict[str, int]]:
    """Check what both `verify` commands check; returns the number of records, and of those of each owner."""
    verified = verify_release(Path(folder), cluster.folder / "tls" / "ca.pem")
    own = {}
    for owner in verified.plan.owners:
        with state(cluster, owner) as db:
            session = Sessions(db, lambda: datetime.now(UTC)).get(AGGREGATOR, release)
            rounds = Rounds(db).answered(AGGREGATOR, release)
        assert session is not None
        check_announced(session, verified)
        signature = session.fragment_signature or b""
        answered = verify_answered(verified, owner, rounds, session.fragment_digest, signature)
        own[owner] = answered.n_records
    return verified.n_records, own


def check_published(cluster: LocalCluster, release: str, folder: str, epsilon: int = 1) -> None:
    """Check that a release holds for everybody, and that each owner was charged ε once."""
    assert verified_records(cluster, release, folder) == (len(OWNERS) * SIZE, dict.fromkeys(OWNERS, SIZE))
    for owner in OWNERS:
        assert [each.epsilon for each in spends(cluster, owner, release)] == [epsilon]


ASKED = {"product": "synthetic", "k": "", "owners": ",".join(OWNERS)}


def test_a_release(cluster):
    """The plan says what it is, declared rules hold, everybody verifies it, and an owner downloads it."""
    words = ("--dataset", "patients", "--layout", "horizontal", "--epsilon", "1", "--product", "synthetic")
    code, shown = ask(cluster, "aggregator", "plan", *words, "--owners", ASKED["owners"])
    assert (code, shown["plan"]["synthesis"]["colluding"]) == (0, "1"), shown
    code, shown = released(cluster, "whole", **ASKED)
    assert (code, shown["state"]) == (0, "published"), shown
    check_published(cluster, "whole", shown["directory"])
    code, verified = ask(
        cluster, "aggregator", "verify", shown["directory"], "--ca", cluster.folder / "tls" / "ca.pem"
    )
    assert (code, verified["holds"], verified["records"]) == (0, True, len(OWNERS) * SIZE)
    code, verified = ask(cluster, "owner-node", "verify", shown["directory"], owner="c")
    assert (code, verified["own"]["records"]) == (0, SIZE)
    drawn = pd.read_csv(Path(shown["directory"]) / "data.csv")
    assert not ((drawn["age"] <= 15) & (drawn["ward"] == "surgery")).any()
    assert not ((drawn["severity"] == "severe") & ~drawn["emergency"]).any()
    out = cluster.folder / "fetched"
    assert ask(cluster, "owner-node", "download", "whole", "--out", out, owner="b")[0] == 0
    assert (out / "counts.parquet").read_bytes() == (Path(shown["directory"]) / "counts.parquet").read_bytes()
    # Nothing of an answer or a key is left in a database once a release is published.
    for owner in OWNERS:
        cluster.owner(owner).wait_for("concluded", release="whole")
        with state(cluster, owner) as db:
            assert Rounds(db).secrets(AGGREGATOR, "whole") is None
            assert not any(each.answer for each in Rounds(db).answered(AGGREGATOR, "whole"))
            session = Sessions(db, lambda: datetime.now(UTC)).get(AGGREGATOR, "whole")
        assert session is not None
        assert session.release_key is None
    assert not list((cluster.aggregator.config.parent / "state" / "incoming").glob("whole/*"))


def kill_in_round(
    cluster: LocalCluster,
    victim: str,
    number: int,
    asked: Mapping[str, str],
    check: Callable[[str, dict[str, Any]], object],
    *,
    witness: str = "a",
) -> None:
    """Kill a process in a round of a release, and check that the release goes on with the same answers.

    Args:
        victim: An owner, or the aggregator.
        number: The round, from 1.
        asked: Options of the release.
        check: Gets the id of each release and the document about it; raises if it is not as it must be.
        witness: The owner whose answers show the round.
    """
    daemon = cluster.aggregator if victim == "aggregator" else cluster.owner(victim)
    for attempt in range(ATTEMPTS):
        release = f"{asked.get('dataset', '')}-{asked.get('on_mismatch', '')}-{victim}-{number}-{attempt}"
        release = release.lstrip("-")
        command = start_release(cluster, release, **asked)
        answered(cluster, witness, release, number)
        daemon.kill()
        with state(cluster, witness) as db:
            died = Rounds(db).answered(AGGREGATOR, release)
        # A command that finds no daemon yet ends with the same exit code as one that has lost its daemon.
        cluster.restart(daemon)
        code, document = answer_of(command)
        if code == 6:
            # The command's connection died with the aggregator; the release did not.
            code, document = answer_of(start_release(cluster, release, **asked))
        assert (code, document.get("state")) == (0, "published"), document
        check(release, document)
        after = answered(cluster, witness, release, 4)
        assert [each.digest for each in after][: len(died)] == [each.digest for each in died]
        if len(died) == number:
            return
    pytest.fail(f"in {ATTEMPTS} releases nobody died in round {number}")


# Zeros, both rounds that count, and the closing one; `test_synthetic_across` has those of the other layouts.
@pytest.mark.parametrize(("victim", "number"), [("a", 1), ("aggregator", 2), ("a", 3), ("aggregator", 4)])
def test_killed_in_a_round(cluster, victim, number):
    """Whoever dies in a round goes on with it, and what an owner has answered it never answers otherwise."""
    kill_in_round(
        cluster,
        victim,
        number,
        ASKED,
        lambda release, shown: check_published(cluster, release, shown["directory"]),
    )


def test_a_person_decides(cluster):
    """A person sees what counts say, not what masking would do, and approves."""
    command = start_release(cluster, "asked", **ASKED, epsilon="8")
    cluster.owner("a").wait_for("waiting for a person", release="asked")
    code, shown = ask(cluster, "owner-node", "show", "asked", owner="a")
    assert (code, shown["product"], shown["state"]) == (0, "synthetic", "awaiting_approval")
    assert shown["records"]["exact"] == SIZE
    assert not shown["verdict"]["unusable"]
    assert any("whole record" in line for line in shown["promises"])
    text = cluster.cli("owner-node", "show", "asked", owner="a").stdout
    assert "noisy counts" in text
    assert ask(cluster, "owner-node", "approve", "asked", "--yes", owner="a")[0] == 0
    code, document = answer_of(command)
    assert (code, document["state"]) == (0, "published"), document
    assert [each.epsilon for each in spends(cluster, "a", "asked")] == [8]


def test_two_attributes_as_one(cluster):
    """The plan and owners say so, everybody verifies it, and hazards have intervals; rules still hold."""
    words = ("--dataset", "patients", "--layout", "horizontal", "--epsilon", "4", "--product", "synthetic")
    wrong = ("--owners", ASKED["owners"], "--together", "age:income")
    code, refused = ask(cluster, "aggregator", "plan", *words, *wrong)
    assert code != 0
    assert "'income' has 900,001 values" in str(refused), refused
    code, shown = released(cluster, "together", **ASKED, epsilon="4", together="emergency:age")
    assert (code, shown["state"]) == (0, "published"), shown
    check_published(cluster, "together", shown["directory"], 4)
    text = cluster.cli("owner-node", "show", "together", owner="a").stdout
    assert "Counted together" in text
    release = tessera.read_release(shown["directory"], ca=cluster.folder / "tls" / "ca.pem")
    assert {"age", "emergency"} <= set(release.frame.columns)
    assert not ((release.frame["age"] <= 15) & (release.frame["ward"] == "surgery")).any()
    assert not release.supports("Surv(age, emergency) ~ ward")
    ratios = release.estimates.cox("age", "emergency", "ward")
    assert (ratios["low"] < ratios["high"]).all()
