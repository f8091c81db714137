"""The aggregator of the tests of its calls, and no log: what is refused ten thousand times is not kept."""

import logging
from collections.abc import Iterator

import pytest

from tests.wire.conftest import certificates, launch, records

__all__ = ["certificates", "launch", "records"]


@pytest.fixture(autouse=True)
def _without_log() -> Iterator[None]:
    """Log nothing: every entry that a test makes is held in memory to its end, with what it speaks of."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
