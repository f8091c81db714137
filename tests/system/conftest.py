"""The programs of the tests with real processes: those that the wheel installs."""

import subprocess
from collections.abc import Iterator

import pytest

from deploy import local_process


@pytest.fixture(scope="session", autouse=True)
def _programs(wheel_programs: None) -> None:
    """Run what the wheel installs, and nothing of the checkout."""


@pytest.fixture(scope="module")
def ordinary_starts() -> Iterator[None]:
    """Start programs as users do, for tests of a process's memory or of its start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_process, "POPEN", subprocess.Popen)
        yield
