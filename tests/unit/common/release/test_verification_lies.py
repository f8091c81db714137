"""Verification of folders that are whole and whose maker lies: what does not hold first is named."""

import csv
import io
import json
import re
import shutil
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aggregator.release import publication
from aggregator.release.publication import ReleasedFile, to_bytes
from common.analysis.reading import read_release
from common.canonical import canonical, digest
from common.errors import IntegrityError
from common.progress import Progress
from common.release.evidence import Signed
from common.release.summary import manifest_document
from common.release.table import file_metadata
from common.release.verification import verify_release
from common.trust.signing import Domain, Signer
from common.workspace import temporary_workspace
from deploy.development_ca import SERVER_AUTH, DevelopmentCa
from tests.fakes.published import make_release, sign_evidence, signer_of
from tests.fakes.releases import TRUST_DOMAIN


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A published release of two owners, in both formats."""
    return make_release(tmp_path_factory.mktemp("made"), n_records=30)


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it to damage."""
    return shutil.copytree(made.folder, tmp_path / "copy")


def resigned(made, folder, change, signer=None):
    """Change the manifest of a copy and sign it anew, as a lying aggregator could."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    data = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False).encode()
    (folder / "manifest.json").write_bytes(data)
    (folder / "manifest.sig").write_bytes((signer or made.aggregator).sign(Domain.MANIFEST, data))


def replace_parquet(folder, manifest, table):
    """Put another table into a copy, and list it."""
    path = folder / "data.parquet"
    pq.write_table(table, path)
    manifest["files"]["data.parquet"] = {
        "digest": digest(path.read_bytes()), "size": str(path.stat().st_size)
    }  # fmt: skip


def _set(*path):
    *way, last, value = path

    def change(manifest):
        part = manifest
        for key in way:
            part = part[key]
        assert part[last] != value
        part[last] = value

    return change


def _drop(*path):
    *way, last = path

    def change(manifest):
        part = manifest
        for key in way:
            part = part[key]
        del part[last]

    return change


LIES = {
    "promise": (_set("guarantee", ["differential privacy for the whole table"]), "promises something else"),
    "composition": (_set("composition", "none of it adds up"), "promises something else"),
    "no guarantee": (_set("guarantee", []), "promises nothing"),
    "nothing is not hidden": (_set("invariants", []), "hides what is not hidden"),
    "a blank promise": (_set("guarantee", [""]), "promises nothing"),
    "unknown file": (
        lambda manifest: manifest["files"].update({"run-me.sh": manifest["files"]["data.csv"]}),
        r"lists run-me\.sh",
    ),
    "no plan signature": (_drop("plan", "signature"), "cannot be read"),
    "no consent signature": (_drop("owners", 0, "consent", "signature"), "cannot be read"),
    "no fragment signature": (_drop("owners", 1, "fragment", "signature"), "cannot be read"),
    "an empty signature": (_set("owners", 1, "fragment", "signature", ""), "statement of b does not hold"),
    "no consent": (_drop("owners", 0, "consent"), "cannot be read"),
    "no addendum": (_drop("addendum"), "cannot be read"),
    "owner's epsilon": (_set("owners", 0, "epsilon", "0.1"), "differs from the plan in its owners"),
    "owner's records": (_set("owners", 1, "records", "7"), "differs from the plan in its owners"),
    "attribute's k": (_set("owners", 0, "attributes", 0, "k", "300"), "differs from the plan in its owners"),
    "total": (_set("totals", "epsilon_joint", "0.01"), "differs from the plan in its totals"),
    "schema": (_set("schema", 1, "max", "12"), "differs from the plan in its schema"),
    "purpose": (_set("purpose", "marketing"), "describes another release"),
    "layout": (_set("layout", "vertical"), "describes another release"),
    "aggregator": (_set("aggregator", "id", "spiffe://x/aggregator/y"), "names another aggregator"),
    "plan": (_set("plan", "document", "purpose", "marketing"), "cannot be read"),
    "consent": (_set("owners", 0, "consent", "document", "decision", "refuse"), "cannot be read"),
    "fragment": (_set("owners", 0, "fragment", "document", "records", "7"), "cannot be read"),
    "signature": (_set("plan", "signature", b64encode(b"no").decode()), "plan's signature does not hold"),
    "format": (_set("format", "2"), "another version"),
    "time": (_set("times", "published", "2026-01-01T00:00:00"), "time zone"),
    "expired": (_set("times", "published", "2126-01-01T00:00:00+00:00"), "expired"),
    "file": (_set("files", "data.csv", "digest", "00" * 32), r"data\.csv was changed"),
    "no owners": (_set("owners", []), "does not name the owners"),
    "no certificate": (_set("owners", 0, "consent", "certificates", ""), "consent of a does not hold"),
    "odd certificate": (_set("owners", 0, "consent", "certificates", 5), "cannot be read"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_of_an_aggregator(made, folder, lie):
    """A manifest that is signed but does not follow from what the owners signed is refused for that."""
    change, told = LIES[lie]
    resigned(made, folder, change)
    with pytest.raises(IntegrityError, match=told):
        verify_release(folder)


def test_promises_in_the_words_of_another_version(made, folder):
    """Whoever writes another version into a manifest does not get its promises believed: they are named as
    not derived, and what follows from the plan is shown beside them.
    """

    def change(manifest):
        manifest["version"] = "99.0"
        manifest["guarantee"] = ["Full anonymity is guaranteed."]
        manifest["totals"]["colour"] = "green"
        described = pq.read_table(folder / "data.parquet").replace_schema_metadata(
            file_metadata(made.plan, manifest)
        )
        replace_parquet(folder, manifest, described)

    resigned(made, folder, change)
    verified = verify_release(folder)
    assert any(note.startswith("version 99.0 wrote manifest, report") for note in verified.caveats)
    assert "Full anonymity" not in str(verified.to_document())
    assert list(verified.guarantee) == json.loads((made.folder / "manifest.json").read_bytes())["guarantee"]
    assert not verify_release(made.folder).words_of


def test_this_version_shows_nothing_more(made, folder):
    """Only another version may add fields that are not known here."""
    resigned(made, folder, lambda manifest: manifest["totals"].update(colour="green"))
    with pytest.raises(IntegrityError, match="it differs from the plan in its totals"):
        verify_release(folder)


def test_a_plan_that_needs_what_is_not_known(made, folder):
    """What such a plan promises is not known: verification asks for a newer version."""

    def change(manifest):
        document = manifest["plan"]["document"] | {"features": ["perfect-noise"], "version": "9.1.0"}
        manifest["plan"] |= {"document": document, "digest": digest(canonical(document))}

    resigned(made, folder, change)
    with pytest.raises(IntegrityError, match="not known here: perfect-noise") as caught:
        verify_release(folder)
    assert "9.1.0" in caught.value.hint


def test_digest_recomputed_with_the_lie(made, folder):
    """A plan changed together with its digest still fails, at the aggregator's own signature of it."""

    def change(manifest):
        document = manifest["owners"][0]["fragment"]["document"]
        document["records"] = "7"
        plain = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        manifest["owners"][0]["fragment"]["digest"] = digest(plain)

    resigned(made, folder, change)
    with pytest.raises(IntegrityError, match="fragment statement of a does not hold: the signature"):
        verify_release(folder)


def test_swapped_owners(made, folder):
    """What one owner signed is not accepted for another."""

    def change(manifest):
        first, second = manifest["owners"]
        for key in ("fragment", "consent"):
            first[key], second[key] = second[key], first[key]

    resigned(made, folder, change)
    with pytest.raises(IntegrityError, match=r"consent of a does not hold: the certificate is .*/owner/b's"):
        verify_release(folder)


def test_owner_as_aggregator(made, folder):
    """An owner's key cannot sign a manifest, not even with a plan that names the owner."""
    owner = made.owners["a"]
    resigned(made, folder, _set("aggregator", "certificates", owner.chain_pem), owner)
    with pytest.raises(IntegrityError, match="aggregator's certificate does not hold"):
        verify_release(folder)


def republished(made, directory, evidence, signer=None, when=None):
    """Publish the same data with other evidence, as an aggregator would that does not check itself."""
    table, key, formats = pq.read_table(made.folder / "data.parquet"), signer or made.aggregator, ("parquet",)
    folder = directory / made.plan.release
    folder.mkdir()
    document = manifest_document(evidence, key.chain_pem, when or datetime.now(UTC))
    with temporary_workspace() as workspace:
        summaries = publication._write_data(
            folder, made.plan, document, [table], formats, workspace, Progress()
        )
    publication._write_report(folder, document, evidence, summaries, formats, None)
    manifest = to_bytes(document, publication._digest_files(folder))
    (folder / "manifest.json").write_bytes(manifest)
    (folder / "manifest.sig").write_bytes(key.sign(Domain.MANIFEST, manifest))
    return folder


def all_signed(made, owners=None, aggregator=None, records=None):
    """The evidence anew, with other signers or counts."""
    fragments = {owner: path.read_bytes() for owner, path in made.fragments.items()}
    counts = records or made.evidence.addendum.records
    signers = {**made.owners, **(owners or {})}
    return sign_evidence(made.plan, aggregator or made.aggregator, signers, fragments, "disjoint", counts)


def test_certificates_of_another_kind(made, tmp_path):
    """An owner's certificate for servers, one that expired before, and one of another domain are refused."""
    planned = datetime.fromisoformat(made.plan.created)
    since, until = planned - timedelta(days=9), planned - timedelta(days=1)
    foreign = DevelopmentCa("other.test")
    cases = {
        "not for a client": made.ca.owner("a", usages=[SERVER_AUTH]),
        "expired": made.ca.owner("a", not_before=since, not_after=until),
        "the certificate is spiffe://other.test/owner/a's": foreign.owner("a"),
    }
    for number, (told, issued) in enumerate(cases.items()):
        directory = tmp_path / str(number)
        directory.mkdir()
        folder = republished(made, directory, all_signed(made, {"a": signer_of(issued)}))
        with pytest.raises(IntegrityError, match=f"consent of a does not hold: .*{told}"):
            verify_release(folder)


def test_keys_renewed_while_the_release_was_made(made, tmp_path):
    """A key that was renewed before publication signed validly; the manifest needs a key of that day."""
    planned = datetime.fromisoformat(made.plan.created)
    since, until = planned - timedelta(days=9), planned + timedelta(days=1)
    owner = signer_of(made.ca.owner("a", not_before=since, not_after=until))
    hub = signer_of(made.ca.aggregator("hub", ["localhost"], not_before=since, not_after=until))
    folder = republished(made, tmp_path, all_signed(made, {"a": owner}, hub))
    assert verify_release(folder).plan == made.plan
    late = tmp_path / "late"
    late.mkdir()
    folder = republished(made, late, made.evidence, hub)
    with pytest.raises(IntegrityError, match=r"the aggregator's certificate does not hold: .* expired"):
        verify_release(folder)


OTHER = "0123456789abcdef" * 4
TRULY_SIGNED: dict[str, tuple[str, dict[str, Any]]] = {
    "it refuses the plan": ("consent", {"decision": "refuse"}),
    "it keeps what an audit needs for another time": ("consent", {"audit_days": 30}),
    "consent of a does not hold: it is for another plan": ("consent", {"plan_digest": OTHER}),
    "consent of a .* another plan": ("consent", {"owner": "b"}),
    "its number of records": ("statement", {"records": 7}),
    "statement of a does not hold: it is for another plan": ("statement", {"addendum_digest": OTHER}),
    "statement of a .* for another plan": ("statement", {"release": "demo-2"}),
}


@pytest.mark.parametrize("told", TRULY_SIGNED)
def test_truly_signed_for_something_else(made, tmp_path, told):
    """What an owner really signed, but for something else, does not count for this release."""
    kind, fields = TRULY_SIGNED[told]
    evidence, signer = made.evidence.owners["a"], made.owners["a"]
    document = replace(getattr(evidence, kind), **fields)
    domain = Domain.CONSENT if kind == "consent" else Domain.FRAGMENT
    signed = Signed(signer.sign_document(domain, document.to_document()), signer.chain_pem)
    changed = replace(evidence, **{kind: document, f"{kind}_signed": signed})
    everybody = {**made.evidence.owners, "a": changed}
    folder = republished(made, tmp_path, replace(made.evidence, owners=everybody))
    with pytest.raises(IntegrityError, match=told):
        verify_release(folder)


def test_addendum_of_another_plan(made, tmp_path):
    """An addendum that the aggregator signed for another plan does not count for this one."""
    addendum = replace(made.evidence.addendum, plan_digest=OTHER)
    data = addendum.to_document()
    signed = Signed(made.aggregator.sign_document(Domain.ADDENDUM, data), made.aggregator.chain_pem)
    folder = republished(made, tmp_path, replace(made.evidence, addendum=addendum, addendum_signed=signed))
    with pytest.raises(IntegrityError, match="the addendum does not hold: it belongs to another plan"):
        verify_release(folder)


def test_plan_by_an_owner(made, tmp_path):
    """An owner cannot act as aggregator, not even with a certificate that servers may use."""
    signer = signer_of(made.ca.owner("a", usages=[SERVER_AUTH]))
    lied = replace(made, plan=replace(made.plan, aggregator=signer.party.uri))
    folder = republished(lied, tmp_path, all_signed(lied, aggregator=signer), signer)
    with pytest.raises(IntegrityError, match="not made by an aggregator"):
        verify_release(folder)


def test_a_release_without_data(made, folder):
    """A signed manifest that lists no data file is not a release; one without a report is."""
    for name in ("report.html", "data.csv", "data.parquet"):
        (folder / name).unlink()
        resigned(made, folder, lambda manifest, name=name: manifest["files"].pop(name))
        if name == "data.parquet":
            with pytest.raises(IntegrityError, match="no data file"):
                verify_release(folder)
        else:
            assert name not in verify_release(folder).files


def test_judged_at_the_manifest_time(made, tmp_path):
    """A release stays verifiable after its certificates have expired."""
    now = datetime.now(UTC)
    since, until, then = (now - timedelta(days=days) for days in (100, 10, 50))
    ca = DevelopmentCa(TRUST_DOMAIN, now - timedelta(days=200))
    aggregator = signer_of(ca.aggregator("hub", ["localhost"], not_before=since, not_after=until))
    owners = {each: signer_of(ca.owner(each, not_before=since, not_after=until)) for each in made.owners}
    folder = republished(made, tmp_path, all_signed(made, owners, aggregator), aggregator, then)
    ca_file = tmp_path / "old-ca.pem"
    ca_file.write_bytes(ca.issued.certificate_pem)
    assert verify_release(folder, ca_file).published == then.replace(microsecond=0)


def test_number_of_records_against_the_data(made, tmp_path):
    """Data with another number of records than the owners signed are found, digests or not."""
    folder = republished(made, tmp_path, all_signed(made, records={"a": 16, "b": 15}))
    with pytest.raises(IntegrityError, match=r"data\.parquet has 30 records, the owners stated 31"):
        verify_release(folder)


def test_descriptions_against_the_plan(made, folder):
    """A Parquet file that names another release, or describes a column otherwise, is found, listed or not."""
    table = pq.read_table(folder / "data.parquet")
    milder = table.schema.field("age").with_metadata({"epsilon": "0.001"})
    place = table.schema.get_field_index("age")
    other = {**table.schema.metadata, b"release": b"other"}
    cases = {
        "names another release": table.replace_schema_metadata(other),
        "describes its columns otherwise": table.cast(table.schema.set(place, milder)),
    }
    for expected, changed in cases.items():
        resigned(made, folder, lambda manifest, changed=changed: replace_parquet(folder, manifest, changed))
        with pytest.raises(IntegrityError, match=expected):
            verify_release(folder)


def written_anew(made, folder, write, **changes):
    """Write the Parquet file of a copy again, with what describes it, and sign the manifest that lists it."""
    path = folder / "data.parquet"

    def listed(manifest):
        manifest.update(changes)
        table = pq.read_table(made.folder / "data.parquet")
        write(table.replace_schema_metadata(file_metadata(made.plan, manifest)), path)
        manifest["files"]["data.parquet"] = {
            "digest": digest(path.read_bytes()), "size": str(path.stat().st_size)
        }  # fmt: skip

    resigned(made, folder, listed)


@pytest.mark.parametrize(
    "form",
    [
        *({"version": version} for version in ("1.0", "2.4", "2.6")),
        *({"data_page_version": version} for version in ("1.0", "2.0")),
        *({"compression": name} for name in ("none", "snappy", "gzip", "brotli", "lz4", "zstd")),
        {"use_dictionary": False},
        {"row_group_size": 1},
        {"data_page_size": 1, "write_batch_size": 1},
        {"write_page_index": True, "write_page_checksum": True},
    ],
    ids=str,
)
def test_the_same_values_in_every_form_of_parquet(made, folder, form):
    """The layout of a file says nothing about its values: they are read and compared with the CSV file's."""
    written_anew(made, folder, lambda table, path: pq.write_table(table, path, **form))
    assert verify_release(folder).files == ("data.csv", "data.parquet", "report.html")
    assert read_release(folder).frame.equals(read_release(made.folder).frame)


def _with(name, kind=None, values=None):
    """Write a column as another type, or with other values."""

    def write(table, path):
        place = table.schema.get_field_index(name)
        column = table.column(name).cast(kind) if values is None else pa.array(values, kind)
        field = table.schema.field(name).with_type(column.type).with_nullable(None in (values or ()))
        pq.write_table(table.set_column(place, field, column), path)

    return write


def _stating(number, stated):
    """Write one of the numbers of records and values in the footer otherwise."""

    def write(table, path):
        pq.write_table(table, path, compression="none")
        data = path.read_bytes()
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        # 30 as a long integer of Thrift, in the field after the last one.
        places = [start + each.start() + 1 for each in re.finditer(rb"\x16\x3c", data[start:])]
        path.write_bytes(data[: places[number]] + bytes([2 * stated]) + data[places[number] + 1 :])

    return write


def _without_pages(table, path):
    """Write pages that readers pass over, under a footer with the right number of records."""
    pq.write_table(table, path, compression="none", use_dictionary=False)
    data, group = bytearray(path.read_bytes()), pq.read_metadata(path).row_group(0)
    for column in range(group.num_columns):
        start = group.column(column).data_page_offset
        assert data[start : start + 2] == b"\x15\x00"
        data[start + 1] = 2  # an index page in place of a data page
    path.write_bytes(data)


def _under_another_schema(**types):
    """Write the schema of Arrow beside the columns, with types that they do not have."""

    def write(table, path):
        fields = [each.with_type(types.get(each.name, each.type)) for each in table.schema]
        claimed = pa.schema(fields, table.schema.metadata).serialize().to_pybytes()
        name = b"ARROW-schema"
        pq.write_table(
            table.replace_schema_metadata({**table.schema.metadata, name: b64encode(claimed)}), path
        )
        data, true = path.read_bytes(), b"ARROW:schema"
        assert data.count(name) == data.count(true) == 1
        path.write_bytes(data.replace(true, b"ARROW.schema").replace(name, true))

    return write


WRITTEN = {
    "fewer records": (lambda table, path: pq.write_table(table[:29], path), "has 29 records"),
    "no records": (lambda table, path: pq.write_table(table[:0], path), "has 0 records"),
    "stated: fewer records in the file": (_stating(0, 28), "has 28 records"),
    "stated: fewer values in a column": (_stating(1, 28), "states numbers or sizes"),
    "stated: more values in a column": (_stating(2, 60), "states numbers or sizes"),
    "stated: no values in a column": (_stating(3, 0), "states numbers or sizes"),
    "stated: fewer records in a group": (_stating(-1, 28), "states numbers or sizes"),
    "no pages": (_without_pages, "has 0 records"),
    "a column twice": (
        lambda table, path: pq.write_table(table.append_column("age", table.column("age")), path),
        "columns of",
    ),
    "no column": (lambda table, path: pq.write_table(table.drop_columns("age"), path), "columns of"),
    "another order": (
        lambda table, path: pq.write_table(table.select(table.column_names[::-1]), path), "columns of"
    ),
    "shorter integers": (_with("age", pa.int32()), "columns of"),
    "doubles for integers": (_with("age", pa.float64()), "columns of"),
    "plain labels": (_with("ward", pa.string()), "columns of"),
    "no schema of Arrow": (lambda table, path: pq.write_table(table, path, store_schema=False), "columns of"),
    "times, by Arrow's schema": (_under_another_schema(record=pa.duration("us")), "columns of"),
    "short codes, by Arrow's schema": (
        _under_another_schema(ward=pa.dictionary(pa.int8(), pa.string())), "columns of"
    ),
    "missing values": (_with("age", pa.int64(), [None] * 30), "describes its columns"),
    "no numbers": (_with("income", pa.float64(), [float("nan")] * 30), "cannot be read"),
    "infinity": (_with("income", pa.float64(), [float("inf")] * 30), "cannot be read"),
    "between the steps of an attribute": (_with("income", pa.float64(), [1.00049] * 30), "cannot be read"),
    "beyond the domain": (_with("age", pa.int64(), [10**6] * 30), "values of age that were not declared"),
    "other labels": (
        _with("ward", pa.dictionary(pa.int32(), pa.string(), ordered=True), ["Zz"] * 30),
        "values of ward that were not declared",
    ),
    "no Parquet": (lambda _, path: path.write_bytes(b"{}"), "cannot be read"),
    "encrypted": (
        lambda table, path: (pq.write_table(table, path), path.write_bytes(path.read_bytes()[:-4] + b"PARE")),
        "cannot be read",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN)
def test_a_parquet_file_that_is_signed_and_wrong(made, folder, case):
    """Counts, columns and values are checked under a valid signature, too, and reading verifies first."""
    write, told = WRITTEN[case]
    written_anew(made, folder, write)
    for reading in (verify_release, read_release):
        with pytest.raises(IntegrityError, match=told):
            reading(folder)


def test_missing_values_in_the_words_of_another_version(made, folder):
    """What is not compared between versions are words. Values are."""
    written_anew(made, folder, _with("age", pa.int64(), [None] * 30), version="0.0.1")
    with pytest.raises(IntegrityError, match="values of age that were not declared"):
        verify_release(folder)


def test_descriptions_of_another_version(made, folder):
    """They can promise anything: a note says so, and a table that is read has those of the plan."""
    milder = {
        "description": "differential privacy",
        "epsilon": "0.001",
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": "cos\nsystem\n(S'false'\ntR.",
    }

    def write(table, path):
        schema = pa.schema([each.with_metadata(milder) for each in table.schema], table.schema.metadata)
        pq.write_table(table.cast(schema), path)

    written_anew(made, folder, write, version="0.0.1")
    assert any("descriptions of columns" in each for each in verify_release(folder).caveats)
    honest, read = read_release(made.folder).table, read_release(folder).table
    assert read.schema.equals(honest.schema, check_metadata=True)
    assert not read.schema.metadata


def test_csv_against_the_plan(made, tmp_path):
    """A CSV file with other columns or another number of records is found even if the manifest lists it."""
    document = json.loads((made.folder / "manifest.json").read_bytes())
    data = (made.folder / "data.csv").read_bytes()
    # The records are shuffled, and values of some hold line breaks: lines are not records.
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))

    def written(chosen: list[list[str]]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows(chosen)
        return text.getvalue().encode()

    cases = {
        r"data\.csv has 31 records": written([*rows, rows[1]]),
        "columns of": data.replace(b"record,age", b"record,AGE", 1),
        r"data\.csv has 29 records": written(rows[:-1]),
        "cannot be read": written([*rows[:-1], ["30", "7"]]),
    }
    for number, (told, content_of_csv) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        listed = {}
        for name, content in (("data.csv", content_of_csv), ("report.html", b"<html></html>")):
            (folder / name).write_bytes(content)
            listed[name] = ReleasedFile(digest(content), len(content))
        manifest = to_bytes(document, listed)
        (folder / "manifest.json").write_bytes(manifest)
        (folder / "manifest.sig").write_bytes(made.aggregator.sign(Domain.MANIFEST, manifest))
        with pytest.raises(IntegrityError, match=told):
            verify_release(folder)


def test_a_report_that_the_manifest_does_not_make(tmp_path):
    """A signed page that promises more than the manifest is refused; one of another version gets a note."""
    made = make_release(tmp_path, formats=("csv",))
    folder = made.folder
    # The page follows from the texts of data.csv as it does from the values of data.parquet.
    assert verify_release(folder).files == ("data.csv", "report.html")
    page = (folder / "report.html").read_bytes().replace(b"What is not hidden", b"What is hidden")
    (folder / "report.html").write_bytes(page)

    def listed(manifest):
        manifest["files"]["report.html"] = {"digest": digest(page), "size": str(len(page))}

    resigned(made, folder, listed)
    with pytest.raises(IntegrityError, match=r"report\.html is not the report of this manifest"):
        verify_release(folder)
    resigned(made, folder, lambda manifest: manifest.update(version="0.0.1"))
    assert any("not compared with the manifest" in each for each in verify_release(folder).caveats)


def test_signature_of_another_key(made, tmp_path):
    """A signature by a key that its certificate does not hold fails, whoever the certificate names."""
    other = made.ca.aggregator("hub", ["localhost"])
    liar = Signer(other.key, [other.certificate])
    signed = Signed(liar.sign_document(Domain.PLAN, made.plan.to_document()), made.aggregator.chain_pem)
    folder = republished(made, tmp_path, replace(made.evidence, plan_signed=signed))
    with pytest.raises(IntegrityError, match="plan's signature does not hold"):
        verify_release(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows[::-1], "not numbered from 1"),
        (lambda rows: [[rows[0][0], "-99999", *rows[0][2:]], *rows[1:]], "that were not declared"),
        (lambda rows: [[rows[0][0], *rows[1][1:]], *rows[1:]], "does not hold the same records"),
    ],
)
def test_data_files_that_differ(made, tmp_path, change, told):
    """A signed manifest over a CSV file that says something else than the Parquet file does not verify."""
    document = json.loads((made.folder / "manifest.json").read_bytes())
    folder = tmp_path / "changed"
    shutil.copytree(made.folder, folder)
    header, *rows = csv.reader(io.StringIO((folder / "data.csv").read_bytes().decode(), newline=""))
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows([header, *change(rows)])
    (folder / "data.csv").write_bytes(text.getvalue().encode())
    listed = {
        path.name: ReleasedFile(digest(path.read_bytes()), path.stat().st_size)
        for path in folder.iterdir()
        if not path.name.startswith("manifest")
    }
    manifest = to_bytes(document, listed)
    (folder / "manifest.json").write_bytes(manifest)
    (folder / "manifest.sig").write_bytes(made.aggregator.sign(Domain.MANIFEST, manifest))
    with pytest.raises(IntegrityError, match=told):
        verify_release(folder)
