"""Dead letters that go back on real Kafka: once each, counted, no faster than asked, and never against the person."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.redriving import as_today
from deploy.topics import ensure_topics
from relay.redrive.config import RedriveConfig
from relay.redrive.judgement import Refusal
from relay.redrive.service import RedriveError, Summary, run
from schemas import records as r
from schemas.dead_letters import REDRIVES_HEADER, DeadLetter
from schemas.envelope import Envelope, to_headers
from schemas.partitioner import partition_of
from schemas.profile import Profile
from schemas.reasons import DeadReason
from schemas.topics import (
    DEAD_LETTERS,
    DELIVERIES,
    DELIVERY_EVENTS,
    NOTIFICATIONS,
    OUTCOMES,
    RESOLUTIONS,
    Naming,
    Topic,
)
from tests.support.bad_records import bad_records
from tests.support.engine import LADDERS, KafkaUnderTest, notify, raw
from tests.support.eventually import eventually
from tests.support.header_names import send_with_header_name
from tests.support.kafka import produce, read_all


def redrive(processor: KafkaUnderTest, **options: Any) -> Summary:
    """One run with the ladders of the tests."""
    options = {"dry_run": False, "understood": as_today(LADDERS), **options}
    kafka = {"bootstrap.servers": processor.bootstrap}
    return run(RedriveConfig(kafka, processor.naming, **options), threading.Event())


@pytest.fixture
def processor(kafka: str, topic_prefix: str, tmp_path: Path) -> Any:
    """A processor with the domain's decision."""
    started = KafkaUnderTest(kafka, topic_prefix, tmp_path, decision="decide")
    started.start()
    yield started
    started.close()


def outcome(key: str, kind: r.OutcomeKind, claim: int = 1) -> r.Outcome:
    """What became of the first step of Ada's notification."""
    identity = notify("ada", key).notification_id
    return r.Outcome(
        notification_id=identity,
        recipient="ada",
        dedup_key=key,
        step_no=0,
        channel="email",
        claim=claim,
        key=f"{identity}:0",
        outcome=kind,
        contact_alive=True,
        at=1,
    )


def die(processor: KafkaUnderTest, *keys: str) -> None:
    """Notifications whose only step the provider refuses."""
    processor.send(NOTIFICATIONS, [raw(notify("ada", key, text=key), f"n-{key}") for key in keys])
    processor.written(DELIVERIES, len(keys))
    processor.send(OUTCOMES, [raw(outcome(key, r.OutcomeKind.REJECTED), f"o-{key}") for key in keys])
    processor.written(DEAD_LETTERS, len(keys))


def test_dead_letters_go_back_once_and_nobody_who_acted_is_told(processor: KafkaUnderTest) -> None:
    """An undelivered one is claimed again under its key; one whose person acted is not; what is still bad stays; a
    second run finds nothing to do; and what comes back is counted until the limit."""
    ada = r.PutRecipient(recipient="ada", profile=Profile(addresses={"email": "ada@example.test"}))
    processor.send(NOTIFICATIONS, [raw(ada, "p")])
    die(processor, "k1", "acted")
    processor.send(RESOLUTIONS, [raw(r.Resolve(recipient="ada", dedup_key="acted", resolution="paid"), "r")])
    stranger = r.Notify(notification_id=notify("ada", "x").notification_id, recipient="ada", kind="none", dedup_key="x")
    headers = raw(ada, "bad")[2]
    processor.send(NOTIFICATIONS, [(b"ada", b"{", headers), raw(stranger, "s")])
    processor.written(DEAD_LETTERS, 4)

    counted = redrive(processor, dry_run=True)
    assert counted.back == {"undeliverable": 2}
    stays = {("not_json", Refusal.STILL_BAD, "not_json"): 1, ("unknown_kind", Refusal.STILL_BAD, "unknown_kind"): 1}
    assert counted.refused == stays
    assert len(processor.written_now(DEAD_LETTERS)) == 4, "a dry run writes nothing"

    assert redrive(processor).back == counted.back
    *_, again = processor.written(DELIVERIES, 3)
    assert again.value is not None
    claim = _delivery(again.value)
    assert (claim.dedup_key, claim.claim, claim.attempt, claim.data) == ("k1", 2, 1, {"text": "k1"})
    assert claim.key == f"{notify('ada', 'k1').notification_id}:0"
    second = redrive(processor)
    assert (second.back.total(), second.done_before, second.refused) == (0, 2, stays)

    for times in (2, 3):
        processor.send(OUTCOMES, [raw(outcome("k1", r.OutcomeKind.REJECTED, claim=times), f"o{times}")])
        (letter,) = [x for x in processor.written(DEAD_LETTERS, 3 + 2 * times) if _newest(x, times - 1)]
        assert letter.header("rung_dl_reason") == "undeliverable"
        assert redrive(processor).back == {"undeliverable": 1}
        processor.written(DELIVERIES, 2 + times)
    processor.send(OUTCOMES, [raw(outcome("k1", r.OutcomeKind.REJECTED, claim=4), "o4")])
    processor.written(DEAD_LETTERS, 11)
    last = redrive(processor)
    assert last.back.total() == 0
    assert last.refused["undeliverable", Refusal.LIMIT, "3 times"] == 1

    events = [e for e in processor.written_now(DELIVERY_EVENTS) if e.event.dedup_key == "acted"]
    told = [(e.header("ce_type"), e.event.reason) for e in events][-2:]
    assert told == [("rung.notification.too_late", "already_ended"), ("rung.notification.duplicate", "resolved")]
    assert len([w for w in processor.written_now(DELIVERIES) if b'"acted"' in (w.value or b"")]) == 1


def _delivery(value: bytes) -> r.Delivery:
    return msgspec.json.decode(value, type=r.Delivery)


def _newest(letter: Any, redrives: int) -> bool:
    return letter.header(REDRIVES_HEADER) == str(redrives)


def test_what_another_partitioner_put_elsewhere_goes_back_to_its_place(processor: KafkaUnderTest) -> None:
    """A producer with librdkafka's own default: what lies where its key does not belong is one dead letter and begins
    no second state; put back, each notification is accepted once and each resolution ends its ladder."""
    people = [f"p{number}" for number in range(16)]
    reachable = [r.PutRecipient(recipient=p, profile=Profile(addresses={"email": f"{p}@example.test"})) for p in people]
    processor.send(NOTIFICATIONS, [raw(put, f"put-{put.recipient}") for put in reachable])
    strays = _strays(processor, NOTIFICATIONS, [notify(p, "k") for p in people])
    assert 0 < len(strays) < len(people)
    processor.written(DELIVERIES, len(people) - len(strays))
    answers: list[r.Resolve] = [r.Resolve(recipient=p, dedup_key="k", resolution="paid") for p in people]
    assert _strays(processor, RESOLUTIONS, answers) == strays
    letters = processor.written(DEAD_LETTERS, 2 * len(strays))
    told = Counter((x.key, x.header("rung_dl_topic"), x.header("rung_dl_reason")) for x in letters)
    assert told == {(key, name, "wrong_partition"): 1 for key in strays for name in ("notifications", "resolutions")}
    assert redrive(processor).back == {"wrong_partition": 2 * len(strays)}
    for kind in ("accepted", "resolved"):
        eventually(lambda k=kind: _about(processor, k) == dict.fromkeys(people, 1), describe=f"{kind} once each")  # type: ignore[misc]
    assert len(processor.written_now(DEAD_LETTERS)) == 4 * len(strays), "the letters and their marks"


def _strays(processor: KafkaUnderTest, topic: Topic, records: Sequence[r.Notify | r.Resolve]) -> set[bytes]:
    """Write as such a producer does; the keys of what lies elsewhere than in its key's place."""
    now = round(time.time() * 1000)
    rows = []
    for record in records:
        key, value, _ = raw(record, "")
        envelope = Envelope(f"{topic.name}-{record.recipient}", record.TYPE, "/test", now)
        rows.append((key, value, dict(to_headers(envelope))))
    placed = produce(processor.bootstrap, processor.naming(topic), rows, partitioner="consistent_random")
    return {x.key for x in placed if x.key is not None and x.partition != partition_of(x.key, 2)}


def _about(processor: KafkaUnderTest, kind: str) -> dict[str, int]:
    """Whom the notification events of a type are about."""
    events = processor.written_now(DELIVERY_EVENTS)
    return Counter(e.event.recipient for e in events if e.header("ce_type") == f"rung.notification.{kind}")


class Topics:
    """The catalogue without services."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.naming = Naming(prefix)
        ensure_topics({"bootstrap.servers": bootstrap}, self.naming, partitions=2)

    def config(self, **options: Any) -> RedriveConfig:
        """Of a run that writes."""
        return RedriveConfig({"bootstrap.servers": self.bootstrap}, self.naming, **{"dry_run": False, **options})

    def set_aside(self, number: int, *, topic: Topic = RESOLUTIONS, key: str = "p", at: int | None = None) -> None:
        """Letters that decode today."""
        rows: list[tuple[str | bytes | None, bytes | None, Mapping[str, str | bytes]]] = []
        for index in range(number):
            record = r.Resolve(recipient=f"{key}{index}", dedup_key="k", resolution="paid")
            who, value, headers = raw(record, f"{key}{index}")
            marks = DeadLetter(DeadReason.NOT_JSON, "", topic.name, 0, index, "test", at or round(time.time() * 1000))
            rows.append((who, value, dict(marks.headers([(n, _b(v)) for n, v in headers.items()]))))
        produce(self.bootstrap, self.naming(DEAD_LETTERS), rows)

    def back(self) -> Counter[bytes | None]:
        """Whose records are back."""
        return Counter(record.key for record in read_all(self.bootstrap, self.naming(RESOLUTIONS)))


def _b(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


@pytest.fixture
def topics(kafka: str, topic_prefix: str) -> Topics:
    """Topics of the test's own."""
    return Topics(kafka, topic_prefix)


def test_filters_leave_the_rest_for_later(topics: Topics) -> None:
    """By reason, topic, recipient and time; what a filter leaves out goes back in a run without it."""
    topics.set_aside(3)
    topics.set_aside(1, key="old", at=1_000)
    never = threading.Event()
    for options, number in (
        ({"reasons": frozenset({"null_key"})}, 0),
        ({"topics": frozenset({"notifications"})}, 0),
        ({"recipient": "p1"}, 1),
        ({"since": round(time.time() * 1000) - 60_000, "topics": frozenset({"resolutions"})}, 2),
        ({}, 1),
    ):
        assert run(topics.config(**options), never).back.total() == number, options
    assert topics.back() == {b"p0": 1, b"p1": 1, b"p2": 1, b"old0": 1}


def test_what_is_no_letter_or_reads_no_better_stays_and_ends_nothing(topics: Topics) -> None:
    """Whatever lies in `dead-letters`, with our marks or without: counted by why it stays, and the next run finds
    the same and nothing more; what can go back behind it goes back, once."""
    good = r.Resolve(recipient="ada", dedup_key="k", resolution="paid")
    table = bad_records(good)
    marks = DeadLetter(DeadReason.BAD_FIELD, "", RESOLUTIONS.name, 0, 0, "test", round(time.time() * 1000))
    rows = [record for _, record in table.values()]
    rows += [(key, value, _marked(marks, headers)) for _, (key, value, headers) in table.values()]
    for name, text in (("at", b"soon"), ("at", b"\xff"), ("topic", b"\xff"), ("topic", b"elsewhere")):
        key, value, headers = raw(good, "odd")
        rows.append((key, value, {**_marked(marks, headers), f"rung_dl_{name}": text}))
    produce(topics.bootstrap, topics.naming(DEAD_LETTERS), rows)
    send_with_header_name(topics.bootstrap, topics.naming(DEAD_LETTERS), b"ada", b"{}", b"\xff")
    topics.set_aside(1)
    stays = Counter({("", Refusal.UNMARKED, ""): len(table) + 3, ("bad_field", Refusal.UNMARKED, ""): 2})
    stays.update(("bad_field", Refusal.STILL_BAD, reason) for reason, _ in table.values())
    first, second = (run(topics.config(rate=1000.0), threading.Event()) for _ in range(2))
    assert (first.refused, first.back) == (stays, {"not_json": 1})
    assert (second.refused, second.back.total(), second.done_before) == (stays, 0, 1)
    assert topics.back() == {b"p0": 1}


def _marked(marks: DeadLetter, headers: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {n: v or b"" for n, v in marks.headers([(n, _b(v)) for n, v in headers.items()])}


def test_the_rate_is_kept_and_a_stop_hands_over(topics: Topics) -> None:
    """Thirty at ten a second take two seconds at least; told to stop it ends, and the next run does the rest, once."""
    topics.set_aside(30)
    stop = threading.Event()
    began = time.monotonic()
    first = run(topics.config(rate=10.0), stop, lambda read, _: stop.set() if read >= 25 else None)
    assert time.monotonic() - began >= 1.0
    assert first.stopped
    assert 0 < first.back.total() < 30
    second = run(topics.config(rate=1000.0), threading.Event())
    assert second.back.total() + first.back.total() == 30
    assert set(topics.back().values()) == {1}
    assert len(topics.back()) == 30


def test_a_second_redrive_ends_the_first_and_nothing_is_written_twice(topics: Topics) -> None:
    """The newer run takes over before it looks; the older one cannot commit, and says why."""
    topics.set_aside(5)

    def overtaken(read: int, _: int) -> None:
        if read == 4:
            run(topics.config(), threading.Event())

    with pytest.raises(RedriveError, match="another redrive has begun"):
        run(topics.config(), threading.Event(), overtaken)
    assert topics.back() == {f"p{n}".encode(): 1 for n in range(5)}


def test_the_command_counts_puts_back_and_tells_the_shell(topics: Topics, tmp_path: Path) -> None:
    """A dry run by reason, then the run: 0 when all went back, 1 when some stay, 2 for what is no reason."""
    topics.set_aside(2)

    def rung(*arguments: str) -> subprocess.CompletedProcess[str]:
        clean = {name: text for name, text in os.environ.items() if not name.startswith("RUNG_")}
        return subprocess.run(
            [sys.executable, "-m", "deploy.cli", "redrive", *arguments],
            env={**clean, "RUNG_KAFKA": topics.bootstrap, "RUNG_TOPIC_PREFIX": topics.naming.prefix},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    dry = rung("--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "not_json" in dry.stdout
    assert "2 would go back" in dry.stdout
    done = rung("--rate", "100")
    assert done.returncode == 0, done.stderr
    assert "2 went back" in done.stdout
    marks = DeadLetter(DeadReason.BAD_FIELD, "", RESOLUTIONS.name, 0, 0, "test", 1)
    odd = {**_marked(marks, {}), "rung_dl_reason": b"[/x] [bold]"}
    produce(topics.bootstrap, topics.naming(DEAD_LETTERS), [("ada", b"whatever", odd)])
    stays = rung()
    assert (stays.returncode, "[/x] [bold]" in stays.stdout) == (1, True), stays.stderr
    wrong = rung("--reason", "bad_luck")
    assert (wrong.returncode, "bad_luck" in wrong.stderr) == (2, True)
    assert topics.back() == {b"p0": 1, b"p1": 1}
