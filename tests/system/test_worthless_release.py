"""`aggregator release` of too few records, with real owners: nothing is charged unless a person wants it."""

from collections.abc import Iterator

import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import (
    ATTRIBUTES,
    ask,
    declared,
    identifiers,
    people,
    policy,
    spends,
    write,
)
from tests.terminal import terminal

OWNERS = ("a", "b")
RELEASE = (
    *("release", "--dataset", "patients", "--layout", "horizontal", "--owners", "a,b"),
    *("--epsilon", "0.1", "--k", "20"),
)


@pytest.fixture
def cluster(tmp_path) -> Iterator[LocalCluster]:
    """Two owners of sixty persons each."""
    for position, owner in enumerate(OWNERS):
        write(tmp_path, owner, "patients", people(identifiers(60 * position, 60), seed=position))
    says = policy() + declared("patients", attributes={"age": ATTRIBUTES["age"]})
    make_setup(tmp_path, dict.fromkeys(OWNERS, says))
    share_linkage_key(tmp_path, OWNERS)
    with LocalCluster(tmp_path) as running:
        running.start()
        yield running


def charged(cluster: LocalCluster, release: str) -> list[int]:
    """Return how often each owner was charged for a release."""
    return [len(spends(cluster, owner, release)) for owner in OWNERS]


def test_a_worthless_release_is_charged_only_on_purpose(cluster):
    """Without a terminal `--yes` ends with 2; the same command with --anyway goes on and is published."""
    code, document = ask(cluster, "aggregator", *RELEASE, "--id", "r1", "--yes")
    assert (code, document["error"]["code"]) == (2, "usage"), document
    assert "for 1 of 1 attribute the mean would do as well (age)" in document["error"]["message"]
    code, document = ask(cluster, "aggregator", *RELEASE, "--id", "r2", "--yes", "--detach")
    assert code == 0, document
    cluster.aggregator.wait_for("planned", release="r2")
    assert ask(cluster, "aggregator", "watch", "r2")[0] == 2
    assert [charged(cluster, each) for each in ("r1", "r2")] == [[0, 0], [0, 0]]
    code, document = ask(cluster, "aggregator", *RELEASE, "--id", "r1", "--yes", "--anyway")
    assert (code, document.get("state")) == (0, "published"), document
    assert charged(cluster, "r1") == [1, 1]


@pytest.mark.parametrize("yes", ["", " --yes"])
def test_a_person_is_asked_with_the_reason(cluster, yes):
    """At a terminal one question says what the result is worth, whatever `--yes` says."""
    with terminal(cluster.aggregator.config.parent) as shell:
        out = shell.paste(f"aggregator {' '.join(RELEASE)} --id r1{yes}")
        assert out.index("warning: the result is expected to be worthless") < out.index(
            "consent to this plan"
        )
        assert [each.partition(" [")[0] for each in shell.answered] == [
            "Ask 2 owners to consent to this plan anyway?"
        ]
        assert "published" in out
        shell.leave()
    assert charged(cluster, "r1") == [1, 1]
