"""Links that a command leaves for a daemon's console, and how long visits last."""

import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.errors import ConfigurationError
from common.web.doors import (
    IDLE_SECONDS,
    LINK_SECONDS,
    LONGEST_SECONDS,
    MOST_WRONG,
    Doors,
    TooManyAttemptsError,
    put_key,
)


@pytest.fixture
def clock():
    """The seconds of a console's clock."""
    return [0.0]


@pytest.fixture
def doors(clock, tmp_path):
    """The doors of a daemon's console: its people are names."""
    return Doors(lambda: clock[0], tmp_path / "links", lambda found: str(found["name"]))


def person(doors, secret: str | None) -> str | None:
    """Return who the visit of a cookie is."""
    found = None if secret is None else doors.visit(secret)
    return None if found is None else found.person


def test_a_link_of_a_command_works_once(doors, tmp_path):
    """The key itself is in no file; the file is gone after its use; the rights are those of the command."""
    key = put_key(tmp_path / "links", {"name": "vera"})
    (file,) = (tmp_path / "links").iterdir()
    assert key not in file.name + file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert person(doors, doors.enter(key)) == "vera"
    assert doors.enter(key) is None
    assert list((tmp_path / "links").iterdir()) == []
    looking = doors.enter(put_key(tmp_path / "links", {"name": "vera"}, decides=False))
    assert not doors.visit(looking).decides


def test_a_link_is_used_by_one_of_many(tmp_path):
    """Requests at the same moment, in several threads: one gets in."""
    key = put_key(tmp_path / "links", {"name": "vera"})
    entering = [Doors(time.monotonic, tmp_path / "links", lambda found: found["name"]) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        entered = list(threads.map(lambda each: each.enter(key), entering))
    assert Counter(each is None for each in entered)[False] == 1


def test_a_link_of_a_command_ends(doors, tmp_path):
    """After ten minutes it opens nothing, and the next command removes it."""
    key = put_key(tmp_path / "links", {"name": "vera"})
    (file,) = (tmp_path / "links").iterdir()
    old = time.time() - LINK_SECONDS - 5
    os.utime(file, (old, old))
    put_key(tmp_path / "links", {"name": "otto"})
    assert not file.exists()
    assert doors.enter(key) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"person": {"name": "x"}}', b'{"person": 3, "decides": true}']
)
def test_a_file_that_is_no_link_opens_nothing(doors, tmp_path, content):
    """A file that was cut short is a wrong link, not a fault."""
    key = put_key(tmp_path / "links", {"name": "vera"})
    (file,) = (tmp_path / "links").iterdir()
    file.write_bytes(content)
    assert doors.enter(key) is None


def test_a_link_says_whether_its_person_decides(doors, tmp_path):
    """Nothing but true is a right to change something."""
    key = put_key(tmp_path / "links", {"name": "vera"})
    (file,) = (tmp_path / "links").iterdir()
    file.write_text(json.dumps({"person": {"name": "vera"}, "decides": "true"}))
    assert not doors.visit(doors.enter(key)).decides


@pytest.mark.parametrize("key", ["../../etc/passwd", "\0", "x" * 10_000, ""])
def test_keys_are_no_paths(doors, tmp_path, key):
    """A key is hashed before a file is looked for."""
    put_key(tmp_path / "links", {"name": "vera"})
    assert doors.enter(key) is None


def test_a_folder_that_others_can_enter_takes_no_links(tmp_path):
    """Whoever can write there could sign anybody in."""
    (tmp_path / "links").mkdir(mode=0o755)
    with pytest.raises(ConfigurationError, match="open to other users"):
        put_key(tmp_path / "links", {"name": "vera"})


def test_a_page_that_refreshes_itself_keeps_no_visit_alive(doors, clock):
    """The inbox looks every ten seconds; the person may have gone home."""
    secret = doors.begin("vera")
    for _ in range(int(IDLE_SECONDS // 10)):
        clock[0] += 10
        assert doors.visit(secret, active=False)
    clock[0] += 10
    assert doors.visit(secret, active=False) is None


def test_a_visit_ends_after_half_a_day(doors, clock):
    """Whoever works without a pause signs in again: rights that were taken away end."""
    secret = doors.begin("vera")
    while clock[0] + IDLE_SECONDS <= LONGEST_SECONDS:
        clock[0] += IDLE_SECONDS
        assert person(doors, secret) == "vera"
    clock[0] += IDLE_SECONDS
    assert doors.visit(secret) is None


def test_attempts_are_counted_for_each_address(doors):
    """One stranger locks nobody else out; ten thousand of them fill no memory."""
    for _ in range(MOST_WRONG):
        assert doors.enter("guess", "10.0.0.1") is None
    with pytest.raises(TooManyAttemptsError):
        doors.enter(doors.new_key("vera"), "10.0.0.1")
    assert doors.enter(doors.new_key("vera"), "10.0.0.2")
    for number in range(10_000):
        doors.wrong.count(f"2001:db8::{number:x}")
    assert len(doors.wrong._made) <= 1000
