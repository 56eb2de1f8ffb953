"""When a started system works: every service answers, every consumer group is settled, every bucket has a relay."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from schemas.topics import Naming

GROUPS = ("rung-processor", "rung-deliver", "rung-delays", "rung-journal")
BUCKETS = 64
TIMEOUT_SECONDS = 5.0


class Readiness:
    """Asks a system's parts until each has said once that it is ready."""

    def __init__(self, kafka: Mapping[str, str], naming: Naming, metrics: Mapping[str, str], api: str) -> None:
        """`metrics` are the addresses of the services' metrics by name, `api` is the HTTP API's."""
        self._admin = AdminClient(dict(kafka))
        self._groups = {naming.prefix + group for group in GROUPS}
        self._urls = {**metrics, "api": f"{api}/readyz"}
        self._relays = [url for name, url in metrics.items() if name.startswith("outbox")]

    def missing(self) -> list[str]:
        """What is not ready yet, by name; empty when everything is."""
        self._urls = {name: url for name, url in self._urls.items() if _fetch(url) is None}
        if self._urls:
            return sorted(self._urls)
        self._groups -= {group for group in self._groups if self._is_settled(group)}
        waiting = [f"the group {group}" for group in sorted(self._groups)]
        if sum(_leased(url) for url in self._relays) < BUCKETS:
            waiting.append("the outbox's leases")
        return waiting

    def _is_settled(self, group: str) -> bool:
        try:
            future = self._admin.describe_consumer_groups([group], request_timeout=TIMEOUT_SECONDS)[group]
            described = future.result(TIMEOUT_SECONDS)
        except KafkaException:
            return False
        return described.state == ConsumerGroupState.STABLE and all(m.assignment for m in described.members)


def _fetch(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - an address of our own
            return str(response.read().decode()) if response.status == 200 else None
    except OSError:
        return None


def _leased(url: str) -> float:
    families = text_string_to_metric_families(_fetch(url) or "")
    return sum(s.value for family in families if family.name == "rung_outbox_leased_buckets" for s in family.samples)
