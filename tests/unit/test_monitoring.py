"""Alert rules and dashboard name metrics that the daemons have."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
_MADE = re.compile(r'(?:(\w+)\(\s*)?"(tessera_(?:aggregator|owner)_[a-z_]+)"')
_ENDS = {"bytes_counter": ("_total",), "step_histogram": ("_bucket", "_sum", "_count")}
"""What Prometheus adds to a name, by the function that makes the metric."""
_METRIC = re.compile(r"\btessera_(?:aggregator|owner)_[a-z_]+")


def exposed() -> dict[str, set[str]]:
    """Return the metrics of the daemons, each with the names that Prometheus knows it under."""
    names: dict[str, set[str]] = {}
    for package in ("aggregator", "owner_node"):
        for path in (ROOT / package).rglob("*.py"):
            for call, name in _MADE.findall(path.read_text()):
                names[name] = {name + end for end in _ENDS.get(call, ("",))}
    return names


@pytest.mark.parametrize("name", ["alerts.yml", "dashboard.json"])
def test_metrics_that_are_named_exist(name: str) -> None:
    """A metric that is renamed or gone leaves no alert behind that can never fire."""
    named = set(_METRIC.findall((MONITORING / name).read_text()))
    assert len(named) > 5
    assert named <= set().union(*exposed().values())


def test_every_metric_is_documented() -> None:
    """The page on operations names all metrics of the daemons, and no other."""
    named = set(_METRIC.findall((ROOT / "docs" / "operations.md").read_text()))
    assert {name.removesuffix("_total") for name in named} == set(exposed())
