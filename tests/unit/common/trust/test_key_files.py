"""A key and its certificate change together, whenever the power fails."""

import os
import stat
from datetime import UTC, datetime, timedelta

import pytest

from common.trust.credentials import finish_switch, switch_pair
from common.trust.enrolment import key_pem
from common.trust.identity import fingerprint
from common.trust.signing import Signer
from deploy.development_ca import DevelopmentCa, Issued


@pytest.fixture
def pairs():
    """An old and a new pair of one owner."""
    ca = DevelopmentCa("example.org")
    return ca.owner("north"), ca.owner("north")


def place(folder, issued: Issued):
    """Write the pair that is in use."""
    return issued.write(folder, "north")


def in_use(certificate, key) -> str:
    """Return the fingerprint of the pair, which must be one."""
    return Signer.load(key, certificate).fingerprint


def test_a_pair_is_replaced(tmp_path, pairs):
    """Afterwards the new pair is in use, its key private, and nothing else lies about."""
    old, new = pairs
    certificate, key = place(tmp_path, old)
    switch_pair(certificate, key, new.certificate_pem, new.key_pem)
    assert in_use(certificate, key) == fingerprint(new.key.public_key())
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["north.key", "north.pem"]


def test_a_pair_that_begins_earlier_is_installed_all_the_same(tmp_path):
    """What is installed on purpose is in use afterwards, whatever its certificate says of its age."""
    ca, now = DevelopmentCa("example.org"), datetime.now(UTC)
    older, present = (ca.owner("north", not_before=now - timedelta(days=age)) for age in (80, 1))
    certificate, key = place(tmp_path, present)
    switch_pair(certificate, key, older.certificate_pem, older.key_pem)
    assert in_use(certificate, key) == fingerprint(older.key.public_key())


@pytest.mark.parametrize("done", ["key written", "both written", "certificate renamed"])
def test_a_crash_at_any_point(tmp_path, pairs, done):
    """Whoever comes next finds the old pair or the new one, never one of each."""
    old, new = pairs
    certificate, key = place(tmp_path, old)
    waiting = tmp_path / "north.key.next"
    waiting.touch(0o600)
    waiting.write_bytes(key_pem(new.key))
    if done == "both written":
        (tmp_path / "north.pem.next").write_bytes(new.certificate_pem)
    if done == "certificate renamed":
        certificate.write_bytes(new.certificate_pem)
    finish_switch(certificate, key)
    expected = old if done == "key written" else new
    assert in_use(certificate, key) == fingerprint(expected.key.public_key())
    finish_switch(certificate, key)
    assert in_use(certificate, key) == fingerprint(expected.key.public_key())


def test_a_newer_pair_is_not_switched_back(tmp_path):
    """A pair that somebody put in place since is kept; the one that waited is thrown away."""
    ca, now = DevelopmentCa("example.org"), datetime.now(UTC)
    waiting, present = (ca.owner("north", not_before=now - timedelta(days=age)) for age in (2, 1))
    certificate, key = place(tmp_path, present)
    place(tmp_path, waiting)[1].rename(tmp_path / "north.key.next")
    certificate.rename(tmp_path / "north.pem.next")
    os.utime(tmp_path / "north.pem.next", (0, 0))
    place(tmp_path, present)
    finish_switch(certificate, key)
    assert in_use(certificate, key) == fingerprint(present.key.public_key())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["north.key", "north.pem"]


def test_a_half_written_certificate_changes_nothing(tmp_path, pairs):
    """What waits is taken only when it belongs together."""
    old, new = pairs
    certificate, key = place(tmp_path, old)
    waiting = tmp_path / "north.key.next"
    waiting.touch(0o600)
    waiting.write_bytes(new.key_pem)
    (tmp_path / "north.pem.next").write_bytes(new.certificate_pem[:200])
    finish_switch(certificate, key)
    assert in_use(certificate, key) == fingerprint(old.key.public_key())
