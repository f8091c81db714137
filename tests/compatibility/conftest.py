"""The programs of the released versions, as their wheels install them, beside those of the checkout."""

from pathlib import Path

import pytest

from deploy.wheel_environment import programs_of

WHEEL = Path(__file__).parent / "released" / "tessera_release-0.1.0-py3-none-any.whl"
"""The newest version before this one."""


@pytest.fixture(scope="session", autouse=True)
def _programs(wheel_programs: None) -> None:
    """Run what the wheel of the checkout installs where nothing else is said."""


@pytest.fixture(scope="session")
def before() -> Path:
    """Return the folder of the programs of the version before this one."""
    return programs_of(WHEEL)
