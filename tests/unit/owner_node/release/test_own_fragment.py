"""An owner's proof that its own masked values were released: holds for honest releases, and only for them."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.cli import application as aggregator_application
from common.cli import console
from common.errors import IntegrityError, UsageError
from common.progress import Progress
from common.release.verification import verify_release
from common.wire.decoding import decode
from common.workspace import Workspace
from owner_node.cli import application as owner_application
from owner_node.engines.fragments import count_missing
from owner_node.release.masked import MASKED
from owner_node.release.own_fragment import verify_own
from owner_node.release.product import SealedFile
from owner_node.state.database import OwnerDatabase
from owner_node.state.outbox import Outbox
from owner_node.state.session import SessionEvent
from owner_node.state.sessions import Sessions
from tests.fakes.published import NAMES, make_release, publish_table
from tests.fakes.releases import Groups

LAYOUTS: dict[str, Groups] = {
    "horizontal": [(NAMES, ("a", "b", "c"))],
    "vertical": [(NAMES[:2], ("a",)), (NAMES[2:3], ("b",)), (NAMES[3:], ("c",))],
    "mixed": [(NAMES[:3], ("a", "b")), (NAMES[3:], ("c",))],
}


@pytest.fixture(scope="module", params=LAYOUTS)
def made(request, tmp_path_factory):
    """A published release of three owners, in every layout."""
    return make_release(tmp_path_factory.mktemp("made"), LAYOUTS[request.param], n_records=90)


def own(made, owner, folder=None, fragment=None, digest=None, signature=None, kept=""):
    """Verify one owner's share."""
    folder = folder or made.folder
    evidence = made.evidence.owners[owner]
    return verify_own(
        folder,
        verify_release(folder),
        owner,
        fragment or made.fragments[owner],
        digest or evidence.statement.fragment_digest,
        signature or evidence.statement_signed.signature,
        Workspace(256 * 10**6, made.folder.parent / "scratch", 2),
        kept,
    )


def test_every_owner_finds_its_values(made):
    """In every layout each owner finds all its records in both data files."""
    for owner in made.owners:
        found = own(made, owner)
        assert found.n_records == made.evidence.addendum.records[owner]
        assert found.attributes == tuple(a.name for a in made.plan.assignment_of(owner).attributes)


def republished(made, tmp_path, change):
    """Publish a table that differs from the joined one, under the owners' true signatures."""
    table = change(pq.read_table(made.folder / "data.parquet"))
    publish_table(tmp_path, made.evidence, table, made.aggregator, datetime.now(UTC), ("parquet", "csv"))
    return tmp_path / made.plan.release


def absent_at(made, folder):
    """Which owners find records absent, and how many."""
    absent = {}
    for owner in made.owners:
        try:
            own(made, owner, folder)
        except IntegrityError as error:
            absent[owner] = error.details["absent"]
    return absent


@pytest.mark.parametrize("column", ["age", "income", "admitted", "ward", "smoker", "dose"])
def test_a_changed_value_is_found(made, tmp_path, column):
    """If the aggregator changes one value, the owner of that attribute and record finds it; others do not."""

    def change(table):
        values = table.column(column).to_pylist()
        place = next(i for i, value in enumerate(values) if value != values[0])
        values[0] = values[place]
        kind = table.schema.field(column).type
        if pa.types.is_dictionary(kind):
            labels = list(made.plan.attribute(column).categories)
            indices = pa.array([labels.index(value) for value in values], pa.int32())
            array = pa.DictionaryArray.from_arrays(indices, pa.array(labels), ordered=True)
        else:
            array = pa.array(values, kind)
        return table.set_column(table.column_names.index(column), table.schema.field(column), array)

    folder = republished(made, tmp_path, change)
    failed = absent_at(made, folder)
    holders = {task.owner for task in made.plan.tasks if column in {a.name for a in task.attributes}}
    assert list(failed.values()) == [1]
    assert set(failed) <= holders


def test_a_dropped_record_is_found(made, tmp_path):
    """If a record is replaced by a copy of another, exactly the owners that held it find one absent."""

    def change(table):
        # The numbers of the records stay in order; the first record is gone, the second is there twice.
        numbers, field = table.column("record"), table.schema.field("record")
        return table.take([1, *range(1, len(table))]).set_column(0, field, numbers)

    folder = republished(made, tmp_path, change)
    failed = absent_at(made, folder)
    assert failed
    assert set(failed.values()) == {1}


def test_another_fragment_is_not_taken_for_ours(made, tmp_path):
    """Another digest, another signature, or a changed file in the outbox are named."""
    with pytest.raises(IntegrityError, match="another fragment than the one that this owner sealed"):
        own(made, "a", digest="00" * 32)
    with pytest.raises(IntegrityError, match="another fragment than the one that this owner sealed"):
        own(made, "a", signature=made.evidence.owners["b"].statement_signed.signature)
    changed = tmp_path / "fragment"
    changed.write_bytes(made.fragments["a"].read_bytes()[:-1] + b"\1")
    with pytest.raises(IntegrityError, match="outbox was changed"):
        own(made, "a", fragment=changed)
    with pytest.raises(UsageError, match="no longer in the outbox"):
        own(made, "a", fragment=tmp_path / "nowhere")


@pytest.mark.parametrize("memory", [10, 256 * 10**6], ids=["in scratch", "in memory"])
def test_tokens_go_after_publication_and_the_values_stay(made, tmp_path, memory):
    """A published fragment keeps what verifies the release, and no token; a repeat changes nothing."""
    outbox, plan = Outbox(tmp_path), made.plan
    for owner in made.owners:
        assignment, stated = plan.assignment_of(owner), made.evidence.owners[owner].statement
        path = outbox.path("hub", plan.release)
        path.write_bytes(made.fragments[owner].read_bytes())
        sealed = SealedFile(path, stated.fragment_digest, stated.size, stated.records)
        before = decode(path, plan, assignment, stated.records)
        workspace = Workspace(memory, tmp_path / "scratch", 2)
        kept = [
            MASKED.drop_tokens(outbox, "hub", plan, assignment, sealed, workspace, Progress())
            for _ in range(2)
        ]
        assert kept[0] == kept[1] != stated.fragment_digest
        assert own(made, owner, fragment=path, kept=kept[0]).n_records == stated.records
        if plan.n_groups > 1:
            tokens = before.column("token").to_pylist()
            content = path.read_bytes()
            assert not any(token in content for token in tokens)
        with pytest.raises(IntegrityError, match="outbox was changed"):
            own(made, owner, fragment=path, kept="ab" * 32)


small = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1)), max_size=12)


@settings(max_examples=50, deadline=None)
@given(mine=small, released=small)
def test_containment_counts_multiplicity(mine, released):
    """How many own records are absent equals the difference of multisets, in batches of three."""

    def batches(records):
        columns = np.array(records, dtype=np.int64).reshape(-1, 2)
        return pa.table({"x": columns[:, 0], "y": columns[:, 1]}).to_batches(3)

    expected = sum((Counter(mine) - Counter(released)).values())
    with TemporaryDirectory() as folder:
        workspace = Workspace(256 * 10**6, Path(folder), 2)
        assert count_missing(batches(mine), batches(released), ["x", "y"], workspace) == expected


@pytest.fixture
def node(made, tmp_path):
    """Owner a's node after the release: configuration, session and outbox."""
    (tmp_path / "owner.toml").write_text(
        '[owner]\nid = "a"\ntrust_domain = "release.test"\nstate_dir = "state"\n'
        '[[aggregator]]\nname = "hub"\naddress = "localhost:1"\n'
        '[tls]\nca = "ca.pem"\ncert = "a.pem"\nkey = "a.key"\n'
        '[[dataset]]\nname = "cohort"\nsource = "cohort.csv"\ntotal_epsilon = 2\n'
        '[dataset.attributes.age]\ntype = "integer"\nmin = 0\nmax = 120\n'
    )
    made.ca_file(tmp_path)
    signed = made.evidence.owners["a"]
    with OwnerDatabase(tmp_path / "state") as db:
        sessions = Sessions(db, lambda: datetime.now(UTC))
        with db.transaction() as tx:
            session = sessions.open(tx, "hub", made.plan.release, "cohort")
            sessions.keep_plan(tx, made.plan.digest, made.plan.to_bytes())
            session = sessions.advance(tx, session, SessionEvent.ACCEPT, plan_digest=made.plan.digest)
            for event in (SessionEvent.LINK, SessionEvent.SPEND):
                session = sessions.advance(tx, session, event)
            sessions.advance(
                tx, session, SessionEvent.SEAL,
                fragment_digest=signed.statement.fragment_digest,
                fragment_signature=signed.statement_signed.signature,
            )  # fmt: skip
    with Outbox(tmp_path / "state").begin("hub", made.plan.release) as stream:
        stream.write(made.fragments["a"].read_bytes())
    return tmp_path / "owner.toml"


def owner_node(*arguments):
    """Run the owner's command line."""
    return console.run(owner_application(), "owner-node", [str(each) for each in arguments])


def aggregator(*arguments):
    """Run the aggregator's command line."""
    return console.run(aggregator_application(), "aggregator", [str(each) for each in arguments])


def test_owner_command(made, node, capsys):
    """`owner-node verify` uses the node's own CA and records, and reports both checks."""
    assert owner_node("verify", made.folder, "--config", node, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["own"]["id"] == "a"
    assert shown["own"]["records"] == made.evidence.addendum.records["a"]
    assert shown["identities_checked"] is True
    assert owner_node("verify", made.folder, "--config", node) == 0
    assert "masked records of a are in the release, as this owner sealed them" in capsys.readouterr().out


def test_owner_command_finds_a_second_manifest(made, node, capsys):
    """If the aggregator told the owner another manifest than the folder's, that is exit 7."""
    with OwnerDatabase(node.parent / "state") as db:
        sessions = Sessions(db, lambda: datetime.now(UTC))
        session = sessions.get("hub", made.plan.release)
        assert session is not None
        with db.transaction() as tx:
            sessions.advance(tx, session, SessionEvent.PUBLISH, manifest_digest="00" * 32)
    assert owner_node("verify", made.folder, "--config", node) == 7
    assert "announced another manifest to this owner" in capsys.readouterr().err


def test_owner_command_finds_another_release(made, node, tmp_path, capsys):
    """A release under another plan than the accepted one is exit 7; one without this owner is exit 2."""
    other_dir = tmp_path / "other"
    other_dir.mkdir()
    other = make_release(other_dir, plan=replace(made.plan, purpose="other"), n_records=90)
    ca = other.ca_file(other_dir)
    assert owner_node("verify", other.folder, "--config", node) == 7
    assert "not issued under" in capsys.readouterr().err
    assert owner_node("verify", other.folder, "--config", node, "--ca", ca) == 7
    assert "another plan than the one that this owner accepted" in capsys.readouterr().err
    third_dir = tmp_path / "third"
    third_dir.mkdir()
    third = make_release(third_dir, plan=replace(made.plan, release="third"), n_records=90)
    ca = third.ca_file(third_dir)
    assert owner_node("verify", third.folder, "--config", node, "--ca", ca) == 2
    assert "took no part" in capsys.readouterr().err


def test_aggregator_command(made, tmp_path, capsys):
    """`aggregator verify` works without configuration, says what it did not check, and ends in 0 or 7."""
    assert aggregator("verify", made.folder) == 0
    assert "identities were not checked against a CA" in capsys.readouterr().out
    pin = f"a={made.owners['a'].fingerprint}"
    ca = made.ca_file(tmp_path)
    assert aggregator("verify", made.folder, "--ca", ca, "--owner", pin, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["pinned"] == ["a"]
    assert shown["caveats"] == []
    assert shown["records"] == 90
    wrong = f"b={made.owners['a'].fingerprint}"
    assert aggregator("verify", made.folder, "--owner", wrong, "--json") == 7
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "integrity"
    assert aggregator("verify", tmp_path / "nowhere") == 2
    assert aggregator("verify", made.folder, "--owner", "a") == 2
    assert aggregator("verify", made.folder, "--ca", tmp_path / "no.pem") == 2
