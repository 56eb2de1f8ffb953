"""Grafana: every panel says what it shows, follows the variables, and reads metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import DEPLOY

GRAFANA = DEPLOY / "grafana"
DASHBOARDS = {
    path.name: json.loads(path.read_text("utf-8")) for path in sorted((GRAFANA / "dashboards").glob("*.json"))
}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, board in DASHBOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    """Title, description and unit."""
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_follows_the_variables(panel: dict[str, Any]) -> None:
    """Data source and instance are variables, and every rate is over the interval that fits the screen."""
    assert panel["datasource"] == SOURCE
    for target in panel["targets"]:
        assert target["datasource"] == SOURCE
        selectors = re.findall(r"(?:rung_\w+|\bup)(\{[^}]*\})?", target["expr"])
        assert selectors
        assert all('instance=~"$instance"' in selector for selector in selectors)
        rates = re.findall(r"\bi?rate\((.*?)\[(.*?)\]", target["expr"])
        assert all(window == "$__rate_interval" for _, window in rates)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_reads_metrics_that_exist(
    panel: dict[str, Any], metric_names: frozenset[str], names_in: Callable[[str], set[str]]
) -> None:
    """A renamed metric would leave an empty panel."""
    for target in panel["targets"]:
        names = names_in(target["expr"])
        assert names
        assert names <= metric_names


@pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)
def test_a_dashboard_is_whole(board: dict[str, Any]) -> None:
    """It has both variables, ids of its own, and no panel over another."""
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "instance"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        taken = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        cells |= taken


def test_what_matters_is_on_the_first_dashboard() -> None:
    """Guarantees, due lag, escalation depth, cancellation ratio, outbox age and lag age."""
    titles = {panel["title"] for panel in DASHBOARDS["rung.json"]["panels"]}
    assert {
        "Guarantees",
        "Due lag of steps",
        "Escalation depth",
        "Cancellation ratio",
        "Outbox: oldest unpublished row",
        "Age of what waits to be read",
    } <= titles


def test_grafana_finds_the_data_source_and_the_dashboards() -> None:
    """The provisioning files name a Prometheus and the folder that the compose file mounts."""
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text("utf-8"))
    providers = yaml.safe_load((GRAFANA / "provisioning/dashboards/rung.yaml").read_text("utf-8"))
    assert [(s["type"], s["url"]) for s in sources["datasources"]] == [("prometheus", "http://prometheus:9090")]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    mounts = [volume.split(":")[1] for volume in compose["services"]["grafana"]["volumes"]]
    assert {p["options"]["path"] for p in providers["providers"]} <= set(mounts)
