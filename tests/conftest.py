"""What every test shares: the things it may need, and how hypothesis searches."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from common.cli.console import GRPC_SETTINGS
from deploy import local_process
from deploy.wheel_environment import programs
from tests.preloaded import forking

# Processes inherit what is ignored: without this, tests that run in the background or under nohup could not
# interrupt the programs that they start.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# Programs are started hundreds of times: without bytecode most of that time is compiling. Here, half of the
# time of collecting tests is rewriting their asserts.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Folders of `make spark` and the like: behind everything else, so that nothing else is taken from them.
_PROJECT = Path(__file__).parents[1]
_FOLDERS = (_PROJECT / "build" / name for name in ("spark", "opendp", "chart", "bench"))
sys.path += [str(folder) for folder in _FOLDERS if folder.is_dir()]

pytest_plugins = ["tests.needs", "pytester"]

# gRPC reads them when it is imported. Programs get the environment of a user, and set them themselves.
with pytest.MonkeyPatch.context() as _settings:
    for _name, _value in GRPC_SETTINGS.items():
        _settings.setenv(_name, _value)
    import grpc  # noqa: F401

# A loaded machine is not a failure, so no example has a deadline. A change is checked against the same
# examples every time it is pushed; a developer's machine searches for new ones.
settings.register_profile(
    "tessera",
    deadline=None,
    derandomize="TESSERA_SAME_EXAMPLES" in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tessera")

_FIRST = (
    *(f"tests/system/test_{name}.py" for name in ("compose", "tutorial", "kill", "lost_ledger", "demo")),
    *("tests/system/", "tests/chaos/", "tests/wire/", "tests/"),
)
"""Files and folders of tests, the longest first."""
_LABORATORY = (
    "tests/papers/",
    "tests/system/test_paper_setups.py",
    "tests/system/test_tutorial.py::test_tutorial",
    "tests/system/test_tutorial.py::test_notebook",
    "tests/system/test_compose.py::test_built_by_the_newer",
)
"""Experiments, pictures and notebooks, which `make lab` alone runs."""
_LONG = ("tests/system/", "tests/chaos/", "tests/compatibility/")
"""Folders and tests of the second tier: real processes that are killed, watched and walked through."""
_LONG_NEEDS = frozenset({"docker", "spark", "chart"})
"""What a test needs that makes it one of the second tier, wherever it stands."""
_SAMPLE = tuple(
    f"tests/system/test_{name}.py"
    for name in ("bad_input", "doctor", "local_cluster", "release", "synthetic_release")
)
"""Of the long folders, what stays in the first tier: a release of each product, refusals, and the doctor."""
_OF_THE_WHEEL = ("tests/system/", "tests/compatibility/")
"""Folders whose tests run the programs that the wheel installs."""


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers of what `make test` leaves out."""
    # Until all tests are collected nothing is garbage, and looking for some takes a quarter of the time.
    gc.disable()
    config.addinivalue_line("markers", "lab: an experiment, picture or notebook, which `make lab` runs")
    config.addinivalue_line("markers", "long: a test of the second tier, which `make test-long` runs")
    if renamed := [place for place in _SAMPLE if not (_PROJECT / place).is_file()]:
        raise pytest.UsageError(f"tests/conftest.py has {', '.join(renamed)} in _SAMPLE, which are not there")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that would not be selected: every process would import their libraries."""
    selected, place = config.option.markexpr, collection_path.relative_to(_PROJECT).as_posix()
    unread = ("not lab" in selected and place == "tests/papers") or (
        "not long" in selected and place.endswith(".py") and _is_long(place)
    )
    return True if unread else None


def _is_long(place: str) -> bool:
    return place.startswith(_LONG) and not place.startswith(_SAMPLE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the laboratory and the second tier before pytest selects by markers; put slow files first, so that
    short ones are left for whichever process is done before the other.
    """
    for item in items:
        needs = {thing for mark in item.iter_markers("needs") for thing in mark.args}
        if item.nodeid.startswith(_LABORATORY):
            item.add_marker("lab")
        if _is_long(item.nodeid) or needs & _LONG_NEEDS:
            item.add_marker("long")
    items.sort(key=lambda item: next(i for i, each in enumerate(_FIRST) if item.nodeid.startswith(each)))


def pytest_unconfigure() -> None:
    """Let the collector find everything again: libraries complain about what they still have at the end."""
    gc.unfreeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave modules and tests out of the collector's work, and install the wheel if a selected test runs it:
    within a test it would take that test's time.
    """
    gc.freeze()
    gc.enable()
    chosen = any(item.nodeid.startswith(_OF_THE_WHEEL) for item in session.items)
    if chosen and not session.config.option.collectonly:
        programs()


@pytest.fixture(scope="session")
def wheel_programs() -> Iterator[None]:
    """Run what the wheel installs; on Linux, most starts fork a process that has imported it."""
    folder = programs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(local_process.PROGRAMS, str(folder))
        if sys.platform != "linux":
            yield
            return
        with forking(folder, local_process.LAUNCH_WORDS) as popen:
            patch.setattr(local_process, "POPEN", popen)
            yield
