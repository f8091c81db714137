"""The programs of the tests with real processes: those that the wheel installs."""

from collections.abc import Iterator

import pytest

from deploy.local_process import PROGRAMS
from deploy.wheel_environment import programs


@pytest.fixture(scope="session", autouse=True)
def _programs() -> Iterator[None]:
    """Run what the wheel installs, and nothing of the checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PROGRAMS, str(programs()))
        yield
