"""Read a scenario: who there is, what happens when, and what the providers answer.

    start = 2026-05-01T12:00:00Z
    until = "20s"                       # default: until every ladder has ended

    [recipients."ada@example.test"]     # profiles at the start, as in `rung.put_recipient`
    addresses = { email = "ada@example.test" }

    [[notify]]                          # `at` is a length of time after the start, or a date and time; default "0s"
    recipient = "ada@example.test"
    kind = "welcome"
    dedup_key = "welcome-1"             # default: one of its own
    id = "ntf_001"                      # how the log calls it; default: ntf_ and the number of its acceptance
    data = { name = "Ada" }
    expires_at = "10m"

    [[resolve]]                         # recipient, dedup_key, resolution
    [[put_recipient]]                   # recipient, profile
    [[erase_recipient]]                 # recipient

    [[provider]]                        # answers to successive calls; the last one is repeated; default "sent"
    recipient = "ada@example.test"      # default: everyone who has none of their own
    channel = "email"
    answers = ["503", "429", "rejected: mailbox does not exist", { answer = "unknown", policy = "hold" }]

Things of one moment happen in this order: what is due, profiles, notifications, resolutions, erasures; and within each
in the order of the file.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from processor.domain.durations import parse_duration
from processor.domain.toml_table import Table
from processor.lab.answers import EVERYONE, SENT, Answer, parse_answer, read_answer
from schemas.ids import notification_id
from schemas.profile import Profile
from schemas.records import EraseRecipient, Notify, PutRecipient, Resolve

Request = Notify | Resolve | PutRecipient | EraseRecipient
_SECTIONS = ("start", "until", "recipients", "notify", "resolve", "put_recipient", "erase_recipient", "provider")


class ScenarioError(ValueError):
    """Everything that is wrong with one scenario; `problems` holds one line for each fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Happening:
    """One request at its moment (milliseconds since the epoch)."""

    at: int
    request: Request
    label: str | None = None
    """Of a notification: how the log calls it."""
    silent: bool = False
    """A profile at the start, which the log need not tell."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a simulation needs besides the ladders."""

    start: int
    until: int | None
    happenings: tuple[Happening, ...]
    """In the order in which they happen."""
    scripts: dict[tuple[str, str], tuple[Answer, ...]] = field(default_factory=dict)
    """By recipient and channel."""


def parse_scenario(text: str, source: str) -> Scenario:
    """The scenario of a TOML text. `source` is the name that error messages begin with.

    Raises:
        ScenarioError: it is not as described above; all faults are listed.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScenarioError([f"{source}: this is no TOML: {error}"]) from error
    problems: list[str] = []
    scenario = _Reader(Table(document, f"{source}: ", problems)).read()
    if problems:
        raise ScenarioError(problems)
    return scenario


class _Reader:
    def __init__(self, root: Table) -> None:
        self._root = root
        self._start = 0

    def read(self) -> Scenario:
        root = self._root
        root.refuse_unknown(_SECTIONS)
        if "start" not in root.values:
            root.problem("start", "is missing: write a date and time, such as 2026-05-01T12:00:00Z")
        self._start = self._moment(root, "start")
        until = self._moment(root, "until") if "until" in root.values else None
        people = root.table("recipients")
        happenings = [
            Happening(self._start, PutRecipient(recipient=name, profile=_profile(people, name)), silent=True)
            for name in people.values
        ]
        happenings += [self._put(table) for table in root.tables("put_recipient")]
        happenings += [self._notify(table, index) for index, table in enumerate(root.tables("notify"))]
        happenings += [self._resolve(table) for table in root.tables("resolve")]
        happenings += [self._erase(table) for table in root.tables("erase_recipient")]
        scripts = dict(_script(table) for table in root.tables("provider"))
        return Scenario(self._start, until, tuple(sorted(happenings, key=lambda h: h.at)), scripts)

    def _moment(self, table: Table, name: str) -> int:
        """A date and time with its offset, or (but for the start) a length of time after the start; in milliseconds."""
        value = table.values.get(name, "0s")
        if isinstance(value, datetime) and value.tzinfo is not None:
            return round(value.astimezone(UTC).timestamp() * 1000)
        if isinstance(value, str) and name != "start":
            try:
                return self._start + parse_duration(value)
            except ValueError as error:
                table.problem(name, str(error))
        elif name in table.values:
            length = "" if name == "start" else ', or a length of time after the start, such as "10m"'
            table.problem(name, f"must be a date and time with its offset, such as 2026-05-01T12:00:00Z{length}")
        return self._start

    def _put(self, table: Table) -> Happening:
        table.refuse_unknown(("at", "recipient", "profile"))
        recipient = _recipient(table)
        return Happening(
            self._moment(table, "at"), PutRecipient(recipient=recipient, profile=_profile(table, "profile"))
        )

    def _notify(self, table: Table, index: int) -> Happening:
        table.refuse_unknown(("at", "recipient", "kind", "dedup_key", "id", "data", "expires_at"))
        recipient = _recipient(table)
        dedup_key = table.text("dedup_key", f"notify-{index + 1}")
        request = Notify(
            notification_id=notification_id(recipient, dedup_key),
            recipient=recipient,
            kind=table.text("kind", None),
            dedup_key=dedup_key,
            data=_plain(table.table("data").values),
            expires_at=self._moment(table, "expires_at") if "expires_at" in table.values else None,
        )
        return Happening(self._moment(table, "at"), request, table.text("id", "") or None)

    def _resolve(self, table: Table) -> Happening:
        table.refuse_unknown(("at", "recipient", "dedup_key", "resolution"))
        request = Resolve(
            recipient=_recipient(table),
            dedup_key=table.text("dedup_key", None),
            resolution=table.text("resolution", "resolved"),
        )
        return Happening(self._moment(table, "at"), request)

    def _erase(self, table: Table) -> Happening:
        table.refuse_unknown(("at", "recipient"))
        return Happening(self._moment(table, "at"), EraseRecipient(recipient=_recipient(table)))


def _recipient(table: Table) -> str:
    recipient = table.text("recipient", None)
    if not recipient and "recipient" not in table.faulty:
        table.problem("recipient", "must not be empty")
    return recipient


def _profile(parent: Table, name: str) -> Profile:
    table = parent.table(name)
    table.refuse_unknown([item.encode_name for item in msgspec.structs.fields(Profile)])
    table.table("quiet_hours").refuse_unknown(("from", "until"))
    try:
        return msgspec.convert(table.values, Profile)
    except msgspec.ValidationError as error:
        parent.problem(name, f"this is no profile: {error}")
        return Profile()


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """TOML has dates and JSON has none: they become texts."""
    plain: dict[str, Any] = msgspec.to_builtins(values)
    return plain


def _script(table: Table) -> tuple[tuple[str, str], tuple[Answer, ...]]:
    table.refuse_unknown(("recipient", "channel", "answers"))
    recipient, channel = table.text("recipient", EVERYONE), table.text("channel", None)
    written: list[Any] | Literal[""] = table.values.get("answers", "")
    if not isinstance(written, list) or not written:
        table.problem("answers", 'must be an array of answers, such as ["503", "sent"]')
        return (recipient, channel), (SENT,)
    return (recipient, channel), tuple(_answer(table, index, item) for index, item in enumerate(written))


def _answer(table: Table, index: int, item: object) -> Answer:
    if isinstance(item, dict):
        return read_answer(table.inner(f"answers[{index}]", item))
    try:
        return parse_answer(str(item))
    except ValueError as error:
        table.problem(f"answers[{index}]", str(error))
        return SENT
