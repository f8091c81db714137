"""Programs that start as forks of a process that has imported them, which saves a second of processor time.

Every process of the tests that runs programs of the wheel has one such process, the starter. It runs the
interpreter of the wheel's environment, starts nothing and initialises nothing. A start asks it over a socket
for a fork, which runs the console script of the program. The fork is a child of the process that asked and
leads a session of its own, as after `subprocess.Popen`; the kernel kills it with its parent.

    process of tests ── starter ── between (ends at once, so that its child becomes one of the tests' process)
         └── program

This file is both sides: imported by the tests, and run by the starter, which has nothing of the checkout.
"""

import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

_PACKAGES = ("aggregator.cli", "owner_node.cli")
_USED_LATER = ("jinja2", "pandas", "scipy.optimize")
"""Libraries that daemons import when they work."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MOST_BYTES = 1 << 17


def _varies(variable: str) -> bool:
    """Whether the programs read an environment variable only when they run; others are read at import."""
    return variable.startswith("TESSERA_") or variable == "PYTEST_CURRENT_TEST"


def _fixed(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not _varies(name)}


@contextmanager
def forking(
    programs: Path, skipped: int, otherwise: type[subprocess.Popen[str]] = subprocess.Popen
) -> Iterator[type[subprocess.Popen[str]]]:
    """Run a starter; returns what makes processes as `subprocess.Popen` does.

    Every fork leads a new session, and gets nothing open but its three standard files.

    Args:
        programs: Folder of the programs, with the interpreter that runs them.
        skipped: Number of arguments in front of the program that are not the program's.
        otherwise: Starts programs of another folder, and those with another environment.
    """
    from common.cli.console import GRPC_SETTINGS  # not in the starter, which may have an earlier version

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PYTHONUNBUFFERED"] = "1"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    starter = subprocess.Popen(
        [programs / "python", "-P", __file__, str(theirs.fileno())],
        cwd="/",
        env=environment | GRPC_SETTINGS,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    theirs.close()
    one_at_a_time = threading.Lock()

    class Forked(otherwise):  # type: ignore[valid-type,misc]
        def _execute_child(self, args: Any, *others: Any) -> None:
            # In the order of subprocess: cwd, env, and both ends of three pipes.
            words, folder, asked, pipes = args[skipped:], others[4], others[5], others[9:15]
            if Path(words[0]).parent != programs or _fixed(asked) != _fixed(environment):
                super()._execute_child(args, *others)
                return
            request = json.dumps([words, str(folder), asked]).encode()
            ends = (pipes[0], pipes[3], pipes[5])
            files = [standard if end < 0 else end for standard, end in enumerate(ends)]
            answer, answering = os.pipe()
            with one_at_a_time, open(answer) as answered:  # noqa: PTH123 - it is no path
                _prctl(_PR_SET_CHILD_SUBREAPER, 1)
                try:
                    try:
                        socket.send_fds(ours, [request], [*files, answering])
                    finally:
                        os.close(answering)
                    self.pid = int(answered.read())
                finally:
                    _prctl(_PR_SET_CHILD_SUBREAPER, 0)
            self._child_created = True
            self._close_pipe_fds(*pipes)

    try:
        yield Forked
    finally:
        starter.kill()
        starter.wait()
        ours.close()


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _serve(requests: socket.socket, tests: int) -> list[str]:
    """Fork at every request, until the tests' process closes the socket or ends.

    Returns:
        In the fork alone: the program and its arguments.
    """
    while True:
        request, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, 4)
        if not request:
            os._exit(0)
        waiting, going = os.pipe()
        # Python warns of threads. Those here are of libraries that handle forks: OpenBLAS and jemalloc.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            between = os.fork()
            if not between:
                if os.fork():
                    os._exit(0)
                break
        if os.waitpid(between, 0)[1]:
            os._exit(1)
        for number in (*files, waiting, going):
            os.close(number)
    os.close(going)
    os.read(waiting, 1)  # ends when the process between has, and the parent is the one for good
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != tests:
        os._exit(1)
    os.setsid()
    *standard, answering = files
    for place, number in enumerate(standard):
        os.dup2(number, place)
    os.write(answering, str(os.getpid()).encode())
    for number in (*files, waiting):
        os.close(number)
    requests.close()
    words, folder, asked = json.loads(request)
    os.chdir(folder)
    for name in filter(_varies, list(os.environ)):
        del os.environ[name]
    os.environ.update(asked)
    return list(words)


if __name__ == "__main__":
    tests = os.getppid()
    for package in map(import_module, _PACKAGES):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    for library in _USED_LATER:
        import_module(library)
    gc.collect()
    gc.freeze()
    sys.argv[:] = _serve(socket.socket(fileno=int(sys.argv[1])), tests)
    runpy.run_path(sys.argv[0], run_name="__main__")
