"""The delivery worker on real Kafka and a real provider, in a thread of the test."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate, parsedate_to_datetime

import pytest
from confluent_kafka import Consumer, TopicPartition
from msgspec.structs import replace

from processor.delivery import worker
from processor.delivery.channels.http_answers import PAUSE_MS
from processor.delivery.outcomes import plain
from processor.delivery.source import GROUP
from schemas.partitioner import partition_of
from schemas.profile import Profile
from schemas.records import OutcomeKind, RecipientProfile, Resolve
from schemas.topics import DEAD_LETTERS, DELIVERIES, OUTCOMES, RECIPIENTS, RESOLUTIONS
from tests.support.bad_records import bad_records
from tests.support.delivery import Stage, delivery, now_ms, value, wait_until_reading
from tests.support.eventually import eventually
from tests.support.header_names import send_with_header_name
from tests.support.kafka import produce, read_all
from tests.support.sinks import Sink

MakeStage = Callable[..., Stage]


def test_a_claim_is_called_once_and_its_outcome_says_sent(make_stage: MakeStage, sink: Sink) -> None:
    """From the claim to the provider and back: key, body, outcome, metrics."""
    stage = make_stage()
    claim = delivery("ada", data={"text": "שלום 🎉"})
    with stage.worker() as registry:
        stage.deliver(claim)
        (outcome,) = stage.outcomes(1)
        assert value(registry, "rung_delivery_attempts_total", provider="push", channel="push", outcome="sent") == 1
    assert (outcome.outcome, outcome.key, outcome.claim, outcome.provider) == ("sent", claim.key, 1, "push")
    assert outcome.provider_ref == "msg-1"
    (call,) = sink.calls()
    assert call["key"] == claim.key
    assert "שלום 🎉" in call["body"]


def test_a_hundred_claims_on_three_slots_never_exceed_three_in_flight(make_stage: MakeStage, sink: Sink) -> None:
    """The bound holds as the provider sees it, and all are sent."""
    stage = make_stage()
    sink.answer({"match": {}, "per": "rule", "answers": [{"delay_ms": 20}], "repeat": True})
    claims = [delivery(f"person-{n}") for n in range(100)]
    with stage.worker(concurrency=3):
        stage.deliver(*claims)
        outcomes = stage.outcomes(100, timeout=40)
    assert {o.key for o in outcomes if o.outcome is OutcomeKind.SENT} == {c.key for c in claims}
    assert max(call["in_flight"] for call in sink.calls()) == 3


@pytest.mark.parametrize("address", ["http://[]@", "http://a[b]@", "\0", "http://" + "a" * 5_000])
def test_an_address_that_is_none_is_refused_and_the_rest_goes_on(
    make_stage: MakeStage, sink: Sink, address: str
) -> None:
    """A person's address is whatever somebody wrote."""
    stage = make_stage(url=None, allow_private="true")
    claims = [delivery("ada", address=address), delivery("bob", address=f"{sink.url}/push")]
    with stage.worker():
        stage.deliver(*claims)
        outcomes = {o.key: (o.outcome, o.reason) for o in stage.outcomes(2)}
    assert outcomes == {claims[0].key: ("rejected", "bad_address"), claims[1].key: ("sent", "")}


def test_a_lane_is_called_in_order_and_one_at_a_time(make_stage: MakeStage, sink: Sink) -> None:
    """Claims of one recipient and channel reach the provider in their order and never side by side."""
    stage = make_stage()
    sink.answer({"match": {"recipient": "ada"}, "per": "rule", "answers": [{"delay_ms": 30}], "repeat": True})
    claims = [delivery("ada") for _ in range(15)]
    with stage.worker():
        stage.deliver(*claims)
        stage.outcomes(15)
    calls = sink.calls()
    assert [call["key"] for call in calls] == [claim.key for claim in claims]
    assert all(later["at"] - earlier["at"] >= 30 for earlier, later in itertools.pairwise(calls))


def test_a_resolution_stops_a_claim_that_waits(make_stage: MakeStage, sink: Sink) -> None:
    """The person acts while the claim waits for its lane: no call, and the outcome says why."""
    stage = make_stage(timeout='"5s"')
    first, second = delivery("ada"), delivery("ada")
    sink.answer({"match": {"notification_id": str(first.notification_id)}, "answers": [{"delay_ms": 2500}]})
    with stage.worker() as registry:
        stage.deliver(first, second)
        eventually(lambda: len(sink.calls()) == 1)
        stage.resolve(second)
        stage.resolve(first)
        outcomes = {o.key: o for o in stage.outcomes(2)}
        assert value(registry, "rung_delivery_suppressed_total", reason="resolved") == 1
        assert value(registry, "rung_delivery_resolved_in_flight_total") == 1
    assert (outcomes[second.key].outcome, outcomes[second.key].reason) == ("suppressed", "resolved")
    assert outcomes[first.key].outcome == "sent"
    assert [call["key"] for call in sink.calls()] == [first.key]


def test_resolutions_from_before_the_start_count(make_stage: MakeStage, sink: Sink) -> None:
    """A worker reads back what happened before it was there, before it makes a call."""
    stage = make_stage()
    resolved, withdrawn, erased, fine = (delivery(name) for name in ("ada", "bob", "cyd", "dan"))
    stage.deliver(resolved, withdrawn, erased, fine)
    stage.resolve(resolved)
    stage.profile("bob", Profile(consent={"news": False}))
    stage.erase("cyd")
    with stage.worker():
        outcomes = {o.recipient: (o.outcome, o.reason) for o in stage.outcomes(4)}
    assert outcomes == {
        "ada": ("suppressed", "resolved"),
        "bob": ("suppressed", "consent_withdrawn"),
        "cyd": ("suppressed", "erased"),
        "dan": ("sent", ""),
    }
    assert [call["recipient"] for call in sink.calls()] == ["dan"]


def test_consent_that_is_given_again_counts(make_stage: MakeStage, sink: Sink) -> None:
    """The last profile decides, and consent for another kind says nothing."""
    stage = make_stage()
    stage.profile("ada", Profile(consent={"news": False}))
    stage.profile("ada", Profile(consent={"news": True, "adverts": False}))
    with stage.worker():
        stage.deliver(delivery("ada"))
        assert [o.outcome for o in stage.outcomes(1)] == ["sent"]


def test_past_its_deadline_or_expiry_a_claim_is_not_called(make_stage: MakeStage, sink: Sink) -> None:
    """Too late for the claim: handed back; too late for the notification: suppressed."""
    stage = make_stage()
    late = delivery("ada", claim_deadline=now_ms() - 1)
    expired = delivery("bob", expires_at=now_ms() - 1)
    with stage.worker() as registry:
        stage.deliver(late, expired)
        outcomes = {o.recipient: (o.outcome, o.reason) for o in stage.outcomes(2)}
        assert value(registry, "rung_delivery_unclaimed_total", reason="deadline") == 1
    assert outcomes == {"ada": ("unclaimed", "deadline"), "bob": ("suppressed", "expired")}
    assert sink.calls() == []


@pytest.mark.parametrize("form", ["1", "1.2", "date", None])
def test_no_call_inside_the_window_that_a_provider_asks_for(
    make_stage: MakeStage, sink: Sink, form: str | None
) -> None:
    """429 closes the provider for everyone for as long as it says, in whatever form, or else for a second; what waits
    goes out afterwards."""
    stage = make_stage(concurrency=1)
    # A date has whole seconds, and the worker has yet to start.
    text = formatdate(time.time() + 15, usegmt=True) if form == "date" else form
    sink.answer({"match": {}, "per": "rule", "answers": [{"status": 429, "retry_after": text}]})
    claims = [delivery(f"person-{n}") for n in range(12)]
    with stage.worker() as registry:
        stage.deliver(*claims)
        outcomes = stage.outcomes(12)
        assert value(registry, "rung_delivery_provider_paused", provider="push") in (0, 1)
    first, *others = sink.calls()
    assert first["status"] == 429
    (failed,) = [o for o in outcomes if o.outcome is OutcomeKind.FAILED]
    assert failed.reason == "http_429"
    if form == "date":
        until = parsedate_to_datetime(str(text)).timestamp() * 1000
        assert abs(failed.at + (failed.retry_after_ms or 0) - until) < 1_000
    else:
        assert failed.retry_after_ms == (None if form is None else round(float(form) * 1000))
        until = first["at"] + (PAUSE_MS if form is None else round(float(form) * 1000))
    assert min(call["at"] for call in others) >= until
    assert len(others) == 11


def test_each_worker_keeps_the_window_that_it_was_told(make_stage: MakeStage, sink: Sink) -> None:
    """Two workers on one provider: each that is told to wait makes no further call inside the window, so there are no
    more refusals than workers, and all the rest goes out after it."""
    stage = make_stage(concurrency=1)
    claims = [delivery(f"person-{n}") for n in range(24)]
    with stage.worker(instance_id="one") as one, stage.worker(instance_id="two") as two:
        eventually(
            lambda: [value(registry, "rung_delivery_partitions") for registry in (one, two)] == [2, 2],
            timeout=40,
            describe="the partitions to be shared",
        )
        refusal = {"status": 429, "retry_after": "3"}
        sink.answer({"match": {}, "per": "rule", "answers": [refusal, refusal]})
        stage.deliver(*claims)
        outcomes = stage.outcomes(24, timeout=40)
    first, second, *others = sink.calls()
    assert [first["status"], second["status"]] == [429, 429]
    halves = [{o.recipient for o in outcomes if partition_of(o.recipient.encode(), 4) in share} for share in _SHARES]
    told = [next(half for half in halves if call["recipient"] in half) for call in (first, second)]
    assert told[0] is not told[1], "one refusal for each worker"
    for refused, half in zip((first, second), told, strict=True):
        later = [call for call in others if call["recipient"] in half]
        assert later
        assert min(call["at"] for call in later) >= refused["at"] + 3_000
    assert len(others) == 22


_SHARES = ((0, 1), (2, 3))
"""Range assignment of four partitions to two workers."""


def test_what_waits_for_a_closed_provider_past_its_deadline_is_handed_back(make_stage: MakeStage, sink: Sink) -> None:
    """The window is longer than the claim may live."""
    stage = make_stage(concurrency=1)
    sink.answer({"match": {}, "per": "rule", "answers": [{"status": 429, "retry_after": "60"}]})
    first, second = delivery("ada"), delivery("bob", claim_deadline=now_ms() + 6_000)
    with stage.worker():
        stage.deliver(first)
        stage.outcomes(1)
        stage.deliver(second)
        outcomes = {o.recipient: (o.outcome, o.reason) for o in stage.outcomes(2)}
    assert outcomes["bob"] == ("unclaimed", "deadline")
    assert len(sink.calls()) == 1


def test_a_claim_that_is_issued_again_is_not_called_again(make_stage: MakeStage, sink: Sink) -> None:
    """The same key under a new claim: the outcome is repeated for it, and there is one call."""
    stage = make_stage()
    claim = delivery("ada")
    again = delivery("ada", notification_id=claim.notification_id, claim=2, dedup_key=claim.dedup_key)
    with stage.worker() as registry:
        stage.deliver(claim)
        stage.outcomes(1)
        stage.deliver(again)
        outcomes = stage.outcomes(2)
        assert value(registry, "rung_delivery_repeated_total") == 1
    assert [(o.claim, o.outcome, o.provider_ref) for o in outcomes] == [(1, "sent", "msg-1"), (2, "sent", "msg-1")]
    assert len(sink.calls()) == 1


def test_claims_that_another_worker_answered_are_not_called(make_stage: MakeStage, sink: Sink) -> None:
    """It died before it committed the offset: the outcomes are read back, and the offset moves on."""
    stage = make_stage(partitions=1)
    answered, failed, issued_again, fresh = (delivery(name) for name in ("ada", "bob", "cyd", "dan"))
    again = replace(issued_again, claim=2, attempt=2)
    sent = replace(plain(issued_again, OutcomeKind.SENT, "", now_ms()), provider="push", provider_ref="before")
    stage.deliver(answered, failed, again, fresh)
    stage.put(
        OUTCOMES,
        plain(answered, OutcomeKind.SENT, "", now_ms()),
        plain(failed, OutcomeKind.FAILED, "http_503", now_ms()),
        sent,
    )
    with stage.worker() as registry:
        outcomes = stage.outcomes(5)
        assert value(registry, "rung_delivery_repeated_total") == 3
        eventually(lambda: value(registry, "rung_delivery_backlog") == 0)
    assert [call["recipient"] for call in sink.calls()] == ["dan"]
    assert [(o.recipient, o.claim, o.provider_ref) for o in outcomes[3:]] == [
        ("cyd", 2, "before"),
        ("dan", 1, "msg-1"),
    ]


def test_a_clock_that_is_set_back_holds_nothing_up(
    make_stage: MakeStage, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that asked for two seconds is not closed for an hour, and positions are committed."""
    stage = make_stage(partitions=1, concurrency=1)
    sink.answer({"match": {}, "per": "rule", "answers": [{"status": 429, "retry_after": "2"}]})
    with stage.worker():
        stage.deliver(delivery("ada"))
        stage.outcomes(1)
        monkeypatch.setattr(worker, "now_ms", lambda: now_ms() - 3_600_000)
        stage.deliver(delivery("bob"))
        assert [o.outcome for o in stage.outcomes(2, timeout=10)] == ["failed", "sent"]
        place = TopicPartition(stage.naming(DELIVERIES), 0)
        group = Consumer({**stage.kafka, "group.id": stage.naming.prefix + GROUP})
        eventually(lambda: group.committed([place], timeout=5)[0].offset == 2, timeout=10)
        group.close()


@pytest.mark.parametrize("policy", ["resend", "lookup", "hold"])
def test_a_timeout_after_the_request_left_is_unknown(make_stage: MakeStage, sink: Sink, policy: str) -> None:
    """The provider took it and fell silent: the outcome names it and its policy. What the processor asks for next has
    the same key: sent again it is no second message, asked for it is found, and to be held it is not asked for."""
    lookup = {"lookup_url": f'"{sink.url}/lookup/{{key}}"'} if policy == "lookup" else {}
    stage = make_stage(timeout='"300ms"', unknown=f'"{policy}"', **lookup)
    sink.answer({"match": {}, "answers": [{"hang_ms": 1500}]})
    claim = delivery("ada")
    with stage.worker():
        stage.deliver(claim)
        (outcome,) = stage.outcomes(1)
        assert (outcome.outcome, outcome.reason, outcome.unknown_policy) == ("unknown", "timeout", policy)
        assert (outcome.provider, outcome.key) == ("push", claim.key)
        if policy != "hold":
            sink.answer()
            stage.deliver(replace(claim, claim=2, attempt=2, provider="push", lookup=policy == "lookup"))
            again = stage.outcomes(2)[1]
            assert (again.outcome, again.key, again.provider_ref) == ("sent", claim.key, "msg-1")
    calls = [(call["key"], call["accepted"], call["repeat"]) for call in sink.calls()]
    assert calls == [(claim.key, True, False), *([(claim.key, False, True)] if policy == "resend" else [])]


def test_a_message_that_cannot_be_made_is_rejected_and_the_contact_lives(make_stage: MakeStage, sink: Sink) -> None:
    """A missing variable, a channel without providers, a provider that is gone: the lane goes on."""
    stage = make_stage()
    claims = [
        delivery("ada", data={}),
        delivery("ada", channel="fax"),
        delivery("ada", provider="gone", attempt=2),
        delivery("ada"),
    ]
    with stage.worker():
        stage.deliver(*claims)
        found = {o.key: o for o in stage.outcomes(4)}
    told = [(found[c.key].outcome, found[c.key].reason, found[c.key].contact_alive) for c in claims]
    assert told == [
        ("rejected", "bad_template", True),
        ("rejected", "unknown_channel", True),
        ("unknown", "provider_gone", False),
        ("sent", "", False),
    ]


def test_unreadable_records_are_set_aside_once_and_the_partition_goes_on(
    make_stage: MakeStage, sink: Sink, kafka: str
) -> None:
    """Bad claims and bad profiles become one dead letter each, also after a restart; bad resolutions are the
    processor's."""
    stage = make_stage(partitions=1)
    resolve = Resolve(recipient="ada", dedup_key="k", resolution="paid")
    profile = RecipientProfile(recipient="ada", profile=Profile())
    expected: Counter[tuple[str, str]] = Counter()
    for topic, good in ((DELIVERIES, delivery("ada")), (RECIPIENTS, profile), (RESOLUTIONS, resolve)):
        # A compacted topic takes no record without a key, and a null value on it is a tombstone, which is no fault.
        bad = [
            (reason, (key, value, headers))
            for reason, (key, value, headers) in bad_records(good).values()
            if topic is not RECIPIENTS or (key is not None and value is not None)
        ]
        produce(kafka, stage.naming(topic), [record for _, record in bad], partition=0)
        send_with_header_name(kafka, stage.naming(topic), b"ada", b"{}", b"\xff")
        if topic is not RESOLUTIONS:
            expected.update((topic.name, reason) for reason in [*(reason for reason, _ in bad), "bad_header"])
    with stage.worker(instance_id="one"):
        stage.deliver(delivery("ada"))
        stage.outcomes(1)
    with stage.worker(instance_id="one"):
        stage.deliver(delivery("ada"))
        stage.outcomes(2)
    letters = read_all(kafka, stage.naming(DEAD_LETTERS))
    assert Counter((x.header("rung_dl_topic"), x.header("rung_dl_reason")) for x in letters) == expected
    assert len(letters) == len({(ll.header("rung_dl_topic"), ll.header("rung_dl_offset")) for ll in letters})


def test_a_full_backlog_leaves_claims_in_kafka_and_still_reads_resolutions(make_stage: MakeStage, sink: Sink) -> None:
    """Ten claims fit, a hundred wait; a resolution for a waiting one is known when its turn comes."""
    stage = make_stage(partitions=1, concurrency=2)
    sink.answer({"match": {}, "per": "rule", "answers": [{"delay_ms": 25}], "repeat": True})
    claims = [delivery(f"person-{n}") for n in range(110)]
    with stage.worker(backlog=10) as registry:
        stage.deliver(*claims)
        wait_until_reading(registry)
        stage.resolve(claims[-1])
        held = []
        eventually(lambda: held.append(value(registry, "rung_delivery_backlog")) or held[-1] > 0)
        outcomes = {o.key: o.outcome for o in stage.outcomes(110, timeout=40)}
    assert outcomes[claims[-1].key] == "suppressed"
    assert list(outcomes.values()).count(OutcomeKind.SENT) == 109
    assert len(sink.calls()) == 109


def test_the_rate_of_a_provider_is_kept(make_stage: MakeStage, sink: Sink) -> None:
    """20 per second: after the burst, no second has more than the rate and the burst together."""
    stage = make_stage(rate="20", burst="2")
    with stage.worker():
        stage.deliver(*[delivery(f"person-{n}") for n in range(30)])
        stage.outcomes(30)
    times = sorted(call["at"] for call in sink.calls())
    assert times[-1] - times[0] >= (30 - 2 - 1) / 20 * 1000
    assert all(sum(1 for at in times if start <= at < start + 1000) <= 24 for start in times)
