"""Settings of Spark for small tables, and a standalone cluster of one master and one worker."""

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO

import psutil
import pytest

from common.workspace import Workspace
from owner_node.sources.spark_session import SparkSettings
from tests.spark_archive import ARCHIVE, JARS, OPTIONS

QUIET = [
    pytest.mark.needs("spark"),
    # pyspark leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(600),
]
"""Marks of tests that start Spark."""
# A third of the time of a start is the check of Spark's own classes.
_JAVA = f"{OPTIONS} -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
# Options of Java are separated by spaces.
if " " not in str(ARCHIVE):
    _JAVA += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"
SMALL = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.adaptive.enabled": "false",
    # Compiling code takes longer than masking a few records.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.driver.extraClassPath": JARS,
}
"""What makes jobs on a few records quick; three partitions have their borders anywhere."""
SECRET = "cluster secret of the tests"
_ENDING_SECONDS = 30


class StandaloneCluster:
    """A master and a worker on this machine, with two executors of one core each."""

    n_executors = 2

    def __init__(self, folder: Path) -> None:
        self._folder, self._ending = folder, ExitStack()
        folder.mkdir(exist_ok=True)
        conf = f"spark.authenticate true\nspark.authenticate.secret {SECRET}\n"
        (folder / "spark-defaults.conf").write_text(conf)
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._start("master.Master", ["--host", "127.0.0.1", "--port", str(port)], "elected leader")
        options = [
            "--host",
            "127.0.0.1",
            "--cores",
            str(self.n_executors),
            "--memory",
            "1400m",
            "--work-dir",
            str(folder / "work"),
        ]
        self._worker = self._start("worker.Worker", [*options, self.master], "Successfully registered")

    def settings(self, scratch: Path, **conf: str) -> SparkSettings:
        """Return the settings of an owner node that uses the cluster."""
        ours = {
            "spark.authenticate.secret": SECRET,
            "spark.executor.memory": "500m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": _JAVA,
            "spark.executor.extraClassPath": JARS,
            "spark.pyspark.python": sys.executable,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        return SparkSettings(self.master, Workspace(256 * 10**6, scratch, 2), SMALL | ours | conf)

    def executors(self) -> list[psutil.Process]:
        """Return the processes that run tasks."""
        found = []
        for each in psutil.Process(self._worker.pid).children(recursive=True):
            with suppress(psutil.Error):  # it has ended
                if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()):
                    found.append(each)
        return found

    def lose_worker(self) -> None:
        """Kill the worker and its executors."""
        lost = self.executors()
        self._worker.kill()
        for each in lost:
            with suppress(psutil.NoSuchProcess):  # it ends with its worker
                each.kill()

    def close(self) -> None:
        """End all processes."""
        self._ending.close()

    def _start(self, name: str, options: list[str], ready: str) -> "subprocess.Popen[str]":
        import pyspark

        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(program), f"org.apache.spark.deploy.{name}", "--webui-port", "0", *options]
        process = subprocess.Popen(
            command,
            env={
                **os.environ,
                "SPARK_CONF_DIR": str(self._folder),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOCAL_DIRS": str(self._folder / "local"),
                "SPARK_DAEMON_JAVA_OPTS": _JAVA,
                "SPARK_DAEMON_CLASSPATH": JARS,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ending.callback(_end, process)
        assert process.stderr is not None
        seen = deque[str](maxlen=20)
        for line in process.stderr:
            seen.append(line)
            if ready in line:
                break
        else:
            raise AssertionError("".join(seen))
        Thread(target=_drain, args=(process.stderr,), daemon=True).start()
        return process


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _drain(stream: IO[str]) -> None:
    for _ in stream:
        pass


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.wait(_ENDING_SECONDS)
    if process.stderr is not None:
        process.stderr.close()


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[StandaloneCluster]:
    """Start a cluster for a block; the session of this process ends before it does."""
    from owner_node.sources import spark_session

    cluster = StandaloneCluster(folder)
    try:
        yield cluster
    finally:
        spark_session.stop()
        cluster.close()
