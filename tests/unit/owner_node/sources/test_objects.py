"""Objects in a store are read as the same bytes in a file are, and each fault of a store says what to do."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from common.errors import ConfigurationError, DataError, SourceUnreachableError
from owner_node.config import DatasetConfig
from owner_node.loading import count_records, load, open_reading
from owner_node.sources import kind_of, objects
from owner_node.sources.objects import ObjectSource
from owner_node.sources.options import SourceOptions
from tests.object_server import (
    ACCESS_KEY,
    ACCOUNT,
    ACCOUNT_KEY,
    SECRET_KEY,
    STRANGER,
    ObjectStore,
    object_store,
)
from tests.unit.owner_node.sources.conftest import AGE, SEX

SECRETS = (SECRET_KEY, ACCESS_KEY, ACCOUNT_KEY, "hunter2")
N_RECORDS = 300
TABLE = pa.table(
    {
        "id": [f"p{number}" for number in range(N_RECORDS)],
        "age": [number % 90 for number in range(N_RECORDS)],
        "sex": ["female" if number % 3 else "male" for number in range(N_RECORDS)],
    }
)
OWNER = """
[owner]
id = "north"
trust_domain = "hospitals.example"
state_dir = "state"
[[aggregator]]
name = "hub"
address = "127.0.0.1:1"
[tls]
ca = "ca.pem"
cert = "north.pem"
key = "north.key"
[[dataset]]
name = "patients"
source = "{source}"
{more}
total_epsilon = 10
identifier = "id"
[dataset.attributes.age]
type = "integer"
min = 0
max = 120
[dataset.attributes.sex]
type = "category"
categories = ["female", "male"]
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A store with one bucket, and credentials for it where the platform has them."""
    folder = tmp_path / "store"
    (folder / "registry/parts").mkdir(parents=True)
    pq.write_table(TABLE, folder / "registry/patients.parquet")
    lines = ["id,age,sex", *(",".join(map(str, each.values())) for each in TABLE.to_pylist())]
    (folder / "registry/patients.csv").write_text("\n".join(lines) + "\n")
    (folder / "registry/parts/_SUCCESS").write_text("")
    for number in range(3):
        pq.write_table(TABLE.slice(number * 100, 100), folder / f"registry/parts/part-{number}.parquet")
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with object_store(folder) as running:
        account = tmp_path / "google.json"
        account.write_text(json.dumps(running.service_account()))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
        yield running


def dataset(source: str | Path, **settings: object) -> DatasetConfig:
    """Return a data set over a source."""
    known: dict[str, Any] = {"source": str(source), "attributes": (AGE, SEX), "identifier": ("id",)}
    return DatasetConfig(name="patients", budget="patients", total_epsilon=Decimal(1), **(known | settings))


def secret(folder: Path, text: str) -> Path:
    """Write a private file."""
    path = folder / "credentials"
    path.touch(0o600)
    path.write_text(text)
    return path


def owner_node(folder: Path, *arguments: str | Path) -> tuple[int, str]:
    """Run the command line in a process of its own; returns its exit code and all that it printed."""
    command = [sys.executable, "-c", "from owner_node.cli import main; main()", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=180)
    printed = ended.stdout + ended.stderr
    assert "Traceback" not in printed, printed
    assert not any(each in printed for each in SECRETS), printed
    return ended.returncode, printed


def checked(folder: Path, source: str, more: str = "") -> tuple[int, str]:
    """Run `check` on a data set."""
    (folder / "owner.toml").write_text(OWNER.format(source=source, more=more))
    return owner_node(folder, "check", "--config", folder / "owner.toml")


# --- the same data as files --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["patients.csv", "patients.parquet", "parts", "parts/"])
def test_an_object_is_the_same_data_as_a_file(store, name):
    """Values, counts and the digest that pins a release do not depend on where the bytes are."""
    there, here = dataset(store.address(f"s3://registry/{name}")), dataset(store.folder / "registry" / name)
    assert (
        load(there).digest
        == load(here).digest
        == load(dataset(store.folder / "registry/patients.csv")).digest
    )
    assert count_records(there) == N_RECORDS
    with open_reading(there) as reading:
        assert reading.expected == pytest.approx(N_RECORDS, rel=0.1)


@pytest.mark.parametrize("name", ["patients.csv", "patients.parquet", "parts"])
def test_google_and_azure_are_read_too(store, tmp_path, name):
    """The libraries of the three stores give the same data."""
    expected = load(dataset(store.folder / "registry" / name)).digest
    assert load(dataset(store.address(f"gs://registry/{name}"))).digest == expected
    key = secret(tmp_path, f"account_key = {ACCOUNT_KEY}\n")
    address = store.address(f"abfss://registry@{ACCOUNT}.dfs.core.windows.net/{name}")
    assert load(dataset(address, credentials_file=key)).digest == expected


def test_only_some_bytes_of_a_large_object_are_asked_for(store):
    """Columns that nobody declared are not sent: a Parquet file is read by its parts."""
    wide = pa.table({"age": [1] * 400_000, "note": [f"{number:020}" for number in range(400_000)]})
    path = store.folder / "registry/wide.parquet"
    pq.write_table(wide, path, compression="none", use_dictionary=False)
    store.fail("")
    narrow = dataset(store.address("s3://registry/wide.parquet"), identifier=(), attributes=(AGE,))
    assert load(narrow).n_records == 400_000
    n_requests = sum(each.startswith("GET") for each in store.asked)
    assert n_requests * objects.READ_BYTES < path.stat().st_size * 3


def test_a_changed_object_has_another_digest(store):
    """A release that is resumed notices that the data are no longer the same, as with a file."""
    there = dataset(store.address("s3://registry/patients.csv"))
    before = load(there).digest
    path = store.folder / "registry/patients.csv"
    path.write_text(path.read_text().replace("p7,7,", "p7,8,"))
    assert load(there).digest != before


@pytest.mark.parametrize("name", ["patients.csv", "patients.parquet"])
def test_an_object_that_changes_while_it_is_read_is_read_again_later(store, name):
    """No mixture of two states is loaded; the release waits and tries again."""
    path = store.folder / "registry" / name
    with open_reading(dataset(store.address(f"s3://registry/{name}"))) as reading:
        batches = reading.batches()
        next(batches)
        path.write_bytes(path.read_bytes() + b"\n")
        with pytest.raises(SourceUnreachableError, match="changed while it was read"):
            list(batches)


def test_parts_that_differ_are_an_error(store):
    """All parts of a prefix have the same columns, and every other object there is named."""
    pq.write_table(TABLE.drop_columns("sex"), store.folder / "registry/parts/part-9.parquet")
    with pytest.raises(DataError, match="files with other columns than 'part-0"):
        load(dataset(store.address("s3://registry/parts")))
    (store.folder / "registry/parts/notes.txt").write_text("x")
    with pytest.raises(DataError, match="not readable as Parquet"):
        load(dataset(store.address("s3://registry/parts")))


def test_other_formats_are_named(store):
    """A packed file and a file of SPSS are recognised in a store as on a disk."""
    (store.folder / "registry/x.csv").write_bytes(b"\x1f\x8b")
    (store.folder / "registry/x.sav").write_bytes(b"$FL2@(#) SPSS")
    (store.folder / "registry/empty").write_bytes(b"")
    for name, problem in {"x.csv": "gzip", "x.sav": "not read from an object", "empty": "is empty"}.items():
        with pytest.raises(DataError, match=problem):
            load(dataset(store.address(f"s3://registry/{name}")))


def test_a_key_may_hold_any_character(store):
    """Blanks stand as they are, and what an address gives a meaning is escaped."""
    path = store.folder / "registry/a b/100%?.csv"
    path.parent.mkdir()
    path.write_bytes((store.folder / "registry/patients.csv").read_bytes())
    assert load(dataset(store.address("s3://registry/a b/100%25%3F.csv"))).n_records == N_RECORDS


# --- addresses and credentials -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("s3://AKIA:hunter2@bucket/key", "it contains credentials"),
        ("s3://AKIA:hunter2/x@bucket/key", "it contains credentials"),
        ("s3://hunter2@bucket/key", "it contains credentials"),
        ("abfss://c:hunter2@account.dfs.core.windows.net/x", "it contains credentials"),
        ("s3://bucket/key?access_key=hunter2", "one of its options is a secret"),
        ("s3://bucket/key?X-Amz-Signature=hunter2", "one of its options is a secret"),
        ("gs://bucket/key?access_token=hunter2", "one of its options is a secret"),
        ("abfss://c@account.dfs.core.windows.net/x?sv=1&sig=hunter2", "one of its options is a secret"),
        ("s3://bucket/key?hunter2", "its options are endpoint, region, allow_http"),
        ("gs://bucket/key?region=hunter2", "its options are endpoint, allow_http"),
        ("s3://bucket/key?endpoint=https://me:hunter2@host", "its endpoint contains credentials"),
        ("s3://bucket/key?endpoint=host:9000", "expected an endpoint such as"),
        ("s3://bucket/key?endpoint=http://minio.example:9000", "its endpoint has no TLS"),
        ("s3://bucket/key?endpoint=https://hunter2:99999", "expected an endpoint such as"),
        ("s3://bucket/key?endpoint=https://hunter2:0", "expected an endpoint such as"),
        ("s3://bucket/key?endpoint=https://hunter2%0A.example", "expected an endpoint such as"),
        ("s3://bucket/key%1b[31mhunter2", "its key has control characters"),
        ("s3://bucket/key?region=EU hunter2", "expected a region such as"),
        ("s3:///key", 'expected "s3://BUCKET/KEY"'),
        ("abfss://account.dfs.core.windows.net/x", 'expected "abfss://CONTAINER@ACCOUNT'),
        ("s3a://bucket/key", 'write "s3://", or "spark:parquet:s3a://"'),
    ],
)
def test_addresses_with_secrets_and_mistakes_are_refused(address, problem):
    """The text says what is wrong, and quotes nothing of the address."""
    assert kind_of(address) is ObjectSource
    with pytest.raises(ValueError, match=problem) as caught:
        ObjectSource.normal(address, Path)
    assert "hunter2" not in str(caught.value)


def test_one_place_has_one_name():
    """Budgets are compared by places: credentials and regions make no other one, endpoints do."""

    def place(address: str) -> str:
        return kind_of(address)("d", address, SourceOptions()).place

    assert place("s3://bucket/k/") == place("s3://bucket/k?region=eu-1") == "s3://bucket/k"
    assert place("S3://bucket/k") == "s3://bucket/k"
    for written in ("https://Minio.example:443/", "HTTPS://minio.example", "https://minio.example:443"):
        assert place(f"s3://bucket/k?endpoint={written}") == place(
            "s3://bucket/k?endpoint=https://minio.example"
        )
    assert place("s3://bucket/k?endpoint=https://h:1") == "s3://bucket/k?endpoint=https://h:1"
    assert place("s3://bucket/k?endpoint=http://h:1&allow_http=true") == "s3://bucket/k?endpoint=http://h:1"


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}", True),
        (
            f"[x]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\naws_session_token=t",
            True,
        ),
        (f"[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n[b]\nc = d", True),
        (
            f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\nregion = eu-1",
            True,
        ),
        (f"aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key =", False),
        (f"aws_access_key_id = {ACCESS_KEY}\n{SECRET_KEY}", False),
        (f"[a]\nb = c\n[d]\naws_secret_access_key = {SECRET_KEY}", False),
        ("", False),
    ],
)
def test_a_file_of_credentials_has_the_form_of_the_platform(store, tmp_path, monkeypatch, text, accepted):
    """The file wins over the environment; an incomplete one is an error that quotes nothing of it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", STRANGER)
    settings = dataset(store.address("s3://registry/parts"), credentials_file=secret(tmp_path, text))
    if accepted:
        assert load(settings).n_records == N_RECORDS
        return
    with pytest.raises(ConfigurationError, match="has no credentials for s3://") as caught:
        load(settings)
    assert caught.value.__context__ is None
    assert not any(each in f"{caught.value}{caught.value.hint}" for each in SECRETS)


def test_credentials_are_private_and_go_with_a_store(store, tmp_path):
    """A file that others can read is refused, and so is the key where nothing would read it."""
    path = secret(tmp_path, "account_key = x")
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="open to other users"):
        load(dataset(store.address("s3://registry/parts"), credentials_file=path))
    for source in ("patients.csv", "spark:parquet:s3a://bucket/key", "gs://bucket/key"):
        code, printed = checked(tmp_path, source, 'credentials_file = "credentials"')
        assert code == 2
        assert "dataset[patients].credentials_file: " in printed, printed


def test_the_environment_can_name_the_endpoint(store, monkeypatch):
    """AWS_ENDPOINT_URL is read as the programs of AWS read it, and held to the same rule about TLS."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store.host}")
    assert load(dataset("s3://registry/parts?region=eu-test-1")).n_records == N_RECORDS
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio.example")
    with pytest.raises(ValueError, match="has no TLS"):
        kind_of("s3://bucket/k")("d", "s3://bucket/k", SourceOptions())


def test_an_authority_of_ones_own_is_named_by_the_environment(store, tmp_path, monkeypatch):
    """A certificate of a private authority is accepted once that authority is named, never before."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=store")
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    certificate = tmp_path / "store.pem"
    certificate.write_bytes(pem + key.private_bytes(serialization.Encoding.PEM, *form))
    with object_store(store.folder, certificate) as protected:
        settings = dataset(protected.address("s3://registry/parts"))
        with pytest.raises(ConfigurationError, match="no known authority"):
            load(settings)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        assert load(settings).n_records == N_RECORDS


# --- faults ------------------------------------------------------------------------------------------------

FAULTS = {
    "no such key": ("s3://registry/none.csv", {}, "", 2, "there is no such object"),
    "no such bucket": ("s3://nowhere/x.csv", {}, "", 2, "there is no such bucket"),
    "no permission": ("s3://registry/patients.csv", {"AWS_ACCESS_KEY_ID": STRANGER}, "", 2, "does not let"),
    "no such user": ("s3://registry/patients.csv", {"AWS_ACCESS_KEY_ID": "AKIA1"}, "", 2, "does not let"),
    "wrong region": ("s3://registry/patients.csv", {}, "moved", 2, "?region=eu-west-9"),
    "busy": ("s3://registry/patients.csv", {}, "busy", 6, "cannot be read now"),
    "Google: no such key": ("gs://registry/none.csv", {}, "", 2, "there is no such object"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_says_what_to_do(store, tmp_path, monkeypatch, fault):
    """`check` ends with the exit code of its kind, one clear sentence and no secret."""
    name, environment, failing, expected, sentence = FAULTS[fault]
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    store.fail(failing)
    code, printed = checked(tmp_path, store.address(name))
    assert (code, sentence in printed) == (expected, True), printed
    assert "hint: " in printed


def test_a_store_that_is_away_or_silent_is_waited_for(store, monkeypatch):
    """Time-outs are finite, also in the middle of an object; the error is one after which a release waits."""
    monkeypatch.setattr(objects, "SILENT_SECONDS", 1)
    monkeypatch.setattr(objects, "LIMIT_SECONDS", 15)
    settings = dataset(store.address("s3://registry/patients.parquet"))
    away = replace(settings, source="s3://registry/x?endpoint=http://127.0.0.1:1&region=eu-1")
    with pytest.raises(SourceUnreachableError, match="there is no answer"):
        load(away)
    for after in (0, 4):
        store.fail("slow", after)
        begun = time.monotonic()
        with pytest.raises(SourceUnreachableError):
            load(settings)
        assert time.monotonic() - begun < 30
    store.fail("")
    assert load(settings).n_records == N_RECORDS


def test_a_library_without_a_time_out_has_one(store, tmp_path, monkeypatch):
    """Azure's library would wait for minutes."""
    monkeypatch.setattr(objects, "LIMIT_SECONDS", 2)
    key = secret(tmp_path, f"account_key = {ACCOUNT_KEY}\n")
    address = store.address(f"abfss://registry@{ACCOUNT}.dfs.core.windows.net/patients.csv")
    store.fail("slow")
    with pytest.raises(SourceUnreachableError, match="no answer within 2 s"):
        load(dataset(address, credentials_file=key))
    store.fail("")
    with pytest.raises(DataError, match="no such object"):
        load(
            dataset(
                address.replace("patients.csv", "none"), credentials_file=secret(tmp_path, key.read_text())
            )
        )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: No response", "another region"),
        ("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response", "rejects"),
        (
            "AWS Error EXPIRED_TOKEN during GetObject operation: hunter2",
            "rejects the request (EXPIRED_TOKEN)",
        ),
        ("AWS Error SIGNATURE_DOES_NOT_MATCH during GetObject operation", "does not let the owner node in"),
        ("AWS Error SLOW_DOWN during GetObject operation", ""),
        ("AWS Error NO_SUCH_KEY during GetObject operation", ""),
        ("google::cloud::Status(UNAVAILABLE: Could not create a OAuth2 access token", "no credentials"),
        ("[Errno 13] google::cloud::Status(PERMISSION_DENIED: hunter2)", "does not let the owner node in"),
        ("google::cloud::Status(UNAVAILABLE: Retry policy exhausted, hunter2", ""),
        ("Failed to get token from DefaultAzureCredential.\nhunter2", "there are no credentials"),
        ("Azure Error: [AuthenticationFailed] 403 Server failed to authenticate", "does not let the owner"),
        ("Azure Error: [] 503 Service Unavailable", ""),
        ("a text of a later version of the library: hunter2", ""),
    ],
)
def test_what_a_library_says_is_told_in_own_words(text, sentence):
    """What cannot pass is refused with its reason, all else is tried again; no library's text is quoted."""
    source = ObjectSource("patients", "s3://bucket/key", SourceOptions())

    def failing() -> None:
        raise pa.ArrowException(text)

    with pytest.raises(ConfigurationError if sentence else SourceUnreachableError) as caught:
        source.ask(failing)
    assert sentence in caught.value.message
    assert caught.value.__context__ is None
    assert "hunter2" not in f"{caught.value.message}{caught.value.hint}"


# --- commands ----------------------------------------------------------------------------------------------


def test_commands_work_on_an_object(store, tmp_path):
    """`init` proposes the attributes of an object; `check`, `explore` and `mask` read it."""
    address = store.address("s3://registry/patients.csv")
    code, printed = owner_node(tmp_path, "init", address, "--id", "north", "--total-epsilon", "10")
    assert code == 0, printed
    text = (tmp_path / "owner.toml").read_text()
    assert f'source = "{address}"' in text
    assert '[dataset.attributes."age"]' in text
    (tmp_path / "owner.toml").unlink()
    code, printed = checked(tmp_path, address)
    assert code == 0, printed
    config = ("--config", tmp_path / "owner.toml")
    code, printed = owner_node(
        tmp_path, "explore", "--dataset", "patients", *config, "--k", "20", "--epsilon", "1"
    )
    assert code == 0, printed
    asked = ("--k", "20", "--epsilon", "1", "--out", tmp_path / "masked.csv", "--yes", "--anyway")
    code, printed = owner_node(tmp_path, "mask", "--dataset", "patients", *asked, *config)
    assert code == 0, printed


def test_init_refuses_an_address_with_a_secret(tmp_path):
    """It is not written into a file, and not printed."""
    code, printed = owner_node(tmp_path, "init", "s3://AKIA:hunter2@bucket/key")
    assert (code, "it contains credentials" in printed) == (2, True), printed
    assert not (tmp_path / "owner.toml").exists()
