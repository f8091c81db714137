"""The verification of a published release for a page: what it may use, how it ends."""

import tempfile

import pytest

from aggregator.config import AggregatorConfig, AggregatorSection
from aggregator.console.pages import _verify
from common.progress import StepStoppedError
from common.settings import TlsSection
from common.web.jobs import Job
from tests.fakes.published import make_release
from tests.fakes.releases import TRUST_DOMAIN


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A published release."""
    return make_release(tmp_path_factory.mktemp("made"), n_records=30)


@pytest.fixture
def settings(made, tmp_path):
    """The configuration of its aggregator."""
    tls = TlsSection(made.ca_file(tmp_path), tmp_path / "none.pem", tmp_path / "none.key")
    section = AggregatorSection(
        name="hub", trust_domain=TRUST_DOMAIN, listen="localhost:0", state_dir=tmp_path / "state",
        release_dir=made.folder.parent,
    )  # fmt: skip
    return AggregatorConfig(path=tmp_path / "aggregator.toml", aggregator=section, tls=tls)


def test_the_configured_scratch_is_used(made, settings, tmp_path, monkeypatch):
    """A folder for temporary files can be small, and in memory; here it is not there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    assert _verify(made.folder, settings, Job())["lines"]


def test_it_can_be_stopped(made, settings):
    """The daemon does not wait for its end."""
    job = Job()
    job.stop()
    with pytest.raises(StepStoppedError):
        _verify(made.folder, settings, job)


def test_a_problem_is_kept_as_texts(made, settings, tmp_path):
    """Of an error nothing stays but what the page shows."""
    found = _verify(tmp_path, settings, Job())
    assert "is not a release folder" in found["problem"]["message"]
    assert found["problem"]["hint"]
