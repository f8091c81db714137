"""The aggregator of the tests of its calls."""

from tests.wire.conftest import certificates, launch, records

__all__ = ["certificates", "launch", "records"]
