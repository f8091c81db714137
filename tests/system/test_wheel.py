"""The wheel: complete, installed into an environment of its own, and what the other tests here run."""

import os
import subprocess
import zipfile
from pathlib import Path

import psutil
import pytest

from deploy.local_cluster import LocalCluster
from deploy.local_process import program_path
from deploy.local_setup import dataset, make_setup
from deploy.wheel_environment import DATA_FOLDERS, PACKAGES, PROJECT, build_wheel, built_wheel

DATASET = dataset(
    {"name": "patients", "source": "patients.csv", "total_epsilon": "1"},
    {"age": {"type": "integer", "min": 0, "max": 120}},
)
ASK = "import {0}; print({0}.__file__)"
pytestmark = pytest.mark.usefixtures("ordinary_starts")


@pytest.fixture(scope="module")
def place() -> Path:
    """The folder of the programs."""
    return program_path("aggregator").parent


def test_everything_is_in_it(place):
    """Templates, types, generated messages: the wheel holds every file of the packages, and nothing else."""
    wheel, files = built_wheel(place)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    inside = {name for name in names if ".dist-info/" not in name and ".data/" not in name}
    assert inside == files
    assert {"common/templates/report.html", "common/py.typed", "common/wire/v1/owner_pb2.pyi"} <= inside
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_same_sources_give_the_same_bytes(place, tmp_path):
    """Anybody can build a released wheel again and compare digests: no time, mode or folder is in it."""
    kept, _ = built_wheel(place)
    masked = os.umask(0o077)
    try:
        again = build_wheel(tmp_path / "dist")
    finally:
        os.umask(masked)
    assert again.name == kept.name
    assert again.read_bytes() == kept.read_bytes()


def test_samples_and_units_are_installed(place):
    """What an operator copies from lies beside the programs, as it is in the checkout."""
    for folder in DATA_FOLDERS:
        installed = place.parent / "share" / "tessera" / Path(folder).name
        expected = {path.name: path.read_bytes() for path in (PROJECT / folder).iterdir()}
        assert {path.name: path.read_bytes() for path in installed.iterdir()} == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_of_the_checkout(place, tmp_path, package):
    """What the programs import lies in the environment of the wheel, wherever they are run."""

    def imported(name: str) -> subprocess.CompletedProcess[str]:
        command = [place / "python", "-c", ASK.format(name)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert place.parent in Path(imported(package).stdout.strip()).parents
    for other in ("deploy", "tests"):
        assert "ModuleNotFoundError" in imported(other).stderr


@pytest.mark.parametrize("name", ["common.py", "common/__init__.py", "common/other.py"])
def test_what_is_in_the_way_is_named(place, tmp_path, name):
    """Where a script's folder has a module of that name, the error says which file it is."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine = 7\n")
    (tmp_path / "script.py").write_text("import tessera\n")
    failed = subprocess.run([place / "python", "script.py"], cwd=tmp_path, capture_output=True, text=True)
    if name == "common/other.py":
        # A folder without __init__.py gives way to the package.
        assert failed.returncode == 0, failed.stderr
        return
    assert failed.returncode == 1
    assert f"ImportError: {tmp_path / name} is in the way" in failed.stderr
    assert failed.stderr.count("Traceback") == 1


def test_the_daemons_are_of_the_wheel(tmp_path, place):
    """The processes of the system tests are those of the wheel, and its commands answer them."""
    make_setup(tmp_path, {"a": DATASET})
    with LocalCluster(tmp_path) as cluster:
        cluster.start()
        for daemon in (cluster.aggregator, cluster.owner("a")):
            words = psutil.Process(daemon.pid).cmdline()
            assert words[:2] == [str(place / "python"), str(place / daemon.program)]
        assert cluster.cli("aggregator", "status", "--check").returncode == 0
