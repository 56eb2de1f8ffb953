"""Play a scenario: requests at their moments, the domain on the memory engine, and the story that comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from processor.domain.decide import decide
from processor.domain.ladders import parse_ladders
from processor.domain.model import Decision, Event
from processor.engine.memory import MemoryEngine, Written
from processor.lab.answers import ScriptedProviders
from processor.lab.scenario import Happening, Scenario, ScenarioError, parse_scenario
from processor.lab.story import NotificationView, Story, words
from schemas.codec import decode
from schemas.dead_letters import PREFIX
from schemas.reasons import DeadReason, Reason
from schemas.records import DeliveryEvent, EraseRecipient, EventType, Notify, PutRecipient, Resolve
from schemas.state import Ladder, RecipientState
from schemas.topics import DEAD_LETTERS, DELIVERY_EVENTS

_CREATED = frozenset({Reason.ACCEPTED, Reason.RESOLVED_EARLY})


@dataclass(frozen=True, slots=True)
class LogLine:
    """One thing that happened, with its moment in milliseconds since the epoch and as the log writes it."""

    at: int
    time: str
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class FinalStep:
    """Where a step stood at the end."""

    channel: str
    state: str
    attempts: int


@dataclass(frozen=True, slots=True)
class FinalState:
    """Where a notification stood at the end."""

    label: str
    recipient: str
    dedup_key: str
    state: str
    attempts: int
    last_error: str
    steps: tuple[FinalStep, ...]


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a scenario came to."""

    requests: tuple[LogLine, ...]
    """What was asked for and what was said to it; the label is the word of the request."""
    log: tuple[LogLine, ...]
    states: tuple[FinalState, ...]
    """In the order of acceptance."""
    delivered: tuple[tuple[str, str], ...]
    """Channel and address of each message that a provider took, in order."""
    events: tuple[tuple[str, DeliveryEvent], ...]
    """Every delivery event with its type, as `delivery-events` would carry them."""
    recipients: dict[str, RecipientState]
    """What the store holds at the end."""


def simulate(
    ladders_text: str,
    scenario_text: str,
    *,
    jitter: bool = False,
    ladders_source: str = "ladders",
    scenario_source: str = "scenario",
) -> Simulation:
    """Play a scenario against ladders; the same texts give the same simulation.

    Without `jitter` each retry comes exactly at its backoff. The sources are the names that error messages begin with.

    Raises:
        LadderError: the ladders are not sound.
        ScenarioError: the scenario is not, or its providers answer on a channel that no ladder uses.
    """
    ladders = parse_ladders(ladders_text, ladders_source)
    scenario = parse_scenario(scenario_text, scenario_source)
    _check_channels(scenario, ladders, scenario_source)
    if not jitter:
        ladders = {k: replace(ladder, retry=replace(ladder.retry, jitter=0.0)) for k, ladder in ladders.items()}
    return play(scenario, ladders)


def play(scenario: Scenario, ladders: Mapping[str, Ladder]) -> Simulation:
    """Play a scenario that is already read, with the ladders' own jitter."""
    return _Play(scenario, ladders).run()


def _check_channels(scenario: Scenario, ladders: Mapping[str, Ladder], source: str) -> None:
    used = sorted({step.channel for ladder in ladders.values() for step in ladder.steps})
    problems = [
        f'{source}: provider: no ladder uses channel "{channel}"; they use {", ".join(used)}'
        for _, channel in scenario.scripts
        if channel not in used
    ]
    if problems:
        raise ScenarioError(problems)


class _Play:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, ladders: Mapping[str, Ladder]) -> None:
        self._scenario = scenario
        self._providers = ScriptedProviders(scenario.scripts)
        self._reasons: list[Reason] = []
        self._engine = MemoryEngine(self._decide, ladders, start=scenario.start, provider=self._providers, quiet=True)
        self._story = Story(scenario.start)
        self._events: list[tuple[str, DeliveryEvent]] = []
        self._requests: list[LogLine] = []
        self._told = 0

    def run(self) -> Simulation:
        for happening in self._scenario.happenings:
            if self._scenario.until is not None and happening.at > self._scenario.until:
                break
            self._engine.advance_to(happening.at)
            self._tell()
            self._happen(happening)
        self._finish()
        return self._simulation()

    def _decide(self, state: RecipientState | None, event: Event, now: int) -> Decision:
        decision = decide(state, event, now)
        self._reasons.append(decision.reason)
        return decision

    def _happen(self, happening: Happening) -> None:
        request = happening.request
        if isinstance(request, Notify) and happening.label:
            self._story.labels.setdefault((request.recipient, request.dedup_key), happening.label)
        before = len(self._reasons)
        written = self._engine.send(request)
        # Of what the engine decides at this moment the request comes first, unless it never reaches the domain.
        reason = self._reasons[before] if len(self._reasons) > before else None
        self._tell()
        said = _refusal(written) or self._accepted(request, reason)
        if not happening.silent or reason is not Reason.PROFILE_UPDATED:
            word, what = _asked(request)
            at = self._engine.now
            self._requests.append(LogLine(at, self._story.clock(at), word, f"{what} -> {said}"))

    def _accepted(self, request: object, reason: Reason | None) -> str:
        if not isinstance(request, Notify):
            return words(reason or "")
        label = self._story.label(request.recipient, request.dedup_key)
        return f"id={label} created={'true' if reason in _CREATED else 'false'}"

    def _finish(self) -> None:
        until = self._scenario.until
        if until is not None:
            self._engine.advance_to(until)
        else:
            # Each ladder ends at its expiry at the latest; then the answers that are still to come.
            while (self._story.open or self._engine.now < self._providers.answered_until) and self._engine.advance():
                self._tell()
        self._tell()

    def _tell(self) -> None:
        new = self._engine.outputs[self._told :]
        self._told += len(new)
        for output in (written.record for written in new):
            if output.topic is DELIVERY_EVENTS:
                decoded = decode(output.topic, output.key, output.value, list(output.headers))
                assert isinstance(decoded.record, DeliveryEvent)  # noqa: S101 - the topic carries nothing else
                self._events.append((decoded.envelope.type, decoded.record))
                self._story.tell(EventType(decoded.envelope.type), decoded.record)

    def _simulation(self) -> Simulation:
        clock = self._story.clock
        return Simulation(
            requests=tuple(self._requests),
            log=tuple(LogLine(line.at, clock(line.at), line.label, line.text) for line in self._story.lines),
            states=tuple(_final(key, view) for (_, key), view in self._story.views.items()),
            delivered=tuple(self._providers.accepted),
            events=tuple(self._events),
            recipients={
                name: state
                for name in sorted({happening.request.recipient for happening in self._scenario.happenings})
                if (state := self._engine.state(name)) is not None
            },
        )


def _asked(request: Notify | Resolve | PutRecipient | EraseRecipient) -> tuple[str, str]:
    match request:
        case Notify():
            return "enqueue", f'{request.recipient:<18} key="{request.dedup_key}"'
        case Resolve():
            return "resolve", f'{request.recipient:<18} key="{request.dedup_key}" ({request.resolution})'
        case PutRecipient():
            return "profile", request.recipient
        case EraseRecipient():
            return "erase", request.recipient


def _refusal(written: list[Written]) -> str | None:
    """What the dead letter of a request says; None if it was not refused."""
    for output in (item.record for item in written if item.record.topic is DEAD_LETTERS):
        reason, detail = (dict(output.headers)[PREFIX + name].decode() for name in ("reason", "detail"))
        # An accepted notification may come to nothing at the same moment; its own lines tell that.
        if reason != DeadReason.UNDELIVERABLE:
            # Nothing was set aside here that could be redriven.
            return f"refused ({words(reason)}): {detail.removesuffix(' and redrive')}"
    return None


def _final(dedup_key: str, view: NotificationView) -> FinalState:
    steps = tuple(FinalStep(step.channel, step.state, step.attempts) for step in view.steps)
    return FinalState(view.label, view.recipient, dedup_key, view.state, view.attempts, view.last_error, steps)
