"""An object store on the loopback interface for tests: what readers need of S3, Google and Azure.

It serves the files of a folder: `BUCKET/KEY` below it. It runs as a process of its own, since the library for
Google keeps Python from running while it waits. How requests fail is in a file of the folder, too.
"""

import json
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ACCESS_KEY, SECRET_KEY = "AKIATESSERATEST", "s3cr3tZq7Qz/only+here"
"""The credentials that may read."""
STRANGER = "AKIASTRANGER"
"""An access key that is known and may read nothing."""
ACCOUNT, ACCOUNT_KEY = "clinic", "WnE3UXotb25seS1oZXJlLXRlc3NlcmE="
"""The account of Azure and its key."""
_NEVER = threading.Event()
"""What a slow answer waits for: the process ends first."""
_FAULT, _ASKED = ".fault", ".asked"
_DATE = formatdate(1_700_000_000, usegmt=True)
_HEADERS = {
    "Last-Modified": _DATE, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream",
    "x-ms-blob-type": "BlockBlob", "x-ms-creation-time": _DATE, "x-ms-server-encrypted": "true",
    "x-ms-lease-status": "unlocked", "x-ms-lease-state": "available", "x-goog-generation": "1",
}  # fmt: skip

_CONTAINER = {
    "x-ms-has-immutability-policy": "false", "x-ms-has-legal-hold": "false",
    "x-ms-immutable-storage-with-versioning-enabled": "false", "x-ms-deny-encryption-scope-override": "false",
    "x-ms-default-encryption-scope": "$account-encryption-key",
}  # fmt: skip


@dataclass(frozen=True)
class ObjectStore:
    """A running store."""

    folder: Path
    """Its objects are the files `BUCKET/KEY` below."""
    host: str
    """Its address, `host:port`."""
    scheme: str

    def address(self, name: str) -> str:
        """Return an object's address for `source`."""
        return f"{name}?endpoint={self.scheme}://{self.host}" + ("&region=eu-test-1" * name.startswith("s3:"))

    def service_account(self) -> dict[str, str]:
        """Return the key of a service account of Google, that this store accepts."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return {
            "type": "service_account", "project_id": "p", "private_key_id": "1", "client_id": "1",
            "private_key": key.private_bytes(serialization.Encoding.PEM, *form).decode(),
            "client_email": "tessera@p.example", "token_uri": f"{self.scheme}://{self.host}/token",
        }  # fmt: skip

    def fail(self, fault: str, after: int = 0) -> None:
        """Let requests fail, after some proper answers: "slow", "busy", "moved" or "" for none."""
        (self.folder / _ASKED).unlink(missing_ok=True)
        (self.folder / _FAULT).write_text(f"{fault} {after}")

    @property
    def asked(self) -> list[str]:
        """Return methods and paths of the requests since `fail` was called."""
        path = self.folder / _ASKED
        return path.read_text().splitlines() if path.exists() else []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        with (self.folder / _ASKED).open("a+") as asked:
            asked.write(f"{self.command} {self.path}\n")
            asked.seek(0)
            n_asked = len(asked.readlines())
        path = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(path.query).items()}
        name = unquote(path.path).lstrip("/")
        fault, after = (self.folder / _FAULT).read_text().rsplit(" ", 1)
        if fault and n_asked > int(after):
            self._fail(fault)
        elif "x-ms-version" in self.headers:
            self._azure(name, query)
        elif name.startswith("storage/v1/b/"):
            self._google(path.path, query)
        else:
            self._s3(name, query)

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _fail(self, fault: str) -> None:
        if fault == "slow":
            _NEVER.wait(60)
            self.close_connection = True
        elif fault == "busy":
            self._answer(503, "<Error><Code>SlowDown</Code></Error>")
        else:
            about = {"x-amz-bucket-region": "eu-west-9"}
            self._answer(301, "<Error><Code>PermanentRedirect</Code></Error>", about)

    def _s3(self, name: str, query: dict[str, str]) -> None:
        signed = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        bucket, _, key = name.partition("/")
        if signed is None or signed[1] != ACCESS_KEY:
            code = "InvalidAccessKeyId" if signed and signed[1] != STRANGER else "AccessDenied"
            self._answer(403, f"<Error><Code>{code}</Code><Message>no</Message></Error>")
        elif not (self.folder / bucket).is_dir():
            self._answer(404, "<Error><Code>NoSuchBucket</Code><Message>no</Message></Error>")
        elif key:
            self._object(bucket, key, "NoSuchKey")
        else:
            files, folders = self._listed(bucket, query)
            text = "".join(
                f"<Contents><Key>{escape(each)}</Key><Size>{size}</Size>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                for each, size in files.items()
            ) + "".join(
                f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders
            )
            count = f"<IsTruncated>false</IsTruncated><KeyCount>{len(files) + len(folders)}</KeyCount>"
            self._answer(200, f"<ListBucketResult>{count}{text}</ListBucketResult>")

    def _google(self, path: str, query: dict[str, str]) -> None:
        if not self.headers.get("Authorization", "").startswith("Bearer "):
            self._answer(401, '{"error": {"code": 401, "message": "no"}}')
            return
        bucket, _, quoted = path.removeprefix("/storage/v1/b/").partition("/o")
        key, place = unquote(quoted.lstrip("/")), self.folder / bucket
        if not (place / key).is_file() if key else not place.is_dir():
            self._answer(404, '{"error": {"code": 404, "message": "no"}}')
        elif query.get("alt") == "media":
            self._object(bucket, key, "NoSuchKey")
        elif key:
            size = (place / key).stat().st_size
            self._answer(200, json.dumps(_about(bucket, key, size)))
        else:
            files, folders = self._listed(bucket, query)
            items = [_about(bucket, each, size) for each, size in files.items()]
            self._answer(200, json.dumps({"kind": "storage#objects", "items": items, "prefixes": folders}))

    def _azure(self, name: str, query: dict[str, str]) -> None:
        container, _, key = name.removeprefix(f"{ACCOUNT}/").partition("/")
        if not self.headers.get("Authorization", "").startswith(f"SharedKey {ACCOUNT}:"):
            self._missing(403, "AuthenticationFailed")
        elif not (self.folder / container).is_dir():
            self._missing(404, "ContainerNotFound")
        elif "action" in query:
            self._missing(400, "HierarchicalNamespaceNotEnabled")
        elif key:
            self._object(container, key, "BlobNotFound")
        elif "comp" not in query:
            self._answer(200, "", _HEADERS | {"ETag": "1"} | _CONTAINER)
        else:
            files, folders = self._listed(container, query)
            text = "".join(
                f"<Blob><Name>{escape(each)}</Name><Properties><Content-Length>{size}</Content-Length>"
                f"<Creation-Time>{_DATE}</Creation-Time><Last-Modified>{_DATE}</Last-Modified><Etag>1</Etag>"
                "<Content-Type>text/csv</Content-Type><BlobType>BlockBlob</BlobType>"
                "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>"
                "<AccessTier>Hot</AccessTier><ServerEncrypted>true</ServerEncrypted></Properties></Blob>"
                for each, size in files.items()
            ) + "".join(f"<BlobPrefix><Name>{escape(each)}</Name></BlobPrefix>" for each in folders)
            head = f'<EnumerationResults ServiceEndpoint="http://x/" ContainerName="{container}">'
            text = f"{head}<Blobs>{text}</Blobs><NextMarker/></EnumerationResults>"
            self._answer(200, text, {"Content-Type": "application/xml"})

    def _listed(self, bucket: str, query: dict[str, str]) -> tuple[dict[str, int], list[str]]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        files, folders, place = {}, set(), self.folder / bucket
        for path in sorted(each for each in place.rglob("*") if each.is_file()):
            key = path.relative_to(place).as_posix()
            if key.startswith(prefix):
                first, found, _ = key[len(prefix) :].partition(delimiter or "\0")
                if found:
                    folders.add(f"{prefix}{first}{delimiter}")
                else:
                    files[key] = path.stat().st_size
        return files, sorted(folders)

    def _object(self, bucket: str, key: str, absent: str) -> None:
        path = self.folder / bucket / key
        if not path.is_file():
            self._missing(404, absent)
            return
        data = path.read_bytes()
        headers = _HEADERS | {"ETag": f'"{md5(data).hexdigest()}"'}
        asked = self.headers.get("x-ms-range") or self.headers.get("Range") or ""
        if (wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", asked)) is None:
            self._answer(200, data, headers)
            return
        first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        place = f"bytes {first}-{last}/{len(data)}"
        self._answer(206, data[first : last + 1], headers | {"Content-Range": place})

    def _missing(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
        self._answer(status, text, {"x-ms-error-code": code})

    def _answer(self, status: int, body: str | bytes, headers: dict[str, str] | None = None) -> None:
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("x-ms-request-id", "1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Print nothing."""


def _about(bucket: str, key: str, size: int) -> dict[str, str]:
    when = "2026-01-01T00:00:00Z"
    return {
        "kind": "storage#object", "bucket": bucket, "name": key, "size": str(size), "generation": "1",
        "etag": "1", "updated": when, "timeCreated": when,
    }  # fmt: skip


@contextmanager
def object_store(folder: Path, certificate: Path | None = None) -> Iterator[ObjectStore]:
    """Run a store of a folder until the block ends.

    Args:
        certificate: File with a certificate and its key, for HTTPS.
    """
    (folder / _FAULT).write_text(" 0")
    command = [sys.executable, __file__, str(folder), *map(str, filter(None, [certificate]))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout is not None else ""
            yield ObjectStore(folder, f"127.0.0.1:{port}", "https" if certificate else "http")
        finally:
            process.kill()


def _serve(folder: str, certificate: str = "") -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"folder": Path(folder)}))
    server.daemon_threads = True
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
