"""A real PostgreSQL server for tests, in a folder and on a port of its own, never as root."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any
from urllib.parse import quote

import psycopg

from deploy.local_setup import HOST, free_port
from tests.needs import postgres_programs

ADMIN = "admin"
READER = "reader"
"""A role that may read everything and log in with `PASSWORD`."""
PASSWORD = "p4ss:w/rd@Zq7Qz"
"""Full of what a URL has to escape, and found nowhere by chance."""
DATABASE = "postgres"
_READY_SECONDS = 180
_READY = "database system is ready to accept connections"


class PostgresServer:
    """A server that can be stopped and started.

    Args:
        folder: An empty folder that the server's account owns.
        account: The account to run as; None for our own.
    """

    def __init__(self, folder: Path, account: pwd.struct_passwd | None) -> None:
        programs = postgres_programs()
        if programs is None:
            raise RuntimeError("there are no PostgreSQL server programs")
        self.port = free_port()
        """Port on the loopback interface; the Unix socket is in `folder`."""
        self.folder = folder
        """Holds the data, the log and the socket."""
        self._programs = programs
        self._as: dict[str, Any] = {}
        if account is not None:
            self._as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread()

    def make(self) -> None:
        """Make the database cluster, start it, and make the role that reads."""
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        arguments: list[str | Path] = ["-D", self._data, "-U", ADMIN, "-E", "UTF8", "--locale=C", "--no-sync"]
        arguments += ["-A", "scram-sha-256", f"--pwfile={secret}"]
        # Root may not make it, and whoever does has to own all of it.
        if self._as:
            os.chown(secret, self._as["user"], self._as["group"])
        subprocess.run(
            [self._programs / "initdb", *arguments],
            check=True, capture_output=True, cwd=self.folder, **self._as,
        )  # fmt: skip
        self.start()
        self.run(f"create role {READER} login password '{PASSWORD}'")
        self.run(f"grant pg_read_all_data to {READER}")

    def start(self) -> None:
        """Start the server; returns when it takes connections."""
        options = {
            "listen_addresses": HOST, "port": self.port, "unix_socket_directories": self.folder,
            "fsync": "off", "shared_buffers": "16MB", "max_connections": 12,
        }  # fmt: skip
        given = [text for key, value in options.items() for text in ("-c", f"{key}={value}")]
        process = subprocess.Popen(
            [self._programs / "postgres", "-D", self._data, *given], text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.folder,
            **self._as,
        )  # fmt: skip
        ready: Queue[bool] = Queue()
        reader = threading.Thread(target=self._follow, args=(process.stdout, ready), daemon=True)
        reader.start()
        self._process, self._reader = process, reader
        try:
            serves = ready.get(timeout=_READY_SECONDS)
        except Empty:
            serves = False
        if not serves:
            raise RuntimeError((self.folder / "log").read_text())

    def _follow(self, pipe: IO[str], ready: Queue[bool]) -> None:
        """Keep what the server says, and tell when it takes connections or has ended."""
        with pipe, (self.folder / "log").open("a", encoding="utf-8") as log:
            for line in pipe:
                log.write(line)
                log.flush()
                if _READY in line:
                    ready.put(True)
        ready.put(False)

    def stop(self) -> None:
        """Stop the server at once, whoever is connected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_READY_SECONDS)
            self._reader.join(_READY_SECONDS)
            self._process = None

    def run(self, statement: str, *records: tuple[object, ...]) -> None:
        """Run statements as the administrator, or one statement for every record."""
        with psycopg.connect(
            host=HOST, port=self.port, user=ADMIN, password=PASSWORD, dbname=DATABASE, autocommit=not records
        ) as connection:
            if records:
                connection.cursor().executemany(statement, records)
            else:
                connection.execute(statement)

    def url(self, *, user: str = READER, options: str = "") -> str:
        """Return the URL of the database over TCP, without a password."""
        return f"postgresql+psycopg://{user}@{HOST}:{self.port}/{DATABASE}{options}"

    def socket_url(self) -> str:
        """Return its URL over the Unix socket."""
        place = f"host={quote(str(self.folder), safe='')}&port={self.port}"
        return f"postgresql+psycopg://{READER}@/{DATABASE}?{place}"

    @property
    def _data(self) -> Path:
        return self.folder / "data"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server for the length of a block."""
    # Not under pytest's folders, which no other account may enter.
    folder = Path(tempfile.mkdtemp(prefix="tessera-pg-"))
    account = None
    if os.geteuid() == 0:
        account = pwd.getpwnam("nobody")
        os.chown(folder, account.pw_uid, account.pw_gid)
    server = PostgresServer(folder, account)
    try:
        server.make()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
