"""How a sink answers: rules in a JSON file, read again whenever it changes.

    {"rules": [
      {"match": {"recipient": "ada", "step_no": 1}, "answers": [{"status": 429, "retry_after": "2"}, {"status": 200}]},
      {"match": {"path": "/push"}, "per": "rule", "answers": [{"hang_ms": 5000}], "repeat": true}
    ]}

The first rule of which all fields match counts. Its answers are used up one per call: by each attempt key for itself,
or (`per = "rule"`) by all calls together. After the last one every call is accepted, or (`repeat`) gets the last again.
A changed file starts afresh.

Fields of an answer: `status` (HTTP 200, or the SMTP code; 250), `delay_ms` before the answer, `hang_ms` (the call is
accepted and its answer comes only after that long), `retry_after` (text of the header), `headers`, `body` (JSON),
`text` (of an SMTP answer), `stage` (`rcpt` or `data`: where SMTP refuses; default rcpt), `drop` (close the connection
instead of an answer; with `accept` the message was taken before).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Script:
    """The rules and how many of their answers are used up."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._changed_at = -1
        self._rules: list[dict[str, Any]] = []
        self._used: Counter[tuple[str, str]] = Counter()

    def answer(self, call: Mapping[str, Any], key: str) -> dict[str, Any]:
        """The answer to this call, which uses it up; empty means: accept."""
        found = self._find(call)
        if found is None:
            return {}
        name, rule = found
        answers: list[dict[str, Any]] = rule.get("answers", [])
        place = (name, "" if rule.get("per") == "rule" else key)
        used = self._used[place]
        self._used[place] += 1
        if used < len(answers):
            return answers[used]
        return answers[-1] if rule.get("repeat") and answers else {}

    def _find(self, call: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
        self._load()
        for rule in self._rules:
            match: dict[str, Any] = rule.get("match", {})
            if all(call.get(field) == value for field, value in match.items()):
                return json.dumps(rule, sort_keys=True), rule
        return None

    def _load(self) -> None:
        if self._path is None or not self._path.exists():
            return
        changed_at = self._path.stat().st_mtime_ns
        if changed_at != self._changed_at:
            self._rules = json.loads(self._path.read_text(encoding="utf-8")).get("rules", [])
            self._changed_at = changed_at
            self._used.clear()
