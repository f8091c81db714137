"""Verification: holds for an honest release, and names the first thing that does not hold."""

import io
import os
import shutil
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.cli.release_options import parse_pins
from common.errors import ConfigurationError, IntegrityError, UsageError
from common.release.data_files import read_data
from common.release.page_headers import unpacked_size
from common.release.table import release_schema
from common.release.verification import verify_release
from tests.fakes.published import make_release
from tests.fuzz.memory import bounded_memory
from tests.fuzz.mutations import N_MUTATIONS


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A published release of two owners, in both formats."""
    return make_release(tmp_path_factory.mktemp("made"), n_records=30)


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it to damage."""
    return shutil.copytree(made.folder, tmp_path / "copy")


def test_honest_release_holds(made, tmp_path):
    """Everything holds, against the CA and against the owners' true fingerprints."""
    pins = {owner: signer.fingerprint for owner, signer in made.owners.items()}
    verified = verify_release(made.folder, made.ca_file(tmp_path), pins)
    assert verified.identities_checked
    assert verified.pinned == ("a", "b")
    assert verified.n_records == 30
    assert verified.manifest_digest == made.manifest_digest
    assert verified.plan == made.plan
    assert not verify_release(made.folder).identities_checked


def test_every_byte_counts(made, folder):
    """A change of any byte of any file is found: every byte of small files, and as many of the others."""
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        step = max(1, len(data) * 3 // N_MUTATIONS)
        for position in [*range(0, len(data), step), len(data) - 1]:
            changed = bytearray(data)
            changed[position] ^= 1
            path.write_bytes(bytes(changed))
            with pytest.raises(IntegrityError):
                verify_release(folder)
        path.write_bytes(data[:-1])
        with pytest.raises(IntegrityError):
            verify_release(folder)
        path.write_bytes(data + b"\n")
        with pytest.raises(IntegrityError):
            verify_release(folder)
        path.write_bytes(data)
    assert verify_release(folder).manifest_digest == made.manifest_digest


def test_missing_and_extra_files(folder):
    """A file that is gone, that was added, or that is a link somewhere else is named."""
    (folder / "notes.txt").write_text("hello")
    with pytest.raises(IntegrityError, match=r"notes\.txt does not belong"):
        verify_release(folder)
    (folder / "notes.txt").unlink()
    moved = folder.parent / "elsewhere.csv"
    (folder / "data.csv").rename(moved)
    with pytest.raises(IntegrityError, match=r"data\.csv is missing"):
        verify_release(folder)
    (folder / "data.csv").symlink_to(moved)
    with pytest.raises(IntegrityError, match=r"data\.csv was changed"):
        verify_release(folder)
    for name in ("manifest.sig", "manifest.json"):
        (folder / name).unlink()
        with pytest.raises(IntegrityError, match=f"{name} cannot be read"):
            verify_release(folder)


def test_a_path_that_is_no_release_is_a_mistake_and_no_damage(folder):
    """A misspelt path, a file, or the folder above is named as such, and damages nobody's trust."""
    with pytest.raises(UsageError, match="there is no folder") as caught:
        verify_release(folder.parent / f"{folder.name}s")
    assert caught.value.hint == f"did you mean {folder.name!r}?"
    with pytest.raises(UsageError, match="is not a folder"):
        verify_release(folder / "data.csv")
    (folder.parent / "empty").mkdir()
    with pytest.raises(UsageError, match=r"is not a release folder: it has no manifest\.json"):
        verify_release(folder.parent / "empty")


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig", "data.csv"])
def test_what_is_no_regular_file_is_not_opened(folder, name):
    """A named pipe in the place of a file would be waited for without end."""
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(IntegrityError, match=name.replace(".", r"\.")):
        verify_release(folder)


def test_a_parquet_file_is_not_unpacked_before_its_counts_are_known(made, tmp_path):
    """A small file that unpacks to gigabytes, in rows or in labels, is refused by what its footer states."""
    schema = release_schema(made.plan)
    path = tmp_path / "data.parquet"
    one = pq.read_table(made.folder / "data.parquet").slice(0, 1)
    many = one.take(pa.array([0] * 1_000_000))
    pq.write_table(many, path, compression="zstd")
    with pytest.raises(IntegrityError, match="1000000 records"):
        read_data(path, made.plan, 30)
    label = next(field for field in schema if pa.types.is_dictionary(field.type))
    long = pa.array(["x" * 10_000_000] * 30).dictionary_encode().cast(label.type)
    table = one.take(pa.array([0] * 30))
    at = table.schema.get_field_index(label.name)
    pq.write_table(table.set_column(at, label, long), path, compression="zstd")
    assert path.stat().st_size < 100_000
    with pytest.raises(IntegrityError, match="numbers or sizes that such columns do not have"):
        read_data(path, made.plan, 30)


def _varint(number: int, length: int = 0) -> bytes:
    """An integer as Thrift writes it, in at least so many bytes."""
    digits = [number * 2 if number >= 0 else -2 * number - 1]
    while digits[-1] > 127 or len(digits) < length:
        digits[-1:] = [digits[-1] & 127 | 128, digits[-1] >> 7]
    return bytes(digits)


def test_a_footer_cannot_hide_what_pages_unpack_to(made, tmp_path):
    """Arrow unpacks what the page says, whatever the footer states; so the pages are asked."""
    path = tmp_path / "data.parquet"
    table = pq.read_table(made.folder / "data.parquet")
    label = next(field.name for field in table.schema if pa.types.is_dictionary(field.type))
    long = pa.array(["x" * 10_000_000] * 30).dictionary_encode().cast(table.schema.field(label).type)
    at = table.schema.get_field_index(label)
    pq.write_table(table.set_column(at, label, long), path, compression="zstd")
    stated = _varint(pq.read_metadata(path).row_group(0).column(at).total_uncompressed_size)
    data = path.read_bytes()
    assert data.count(stated) == 1
    path.write_bytes(data.replace(stated, _varint(1000, len(stated))))
    assert pq.read_metadata(path).row_group(0).column(at).total_uncompressed_size == 1000
    with pytest.raises(IntegrityError, match="numbers or sizes that such columns do not have"):
        read_data(path, made.plan, 30)


def _header(*sizes: int) -> bytes:
    """A page header with its two sizes, as long as Thrift allows."""
    return b"\x15\x00" + b"".join(b"\x15" + _varint(each) for each in sizes) + b"\x00"


@pytest.mark.parametrize(
    "pages",
    [
        _header(5, 10**30),
        _header(5, 2**62),
        _header(5, -1),
        _header(5),
        _header(5, 0) * 9,
        b"\x1c" * 100,
        b"\x19\xfc\xff\xff\xff\x7f",
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
    ids=["no integer", "far away", "negative", "one size", "too many", "nested", "a list", "a long text"],
)
def test_headers_that_no_writer_makes_are_refused(pages):
    """Whatever stands where a page should begin ends at once, and never reads beyond the file."""
    with pytest.raises((ValueError, OSError)):
        unpacked_size(io.BytesIO(pages), 0, len(pages), 3)


def test_lists_in_a_footer_take_no_memory_before_their_items(made, tmp_path):
    """Arrow takes the memory of a list as soon as its length is stated; a footer of 19 KB took gigabytes."""
    path = tmp_path / "data.parquet"
    million = b"\xf0" + _varint(500_000)  # a length beyond 14, then the type of the items in the lower half
    structs, integers = bytes([million[0] | 12]) + million[1:], bytes([million[0] | 5]) + million[1:]
    schema = b"\x2c" + b"\x48\x06schema\x15\x02\x00" + b"\x15\x04\x25\x00\x18\x06record\x00"
    chunk = b"\x3c" + b"\x15\x04" + b"\x19" + integers
    footer = b"\x15\x04\x19" + schema + b"\x16\x3c" + b"\x19" + structs + b"\x19" + structs + chunk
    footer += bytes(19_000)
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with bounded_memory(), pytest.raises(IntegrityError, match=r"data\.parquet cannot be read"):
        read_data(path, made.plan, 30)


@pytest.mark.parametrize("piece", ["{},", "[],", '"",', "0,", '{"a":[1]},'])
def test_a_manifest_of_very_many_values_is_not_parsed(folder, piece):
    """Nobody has signed it yet when it is parsed, and each of its values takes memory."""
    (folder / "manifest.json").write_text('{"format":"1","x":[' + piece * (1 << 22) + "0]}")
    with bounded_memory(), pytest.raises(IntegrityError, match=r"manifest\.json .*(more values|not a file)"):
        verify_release(folder)


def test_another_ca(made, tmp_path):
    """Certificates of another CA with the very same names do not pass with --ca."""
    other = make_release(tmp_path, n_records=30)
    assert verify_release(made.folder).plan_digest == other.plan.digest
    with pytest.raises(IntegrityError, match=r"aggregator's certificate does not hold: .* not issued under"):
        verify_release(made.folder, other.ca_file(tmp_path))


def test_pins(made):
    """Another key than the pinned one, or a pin for nobody, is refused and named."""
    with pytest.raises(IntegrityError, match=r"statement of b .* another key"):
        verify_release(made.folder, owners={"b": made.owners["a"].fingerprint})
    with pytest.raises(IntegrityError, match="c took no part"):
        verify_release(made.folder, owners={"c": made.owners["a"].fingerprint})
    digits = made.owners["a"].fingerprint
    assert parse_pins([f"a={digits[:4]} {digits[4:].upper()}"]) == {"a": digits}
    for wrong in (["a"], ["a=12"], [f"={digits}"], [f"a={digits}", f"a={digits}"]):
        with pytest.raises(UsageError):
            parse_pins(wrong)


def test_a_scratch_folder_that_cannot_be_used_is_named(made, tmp_path, monkeypatch):
    """A full or absent folder for temporary files is no fault of the program."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(ConfigurationError, match=r"absent.* cannot be used: No such file") as caught:
        verify_release(made.folder)
    assert "make room" in caught.value.hint
