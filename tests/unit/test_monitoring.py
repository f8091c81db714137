"""Alert rules and dashboard name metrics that the daemons have."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

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


def rules() -> list[dict]:
    """Return the alert rules."""
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return group["rules"]


@pytest.mark.needs("promtool")
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """Prometheus' own program tries the rules on series of what goes wrong, and of what does not."""
    for path in (MONITORING / "alerts.yml", Path(__file__).with_name("alert_rules.yml")):
        shutil.copy(path, tmp_path)
    for command in (["check", "rules", "--lint-fatal", "alerts.yml"], ["test", "rules", "alert_rules.yml"]):
        ended = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_alert_is_tried_and_has_a_severity() -> None:
    """A rule without a case of both kinds is none that somebody has seen work."""
    cases = [
        case
        for group in yaml.safe_load(Path(__file__).with_name("alert_rules.yml").read_text())["tests"]
        for case in group["alert_rule_test"]
    ]
    for fires in (False, True):
        tried = {case["alertname"] for case in cases if bool(case["exp_alerts"]) == fires}
        assert tried == {rule["alert"] for rule in rules()}
    assert {rule["labels"]["severity"] for rule in rules()} == {"critical", "warning", "info"}


def test_the_page_names_every_alert() -> None:
    """The page on operations lists the rules, with the severity of each."""
    page = (ROOT / "docs" / "operations.md").read_text()
    for rule in rules():
        assert re.search(rf"\| `{rule['alert']}` +\| {rule['labels']['severity']} +\|", page), rule["alert"]
