"""Parquet and CSV files in an object store: Amazon S3 and stores like it, Google Cloud Storage, Azure.

    s3://BUCKET/KEY?endpoint=https://HOST:PORT&region=REGION
    gs://BUCKET/KEY
    abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH

An address never contains credentials. They come from the platform (environment, profile files, the identity
of the machine), or from a private file that `credentials_file` names. Error texts of the libraries quote
addresses and answers of the store, so only their codes are reported.
"""

import io
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from configparser import Error as MalformedFile
from configparser import RawConfigParser
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from common.errors import ConfigurationError, SourceUnreachableError, TesseraError, check_resources
from common.files import read_private
from common.progress import Progress
from owner_node.sources.database import SECRET
from owner_node.sources.files import HEAD_BYTES
from owner_node.sources.findings import Findings
from owner_node.sources.options import DATABASE_KEYS, SourceOptions
from owner_node.sources.source import Reader, Source

CONNECT_SECONDS = 5
"""Time-out for connecting to S3."""
SILENT_SECONDS = 8
"""Time-out of S3 for a connection without a byte; it connects three times."""
RETRY_SECONDS = 20
"""Time-out of Google for all attempts of a request."""
LIMIT_SECONDS = 60
"""Time-out of any request with all attempts; Azure's library has no other."""
READ_BYTES = 2**20
"""Bytes of an object that are read at a time."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Store:
    """A kind of object store."""

    form: str
    """Form of an address after the scheme."""
    authority: re.Pattern[str]
    """Matches what comes before the key."""
    connect: Callable[["ObjectSource", dict[str, str]], Any]
    """Returns the library's file system, given arguments with credentials."""
    options: tuple[str, ...] = ("endpoint", "allow_http")
    """Options of an address."""
    credentials: tuple[Mapping[str, str], ...] = ()
    """Complete sets of names in a file of credentials, each name with the library's argument."""


def _s3(source: "ObjectSource", credentials: dict[str, str]) -> Any:
    from pyarrow.fs import S3FileSystem

    scheme, host = source.endpoint or ("https", None)
    return S3FileSystem(
        **credentials, region=source.region, scheme=scheme, endpoint_override=host,
        connect_timeout=CONNECT_SECONDS, request_timeout=SILENT_SECONDS,
        tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE"),
    )  # fmt: skip


def _google(source: "ObjectSource", _credentials: dict[str, str]) -> Any:
    from pyarrow.fs import GcsFileSystem

    scheme, host = source.endpoint or ("https", None)
    limit = timedelta(seconds=RETRY_SECONDS)
    return GcsFileSystem(scheme=scheme, endpoint_override=host, retry_time_limit=limit)


def _azure(source: "ObjectSource", credentials: dict[str, str]) -> Any:
    from pyarrow.fs import AzureFileSystem

    account, _, domain = source.authority.partition("@")[2].partition(".dfs")
    scheme, host = source.endpoint or ("https", "")
    where = {f"{kind}_storage_authority": host or f".{kind}{domain}" for kind in ("blob", "dfs")}
    where |= {f"{kind}_storage_scheme": scheme for kind in ("blob", "dfs")}
    return AzureFileSystem(account, **where, **credentials)


_KEYS = {"aws_access_key_id": "access_key", "aws_secret_access_key": "secret_key"}
_STORES = {
    "s3": _Store(
        "BUCKET/KEY",
        re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]+"),
        _s3,
        options=("endpoint", "region", "allow_http"),
        credentials=(_KEYS, _KEYS | {"aws_session_token": "session_token"}),
    ),
    "gs": _Store("BUCKET/KEY", re.compile(r"[a-z0-9][a-z0-9._-]+"), _google),
    "abfss": _Store(
        "CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
        re.compile(r"[a-z0-9$-]+@[a-z0-9]+\.dfs(?:\.[a-z0-9-]+)+"),
        _azure,
        credentials=tuple(
            {name: name for name in names}
            for names in (("account_key",), ("sas_token",), ("tenant_id", "client_id", "client_secret"))
        ),
    ),
}
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
"""Schemes of other programs."""
_SECRET_OPTION = re.compile(rf"{SECRET.pattern}|key|sig|sas|auth|^s[eprtv]$", re.IGNORECASE)
"""Also recognises those of signed addresses, such as X-Amz-Signature and sig."""
_ELSEWHERE = "name a file with them as credentials_file, or let the platform give them"
_ENDPOINT = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?/?"
)
_LOOPBACK = re.compile(r"localhost|127\.[0-9.]+|::1")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Variables of the environment that name an endpoint of S3."""


def _endpoint(text: str, *, allow_http: bool) -> tuple[str, str] | None:
    """Return scheme and host of an endpoint, None without one; raise ValueError if it cannot be used."""
    if not text:
        return None
    if "@" in text:
        raise ValueError(f"its endpoint contains credentials; {_ELSEWHERE}")
    parts = _ENDPOINT.fullmatch(text.lower())
    if parts is None or int(parts["port"] or 1) not in range(1, 65536):
        raise ValueError('expected an endpoint such as "https://minio.example:9000"')
    if parts["scheme"] == "http" and not allow_http and not _LOOPBACK.fullmatch(parts["host"].strip("[]")):
        raise ValueError("its endpoint has no TLS: use https, or accept that with allow_http=true")
    # One text for one endpoint, since it tells budgets apart.
    usual = {"http": "80", "https": "443"}[parts["scheme"]]
    port = "" if parts["port"] in (None, usual) else f":{parts['port']}"
    return parts["scheme"], f"{parts['host']}{port}"


class ObjectSource(Source):
    """One object, or the Parquet files below a prefix."""

    begins = re.compile(rf"(?i:{'|'.join((*_STORES, *_ALIASES))})://")
    refused = DATABASE_KEYS

    def parse(self) -> None:
        """Take the address apart (see `Source`)."""
        scheme, _, rest = self.address.partition("://")
        self.scheme = scheme.lower()
        if self.scheme in _ALIASES:
            used = f'"{_ALIASES[self.scheme]}://", or "spark:parquet:{self.scheme}://" for what Spark reads'
            raise ValueError(f"write {used}")
        self._store = _STORES[self.scheme]
        before, _, options = rest.partition("?")
        self.authority, _, key = before.partition("/")
        if ":" in self.authority or ("@" in self.authority and self.scheme != "abfss"):
            raise ValueError(f"it contains credentials; {_ELSEWHERE}")
        if not self._store.authority.fullmatch(self.authority):
            raise ValueError(f'expected "{self.scheme}://{self._store.form}"')
        given = dict(parse_qsl(options, keep_blank_values=True))
        if any(map(_SECRET_OPTION.search, given)):
            raise ValueError(f"one of its options is a secret; {_ELSEWHERE}")
        if not given.keys() <= {*self._store.options} or bool(given) is not bool(options):
            raise ValueError(f'its options are {", ".join(self._store.options)}; write %3F for "?" in a key')
        self.region = given.get("region")
        if self.region is not None and not re.fullmatch(r"[a-z0-9-]+", self.region):
            raise ValueError('expected a region such as "eu-central-1"')
        # As the programs of AWS read them.
        named = (os.environ.get(name, "") for name in _ENDPOINTS if self.scheme == "s3")
        endpoint = given.get("endpoint") or next(filter(None, named), "")
        self.endpoint = _endpoint(endpoint, allow_http=given.get("allow_http") == "true")
        self.key = unquote(key).strip("/")
        if re.search(r"[\x00-\x1f\x7f-\x9f]", self.key):
            raise ValueError("its key has control characters; read the objects by a prefix, or rename them")

    @classmethod
    def normal(cls, address: str, full: Callable[[str], Path]) -> str:  # noqa: ARG003 - it has no path
        """Return the address as it is, once it is checked (see `Source`)."""
        cls("", address, SourceOptions())
        return address

    @classmethod
    def contradictions(cls, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Find a file of credentials that the library would not read (see `Source`)."""
        yield from super().contradictions(table)
        if "credentials_file" in table and str(table["source"]).lower().startswith("gs:"):
            yield "credentials_file", "for gs://, name the file in GOOGLE_APPLICATION_CREDENTIALS instead"

    @property
    def shown(self) -> str:
        """The address without options (see `Source`)."""
        return f"{self.scheme}://{self.authority}/{self.key}"

    @property
    def place(self) -> str:
        """The address, with the endpoint (see `Source`)."""
        return f"{self.shown}?endpoint={'://'.join(self.endpoint)}" if self.endpoint else self.shown

    def open(self, findings: Findings, progress: Progress) -> Reader | None:
        """Open the object in the format that it has, or the Parquet files of the prefix (see `Source`)."""
        from owner_node.sources.formats import open_file
        from owner_node.sources.parquet_files import open_folder

        found = self.objects(findings)
        if isinstance(found, StoredObject):
            with found.open("rb") as stream:
                head = stream.read(HEAD_BYTES)
            return open_file(found, head, self.options.csv, findings)
        return None if found is None else open_folder(lambda: found, findings)

    def objects(self, findings: Findings) -> "StoredObject | list[tuple[StoredObject, bool]] | None":
        """Return the object, or what a prefix holds and whether each is a folder; None with a finding."""
        from pyarrow.fs import FileSelector, FileType

        credentials = self._credentials()
        system = self.ask(lambda: self._store.connect(self, credentials))
        bucket = self.authority.partition("@")[0]
        path = f"{bucket}/{self.key}".rstrip("/")
        kind = self.ask(lambda: system.get_file_info(path)).type
        if kind is FileType.File:
            return StoredObject(self, system, path)
        if kind is FileType.Directory:
            held = self.ask(lambda: system.get_file_info(FileSelector(path)))
            return [(StoredObject(self, system, each.path), each.type is FileType.Directory) for each in held]
        problem = "there is no such object, and no prefix with objects"
        # Who may read an object need not be allowed to look at its bucket.
        with suppress(ConfigurationError):
            if self.ask(lambda: system.get_file_info(bucket)).type is FileType.NotFound:
                problem = "there is no such bucket or container"
        findings.fail(problem, 'correct source and its endpoint; write %25 and %3F for "%" and "?" in a key')
        return None

    def ask(self, action: Callable[[], _T]) -> _T:
        """Ask the store something, within the time limit.

        Raises:
            SourceUnreachableError: If it does not answer now.
            ConfigurationError: If it does not let the owner node in.
        """
        answer: Future[_T] = Future()

        def run() -> None:
            try:
                answer.set_result(action())
            except BaseException as error:  # noqa: BLE001 - it is raised where the answer is awaited
                answer.set_exception(error)

        # Not a pool: a program would wait for its threads when it ends.
        threading.Thread(target=run, name="object store", daemon=True).start()
        fault: TesseraError
        try:
            return answer.result(LIMIT_SECONDS)
        except TimeoutError:
            fault = self.unreachable(f"no answer within {LIMIT_SECONDS} s")
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - the libraries raise errors of many classes
            check_resources(error)
            fault = self._explain(error)
        raise fault

    def unreachable(self, problem: str) -> SourceUnreachableError:
        """Return the error of a store that cannot be used now, but possibly later."""
        return SourceUnreachableError(
            f"data set {self.dataset!r} cannot be read now: {self.place}: {problem}",
            "check the network, the endpoint in source, and that the store runs",
            {"dataset": self.dataset, "source": self.shown},
        )

    def _explain(self, error: Exception) -> TesseraError:
        text = str(error)
        found = _CODE.search(text)
        code = "".join(f" ({each})" for each in filter(None, found.groups() if found is not None else ()))
        if isinstance(error, FileNotFoundError) or _GONE.search(text):
            return self.unreachable(f"an object was removed while it was read{code}")
        for sign, problem, hint in _FAULTS:
            if sign.search(text):
                located = re.search(r"is located in '([a-z0-9-]{1,40})'", text)
                advice = f"add the region to source: ?region={located[1]}" if located is not None else hint
                about = f"data set {self.dataset!r} cannot be read: {self.place}: {problem}{code}"
                return ConfigurationError(about, hint=advice)
        return self.unreachable(f"there is no answer{code}")

    def _credentials(self) -> dict[str, str]:
        """Return the library's arguments from the file of credentials; none without one."""
        if (path := self.options.credentials_file) is None:
            return {}
        held: Mapping[str, str] = {}
        # The parser's errors quote lines.
        with suppress(MalformedFile, UnicodeDecodeError, KeyError):
            text, parser = read_private(path).decode(), RawConfigParser(delimiters="=")
            parser.read_string(text if re.search(r"(?m)^\[", text) else f"[default]\n{text}")
            held = parser[parser.sections()[0] if len(parser.sections()) == 1 else "default"]
        # A profile of AWS can have other keys, too; a token goes with the keys if there is one.
        for names in reversed(self._store.credentials):
            if all(map(held.get, names)):
                return {argument: held[name] for name, argument in names.items()}
        sets = ", or ".join(" and ".join(names) for names in self._store.credentials)
        hint = f"write {sets}, each as NAME = VALUE on a line of its own"
        raise ConfigurationError(f"{path} has no credentials for {self.scheme}://", hint=hint)


_CODE = re.compile(
    r"AWS Error ([A-Z_]+(?: \(HTTP status \d+\))?)|cloud::Status\(([A-Z_]+)|Azure Error: \[\w*\] (\d+)"
)
_GONE = re.compile(r"NO_SUCH_|RESOURCE_NOT_FOUND|HTTP status 404|Status\(NOT_FOUND|\] 404 ")
_FAULTS = (
    (
        re.compile(r"OAuth2|DefaultAzureCredential"),
        "there are no credentials",
        f"{_ELSEWHERE}; for gs://, GOOGLE_APPLICATION_CREDENTIALS names a file",
    ),
    (
        re.compile(r"HTTP status 301|PERMANENT_REDIRECT|HEADER_MALFORMED"),
        "the bucket is in another region",
        "add the region to source, such as ?region=eu-central-1",
    ),
    (
        re.compile(r"HTTP status 400|_TOKEN"),
        "it rejects the request",
        "check the region, and that the credentials are still valid",
    ),
    (
        re.compile(r"curlCode: (?:60|77)\b"),
        "its certificate is of no known authority",
        "name the file with the authority's certificate in AWS_CA_BUNDLE",
    ),
    (
        re.compile(r"Errno 13|_DENIED|INVALID_ACCESS|SIGNATURE|UNAUTHENTICATED|status 40[13]|\] 40[13] "),
        "it does not let the owner node in",
        "check the credentials, and let them read and list what source names",
    ),
)
"""Signs in an error, the problem and a hint; any other error may pass."""


class StoredObject:
    """An object as a file: it has what readers use of a `Path`.

    Args:
        path: Its bucket and key.
    """

    def __init__(self, source: ObjectSource, system: Any, path: str) -> None:
        self.name, self.suffix = PurePosixPath(path).name, PurePosixPath(path).suffix
        self._source, self._system, self._path = source, system, path
        self._state: tuple[object, ...] = ()

    def open(self, _mode: str, /) -> io.BufferedReader:
        """Open it for reading bytes.

        Raises:
            SourceUnreachableError: If it was changed since it was first opened; or as `ObjectSource.ask`.
        """

        def begin() -> tuple[Any, tuple[object, ...]]:
            opened = self._system.open_input_file(self._path)
            about = {str(key).lower(): value for key, value in (opened.metadata() or {}).items()}
            return opened, (opened.size(), *map(about.get, ("etag", "generation", "last-modified")))

        opened, state = self._source.ask(begin)
        if self._state not in ((), state):
            raise self._source.unreachable("it was changed while it was read")
        self._state = state
        return io.BufferedReader(_Stream(self._source, opened), READ_BYTES)


class _Stream(io.RawIOBase):
    """An opened object as a stream of Python."""

    def __init__(self, source: ObjectSource, opened: Any) -> None:
        self._source, self._opened = source, opened

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._opened.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        data = self._source.ask(lambda: self._opened.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)
