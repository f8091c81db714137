"""The Spark session of this process: started when it is first needed, with this process as its driver.

Its settings and logs are in a private folder, not on a command line that others can list. Logs of the driver
are off, since messages of Spark can quote values. Executors get the code of this package with the session, so
that they draw the same bits as the owner node; the libraries that it needs are installed there.

Spark is asked for no randomness and no order that it could choose: see `owner_node.engines.spark`.

There is one session at a time, whoever needs it. It is not ended while it is in use; it is ended some time
after that, since its executors are kept from other applications of the cluster.
"""

import atexit
import errno
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock, Thread, Timer, current_thread, main_thread
from typing import Any

import common
import owner_node
from common.errors import (
    CannotStoreError,
    ConfigurationError,
    InternalError,
    SourceUnreachableError,
    TesseraError,
)
from common.files import write_atomic
from common.progress import Progress, StepStoppedError
from common.workspace import Workspace

_log = logging.getLogger(__name__)
SMALLEST_JAVA = 17
BATCH_RECORDS = 2**16
"""Records that Spark hands to Python at a time."""
IDLE_SECONDS = 60.0
"""A session that nobody uses is ended after this time."""
START_SECONDS = 120.0
"""Jobs of which no task runs for this time are cancelled: longer than an idle session keeps its executors."""
_WATCH_SECONDS = 1.0
_SETTLE_SECONDS = 10.0
_SMALLEST_DRIVER = 512 * 10**6
_REACH_SECONDS = 5
_PROBE_SECONDS = 30
_LOGS = """\
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
"""
_VERSION = re.compile(r'version "(\d+)')
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
"""How Spark names errors."""
_LOGGERS = "DataFrameQueryContextLogger", "SQLQueryContextLogger"
"""Loggers by which pyspark writes errors of a query, which quote values, to the standard error."""
_lock = Lock()


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How the Spark session of an owner node is started."""

    master: str
    """Where Spark runs, such as "local[2]" or "spark://host:7077"."""
    workspace: Workspace
    """Memory of the driver; and the folder that the driver and all executors read and write."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark, which override the defaults."""
    extra_jars: tuple[Path, ...] = ()
    """Archives of Java classes for the driver and the executors."""

    @property
    def is_local(self) -> bool:
        """True if the driver does all the work in its own process."""
        return self.master.startswith("local")

    @property
    def is_protected(self) -> bool:
        """True if Spark encrypts what its processes send: a standalone cluster needs a secret for that."""
        return not self.master.startswith("spark://") or "spark.authenticate.secret" in self.conf


@dataclass(frozen=True, slots=True)
class _Running:
    """The session that runs."""

    settings: SparkSettings
    spark: Any
    removing: ExitStack
    """Removes its folder."""


@dataclass(slots=True)
class _State:
    """The session and its users, under `_lock`."""

    running: _Running | None = None
    n_users: int = 0
    ending: Timer | None = None
    """Ends the session that nobody uses."""


_state = _State()


def missing(settings: SparkSettings) -> str | None:
    """Return what is missing to start a session, without starting one; None if nothing is."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'tessera-release[spark]'"
    java = _java()
    if java is None:
        return f"there is no Java: install version {SMALLEST_JAVA} or newer, or set JAVA_HOME"
    version = _java_version(java)
    if version is not None and version < SMALLEST_JAVA:
        return f"{java} is not Java {SMALLEST_JAVA} or newer"
    absent = [jar.name for jar in settings.extra_jars if not jar.is_file()]
    return f"there is no file {', '.join(absent)}: engine.extra_jars" if absent else None


def unreachable(settings: SparkSettings) -> str | None:
    """Return why nothing that is not missing can be used now; of masters, only standalone ones are asked."""
    java = _java()
    if java is not None and _java_version(java) is None:
        return f"{java} does not start"
    if not settings.master.startswith("spark://"):
        return None
    for place in settings.master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), _REACH_SECONDS):
            return None
    return f"no Spark master answers at {settings.master}"


@contextmanager
def using(settings: SparkSettings) -> Iterator[Any]:
    """Use the session with these settings for a block; it is not ended meanwhile. Blocks may be nested."""
    with _lock:
        spark = _session(settings)
        _state.n_users += 1
        _cancel_ending()
    try:
        yield spark
    finally:
        with _lock:
            _state.n_users -= 1
            if not _state.n_users:
                _cancel_ending()
                _state.ending = Timer(IDLE_SECONDS, _end_idle)
                _state.ending.daemon = True
                _state.ending.start()


@contextmanager
def jobs(settings: SparkSettings, group: str, progress: Progress) -> Iterator[Any]:
    """Use the session for a block, not nested in one thread, whose jobs end when its step is to stop.

    Args:
        group: What its jobs are cancelled by.

    Raises:
        StepStoppedError: If the step is to stop.
        SourceUnreachableError: If no executor is free, or the Java process ended; or as `session` says.
        Exception: What the block raises; `explain` says what it means, and no task of it runs any more.
    """
    with using(settings) as spark:
        context, starved = spark.sparkContext, Event()
        try:
            with _watch_jobs(context, group, progress, starved):
                context.setJobGroup(group, "tessera")
                try:
                    yield spark
                finally:
                    with suppress(Exception):  # its process may have ended
                        context._jsc.clearJobGroup()  # noqa: SLF001 - pyspark has no such call
        except Exception as error:
            _settle(context, group)
            if starved.is_set():
                raise SourceUnreachableError(
                    "no executor of the Spark cluster is free",
                    "another application may hold all cores, which spark.cores.max limits; or no worker has "
                    "what spark.executor.memory and spark.executor.cores in engine.conf ask for; "
                    "nothing is charged twice",
                ) from None
            if progress.stopped:
                raise StepStoppedError from None
            explanation = explain(error)
            known = isinstance(explanation, TesseraError | OSError) and not isinstance(
                explanation, InternalError
            )
            if not known and not _is_alive(spark):
                raise _java_ended() from None
            raise


@contextmanager
def _watch_jobs(context: Any, group: str, progress: Progress, starved: Event) -> Iterator[None]:
    """Cancel the jobs of a group during a block, if its step is to stop or the session has no executor."""
    ended = Event()

    def watch() -> None:
        ran = time.monotonic()
        while not ended.wait(_WATCH_SECONDS):
            with suppress(Exception):  # its process may have ended
                tracker = context.statusTracker()
                stages = tracker.getActiveStageIds()
                # A task of another job may hold the executors: this one is run next.
                if not stages or _n_tasks(tracker, stages):
                    ran = time.monotonic()
                elif time.monotonic() - ran >= START_SECONDS:
                    starved.set()
                if starved.is_set() or progress.stopped:
                    context.cancelJobGroup(group)

    thread = Thread(target=watch, name="spark-jobs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _settle(context: Any, group: str) -> None:
    """Wait until no task of a group runs: one that is being killed makes removed folders again."""
    ends = time.monotonic() + _SETTLE_SECONDS
    with suppress(Exception):  # its process may have ended
        tracker = context.statusTracker()
        infos = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
        stages = [stage for job in infos for stage in job.stageIds]
        while _n_tasks(tracker, stages) and time.monotonic() < ends:
            time.sleep(0.1)


def _n_tasks(tracker: Any, stages: Iterable[int]) -> int:
    return sum(info.numActiveTasks for info in map(tracker.getStageInfo, stages) if info is not None)


def session(settings: SparkSettings) -> Any:
    """Return the session with these settings; start it if none runs, or its driver has ended.

    Raises:
        ConfigurationError: If pyspark, Java or a setting is missing or wrong.
        SourceUnreachableError: If the master is not reached now, or a session with other settings is in use.
    """
    with _lock:
        return _session(settings)


def _session(settings: SparkSettings) -> Any:
    current = _state.running
    if current is not None and _is_alive(current.spark):
        if current.settings == settings:
            return current.spark
        if _state.n_users:
            raise SourceUnreachableError(
                "a Spark session with other settings is in use by this process",
                "try again when the work that uses it is done; nothing is charged twice",
            )
    _stop()
    _state.running = _start(settings)
    return _state.running.spark


def running(settings: SparkSettings) -> Any:
    """Return the session with these settings if it runs, else None."""
    with _lock:
        current = _state.running
        if current is None or current.settings != settings:
            return None
        return current.spark if _is_alive(current.spark) else None


def stop() -> None:
    """End the session, if one runs, and its Java process, whoever uses it."""
    with _lock:
        _stop()


def _end_idle() -> None:
    """End the session, unless it was used again while this waited."""
    with _lock:
        if _state.ending is current_thread():
            _stop()


def _cancel_ending() -> None:
    """Let the session run on, used or not."""
    if _state.ending is not None:
        _state.ending.cancel()
        _state.ending = None


def _stop() -> None:
    _cancel_ending()
    ended, _state.running = _state.running, None
    if ended is None:
        return
    with suppress(Exception):  # its process may have ended
        ended.spark.stop()
    _end_java()
    ended.removing.close()


def _end_java() -> None:
    """End the Java process; pyspark has no call for that, and would use it for the next session."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    if gateway is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    with suppress(Exception):
        # The process ends with the pipe that it was started with.
        gateway.proc.stdin.close()
        gateway.proc.wait(_REACH_SECONDS)


atexit.register(stop)


def _is_alive(spark: Any) -> bool:
    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - pyspark has no such call
    except Exception:  # noqa: BLE001 - its process has ended
        return False


def _start(settings: SparkSettings) -> _Running:
    lacking = missing(settings)
    if lacking is not None:
        raise ConfigurationError(
            "Spark cannot be started",
            [lacking],
            'correct it, or use another engine.kind, and no sources that begin with "spark:"',
        )
    problem = unreachable(settings)
    if problem is not None:
        raise SourceUnreachableError(
            problem,
            "start the cluster, or correct engine.master or JAVA_HOME; nothing is charged twice",
            {"reason": problem},
        )
    with ExitStack() as removing:
        folder = removing.enter_context(settings.workspace.folder("spark"))
        spark = _launch(settings, folder)
        return _Running(settings, spark, removing.pop_all())


def _launch(settings: SparkSettings, folder: Path) -> Any:
    """Start the Java process and its session."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    # Nothing here goes through pandas, about whose version pyspark warns.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    (folder / "log4j2.properties").write_text(_LOGS, encoding="ascii")
    written = "".join(f"{_escape(key)} {_escape(value)}\n" for key, value in _conf(settings, folder).items())
    write_atomic(folder / "spark-defaults.conf", written.encode("ascii"))
    environment = {"SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_DIRS": str(folder / "local")}
    if settings.is_local:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    environment["PYSPARK_PYTHON"] = settings.conf.get(
        "spark.pyspark.python", sys.executable if settings.is_local else "python3"
    )
    try:
        with _environment(environment), _same_interrupts():
            # What Java and its Python workers print can quote values.
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            context = SparkContext(gateway=launch_gateway(popen_kwargs=silent))
            spark = SparkSession(context)
        context.addPyFile(str(_code(folder)))
    except Exception as error:  # noqa: BLE001 - Spark raises errors of many classes
        _end_java()
        raise explain(error) from None
    _log.info("Spark session started", extra={"master": settings.master, "version": spark.version})
    return spark


@contextmanager
def _same_interrupts() -> Iterator[None]:
    """Keep what Ctrl-C does: pyspark, started in the main thread, would replace it for good."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _conf(settings: SparkSettings, folder: Path) -> dict[str, str]:
    """Return the settings of Spark: ours, then those of owner.toml."""
    conf = {
        "spark.master": settings.master,
        "spark.app.name": "tessera-owner-node",
        "spark.driver.memory": f"{max(_SMALLEST_DRIVER, settings.workspace.memory // 2) // 2**20}m",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Shuffle files and broadcasts hold original values and keys.
        "spark.io.encryption.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_RECORDS),
    }
    if settings.is_local:
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Spark's own default, 200, is meant for a cluster.
        conf["spark.sql.shuffle.partitions"] = str(4 * settings.workspace.threads)
    protected = str(settings.is_protected).lower()
    conf |= {"spark.authenticate": protected, "spark.network.crypto.enabled": protected}
    if settings.extra_jars:
        conf["spark.jars"] = ",".join(map(str, settings.extra_jars))
    return conf | dict(settings.conf)


def _escape(text: str) -> str:
    """Write a text as in a properties file of Java."""
    written = "".join(f"\\{character}" if character in "\\ :=#!\t" else character for character in text)
    plain = written.replace("\n", "\\n").replace("\r", "\\r")
    return "".join(
        character if " " <= character <= "~" else f"\\u{ord(character):04x}" for character in plain
    )


def _code(folder: Path) -> Path:
    """Write the code of this package into an archive for the executors."""
    path = folder / "tessera_code.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (common, owner_node):
            (root,) = (Path(place) for place in package.__path__)
            for file in sorted(root.rglob("*.py")):
                archive.write(file, Path(root.name) / file.relative_to(root))
    return path


@contextmanager
def _environment(added: dict[str, str]) -> Iterator[None]:
    """Set variables that the Java process is started with."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    named = Path(home) / "bin" / "java" if home else None
    if named is not None:
        return str(named) if named.is_file() else None
    return shutil.which("java")


def _java_version(java: str) -> int | None:
    """Return the version of a program; a failure, as of a busy machine, is not remembered."""
    try:
        match = _VERSION.search(_stated_version(java))
    except (OSError, subprocess.SubprocessError):
        return None
    return int(match[1]) if match else None


@cache
def _stated_version(java: str) -> str:
    """Return what a program says of its version."""
    return subprocess.run(
        [java, "-version"], capture_output=True, text=True, check=True, timeout=_PROBE_SECONDS
    ).stderr


def explain(error: Exception) -> Exception:
    """Return the error of the catalogue for one of Spark, whose text can quote values."""
    name, origin = type(error).__name__, type(error).__module__
    ended = isinstance(error, ConnectionError | EOFError)
    if not ended and not origin.startswith(("pyspark.", "py4j.")):
        return error
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - errors of Java are asked for their text, by classes of any kind
        ended, text = True, ""
    ended |= "SESSION_OR_CONTEXT_NOT_EXISTS" in text
    if ended or (name.startswith("Py4J") and name != "Py4JJavaError"):
        return _java_ended()
    for signs, made in _FAULTS.items():
        if any(sign in text for sign in signs):
            return made()
    condition = _CONDITION.search(text)
    return InternalError(f"Spark failed ({condition[1] if condition else name})")


def _java_ended() -> SourceUnreachableError:
    return SourceUnreachableError(
        "the Java process of the Spark session ended",
        "it is started again; raise engine.memory_limit if this repeats; nothing is charged twice",
    )


_FAULTS: dict[tuple[str, ...], Callable[[], Exception]] = {
    ("No space left on device",): lambda: OSError(
        errno.ENOSPC, os.strerror(errno.ENOSPC), "a disk of the Spark cluster"
    ),
    ("OutOfMemoryError",): lambda: CannotStoreError(
        "Spark has too little memory",
        "raise engine.memory_limit, or spark.executor.memory in engine.conf; nothing is charged twice",
    ),
    ("PYTHON_VERSION_MISMATCH", "ModuleNotFoundError", "ImportError"): lambda: ConfigurationError(
        "the executors of Spark cannot run the code of this owner node",
        ["they need the same version of Python, and the libraries of tessera-release"],
        "install them on every worker, and name their Python in engine.conf: spark.pyspark.python",
    ),
    # It may be a setting, or a machine that has no memory left now: releases wait.
    ("JAVA_GATEWAY_EXITED",): lambda: SourceUnreachableError(
        "the Java process of the Spark session ended while it started",
        "it is started again; if this repeats, check engine.conf, JAVA_HOME, the memory of this machine "
        "and the space in engine.scratch; nothing is charged twice",
    ),
    (
        "SparkContext was shut down",
        "SparkContext has been shutdown",
        "stopped SparkContext",
        "All masters are unresponsive",
        "Master removed our application",
        "ExecutorLostFailure",
        "FetchFailed",
    ): lambda: SourceUnreachableError(
        "the Spark cluster did not finish its work",
        "see the logs of its master and workers; it is tried again, and nothing is charged twice",
    ),
}
"""What texts of errors say, in the order in which they are looked for."""
