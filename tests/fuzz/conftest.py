"""The aggregator of the tests of its calls, which takes any number, and no log of ten thousand refusals."""

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


@pytest.fixture(autouse=True)
def _at_any_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one owner call as often as it can."""
    monkeypatch.setattr("aggregator.api.rates.CALLS_PER_SECOND", 1e9)
