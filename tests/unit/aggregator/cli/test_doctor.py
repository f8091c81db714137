"""What the aggregator's doctor finds about memory and scratch, on a configuration of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.cli.doctor import examination
from common.words.numbers import size_text
from common.workspace import machine_memory

FILE = """
[aggregator]
name = "central"
trust_domain = "hospitals.example"
state_dir = "state"
release_dir = "releases"
[tls]
ca = "ca.pem"
cert = "c.pem"
key = "k.pem"
[engine]
memory_limit = "{limit}"
scratch = "large"
"""


def findings(folder: Path, limit: str) -> Iterator[tuple[str, str, str]]:
    """Return check, outcome and text of every finding."""
    path = folder / "aggregator.toml"
    path.write_text(FILE.format(limit=limit))
    for each in examination(path):
        yield each.check, str(each.outcome), each.text


@pytest.mark.parametrize(("limit", "outcome"), [("256MB", "pass"), ("900000GB", "warn")])
def test_more_memory_than_there_is(tmp_path, limit, outcome):
    """A limit above the machine's memory would end in a killed daemon: doctor says so."""
    (found,) = [each for each in findings(tmp_path, limit) if each[0] == "memory"]
    assert found[1] == outcome
    assert f"this machine has {size_text(machine_memory())}" in found[2]


def test_the_scratch_folder(tmp_path):
    """Doctor names the scratch folder, its room, and who can enter it."""
    (tmp_path / "large").mkdir(mode=0o755)
    found = {check: (outcome, text) for check, outcome, text in findings(tmp_path, "1GB")}
    assert found["scratch"][0] == "fail"
    assert "open to other users" in found["scratch"][1]
    assert str(tmp_path / "large") in found["disk, scratch"][1]


def test_settings_that_cannot_work(tmp_path):
    """Scratch on a disk that is not there, an audit file without a folder, a sender without a host."""
    settings = (
        '[audit]\nfile = "gone/audit"\n[notify.smtp]\nhost = "mx"\nsender = "a"\nto = ["b@c.example"]\n'
    )
    path = tmp_path / "aggregator.toml"
    path.write_text(FILE.format(limit="1GB").replace('"large"', '"gone/scratch"') + settings)
    found = {each.check: str(each.outcome) for each in examination(path)}
    assert [found[check] for check in ("scratch", "audit", "mail")] == ["warn", "fail", "fail"]
    assert not (tmp_path / "gone").exists()
