"""Who may open the pages: one-time links, and the visits that they begin."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Generic, TypeVar

IDLE_SECONDS = 15 * 60.0
"""After this time without a request a visit ends."""
LINK_SECONDS = 10 * 60.0
"""A one-time link that was not used ends after this time."""
MOST_WRONG = 10
"""Wrong links that are looked at in one minute; more are refused without looking."""
_MINUTE = 60.0
_T = TypeVar("_T")


class TooManyAttemptsError(Exception):
    """Too many wrong links in one minute."""


@dataclass(slots=True)
class Visit(Generic[_T]):
    """One person at one browser."""

    person: _T
    """Who it is, as the link was made for."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """What every form of this visit carries."""
    last: float = 0.0
    """Time of the last request, in seconds of the clock."""


class Doors(Generic[_T]):
    """The one-time links and visits of one console. They live in memory and end with the process.

    Keys are stored as digests, so that comparing takes the same time for every wrong one.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._links: dict[bytes, tuple[float, _T]] = {}
        self._visits: dict[bytes, Visit[_T]] = {}
        self._wrong: list[float] = []

    def new_key(self, person: _T) -> str:
        """Return the key of a new one-time link for a person."""
        key = secrets.token_urlsafe(32)
        self._links[_digest(key)] = (self._clock(), person)
        return key

    def enter(self, key: str) -> str | None:
        """Begin a visit with the key of a link, which cannot be used again.

        Returns:
            The secret of the visit's cookie; None if the key is wrong, used or too old.

        Raises:
            TooManyAttemptsError: If there were too many wrong keys in the last minute.
        """
        now = self._clock()
        self._wrong = [each for each in self._wrong if now - each < _MINUTE]
        if len(self._wrong) >= MOST_WRONG:
            raise TooManyAttemptsError
        made, person = self._links.pop(_digest(key), (None, None))
        if made is None or person is None or now - made > LINK_SECONDS:
            self._wrong.append(now)
            return None
        secret = secrets.token_urlsafe(32)
        self._visits[_digest(secret)] = Visit(person, last=now)
        return secret

    def visit(self, secret: str) -> Visit[_T] | None:
        """Return the visit of a cookie, and note that it goes on; None if there is none or it has ended."""
        now = self._clock()
        self._visits = {name: each for name, each in self._visits.items() if now - each.last <= IDLE_SECONDS}
        found = self._visits.get(_digest(secret))
        if found is not None:
            found.last = now
        return found

    def leave(self, secret: str) -> None:
        """End a visit."""
        self._visits.pop(_digest(secret), None)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
