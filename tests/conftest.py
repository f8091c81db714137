"""What every test shares: the things it may need, and how hypothesis searches."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from common.cli.console import GRPC_SETTINGS
from deploy import local_process
from deploy.wheel_environment import programs
from tests.preloaded import forking

# Processes inherit what is ignored: without this, tests that run in the background or under nohup could not
# interrupt the programs that they start.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# Programs are started hundreds of times: without bytecode most of that time is compiling. Here, half of the
# time of collecting tests is rewriting their asserts.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Folders of `make spark` and the like: behind everything else, so that nothing else is taken from them.
_PROJECT = Path(__file__).parents[1]
_FOLDERS = (_PROJECT / "build" / name for name in ("spark", "opendp", "chart", "bench"))
sys.path += [str(folder) for folder in _FOLDERS if folder.is_dir()]

pytest_plugins = ["tests.needs", "pytester"]

# gRPC reads them when it is imported. Programs get the environment of a user, and set them themselves.
with pytest.MonkeyPatch.context() as _settings:
    for _name, _value in GRPC_SETTINGS.items():
        _settings.setenv(_name, _value)
    import grpc  # noqa: F401

# A loaded machine is not a failure, so no example has a deadline. A change is checked against the same
# examples every time it is pushed; a developer's machine searches for new ones, fewer at a time.
_SAME_EXAMPLES = "TESSERA_SAME_EXAMPLES" in os.environ
settings.register_profile(
    "tessera",
    deadline=None,
    derandomize=_SAME_EXAMPLES,
    max_examples=100 if _SAME_EXAMPLES else 40,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tessera")

_FIRST = (
    *(
        f"tests/system/test_{name}.py"
        for name in ("compose", "tutorial", "console_flood", "kill", "lost_ledger", "demo", "first_release")
    ),
    *("tests/system/", "tests/chaos/", "tests/wire/", "tests/distributions/", "tests/"),
)
"""Files and folders of tests, the longest first."""
_LABORATORY = (
    "tests/papers/",
    "tests/system/test_paper_setups.py",
    "tests/system/test_tutorial.py::test_tutorial",
    "tests/system/test_tutorial.py::test_notebook",
    "tests/system/test_compose.py::test_built_by_the_newer",
)
"""Experiments, pictures and notebooks, which `make lab` alone runs."""
_LONG = (
    *("tests/system/", "tests/chaos/", "tests/compatibility/"),
    *("tests/wire/test_lost_rounds.py", "tests/wire/test_networks.py"),
    "tests/wire/test_limits.py::test_a_schema_above_the_limit",
    "tests/wire/test_synthetic_across.py::test_a_partner_that_never_answers_ends_the_release",
    "tests/distributions/test_forecast.py::test_forecast_has_the_rank_noise",
    "tests/distributions/test_drawn_k.py::test_k_is_near_the_best",
    "tests/distributions/test_attenuation.py::test_booleans_factors_and_odds_are_corrected",
    "tests/distributions/test_attenuation.py::test_corrected_slopes_hold_the_original",
    "tests/distributions/test_attenuation.py::test_few_counted_values_are_corrected_exactly",
    "tests/unit/test_synthetic_experiment.py",
    "tests/unit/common/analysis/test_forecast.py::test_a_planned_width",
    "tests/unit/common/analysis/test_noisy_counts.py::test_intervals_are_not_much_wider_than_needed",
    "tests/unit/common/analysis/test_noisy_counts.py::test_intervals_hold_at_least_what_they_say",
    "tests/unit/common/release/test_description.py::test_validators_object_to_nothing[mixed]",
    "tests/unit/common/release/test_description.py::test_validators_object_to_nothing[vertical]",
    "tests/unit/common/release/test_missing_values.py::test_estimates_of_present_values_hold",
    "tests/unit/common/synthesis/test_swaps.py::test_a_million_records_with_a_rule",
    "tests/unit/owner_node/console/test_console_pages.py::test_every_page_is_accessible",
    "tests/unit/owner_node/console/test_decision_page.py::test_the_print_says",
    "tests/unit/owner_node/engines/test_pinning.py::test_too_little_memory_for_the_clusters",
    "tests/unit/owner_node/explore/test_target.py::test_earlier_releases_count",
    "tests/unit/owner_node/masking/test_quantiles.py::test_counts_of_spikes_have_the_stated_noise",
    "tests/unit/owner_node/synthesis/test_crossed.py::test_all_noise_together_has_the_stated_variance",
)
"""The second tier, which `make test-long` runs: real processes, and tests of 4 to 31 s of processor time."""
_LONG_NEEDS = frozenset({"docker", "spark", "chart"})
"""What makes a test that needs it one of the second tier, wherever it stands."""
_SAMPLE = tuple(
    f"tests/system/test_{each}"
    for each in (
        *("release.py", "synthetic_release.py::test_a_release", "bad_input.py", "doctor.py", "metrics.py"),
        *("kill.py::test_owner_killed[a-", "kill.py::test_aggregator_killed[", "stored_types.py"),
        *("folder_sources.py", "publication.py", "notify.py", "log_forms.py", "compose_setup.py"),
        *("local_cluster.py", "wheel.py"),
    )
)
"""What the first tier has of these folders: a release of each product, kills, refusals, sources, wheel."""
_OF_THE_WHEEL = ("tests/system/", "tests/compatibility/")
"""Folders whose tests run the programs that the wheel installs."""


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers of what `make test` leaves out."""
    # Until all tests are collected nothing is garbage, and looking for some takes a quarter of the time.
    gc.disable()
    config.addinivalue_line("markers", "lab: an experiment, picture or notebook, which `make lab` runs")
    config.addinivalue_line("markers", "long: a test of the second tier, which `make test-long` runs")
    named = {each.partition("::")[0] for each in (*_LABORATORY, *_LONG, *_SAMPLE)}
    if lost := sorted(each for each in named if not (_PROJECT / each).exists()):
        raise pytest.UsageError(f"tests/conftest.py names what is not there: {', '.join(lost)}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that would not be selected: every process would import their libraries."""
    selected, place = config.option.markexpr, collection_path.relative_to(_PROJECT).as_posix()
    unread = ("not lab" in selected and place == "tests/papers") or (
        "not long" in selected
        and collection_path.suffix == ".py"
        and place.startswith(_LONG)
        and not any(each.startswith(place) for each in _SAMPLE)
    )
    return True if unread else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the laboratory and the second tier before pytest selects by markers; put slow files first, so that
    short ones are left for whichever process is done before the other.
    """
    for item in items:
        needs = {thing for mark in item.iter_markers("needs") for thing in mark.args}
        if item.nodeid.startswith(_LABORATORY):
            item.add_marker("lab")
        of_folder = item.nodeid.startswith(_LONG) and not item.nodeid.startswith(_SAMPLE)
        if of_folder or needs & _LONG_NEEDS:
            item.add_marker("long")
    items.sort(key=lambda item: next(i for i, each in enumerate(_FIRST) if item.nodeid.startswith(each)))


def pytest_unconfigure() -> None:
    """Let the collector find everything again: libraries complain about what they still have at the end."""
    gc.unfreeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave modules and tests out of the collector's work, and install the wheel if a selected test runs it:
    within a test it would take that test's time.
    """
    gc.freeze()
    gc.enable()
    chosen = any(item.nodeid.startswith(_OF_THE_WHEEL) for item in session.items)
    if chosen and not session.config.option.collectonly:
        programs()


@pytest.fixture(scope="session")
def wheel_programs() -> Iterator[None]:
    """Run what the wheel installs; on Linux, most starts fork a process that has imported it."""
    folder = programs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(local_process.PROGRAMS, str(folder))
        if sys.platform != "linux":
            yield
            return
        with forking(folder, local_process.LAUNCH_WORDS) as popen:
            patch.setattr(local_process, "POPEN", popen)
            yield
