"""`owner-node linkage-key` as two owners use it, with real processes, files and certificates."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.development_ca import DevelopmentCa
from deploy.local_process import program_path

CONFIGURATION = """
[owner]
id = "{owner}"
trust_domain = "tests.example"
state_dir = "state"

[tls]
ca = "ca.pem"
cert = "owner.pem"
key = "owner.key"
"""


class Owner:
    """A folder with one owner's configuration, and its command line."""

    def __init__(self, directory: Path, name: str, authority: DevelopmentCa) -> None:
        directory.mkdir()
        authority.issued.write(directory, "ca")
        authority.owner(name).write(directory, "owner")
        (directory / "owner.toml").write_text(CONFIGURATION.format(owner=name))
        self.directory = directory

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run `owner-node linkage-key` in the owner's folder, which holds its owner.toml."""
        return subprocess.run(
            [program_path("owner-node"), "linkage-key", *map(str, arguments)],
            cwd=self.directory,
            capture_output=True,
            text=True,
            env={"PATH": ""},
        )

    def done(self, *arguments: str | Path) -> Any:
        """Run a command that must end well and return its document."""
        ended = self(*arguments, "--json")
        assert (ended.returncode, ended.stderr) == (0, "")
        return json.loads(ended.stdout)


@pytest.fixture
def owners(tmp_path: Path) -> tuple[Owner, Owner]:
    """Two owners under one CA."""
    authority = DevelopmentCa("tests.example")
    return Owner(tmp_path / "a", "a", authority), Owner(tmp_path / "b", "b", authority)


def test_exchange(owners: tuple[Owner, Owner], tmp_path: Path) -> None:
    """A key made at one owner arrives at the other; nothing printed on the way shows it."""
    sender, receiver = owners
    to, sealed = tmp_path / "recipient.json", tmp_path / "sealed.json"
    made = sender.done("new")
    assert made["generation"] == 1
    heard = receiver.done("recipient", "--out", to)["fingerprint"]
    exported = sender.done("export", "--to", to, "--fingerprint", heard, "--out", sealed)
    done = receiver.done("import", sealed, "--from-fingerprint", exported["fingerprint"])
    assert done == {"from": "a", **made, "changed": True}
    assert receiver.done("show") == sender.done("show") == made
    files = [owner.directory / "state" / "linkage.key" for owner in owners]
    assert files[0].read_bytes() == files[1].read_bytes()
    secret = json.loads(files[0].read_bytes())["key"]
    assert secret not in sealed.read_text() + str(exported) + str(done)


def test_rotation(owners: tuple[Owner, Owner], tmp_path: Path) -> None:
    """A replaced key is the next generation, with another check value; who has one keeps it unless told."""
    sender, receiver = owners
    to, sealed = tmp_path / "recipient.json", tmp_path / "sealed.json"
    heard = receiver.done("recipient", "--out", to)["fingerprint"]
    export = ("export", "--to", to, "--fingerprint", heard, "--out", sealed)
    first = sender.done("new")
    told = sender.done(*export)
    receiver.done("import", sealed, "--from-fingerprint", told["fingerprint"])
    second = sender.done("new", "--replace")
    assert [first["generation"], second["generation"]] == [1, 2]
    assert first["check"] != second["check"]
    assert [told["generation"], sender.done(*export)["generation"]] == [1, 2]
    refused = receiver("import", sealed, "--from-fingerprint", told["fingerprint"])
    assert refused.returncode == 2
    assert "(generation 1)" in refused.stderr
    assert "generation 2" in refused.stderr
    assert receiver.done("show") == first
    receiver.done("import", sealed, "--from-fingerprint", told["fingerprint"], "--replace")
    assert receiver.done("show") == second


def test_no_key_to_show(owners: tuple[Owner, Owner]) -> None:
    """Without a key there is nothing to show, and the answer says how to come by one: exit 2."""
    ended = owners[0]("show")
    assert ended.returncode == 2
    assert "linkage-key new" in ended.stderr


def test_recipient_on_standard_output(owners: tuple[Owner, Owner], tmp_path: Path) -> None:
    """What `recipient` prints can be redirected into the file; the fingerprint goes to the person."""
    sender, receiver = owners
    printed = receiver("recipient")
    (tmp_path / "to.json").write_text(printed.stdout)
    fingerprint = printed.stderr.rpartition(": ")[2].strip()
    sender.done("new")
    ended = sender("export", "--to", tmp_path / "to.json", "--fingerprint", fingerprint, "--out", "sealed")
    assert ended.returncode == 0
    assert "telephone" in ended.stdout


def test_exit_codes(owners: tuple[Owner, Owner], tmp_path: Path) -> None:
    """A second key, a place that is not there, a wrong fingerprint and a changed file have their codes."""
    sender, receiver = owners
    to, sealed = tmp_path / "recipient.json", tmp_path / "sealed.json"
    sender.done("new")
    assert sender("new").returncode == 2
    heard = receiver.done("recipient", "--out", to)["fingerprint"]
    assert sender("export", "--to", to, "--fingerprint", heard, "--out", "absent/sealed").returncode == 2
    assert sender("export", "--to", to, "--fingerprint", "0" * 64, "--out", sealed).returncode == 6
    own = sender.done("export", "--to", to, "--fingerprint", heard, "--out", sealed)["fingerprint"]
    changed = json.loads(sealed.read_text()) | {"generation": "7"}
    sealed.write_text(json.dumps(changed))
    refused = receiver("import", sealed, "--from-fingerprint", own)
    assert refused.returncode == 7
    assert refused.stderr.startswith("error: the signature of spiffe://tests.example/owner/a")
    assert "hint: " in refused.stderr
