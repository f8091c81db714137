"""Data that the daemon's unit hides: a warning for the daemon's own configuration, and for no other."""

from pathlib import Path

import pytest

from owner_node.config import load
from owner_node.loading.hidden import hidden_files

OWNER = """
[owner]
id = "north"
trust_domain = "hospitals.example"
state_dir = "state"
[[aggregator]]
name = "hub"
address = "localhost:8443"
[tls]
ca = "ca.pem"
cert = "own.pem"
key = "own.key"
[[dataset]]
name = "patients"
source = "{source}"
total_epsilon = 3
{query}
[dataset.attributes.age]
type = "integer"
min = 0
max = 120
"""
UNIT = {"ProtectHome": "tmpfs", "PrivateTmp": "yes", "BindPaths": "", "InaccessiblePaths": ""}


@pytest.fixture
def warnings(tmp_path, monkeypatch):
    """A function that returns the warnings, for a source and the properties that systemd reports."""

    def found(source: str, runs: str = "owner.toml", query: str = "", **unit: str) -> list[str]:
        config = tmp_path / "owner.toml"
        config.write_text(OWNER.format(source=source, query=query))
        argv = f"/opt/tessera/bin/owner-node run --config {tmp_path / runs}"
        started = f"{{ path=/opt/tessera/bin/owner-node ; argv[]={argv} ; pid=17 }}"
        lines = "\n".join(f"{name}={value}" for name, value in {**UNIT, **unit, "ExecStart": started}.items())
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "systemctl").write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
        (programs / "systemctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        return list(hidden_files(load(config)))

    return found


@pytest.mark.parametrize(
    ("source", "setting"),
    [
        ("/home/data/patients.csv", "ProtectHome=tmpfs"),
        ("/root/patients.parquet", "ProtectHome=tmpfs"),
        ("/run/user/1000/patients.csv", "ProtectHome=tmpfs"),
        ("/tmp/patients.csv", "PrivateTmp=yes"),
        ("/var/tmp/patients.csv", "PrivateTmp=yes"),
        ("spark:parquet:/home/data/patients", "ProtectHome=tmpfs"),
        ("/srv/../home/patients.csv", "ProtectHome=tmpfs"),
    ],
)
def test_hidden(warnings, source, setting):
    """Every place that the unit's settings hide is named, with the setting and the way out."""
    (warning,) = warnings(source)
    assert f"({setting})" in warning
    assert "BindReadOnlyPaths=" in warning


def test_what_is_bound_below_a_closed_folder_stays_hidden(warnings):
    """With `ProtectHome=yes` systemd shows nothing below /home, bound or not."""
    (warning,) = warnings(
        "/home/data/patients.csv", ProtectHome="yes", BindReadOnlyPaths="/home/data:/home/data:rbind"
    )
    assert "ProtectHome=tmpfs and BindReadOnlyPaths=/home/data" in warning


def test_a_database_file_is_hidden_too(warnings):
    """SQLite reads a file as well."""
    (warning,) = warnings("sqlite:////home/data/patients.db", query='query = "select age from p"')
    assert "/home/data/patients.db" in warning


@pytest.mark.parametrize(
    ("source", "unit"),
    [
        ("/srv/patients.csv", {}),
        ("/homes/patients.csv", {}),
        ("spark:table:catalog.db.home", {}),
        ("spark:parquet:s3a://home/data", {}),
        ("/home/data/patients.csv", {"ProtectHome": "no"}),
        ("/home/data/patients.csv", {"ProtectHome": "read-only"}),
        ("/tmp/patients.csv", {"PrivateTmp": "no"}),
        ("/home/data/patients.csv", {"BindReadOnlyPaths": "/home/data:/home/data:rbind"}),
        ("/home/data/patients.csv", {"BindPaths": "-/srv:/home rbind /x:/y:rbind"}),
        (
            "/home/data/patients.csv",
            {"BindReadOnlyPaths": "/home/data/patients.csv:/home/data/patients.csv:rbind"},
        ),
        ("/home/data/patients.csv", {"runs": "other.toml"}),
    ],
)
def test_not_hidden(warnings, source, unit):
    """What the daemon sees, or another configuration than the unit's, causes no warning."""
    assert warnings(source, **unit) == []


def test_a_link_that_leads_to_a_hidden_place(warnings, tmp_path):
    """The daemon follows it to nowhere."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    (warning,) = warnings(f"{link}/patients.csv", InaccessiblePaths=f"-{real}", PrivateTmp="no")
    assert str(real) in warning


@pytest.mark.parametrize("program", ["exit 1", "exit 0"])
def test_without_systemd(warnings, tmp_path, program):
    """Where systemd does not answer, nothing is said of it."""
    assert warnings("/srv/patients.csv") == []
    Path(tmp_path / "bin" / "systemctl").write_text(f"#!/bin/sh\n{program}\n")
    assert list(hidden_files(load(tmp_path / "owner.toml"))) == []
