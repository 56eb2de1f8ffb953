"""Alert rules: their form, their runbook, the metrics that they read, and promtool's verdict."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from typer.main import get_command

from deploy.cli import app
from tests.deploy.conftest import DEPLOY

PROMETHEUS = DEPLOY / "prometheus"
RUNBOOK = (DEPLOY / "runbook.md").read_text("utf-8")
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]
PROCEDURES = {"RestoredDatabase", "StartRefused", "LostRecords", "LostState", "OtherEngine", "OtherPartitions"}
"""Sections that a service's own message points to when it does not start."""


def sections() -> dict[str, str]:
    """The runbook's sections by heading."""
    parts = re.split(r"^## (.+)$", RUNBOOK, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_is_complete(rule: dict[str, Any]) -> None:
    """CamelCase with our first word, a severity, a static summary, a templated description and a runbook link."""
    annotations = rule["annotations"]
    assert re.fullmatch(r"Rung([A-Z][a-z]+)+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert "{{" not in annotations["summary"]
    assert "{{" in annotations["description"]
    assert annotations["runbook_url"] == f"deploy/runbook.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("name", NAMES)
def test_the_runbook_says_what_to_do(name: str) -> None:
    """Each alert has a section with its meaning, where to look first and what to do."""
    section = sections()[name]
    assert all(f"**{part}**" in section for part in ("Meaning.", "First look.", "Do."))


def test_the_runbook_has_no_section_without_an_alert() -> None:
    """A section of an alert that is gone would mislead; the others are about what no alert tells."""
    assert set(sections()) == {*NAMES, *PROCEDURES, "The race that cannot be closed"}


def test_the_runbook_names_what_exists(metric_names: frozenset[str]) -> None:
    """Its metrics and commands are ours."""
    metrics = {name for name in re.findall(r"`(?:\w+\()?(rung_[a-z_]+)", RUNBOOK) if not name.startswith("rung_dl_")}
    histograms = {name.removesuffix("_sum") for name in metric_names if name.endswith("_sum")}
    assert metrics <= metric_names | histograms
    commands: Any = get_command(app)
    assert set(re.findall(r"`rung ([a-z-]+)", RUNBOOK)) <= set(commands.commands)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_reads_metrics_that_exist(
    rule: dict[str, Any], metric_names: frozenset[str], names_in: Callable[[str], set[str]]
) -> None:
    """A renamed metric would silence an alert for ever."""
    names = names_in(rule["expr"])
    assert names
    assert names <= metric_names


def test_each_alert_is_tested_firing_and_quiet() -> None:
    """One case in which it fires, and one in which it does not."""
    document = yaml.safe_load((PROMETHEUS / "alerts_test.yaml").read_text("utf-8"))
    cases = [case for test in document["tests"] for case in test["alert_rule_test"]]
    assert sorted((case["alertname"], bool(case["exp_alerts"])) for case in cases) == sorted(
        (name, fires) for name in NAMES for fires in (True, False)
    )


def promtool(*arguments: str) -> None:
    """Run promtool, or skip where it is not installed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run([program, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_runs_the_rule_tests() -> None:
    """The rules do what their tests say."""
    promtool("test", "rules", "alerts_test.yaml")


def test_promtool_accepts_the_configuration() -> None:
    """Prometheus would start with these files."""
    promtool("check", "config", "prometheus.yaml")
