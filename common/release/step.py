"""A step of a verification: whatever fails in it is one error that names the step."""

from collections.abc import Iterator
from contextlib import contextmanager

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from common.errors import IntegrityError, TesseraError, VersionError

_UNREADABLE = (
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    IndexError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
)


@contextmanager
def step(what: str, hint: str, others: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn whatever fails in a step into one error that names it.

    Args:
        hint: What to do then.
        others: What can fail in it beside what documents and certificates raise that cannot be read.

    Raises:
        IntegrityError: If anything fails.
    """
    try:
        yield
    except TesseraError as error:
        then = error.hint if isinstance(error, VersionError) else hint
        raise IntegrityError(f"{what} does not hold: {error.message}", then, error.details) from None
    except _UNREADABLE + others as problem:
        raise IntegrityError(f"{what} cannot be read ({type(problem).__name__})", hint) from None
