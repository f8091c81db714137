"""How much memory a piece of a test takes at its most."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

_MOST_BYTES = 400 << 20


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Check that the process never took much more memory than it had before."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < _MOST_BYTES, f"{grown >> 20} MiB more"
