"""Publication: a whole folder or none, exact data in both formats, a report that runs nothing."""

import csv
import io
import json
import os
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.release.publication import ReleaseFolder, copy_release
from common.canonical import canonical, digest
from common.errors import IntegrityError, UsageError
from common.files import check_out
from common.model.schema import Attribute, AttributeType
from common.release.table import describe_field, release_schema, write_csv_header, write_csv_records
from common.release.values import from_units, to_units
from common.release.verification import verify_release
from common.wire.decoding import decode
from tests.fakes.published import NAMES, make_release, publish_table, read_units
from tests.fakes.releases import ATTRIBUTES, make_plan, random_columns


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A published release of two owners, in both formats."""
    return make_release(tmp_path_factory.mktemp("made"), n_records=60)


def read_csv(data):
    """A CSV file by the standard library's RFC 4180 reader."""
    return list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))


def test_folder_is_complete(made):
    """The folder holds exactly the promised files, and the manifest speaks of each but its signature."""
    assert sorted(path.name for path in made.folder.iterdir()) == [
        "data.csv", "data.parquet", "manifest.json", "manifest.sig", "report.html",
    ]  # fmt: skip
    manifest = json.loads((made.folder / "manifest.json").read_bytes())
    assert sorted(manifest["files"]) == ["data.csv", "data.parquet", "report.html"]
    assert made.manifest_digest == digest((made.folder / "manifest.json").read_bytes())
    assert sorted(each.name for each in made.folder.parent.iterdir()) == [made.plan.release]


def test_owners_get_columns_where_the_plan_says_so(tmp_path):
    """Every record of a group of several owners states its owner, in both formats; verify accepts it."""
    plan = make_plan([(["age"], ["a", "b"]), (["income"], ["c", "d"]), (["ward"], ["e"])])
    plan = replace(plan, owner_column=True)
    n_records = 60
    columns = random_columns(np.random.default_rng(5), plan.attributes, n_records)
    # Different values show which fragment a record came from.
    columns |= {name: np.arange(n_records) for name in ("age", "income")}
    made = make_release(tmp_path, plan=plan, columns=columns, n_records=n_records)
    table = pq.read_table(made.folder / "data.parquet")
    assert table.column_names == ["record", "owner_1", "owner_2", "age", "income", "ward"]
    for name, column, owners in (("age", "owner_1", "ab"), ("income", "owner_2", "cd")):
        units = to_units(plan.attribute(name), table.column(name)).to_numpy()
        stated = np.array(table.column(column).to_pylist())
        for owner in owners:
            held = decode(made.fragments[owner], plan, plan.assignment_of(owner), 30).column(name).to_pylist()
            assert sorted(units[stated == owner].tolist()) == sorted(held)
    rows = read_csv((made.folder / "data.csv").read_bytes())
    assert [row[1] for row in rows[1:]] == table.column("owner_1").to_pylist()
    assert verify_release(made.folder, made.ca_file(tmp_path)).n_records == n_records
    manifest = json.loads((made.folder / "manifest.json").read_bytes())
    assert "the release states it (`owner_1`, `owner_2`)" in " ".join(manifest["invariants"])
    assert "<code>owner_1</code>, <code>owner_2</code>" in (made.folder / "report.html").read_text("utf-8")


def test_without_a_column_the_owner_is_not_called_hidden(made):
    """Report and manifest agree: the number of a record does not show its owner, its values often do."""
    manifest = json.loads((made.folder / "manifest.json").read_bytes())
    assert "the owner can often be inferred from the released values" in " ".join(manifest["invariants"])
    report = (made.folder / "report.html").read_text("utf-8")
    assert "says nothing about where" not in report
    assert "The released values often do" in report


def test_manifest_says_what_design_asks(made):
    """Every field that readers of a manifest rely on is there, numbers as strings."""
    manifest = json.loads((made.folder / "manifest.json").read_bytes())
    assert manifest["release"] == "demo-1"
    assert manifest["plan"]["digest"] == made.plan.digest
    assert manifest["totals"] == {
        "records": "60", "attributes": "6", "owners": "2", "epsilon": "1", "epsilon_joint": "0.6",
    }  # fmt: skip
    owner = manifest["owners"][0]
    assert (owner["id"], owner["epsilon"], owner["epsilon_joint"], owner["k"]) == ("a", "0.6", "0.6", "3")
    assert owner["records"] == "30"
    assert owner["fragment"]["document"]["fragment_digest"] == digest(made.fragments["a"].read_bytes())
    assert "BEGIN CERTIFICATE" in owner["fragment"]["certificates"]
    assert any("Individual differential privacy" in line for line in manifest["guarantee"])
    assert len(manifest["invariants"]) >= 7
    assert "parallel composition" in manifest["composition"]


def test_types_and_values_are_exact(made):
    """Parquet has the release types, and CSV the same values as text, value by value."""
    table = pq.read_table(made.folder / "data.parquet")
    assert table.schema.equals(release_schema(made.plan))
    header, *rows = read_csv((made.folder / "data.csv").read_bytes())
    assert header == table.column_names
    for row, record in zip(rows, table.to_pylist(), strict=True):
        text = dict(zip(header, row, strict=True))
        assert int(text["record"]) == record["record"]
        assert int(text["age"]) == record["age"]
        assert date.fromisoformat(text["admitted"]) == record["admitted"]
        assert text["ward"] == record["ward"]
        assert text["smoker"] == str(record["smoker"]).lower()
        for name, decimals in (("income", 3), ("dose", 9)):
            assert float(text[name]) == record[name]
            assert Decimal(text[name]).as_tuple().exponent == -decimals
            assert "E" not in text[name]
    released = sorted(zip(*(table.column(name).to_pylist() for name in NAMES), strict=True))
    units = [from_units(each, made.columns[each.name]).to_pylist() for each in ATTRIBUTES]
    assert released == sorted(zip(*units, strict=True))


def test_parquet_describes_itself(made):
    """Whoever has the file alone learns what a column is, how it was masked, and which release it is from."""
    schema = pq.read_schema(made.folder / "data.parquet")
    manifest = json.loads((made.folder / "manifest.json").read_bytes())
    del manifest["files"]
    assert schema.metadata == {
        b"release": b"demo-1",
        b"plan_digest": made.plan.digest.encode(),
        b"manifest_digest": digest(canonical(manifest)).encode(),
    }
    assert schema.field("income").metadata == {
        b"description": b"number, -1000.000 to 999999.999, 0.001; "
        b"masked with mechanism idp-joint, epsilon 0.1, k 3",
        b"type": b"number",
        b"domain": b"-1000.000 to 999999.999",
        b"resolution": b"0.001",
        b"mechanism": b"idp-joint",
        b"epsilon": b"0.1",
        b"k": b"3",
        b"decimals": b"3",
    }  # fmt: skip
    assert schema.field("admitted").metadata[b"resolution"] == b"1 day"
    assert schema.field("ward").metadata[b"domain"] == b"4 categories, ordered"


def test_owners_that_differ_are_described_together(made):
    """A setting in which owners differ is described from least to most."""
    first, second = made.plan.tasks
    other = replace(second, attributes=tuple(replace(each, k=7) for each in second.attributes))
    schema = release_schema(replace(made.plan, tasks=(first, other)))
    assert schema.field("age").metadata[b"k"] == b"3 to 7"


@given(
    decimals=st.integers(0, 18),
    units=st.lists(st.integers(-(10**15) + 1, 10**15 - 1), min_size=1, max_size=20),
)
def test_doubles_are_exact(decimals, units):
    """A number of fifteen digits is the double that its text is, and leads back to itself; others do not."""
    attribute = Attribute("x", AttributeType.NUMBER, -(10**15) + 1, 10**15 - 1, decimals=decimals)
    column = from_units(attribute, np.array(units))
    assert column.to_pylist() == [float(attribute.text(each)) for each in units]
    assert to_units(attribute, pa.chunked_array([column])).to_pylist() == units
    wrong = np.nextafter(column.to_numpy(), np.inf)
    with pytest.raises(pa.ArrowException):
        to_units(attribute, pa.chunked_array([wrong]))
    for strange in (np.nan, np.inf, 1e308, None):
        with pytest.raises(pa.ArrowException):
            to_units(attribute, pa.chunked_array([pa.array([strange], pa.float64())]))


@pytest.mark.parametrize(
    ("attribute", "written"),
    [
        (Attribute("x", AttributeType.NUMBER, -4, 40, 2, step=25), ["-1.00", "-0.25", "0.00", "10.00"]),
        (Attribute("x", AttributeType.INTEGER, -4, 40, step=5), ["-20", "-5", "0", "200"]),
        (
            Attribute("x", AttributeType.NUMBER, -4, 10**13, 4, step=2500),
            ["-1.0000", "-0.2500", "0.0000", "2500000000000.0000"],
        ),
    ],
)
@pytest.mark.parametrize("keeps_missing", [False, True])
def test_values_of_a_coarser_grid(attribute, written, keeps_missing):
    """They are released as values, lead back to steps, and what lies between two is no value."""
    attribute = replace(attribute, keeps_missing=keeps_missing)
    units = [-4, -1, 0, attribute.upper, *([attribute.highest] if keeps_missing else [])]
    column = from_units(attribute, np.array(units))
    assert [attribute.text(each) for each in units[:4]] == written
    assert column[:4].to_pylist() == pytest.approx([float(each) for each in written])
    assert to_units(attribute, pa.chunked_array([column])).to_pylist() == units
    stream = io.BytesIO()
    write_csv(stream, pa.table([column], schema=pa.schema([describe_field(attribute, "")])))
    cells = stream.getvalue().decode().split("\r\n")[1:-1]
    assert cells == [*written, ""][: len(units)]
    between = from_units(replace(attribute, step=1), np.array([1]))
    with pytest.raises(pa.ArrowException, match="between two steps"):
        to_units(attribute, pa.chunked_array([between.cast(column.type)]))


@pytest.mark.parametrize("name", ["data.parquet", "data.csv"])
def test_released_values_read_back_exactly(made, name):
    """Both formats lead back to the same integers in resolution units."""
    units = read_units(made.folder / name, made.plan, NAMES)
    first = read_units(made.folder / "data.parquet", made.plan, NAMES)
    assert units.equals(first)
    for each in ATTRIBUTES:
        assert np.array_equal(np.sort(units.column(each.name)), np.sort(made.columns[each.name]))


def write_csv(stream, table):
    """Write a header line and all records."""
    write_csv_header(stream, table.schema)
    write_csv_records(stream, table)


def test_line_breaks_in_labels_survive_any_block(tmp_path):
    """A large CSV full of quoted CR LF reads back exactly, wherever a reader's blocks may meet."""
    label = Attribute("label", AttributeType.CATEGORY, 0, 1, categories=("\r\n" * 20, "b"))
    plan = make_plan([(["label"], ["a"])], attributes=(label,))
    units = np.arange(100_000, dtype=np.int64) % 3 % 2
    with (tmp_path / "data.csv").open("wb") as stream:
        numbers = np.arange(1, units.size + 1)
        write_csv(stream, pa.table({"record": numbers, "label": from_units(label, units)}))
    found = read_units(tmp_path / "data.csv", plan, ["label"]).column("label")
    assert np.array_equal(found.to_numpy(), units)


@settings(max_examples=80, deadline=None)
@given(
    labels=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, unique=True),
    seed=st.integers(0, 2**32),
    decimals=st.integers(0, 18),
)
def test_csv_is_rfc_4180(labels, seed, decimals):
    """Any label and any number of decimal places survive a standard CSV reader; lines end in CR LF."""
    attributes = (
        Attribute("label", AttributeType.CATEGORY, 0, len(labels) - 1, categories=tuple(labels)),
        Attribute('na,"me', AttributeType.NUMBER, -(10**18), 10**18, decimals=decimals),
    )
    rng = np.random.default_rng(seed)
    columns = random_columns(rng, attributes, 20)
    table = pa.table({each.name: from_units(each, columns[each.name]) for each in attributes})
    stream = io.BytesIO()
    write_csv(stream, table.slice(3))
    header, *rows = read_csv(stream.getvalue())
    assert header == ["label", 'na,"me']
    expected = [
        [labels[index], format(Decimal(units).scaleb(-decimals), "f")]
        for index, units in zip(columns["label"][3:], map(int, columns['na,"me'][3:]), strict=True)
    ]
    assert rows == expected
    assert stream.getvalue().endswith(b"\r\n")


@pytest.mark.parametrize("decimals", [0, 1, 18])
def test_csv_has_every_64_bit_integer(decimals):
    """The lowest 64-bit integer, which has no absolute value, is written as any other number."""
    attribute = Attribute("x", AttributeType.NUMBER, -(2**63), 2**63 - 1, decimals=decimals)
    units = [-(2**63), -1, 0, 2**63 - 1]
    stream = io.BytesIO()
    write_csv(stream, pa.table({"x": from_units(attribute, np.array(units, dtype=np.int64))}))
    rows = [[format(Decimal(each).scaleb(-decimals), "f")] for each in units]
    assert read_csv(stream.getvalue()) == [["x"], *rows]


def test_publishing_again_keeps_the_release(made):
    """After a crash the finished folder is kept with its digest, and leftovers of an attempt are gone."""
    release_dir = made.folder.parent
    stale = release_dir / f".{made.plan.release}.partial"
    stale.mkdir()
    (stale / "data.csv").write_bytes(b"half")
    table = pq.read_table(made.folder / "data.parquet")
    later = datetime(2026, 5, 1, tzinfo=UTC)
    assert publish_table(release_dir, made.evidence, table, made.aggregator, later) == made.manifest_digest
    assert (
        ReleaseFolder(release_dir / made.plan.release, made.plan.digest).manifest_digest()
        == made.manifest_digest
    )
    assert not stale.exists()


def test_leftovers_of_a_crash_are_replaced(made, tmp_path):
    """Half a folder from an interrupted attempt neither appears nor stands in the way."""
    stale = tmp_path / f".{made.plan.release}.partial"
    stale.mkdir()
    (stale / "data.parquet").write_bytes(b"half")
    table = pq.read_table(made.folder / "data.parquet")
    publish_table(tmp_path, made.evidence, table, made.aggregator, datetime.now(UTC), ("csv",))
    assert [each.name for each in tmp_path.iterdir()] == [made.plan.release]
    assert verify_release(tmp_path / made.plan.release).files == ("data.csv", "report.html")


def test_a_failed_attempt_leaves_nothing(made, tmp_path):
    """If anything fails while the folder is made, no folder appears."""
    table = pq.read_table(made.folder / "data.parquet")
    with pytest.raises(KeyError):
        publish_table(tmp_path, replace(made.evidence, owners={}), table, made.aggregator, datetime.now(UTC))
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_fails_keeps_no_data_back(made, tmp_path, monkeypatch):
    """Without its report a release is published, holds for those who verify it, and says what is missing."""

    def failing(*_):
        raise MemoryError

    monkeypatch.setattr("common.release.report.render_report", failing)
    table = pq.read_table(made.folder / "data.parquet")
    publish_table(tmp_path, made.evidence, table, made.aggregator, datetime.now(UTC))
    folder = tmp_path / made.plan.release
    assert verify_release(folder, made.ca_file(tmp_path)).files == ("data.parquet",)
    assert (
        ReleaseFolder(folder, made.plan.digest).note()
        == "the report could not be made: there is no report.html"
    )
    assert ReleaseFolder(made.folder, made.plan.digest).note() == ""


def test_what_would_not_verify_does_not_appear(made, tmp_path):
    """A release whose users could not verify it, a certificate having expired meanwhile, is not published."""
    table = pq.read_table(made.folder / "data.parquet")
    later = datetime(2126, 1, 1, tzinfo=UTC)
    with pytest.raises(IntegrityError, match="expired"):
        publish_table(tmp_path, made.evidence, table, made.aggregator, later)
    (tmp_path / "other").mkdir()
    other = make_release(tmp_path / "other", n_records=6)
    with pytest.raises(IntegrityError, match="not issued under"):
        publish_table(
            tmp_path, made.evidence, table, made.aggregator, datetime.now(UTC), ca=other.ca_file(tmp_path)
        )
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ca.pem", "other"]


def test_another_release_of_the_same_name(made, tmp_path):
    """A folder that holds something else is never overwritten and never taken for this release."""
    other = make_release(tmp_path, plan=replace(made.plan, purpose="something else"))
    with pytest.raises(IntegrityError, match="another release of the same name"):
        ReleaseFolder(other.folder, made.plan.digest).manifest_digest()
    (other.folder / "data.csv").write_bytes(b"")
    table = pq.read_table(made.folder / "data.parquet")
    with pytest.raises(IntegrityError, match="was changed"):
        publish_table(other.folder.parent, other.evidence, table, other.aggregator, datetime.now(UTC))


def test_copy(made, tmp_path):
    """--out gets a whole verifiable copy, in an absent folder and in an empty one."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for out in (empty, tmp_path / "deep" / "absent"):
        check_out(out)
        copy_release(made.folder, out)
        assert verify_release(out).manifest_digest == made.manifest_digest
        with pytest.raises(UsageError, match="is not empty"):
            copy_release(made.folder, out)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["deep", "empty"]


def test_out_is_checked_before_anything_starts(tmp_path):
    """A file, a full folder or a place that cannot be written is a usage error."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is not a folder"):
        check_out(tmp_path / "file")
    with pytest.raises(UsageError, match="is not empty"):
        check_out(tmp_path)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is not a folder"):
        check_out(tmp_path / "dangling")
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(UsageError, match="not writable"):
            check_out(tmp_path / "closed" / "out")
