"""The command line and the daemon: Ctrl-C is deferred and never lost; what is said where nothing answers."""

import os
import signal
import threading

import grpc
import pytest

from aggregator.control.connection import error_of_call, interrupts_deferred
from common.errors import ConfigurationError, NotConnectedError
from tests.other_user import closed


def press() -> None:
    """Press Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def test_it_is_raised_at_the_end_of_the_block() -> None:
    """Nothing is left half-way, and a library that drops interruptions does not see any."""
    done = []

    def connect() -> None:
        with interrupts_deferred():
            press()
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        connect()
    assert done


def test_outside_of_the_block_it_is_raised_at_once() -> None:
    """A question at the terminal can be left with Ctrl-C."""
    with interrupts_deferred():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        press()


def test_the_handler_is_restored_after_an_error() -> None:
    """A daemon that is not running does not cost the command its Ctrl-C."""
    with pytest.raises(ZeroDivisionError), interrupts_deferred():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_ignores_it_still_does() -> None:
    """Whoever handles Ctrl-C other than Python keeps it."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interrupts_deferred():
            press()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_other_threads_leave_it_alone() -> None:
    """Only the main thread can handle signals; calls of other threads work without."""
    done = []

    def call() -> None:
        with interrupts_deferred():
            done.append(True)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert done


class _Unavailable(grpc.RpcError):
    """A call that reached nobody."""

    def code(self) -> grpc.StatusCode:
        """Return what gRPC says."""
        return grpc.StatusCode.UNAVAILABLE


def test_a_socket_that_this_user_may_not_reach_is_no_daemon_that_does_not_run(tmp_path) -> None:
    """Starting the daemon, which was advised, would not help the wrong user."""
    assert isinstance(error_of_call(_Unavailable(), tmp_path / "socket"), NotConnectedError)
    with closed(tmp_path):
        error = error_of_call(_Unavailable(), tmp_path / "socket")
    assert isinstance(error, ConfigurationError)
    assert "Permission denied" in error.message
