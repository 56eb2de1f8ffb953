"""The report says what was found to people and to programs, and the metrics start at zero."""

from __future__ import annotations

import io
import json

from prometheus_client import CollectorRegistry
from rich.console import Console

from relay.audit.metrics import CHECKED, AuditMetrics
from relay.audit.report import KEPT, Report, render
from relay.audit.rules import Rule, Violation
from tests.support.recipient import NOON


def test_a_report_counts_all_and_keeps_some() -> None:
    """Every violation counts, details are bounded, and it is clean only without any."""
    report = Report(started_at=NOON)
    assert report.clean
    report.add(Violation(Rule.ORDER, f"n{n}", "x") for n in range(KEPT + 5))
    report.add([Violation(Rule.COUNTERS, "", "y")])
    assert not report.clean
    assert len(report.details) == KEPT + 1
    told = json.loads(report.json())
    assert told["clean"] is False
    assert told["violations"] == dict.fromkeys(Rule, 0) | {"order": KEPT + 5, "counters": 1}
    assert told["details"][0] == {"rule": "order", "notification_id": "n0", "detail": "x"}


def test_a_report_is_readable() -> None:
    """Every rule is in the table, then the details, how many more there are, and what was not compared."""
    report = Report(started_at=NOON, since=NOON, ended_at=NOON, notes=["nothing was compared"])
    report.add(Violation(Rule.ORDER, f"n{n}", "[red]odd") for n in range(12))
    out = io.StringIO()
    render(report, Console(file=out, width=200))
    text = out.getvalue()
    assert all(rule.value in text for rule in Rule)
    assert "order n0: [red]odd" in text
    assert "order: and 2 more" in text
    assert "note: nothing was compared" in text
    assert "from 2026-05-01 12:00:00 UTC" in text


def test_every_rule_is_there_from_the_start() -> None:
    """A counter that appears with its first violation would show no increase."""
    registry = CollectorRegistry()
    AuditMetrics(registry)
    for rule in Rule:
        assert registry.get_sample_value("rung_audit_violations_total", {"rule": rule.value}) == 0
    for what in CHECKED:
        assert registry.get_sample_value("rung_audit_checked_total", {"what": what}) == 0
