"""Which dead letters go back, and as what: by what they are and not by what anybody hopes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.redriving import as_today
from relay.redrive.judgement import REMEMBERED_MS, Back, Refusal, Refused, judge
from relay.redrive.letters import Letter, done_offset, mark, read
from schemas import records as r
from schemas.codec import AnyRecord, decode, encode, encode_key
from schemas.dead_letters import REDRIVES_HEADER, SET_ASIDE_AT_HEADER, DeadLetter
from schemas.envelope import Envelope, Headers, to_headers
from schemas.profile import Profile, QuietHours
from schemas.reasons import DeadReason
from schemas.state import Ladder, LadderStep
from schemas.topics import CATALOGUE, DELAYS, DUE, NOTIFICATIONS, OUTCOMES, RECIPIENTS, RESOLUTIONS, Topic

NOW = 1_777_636_800_000
TODAY = as_today({"payment": Ladder(kind="payment", steps=(LadderStep(channel="push", after_ms=0, template="t"),))})
NOTIFY = r.Notify(
    notification_id=UUID(int=5), recipient="ada", kind="payment", dedup_key="k", data={"n": 1}, expires_at=NOW + 9
)
OUTCOME = r.Outcome(
    notification_id=UUID(int=5),
    recipient="ada",
    dedup_key="k",
    step_no=0,
    channel="push",
    key="5:0",
    outcome=r.OutcomeKind.SENT,
    at=1,
)


def letter(
    record: AnyRecord | bytes | None,
    reason: DeadReason,
    topic: Topic = NOTIFICATIONS,
    *,
    at: int = NOW - 1_000,
    made_at: int = NOW - 2_000,
    more: Headers | None = None,
) -> Letter:
    """A letter as it is read back."""
    ce_type = topic.types[0] if isinstance(record, bytes) or record is None else record.TYPE  # type: ignore[union-attr]
    headers = [*to_headers(Envelope("ce", ce_type, "/t", made_at)), *(more or [])]
    value = record if isinstance(record, bytes) or record is None else encode(record)
    marks = DeadLetter(reason, "why", topic.name, 1, 7, "processor", at)
    found = read(1, 42, encode_key("ada"), value, marks.headers(headers))
    assert found is not None
    return found


def refusal(found: Back | Refused) -> str:
    """Why a letter stays."""
    assert isinstance(found, Refused), found
    return found.why


def gone_back(found: Back | Refused) -> tuple[Back, dict[str, bytes]]:
    """What goes back, and its headers."""
    assert isinstance(found, Back), found
    return found, dict(found.headers)


def test_an_undelivered_request_goes_back_as_a_redrive() -> None:
    """With an id that is the letter's own, and a count; a plain copy would only be a duplicate."""
    one = letter(NOTIFY, DeadReason.UNDELIVERABLE)
    back, headers = gone_back(judge(one, NOW, 3, TODAY))
    redrive = decode(NOTIFICATIONS, back.key, back.value, back.headers).record
    assert isinstance(redrive, r.Redrive)
    assert (redrive.redrive_id, redrive.data, redrive.expires_at) == (one.redrive_id, {"n": 1}, NOW + 9)
    assert headers[REDRIVES_HEADER] == b"1"
    again, _ = gone_back(judge(one, NOW + 5, 3, TODAY))
    assert again.value == back.value, "the same letter is the same redrive"


def test_a_record_that_decodes_today_goes_back_byte_for_byte() -> None:
    """Key, value and headers as they came, without our marks, with a count."""
    one = letter(NOTIFY, DeadReason.UNKNOWN_KIND, more=[("extra", b"\xff")])
    back, headers = gone_back(judge(one, NOW, 3, TODAY))
    assert (back.topic, back.key, back.value) == (NOTIFICATIONS, b"ada", encode(NOTIFY))
    assert (headers["ce_id"], headers["extra"], headers[REDRIVES_HEADER]) == (b"ce", b"\xff", b"1")
    assert not any(name.startswith("rung_dl_") for name in headers)


def test_a_conflict_goes_back_under_an_id_of_its_own() -> None:
    """Its own is remembered as seen, and the record would vanish without a word."""
    one = letter(NOTIFY, DeadReason.CONFLICT)
    _, headers = gone_back(judge(one, NOW, 3, TODAY))
    assert headers["ce_id"] == str(one.redrive_id).encode()


def test_a_profile_goes_back_with_the_moment_it_was_set_aside() -> None:
    """So that the domain can tell whether it would undo a later one."""
    put = r.PutRecipient(recipient="ada", profile=Profile(locale="de"))
    for record in (put, r.EraseRecipient(recipient="ada")):
        _, headers = gone_back(judge(letter(record, DeadReason.BAD_PROFILE), NOW, 3, TODAY))
        assert headers[SET_ASIDE_AT_HEADER] == str(NOW - 1_000).encode()


BAD_PUT = r.PutRecipient(recipient="ada", profile=Profile(quiet_hours=QuietHours(from_="25:00", until="07:00")))
OTHER_KIND = r.Notify(notification_id=UUID(int=5), recipient="ada", kind="gone", dedup_key="k")
BOB = r.Resolve(recipient="bob", dedup_key="k", resolution="paid")


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (letter(b"{", DeadReason.NOT_JSON), Refusal.STILL_BAD),
        (letter(b"\xff", DeadReason.NOT_UTF8), Refusal.STILL_BAD),
        (letter(None, DeadReason.NULL_VALUE), Refusal.STILL_BAD),
        (letter(BOB, DeadReason.KEY_MISMATCH, RESOLUTIONS), Refusal.STILL_BAD),
        (letter(BAD_PUT, DeadReason.BAD_PROFILE), Refusal.STILL_BAD),
        (letter(OTHER_KIND, DeadReason.UNKNOWN_KIND), Refusal.STILL_BAD),
        (letter(NOTIFY, DeadReason.FORGOTTEN), Refusal.FINAL),
        (letter(NOTIFY, DeadReason.SUPERSEDED), Refusal.FINAL),
        (letter(NOTIFY, DeadReason.UNDELIVERABLE, more=[(REDRIVES_HEADER, b"3")]), Refusal.LIMIT),
        (letter(NOTIFY, DeadReason.UNDELIVERABLE, more=[(REDRIVES_HEADER, b"x")]), Refusal.LIMIT),
        (letter(NOTIFY, DeadReason.UNDELIVERABLE, at=NOW - REMEMBERED_MS), Refusal.TOO_OLD),
        (letter(NOTIFY, DeadReason.UNKNOWN_KIND, made_at=NOW - REMEMBERED_MS), Refusal.TOO_OLD),
        (letter(r.EraseRecipient(recipient="ada"), DeadReason.NOT_JSON, at=NOW - REMEMBERED_MS), Refusal.TOO_OLD),
        (
            letter(r.RecipientProfile(recipient="ada", profile=Profile()), DeadReason.NOT_JSON, RECIPIENTS),
            Refusal.WRITE_AGAIN,
        ),
    ],
)
def test_what_stays(one: Letter, why: Refusal) -> None:
    """Each by its name."""
    assert refusal(judge(one, NOW, 3, TODAY)) == why


def test_a_request_past_its_expiry_stays() -> None:
    """As an undelivered one and as any other."""
    for reason in (DeadReason.UNDELIVERABLE, DeadReason.UNKNOWN_KIND):
        assert refusal(judge(letter(NOTIFY, reason), NOW + 9, 3, TODAY)) == Refusal.EXPIRED


def test_a_record_that_is_as_large_as_its_topic_takes_stays() -> None:
    """With what is added it would be refused, and its batch with it."""
    large = r.Notify(
        notification_id=UUID(int=5), recipient="ada", kind="payment", dedup_key="k", data={"x": "y" * 2**20}
    )
    assert refusal(judge(letter(large, DeadReason.UNKNOWN_KIND), NOW, 3)) == Refusal.TOO_LARGE


@pytest.mark.parametrize("topic", [DUE, *DELAYS[:1], OUTCOMES, RESOLUTIONS], ids=lambda topic: topic.name)
def test_what_can_send_nothing_goes_back_however_old_it_is(topic: Topic) -> None:
    """A wake-up, an outcome and a resolution tell of facts, or of nothing."""
    record: AnyRecord = {
        DUE.name: r.Due(recipient="ada", due_at=5),
        OUTCOMES.name: OUTCOME,
        RESOLUTIONS.name: r.Resolve(recipient="ada", dedup_key="k", resolution="paid"),
    }.get(topic.name, r.Due(recipient="ada", due_at=5))
    old = NOW - 20 * 86_400_000
    back, _ = gone_back(judge(letter(record, DeadReason.NOT_JSON, topic, at=old, made_at=old), NOW, 3, TODAY))
    assert back.topic is topic


def test_a_mark_names_its_letter() -> None:
    """And no letter is taken for a mark."""
    one = letter(NOTIFY, DeadReason.UNDELIVERABLE)
    assert done_offset(mark(one)) == 42
    assert done_offset(one.headers) is None


def test_a_record_without_marks_is_no_letter() -> None:
    """Anybody may write to the topic."""
    assert read(0, 0, b"ada", b"{}", []) is None
    marks = [("rung_dl_topic", b"nowhere"), ("rung_dl_reason", b"\xff"), ("rung_dl_at", b"5")]
    nowhere = read(0, 0, b"ada", b"{}", marks)
    assert nowhere is not None
    assert refusal(judge(nowhere, NOW, 3)) == Refusal.UNMARKED
    assert read(0, 0, b"ada", b"{}", [*marks, ("rung_dl_at", b"soon")]) is None


@given(
    st.none() | st.binary(max_size=12),
    st.none() | st.binary(max_size=60) | st.just(encode(NOTIFY)),
    st.lists(
        st.tuples(
            st.sampled_from(["ce_id", "ce_type", "ce_source", "rung_dl_reason", REDRIVES_HEADER, SET_ASIDE_AT_HEADER]),
            st.none() | st.binary(max_size=20) | st.sampled_from([b"rung.notify", b"undeliverable", b"2"]),
        )
    ),
    st.sampled_from(CATALOGUE),
)
def test_no_bytes_raise_anything(key: bytes | None, value: bytes | None, headers: Any, topic: Topic) -> None:
    """Whatever lies in the topic goes back or stays, by name."""
    marks = [("rung_dl_topic", topic.name.encode()), ("rung_dl_at", b"5"), ("rung_dl_reason", b"not_json")]
    found = read(0, 0, key, value, [*headers, *marks])
    assert found is not None
    assert isinstance(judge(found, NOW, 3, TODAY), Back | Refused)
