"""The programs of the released versions, as their wheels install them, beside those of the checkout."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy import local_process
from deploy.local_process import LAUNCH_WORDS
from deploy.wheel_environment import programs_of
from tests.preloaded import forking

WHEEL = Path(__file__).parent / "released" / "tessera_release-0.1.0-py3-none-any.whl"
"""The newest version before this one."""


@pytest.fixture(scope="session", autouse=True)
def _programs(wheel_programs: None) -> None:
    """Run what the wheel of the checkout installs where nothing else is said."""


@pytest.fixture(scope="session")
def before(wheel_programs: None) -> Iterator[Path]:
    """Return the folder of the programs of the version before this one."""
    folder = programs_of(WHEEL)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if sys.platform == "linux":
            popen = stack.enter_context(forking(folder, LAUNCH_WORDS, local_process.POPEN))
            patch.setattr(local_process, "POPEN", popen)
        yield folder
