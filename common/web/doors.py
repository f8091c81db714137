"""Who may open the pages: one-time links, and the visits that a link or a sign-in begins."""

import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

from common.files import private_directory, write_atomic

IDLE_SECONDS = 15 * 60.0
"""After this time without a request of a person a visit ends."""
LONGEST_SECONDS = 12 * 3600.0
"""After this time a visit ends in any case."""
LINK_SECONDS = 10 * 60.0
"""A one-time link that was not used ends after this time."""
MOST_WRONG = 10
"""Wrong links or sign-ins of one address that are checked in one minute; more are refused unseen."""
MOST_BEGUN = 30
"""Sign-ins that one address may begin in one minute."""
_MOST_ADDRESSES = 1000
_MINUTE = 60.0
_T = TypeVar("_T")


class TooManyAttemptsError(Exception):
    """Too many attempts of one address in one minute."""


class SignInAttempts:
    """Attempts of every address in the last minute."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = most, clock
        self._made: dict[str, list[float]] = {}

    def check(self, address: str) -> None:
        """Raise an error if an address has no attempt left."""
        if len(self._recent(address)) >= self._most:
            raise TooManyAttemptsError

    def count(self, address: str) -> None:
        """Count an attempt of an address."""
        while len(self._made) >= _MOST_ADDRESSES and address not in self._made:
            del self._made[next(iter(self._made))]
        self._made[address] = [*self._recent(address), self._clock()]

    def _recent(self, address: str) -> list[float]:
        return [moment for moment in self._made.get(address, ()) if self._clock() - moment < _MINUTE]


@dataclass(slots=True)
class Visit(Generic[_T]):
    """One person at one browser."""

    person: _T
    """Who it is: whom the link was made for, or whom the provider named."""
    decides: bool = True
    """Whether the person may change anything; others may look."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """What every form of this visit carries."""
    begun: float = 0.0
    """Time of the sign-in, in seconds of the clock."""
    last: float = 0.0
    """Time of the last request of the person, in seconds of the clock."""


class Doors(Generic[_T]):
    """The one-time links and visits of one console. Visits live in memory and end with the process.

    Keys are stored as digests, so that comparing takes the same time for every wrong one.

    Args:
        folder: Where `put_key` leaves links for this console; None for no other place than memory.
        read: Makes a person of what `put_key` wrote.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        folder: Path | None = None,
        read: Callable[[Mapping[str, Any]], _T] | None = None,
    ) -> None:
        self.clock, self._folder, self._read = clock, folder, read
        self._links: dict[bytes, tuple[float, _T, bool]] = {}
        self._visits: dict[bytes, Visit[_T]] = {}
        self.wrong = SignInAttempts(MOST_WRONG, clock)
        """Wrong links and sign-ins."""

    def new_key(self, person: _T, *, decides: bool = True) -> str:
        """Return the key of a new one-time link for a person, who may change something or only look."""
        key = secrets.token_urlsafe(32)
        self._links[_digest(key)] = (self.clock(), person, decides)
        return key

    def enter(self, key: str, address: str = "") -> str | None:
        """Begin a visit with the key of a link, which cannot be used again.

        Returns:
            The secret of the visit's cookie; None if the key is wrong, used or too old.

        Raises:
            TooManyAttemptsError: If there were too many wrong keys in the last minute.
        """
        self.wrong.check(address)
        made = self._links.pop(_digest(key), None)
        if made is not None and self.clock() - made[0] <= LINK_SECONDS:
            return self.begin(made[1], decides=made[2])
        if (taken := self._take(key)) is not None:
            person, decides = taken
            return self.begin(person, decides=decides)
        self.wrong.count(address)
        return None

    def begin(self, person: _T, *, decides: bool = True) -> str:
        """Begin a visit of a person who has signed in, and return the secret of its cookie."""
        secret, now = secrets.token_urlsafe(32), self.clock()
        self._visits[_digest(secret)] = Visit(person, decides, begun=now, last=now)
        return secret

    def visit(self, secret: str, *, active: bool = True) -> Visit[_T] | None:
        """Return the visit of a cookie; None if there is none or it has ended.

        Args:
            active: Whether a person asks, so that the visit continues; not a page that refreshes itself.
        """
        self._drop_ended()
        visit = self._visits.get(_digest(secret))
        if visit is not None and active:
            visit.last = self.clock()
        return visit

    def goes_on(self, visit: Visit[_T]) -> bool:
        """Whether a visit has not ended; asking does not prolong it."""
        self._drop_ended()
        return any(other is visit for other in self._visits.values())

    def _drop_ended(self) -> None:
        now = self.clock()
        self._visits = {
            name: visit
            for name, visit in self._visits.items()
            if now - visit.last <= IDLE_SECONDS and now - visit.begun <= LONGEST_SECONDS
        }

    def close(self) -> None:
        """End every visit, because the pages are not served any more."""
        self._links, self._visits = {}, {}

    def leave(self, secret: str) -> None:
        """End a visit."""
        self._visits.pop(_digest(secret), None)

    def _take(self, key: str) -> tuple[_T, bool] | None:
        """Take a link out of the folder: its person, and whether the person may change anything."""
        if self._folder is None or self._read is None:
            return None
        path = self._folder / _digest(key).hex()
        with suppress(OSError, ValueError, TypeError, KeyError):
            made, data = path.stat().st_mtime, path.read_bytes()
            # Only one request can remove the file, and only that one continues.
            path.unlink()
            if time.time() - made <= LINK_SECONDS:
                link = json.loads(data)
                return self._read(link["person"]), link["decides"] is True
        return None


def put_key(folder: Path, person: Mapping[str, Any], *, decides: bool = True) -> str:
    """Leave a one-time link in a folder for the console of another process, and return its key.

    Args:
        folder: A folder that this user alone can enter; made if it is absent.
    """
    for old in private_directory(folder).iterdir():
        with suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > LINK_SECONDS:
                old.unlink()
    key = secrets.token_urlsafe(32)
    write_atomic(
        folder / _digest(key).hex(), json.dumps({"person": dict(person), "decides": decides}).encode()
    )
    return key


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
