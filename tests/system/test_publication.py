"""Publication by real processes: values at the ends of domains, and what stands in its way for a while."""

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from common.release.report import LEFT_OUT
from common.release.verification import REPORT_FILE, verify_release
from deploy.local_cluster import LocalCluster
from deploy.local_setup import make_setup, share_linkage_key
from tests.system.small_owners import (
    answer_of,
    ask,
    declared,
    identifiers,
    people,
    released,
    spends,
    start_release,
    write,
)

OWNERS = ("a", "b")
RECORDS = 100
ATTRIBUTES = {"until": {"type": "date", "min": date(1900, 1, 1), "max": date(9999, 12, 31)}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    """Two owners with a date that is 9999-12-31, which says "for ever", in three of ten records."""
    folder = tmp_path_factory.mktemp("publication")
    for seed, owner in enumerate(OWNERS):
        table = people(identifiers(1000 * seed, RECORDS), seed).rename(columns={"admitted": "until"})
        table.loc[: RECORDS * 3 // 10 - 1, "until"] = "9999-12-31"
        write(folder, owner, "patients", table)
    make_setup(folder, {owner: declared("patients", attributes=ATTRIBUTES) for owner in OWNERS})
    share_linkage_key(folder, OWNERS)
    with LocalCluster(folder) as running:
        running.start()
        yield running


def test_the_last_date_there_is(cluster):
    """Dates of 9999-12-31 are published, with the figure of them."""
    code, document = released(cluster, "for-ever")
    assert (code, document.get("state")) == (0, "published"), document
    folder = Path(document["directory"])
    assert verify_release(folder).n_records == 2 * RECORDS
    report = (folder / REPORT_FILE).read_text()
    assert (LEFT_OUT in report, report.count('role="img"')) == (False, 1)
    assert [len(spends(cluster, owner, "for-ever")) for owner in OWNERS] == [1, 1]


def test_what_cannot_be_published_is_published_later(cluster):
    """A folder in the way ends no release: the command says so and ends with 1, and the same command
    publishes the same fragments once the folder is gone, at no further charge.
    """
    other = Path(ask(cluster, "aggregator", "show", "for-ever")[1]["directory"])
    cluster.owner("b").stop()
    command = start_release(cluster, "later")
    cluster.aggregator.wait_for("started", release="later")
    shutil.copytree(other, other.with_name("later"))
    cluster.owner("b").start()
    code, document = answer_of(command)
    assert (code, document["error"]["details"]["cause"]) == (1, "integrity"), document
    assert ask(cluster, "aggregator", "show", "later")[1]["state"] == "joining"
    assert released(cluster, "later")[0] == 1
    shutil.rmtree(other.with_name("later"))
    code, document = released(cluster, "later")
    assert (code, document.get("state")) == (0, "published"), document
    assert verify_release(Path(document["directory"])).plan.release == "later"
    assert [len(spends(cluster, owner, "later")) for owner in OWNERS] == [1, 1]
