"""The README's tables of topics, settings, metrics and alerts, made from the code so that they are true.

`python -m deploy.docs` rewrites them between their markers; `--check` fails if that would change anything.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from pydantic_core import PydanticUndefined

from deploy.settings import PREFIX, Settings
from schemas.topics import CATALOGUE, DAY_MS, DELAYS, HOUR_MS, Topic

README = Path(__file__).parent.parent / "README.md"


def topics_table() -> str:
    """The catalogue of topics; the delay topics are one row."""
    shown = [t for t in CATALOGUE if t not in DELAYS[1:]]
    rows = [
        (f"`{'delay.<tier>' if t in DELAYS else t.name}`", t.cleanup, _retention(t), t.written_by, t.read_by)
        for t in shown
    ]
    return _table(("topic", "clean-up", "retention", "written by", "read by"), rows)


def _retention(topic: Topic) -> str:
    if topic in DELAYS:
        return "tier + 7 d"
    if topic.retention_ms is None:
        return "for ever"
    days = topic.retention_ms / DAY_MS
    return f"{days:.0f} d" if days >= 1 else f"{topic.retention_ms / HOUR_MS:.0f} h"


def settings_table() -> str:
    """Every environment variable."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = field.default
        if default is PydanticUndefined:
            shown = {"kafka_config": "`{}`", "instance_id": "the host's name"}[name]
        elif name == "config_dir":
            shown = "the one that comes with the package"
        else:
            text = getattr(default, "get_secret_value", lambda d=default: d)()
            shown = "" if text in (None, "") else f"`{text}`"
        rows.append((f"`{PREFIX}{name.upper()}`", shown, field.description or ""))
    return _table(("variable", "default", "meaning"), rows)


def registries() -> dict[str, CollectorRegistry]:
    """A registry for each service, with its metrics."""
    from processor.delivery.metrics import DeliveryMetrics
    from processor.engine.metrics import ProcessorMetrics
    from relay.api.metrics import ApiMetrics
    from relay.audit.metrics import AuditMetrics
    from relay.delays.metrics import DelaysMetrics
    from relay.journal.metrics import JournalMetrics
    from relay.outbox.metrics import OutboxMetrics

    services = ("outbox", "delays", "processor", "deliver", "journal", "api", "audit")
    found = {name: CollectorRegistry() for name in services}
    OutboxMetrics(found["outbox"])
    DelaysMetrics(found["delays"])
    ProcessorMetrics(found["processor"])
    DeliveryMetrics(found["deliver"], [("mail", "email")])
    JournalMetrics(found["journal"])
    ApiMetrics(found["api"])
    AuditMetrics(found["audit"])
    return found


def metrics_table() -> str:
    """Every metric of ours; each service also has the process's own."""
    rows: dict[str, tuple[str, str, str, str, str]] = {}
    for service, registry in registries().items():
        for family in registry.collect():
            labels = _labels(registry, family.name)
            name = family.name + ("_total" if family.type == "counter" else "")
            services = service if name not in rows else f"{rows[name][1]}, {service}"
            rows[name] = (
                f"`{name}`",
                services,
                family.type,
                ", ".join(f"`{label}`" for label in sorted(labels)),
                family.documentation.rstrip("."),
            )
    return _table(("metric", "service", "type", "labels", "meaning"), [rows[name] for name in sorted(rows)])


def _labels(registry: CollectorRegistry, family: str) -> tuple[str, ...]:
    # A labelled metric without values has no samples to read its labels from, and the library has no other way.
    collector = registry._names_to_collectors.get(family)
    return getattr(collector, "_labelnames", ())


def alerts_table() -> str:
    """Every alert rule; the runbook has a section for each."""
    groups = yaml.safe_load((Path(__file__).parent / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))[
        "groups"
    ]
    rows = [
        (f"[{rule['alert']}](deploy/runbook.md#{rule['alert'].lower()})", rule["labels"]["severity"], _summary(rule))
        for group in groups
        for rule in group["rules"]
    ]
    return _table(("alert", "severity", "says"), rows)


def _summary(rule: dict[str, Any]) -> str:
    return str(rule["annotations"]["summary"]).rstrip(".")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


TABLES = {"topics": topics_table, "settings": settings_table, "metrics": metrics_table, "alerts": alerts_table}


def rewritten(text: str) -> str:
    """A page with every table made anew.

    Raises:
        ValueError: a marker is missing.
    """
    for name, make in TABLES.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not marked.search(text):
            raise ValueError(f"the page has no pair of markers <!-- {name} --> and <!-- /{name} -->")
        table = make()
        text = marked.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)  # type: ignore[misc]
    return text


def main() -> None:
    """Rewrite the README's tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the tables are not true")
    text = README.read_text(encoding="utf-8")
    new = rewritten(text)
    if parser.parse_args().check:
        if new != text:
            sys.exit("the README's tables are not what the code says: run `python -m deploy.docs`")
        return
    README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
