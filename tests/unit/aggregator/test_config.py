from datetime import timedelta
from pathlib import Path

import pytest

from aggregator.config import AggregatorConfig, DeadlineSettings, EnrolmentSection, load
from common.daemon.settings import EngineSection, MetricsSection
from common.errors import ConfigurationError
from common.settings import TlsSection
from common.workspace import machine_memory

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"
HEAD = """
[aggregator]
name = "central"
trust_domain = "hospitals.example"
state_dir = "state"
release_dir = "releases"
"""
TLS = '[tls]\nca = "ca.pem"\ncert = "c.pem"\nkey = "k.pem"\n'


def _load(folder: Path, *parts: str) -> AggregatorConfig:
    path = folder / "aggregator.toml"
    path.write_text("\n".join(parts), encoding="utf-8")
    return load(path)


def _problems(folder: Path, *parts: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        _load(folder, *parts)
    return caught.value.problems


def test_the_full_sample_states_the_defaults_of_the_minimal_one():
    """The sample that explains every option does not quietly change one."""
    minimal, full = (load(SAMPLES / f"aggregator.{name}.toml") for name in ("minimal", "full"))
    assert full.aggregator == minimal.aggregator
    assert (full.tls, full.deadlines) == (minimal.tls, minimal.deadlines)
    assert minimal.deadlines == DeadlineSettings()


def test_defaults_and_paths(tmp_path):
    """Paths start at the file's folder, the socket lies in the state, deadlines are as documented."""
    config = _load(tmp_path, HEAD, TLS)
    assert config.aggregator.listen == "0.0.0.0:8443"
    assert config.aggregator.control_socket == tmp_path / "state" / "control" / "aggregator.sock"
    assert config.aggregator.release_dir == tmp_path / "releases"
    assert config.tls == TlsSection(tmp_path / "ca.pem", tmp_path / "c.pem", tmp_path / "k.pem")
    assert config.deadlines == DeadlineSettings(
        invite=timedelta(seconds=30),
        consent=timedelta(days=7),
        link=timedelta(minutes=10),
        mask=timedelta(hours=1),
        collect=timedelta(hours=1),
    )


def test_each_deadline_lands_in_its_own_step(tmp_path):
    """A deadline for consent does not cut the masking short."""
    text = "[deadlines]\n" + "\n".join(
        f'{step} = "{hours}h"'
        for hours, step in enumerate(("invite", "consent", "link", "mask", "collect"), 1)
    )
    assert _load(tmp_path, HEAD, TLS, text).deadlines == DeadlineSettings(
        *(timedelta(hours=h) for h in range(1, 6))
    )


def test_the_working_directory_is_searched(tmp_path, monkeypatch):
    """`aggregator serve` without an option finds ./aggregator.toml."""
    _load(tmp_path, HEAD, TLS)
    monkeypatch.chdir(tmp_path)
    assert load().path == tmp_path / "aggregator.toml"


def test_the_authority_is_off_unless_its_key_is_named(tmp_path):
    """Nobody becomes a certificate authority by default; one whose key is named renews unless told not to."""
    assert _load(tmp_path, HEAD, TLS).enrolment == EnrolmentSection(None, auto_renew=True)
    text = '[enrolment]\nca_key = "ca.key"\nauto_renew = false'
    assert _load(tmp_path, HEAD, TLS, text).enrolment == EnrolmentSection(
        tmp_path / "ca.key", auto_renew=False
    )


def test_all_problems_come_together(tmp_path):
    """A person corrects the file once."""
    head = HEAD.replace('"central"', '"Central"').replace("release_dir", "relese_dir")
    problems = _problems(tmp_path, head, 'listen = "8443"', '[deadlines]\nmask = "soon"\nmusk = "1h"')
    assert [problem.split()[0].rstrip(":") for problem in problems] == [
        "aggregator.name",
        "aggregator.release_dir",
        "aggregator.listen",
        "aggregator.relese_dir",
        "tls",
        "deadlines.mask",
        "deadlines.musk",
    ]


@pytest.mark.parametrize("lines", [f'control_socket = "{"x" * 120}"', ""])
def test_a_socket_path_that_no_system_takes_is_refused(tmp_path, lines):
    """A long state folder ends in an explanation, not in a daemon that cannot bind."""
    head = HEAD if lines else HEAD.replace('"state"', f'"{"x" * 120}"')
    (problem,) = _problems(tmp_path, head, lines, TLS)
    assert problem.startswith("aggregator.control_socket: its path has ")


@pytest.mark.parametrize("address", ["127.0.0.1:9464", "[::1]:9464", "localhost:0"])
def test_metrics_on_this_machine(tmp_path, address):
    """An address that only this machine reaches is taken as it is; without one there are no metrics."""
    assert _load(tmp_path, HEAD, TLS).metrics == MetricsSection("")
    assert _load(tmp_path, HEAD, TLS, f'[metrics]\nlisten = "{address}"').metrics == MetricsSection(address)


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "[::]:9464", "10.0.0.7:9464", "metrics.example:9464"])
def test_metrics_for_other_machines_are_asked_for_by_name(tmp_path, address):
    """Nobody opens an unprotected port to others by the way, and whoever means it can."""
    (problem,) = _problems(tmp_path, HEAD, TLS, f'[metrics]\nlisten = "{address}"')
    assert problem.startswith(f'metrics.listen = "{address}": expected an address of this machine alone')
    meant = f'[metrics]\nlisten = "{address}"\nallow_remote = true'
    assert _load(tmp_path, HEAD, TLS, meant).metrics == MetricsSection(address, allow_remote=True)


def test_the_engine_takes_half_of_the_machine_unless_it_is_told(tmp_path):
    """A step never plans with more memory than the table allows, nor writes elsewhere than it says."""
    default = _load(tmp_path, HEAD, TLS).engine
    assert default.memory_limit == machine_memory() // 2
    assert default.workspace(tmp_path / "state").scratch == tmp_path / "state" / "scratch"
    text = '[engine]\nmemory_limit = "1.5 GiB"\nscratch = "large"\nthreads = 3'
    chosen = _load(tmp_path, HEAD, TLS, text).engine
    assert chosen == EngineSection(3 << 29, tmp_path / "large", 3)
    assert chosen.workspace(tmp_path / "state").scratch == tmp_path / "large"


@pytest.mark.parametrize("limit", ['"255MB"', '"1"', '"1kB"', "1000000000", '"GB"', '"-1GB"'])
def test_memory_is_a_size_with_its_unit(tmp_path, limit):
    """A limit without a unit, or with which nothing could work, is refused when the daemon starts."""
    (problem,) = _problems(tmp_path, HEAD, TLS, f"[engine]\nmemory_limit = {limit}\n")
    assert "engine.memory_limit" in problem
    assert 'expected a size from "256MB"' in problem
