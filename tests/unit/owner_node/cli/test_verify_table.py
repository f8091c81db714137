"""`verify` of a synthetic table: anyone draws it again from its counts, and names what was changed."""

import hashlib
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aggregator.cli
import tessera
from common.cli import console
from owner_node.cli import application
from tests.fakes.owner_folder import ask_mask, make_owner_folder

N_RECORDS = 3_000


@pytest.fixture(scope="module", params=["a.parquet", "a.csv"])
def table(request, tmp_path_factory):
    """A synthetic table with all types of attributes, and its owner's folder gone."""
    folder = tmp_path_factory.mktemp("owner")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_owner_folder(folder, n_records=N_RECORDS)
        command = ["mask", "--dataset", "patients", "--epsilon", "1", "--product", "synthetic"]
        command += ["--out", request.param, "--yes", "--anyway", "--json"]
        assert console.run(application(), "owner-node", command) == 0
    files = {path.name: path.read_bytes() for path in folder.glob(f"{request.param}*")}
    assert set(files) == {f"{request.param}{end}" for end in ("", ".counts.parquet", ".report.json")}
    return request.param, files


@pytest.fixture
def received(table, tmp_path, monkeypatch):
    """Someone else's folder with the three files."""
    name, files = table
    for each, data in files.items():
        (tmp_path / each).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path / name


def verified(capsys: pytest.CaptureFixture[str], path: Path, *options: str, program: str = "aggregator"):
    """Verify; return exit code and document."""
    made = aggregator.cli.application() if program == "aggregator" else application()
    capsys.readouterr()
    code = console.run(made, program, ["verify", str(path), *options, "--json"])
    return code, json.loads(capsys.readouterr().out)


def rewrite_report(path: Path, **changes: object) -> None:
    """Change the report, and let it vouch for the files as they are now."""
    at = path.with_name(f"{path.name}.report.json")
    report = json.loads(at.read_text())
    for key, file in (("file", path), ("counts", path.with_name(f"{path.name}.counts.parquet"))):
        report[key]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    at.write_text(json.dumps(report | changes))


@pytest.mark.parametrize("program", ["aggregator", "owner-node"])
def test_anyone_verifies_it(received, capsys, program):
    """Without the owner's data, folder or configuration."""
    code, document = verified(capsys, received, program=program)
    assert (code, document["holds"], document["records"]) == (0, True, str(N_RECORDS))
    made = aggregator.cli.application() if program == "aggregator" else application()
    assert console.run(made, program, ["verify", str(received)]) == 0
    printed = capsys.readouterr().out
    assert "its records follow from" in printed
    assert "for the whole record of a person: ε 1" in printed


def test_it_is_read_for_analysis(received):
    """Records and noisy counts, with the types of the schema."""
    table = tessera.read_table(received)
    assert list(table.frame.columns) == ["age", "income", "ward", "stage", "admitted", "emergency"]
    assert len(table.frame) == table.table.num_rows == N_RECORDS
    assert len(table.counts.frame) == pq.read_table(f"{received}.counts.parquet").num_rows
    assert abs(table.counts.table("ward")["count"].sum() - N_RECORDS) < 1e-6
    assert any("ε = 1" in line for line in table.guarantee)
    assert "3,000" in table.invariants[0]
    assert "ε 1; verified" in repr(table)
    (received.with_name(f"{received.name}.counts.parquet")).unlink()
    with pytest.raises(tessera.IntegrityError, match="is missing"):
        tessera.read_table(received)


def test_a_changed_file_is_named(received, capsys):
    """By the digests of the report."""
    for file in (received, received.with_name(f"{received.name}.counts.parquet")):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        code, document = verified(capsys, received)
        assert code == 7
        assert f"{file.name} was changed" in document["error"]["message"]
        file.unlink()
        code, document = verified(capsys, received)
        if file == received:
            assert code == 2
        else:
            assert (code, document["error"]["message"]) == (7, f"{file.name} is missing")
        file.write_bytes(whole)


def test_nothing_is_computed_of_a_report_with_other_files(received, capsys):
    """Digests come first: rules and attributes of a report can cost much."""
    rewrite_report(received, schema=[])
    received.write_bytes(received.read_bytes() + b"x")
    code, document = verified(capsys, received)
    assert code == 7
    assert f"{received.name} was changed" in document["error"]["message"]


def change_record(path: Path) -> None:
    """Change one value of one record."""
    if path.suffix == ".csv":
        lines = path.read_text().splitlines()
        age, rest = lines[5].split(",", 1)
        lines[5] = f"{(int(age) + 1) % 100},{rest}"
        path.write_text("\r\n".join(lines) + "\r\n")
        return
    found = pq.read_table(path)
    ages = found.column("age").to_pylist()
    ages[4] = (ages[4] + 1) % 100
    place = found.schema.get_field_index("age")
    pq.write_table(found.set_column(place, found.schema.field(place), pa.array(ages, pa.int64())), path)


def test_a_changed_record_is_named(received, capsys):
    """Also where report and digests were adapted."""
    change_record(received)
    rewrite_report(received)
    code, document = verified(capsys, received)
    assert code == 7
    # A value of another bin is seen before the records are made again.
    named = "record 5 has another value of age|age has other one-way counts"
    assert re.search(named, document["error"]["message"])


def test_a_changed_count_is_named(received, capsys):
    """With adapted digests by the seed; with an adapted seed by the records."""
    at = received.with_name(f"{received.name}.counts.parquet")
    counts = pq.read_table(at)
    numbers = counts.column("count").to_pylist()
    numbers[-1] += 400
    place = counts.schema.get_field_index("count")
    changed = counts.set_column(place, counts.schema.field(place), pa.array(numbers, pa.int64()))
    pq.write_table(changed, at)
    rewrite_report(received)
    code, document = verified(capsys, received)
    assert code == 7
    assert "the stated seed is not the digest of the counts" in document["error"]["message"]
    seed = hashlib.sha256(b"".join(each.to_bytes(8, "little", signed=True) for each in numbers)).hexdigest()
    rewrite_report(received, seed=seed)
    code, document = verified(capsys, received)
    assert code == 7
    assert "the records do not follow from counts.parquet" in document["error"]["message"]


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        ({"seed": "00" * 32}, 7, "the stated seed is not the digest"),
        ({"epsilon": "0.5"}, 7, "counts.parquet"),
        ({"records": "2999"}, 7, "a.{end}"),
        ({"records": "0"}, 7, "so many attributes or records"),
        ({"records": str(2**40)}, 7, "so many attributes or records"),
        ({"epsilon": "-1"}, 7, "its ε or δ is none"),
        ({"epsilon": "1E+999999"}, 7, "its ε or δ is none"),
        ({"schema": []}, 7, "so many attributes or records"),
        ({"schema": "all"}, 7, "cannot be read"),
        ({"method": "1"}, 7, "drew records otherwise"),
        ({"relations": []}, 7, "its relations are not those of this table"),
        ({"promises": ["Nothing can happen."]}, 7, "its promises are not those of this table"),
        ({"product": "masked"}, 2, "not a synthetic table"),
    ],
)
def test_a_changed_report_is_named(received, capsys, change, code, named):
    """Whatever it states, verification ends in an error that says what does not hold."""
    rewrite_report(received, **change)
    found, document = verified(capsys, received)
    assert found == code
    assert named.format(end=received.suffix[1:]) in document["error"]["message"]


def test_what_is_no_synthetic_table(tmp_path, monkeypatch, capsys, received):
    """A file without a report, a masked table, and checks of signatures that no table has."""
    assert verified(capsys, tmp_path / "none.csv")[0] == 2
    code, document = verified(capsys, received, "--owner", f"north={'ab' * 32}")
    assert (code, "are not signed" in document["error"]["message"]) == (2, True)
    code, document = verified(capsys, received.with_name(f"{received.name}.report.json"))
    assert (code, "is not a synthetic table" in document["error"]["message"]) == (2, True)
    folder = tmp_path / "other"
    folder.mkdir()
    monkeypatch.chdir(make_owner_folder(folder))
    assert ask_mask(capsys, "--k", "5", "--out", "m.csv")[0] == 0
    code, document = verified(capsys, folder / "m.csv")
    assert (code, "masked records do not follow" in document["error"]["message"]) == (2, True)
