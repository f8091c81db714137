from pathlib import Path

import pytest

from tests.needs import DATA_SETS

PROJECT = Path(__file__).parents[2]
TESTS = """
    import pytest

    @pytest.mark.needs("data")
    def test_reads():
        pass

    def test_free():
        pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A small project that uses the mark, on a machine that has no data sets and promises nothing."""
    monkeypatch.delenv("TESSERA_DATA", raising=False)
    monkeypatch.delenv("TESSERA_REQUIRE", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    # Half of the time of a start.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest('pytest_plugins = ["tests.needs"]')
    pytester.makepyfile(TESTS)
    return pytester


def test_a_missing_thing_skips_with_the_reason(project: pytest.Pytester) -> None:
    """A machine without the data sets runs everything else and says what it left out."""
    result = project.runpytest_subprocess("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*needs data: TESSERA_DATA does not name the folder*"])


@pytest.mark.parametrize("names", ["data", "data,docker", "docker data"])
def test_a_promised_thing_that_is_missing_fails(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    """A machine that was set up to have the data sets cannot lose them unnoticed."""
    monkeypatch.setenv("TESSERA_REQUIRE", names)
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*TESSERA_REQUIRE names data, but *"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_promised_thing_that_is_there_runs(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark does not stand in the way where the data sets are."""
    folder = project.mkdir("data")
    for name in DATA_SETS:
        (folder / name).touch()
    monkeypatch.setenv("TESSERA_DATA", str(folder))
    monkeypatch.setenv("TESSERA_REQUIRE", "data")
    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_an_incomplete_folder_is_missing_data(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that lacks a file is named as such instead of failing somewhere inside a test."""
    monkeypatch.setenv("TESSERA_DATA", str(project.mkdir("data")))
    result = project.runpytest_subprocess("-rs")
    result.stdout.fnmatch_lines([f"*lacks {', '.join(DATA_SETS)}*"])


def test_an_unknown_promise_is_refused(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name in TESSERA_REQUIRE cannot turn a promise into a silent skip."""
    monkeypatch.setenv("TESSERA_REQUIRE", "date")
    result = project.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*TESSERA_REQUIRE names date; known are *"])


@pytest.mark.parametrize("mark", ['needs("date")', "needs()"])
def test_an_unknown_need_is_refused(project: pytest.Pytester, mark: str) -> None:
    """A misspelt need is an error at once, not a test that never runs anywhere."""
    project.makepyfile(test_other=f"import pytest\n@pytest.mark.{mark}\ndef test_it():\n    pass\n")
    assert project.runpytest_subprocess().ret == pytest.ExitCode.USAGE_ERROR
