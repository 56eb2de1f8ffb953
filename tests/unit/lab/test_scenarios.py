"""What a scenario file may hold, and how its faults are told."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.lab import simulate
from processor.lab.answers import Answer, parse_answer
from processor.lab.scenario import ScenarioError, parse_scenario
from processor.lab.show import run
from schemas.records import OutcomeKind, UnknownPolicy

LADDERS = '[kinds.note]\nstop_on = "sent"\nsteps = [{ channel = "email", after = "0s" }]'
START = "start = 2026-05-01T12:00:00Z\n"
START_MS = 1_777_636_800_000


def problem(text: str) -> str:
    """The one thing that is wrong with a scenario, without the name that every line begins with."""
    with pytest.raises(ScenarioError) as caught:
        simulate(LADDERS, text, scenario_source="s.toml")
    (line,) = caught.value.problems
    assert line.startswith("s.toml: ")
    return line.removeprefix("s.toml: ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("start = ", "this is no TOML: Invalid value"),
        ("a = " + "[" * 5_000, "this is no TOML: "),
        ("", "start: is missing: write a date and time, such as 2026-05-01T12:00:00Z"),
        ("start = 2026-05-01T12:00:00", "start: must be a date and time with its offset, such as 2026-05-01T12:00:00Z"),
        ('start = "0s"', "start: must be a date and time with its offset"),
        (START + "until = 20", "until: must be a date and time with its offset, such as 2026-05-01T12:00:00Z, or a le"),
        (START + 'until = "soon"', "until: 'soon' is no duration"),
        (START + "[[notfy]]", "notfy: there is no such field; did you mean notify?"),
        (START + '[[notify]]\nkind = "note"', "notify[0].recipient: is missing"),
        (START + '[[notify]]\nkind = "note"\nrecipient = ""', "notify[0].recipient: must not be empty"),
        (START + '[[notify]]\nrecipient = "a"', "notify[0].kind: is missing"),
        (START + '[[notify]]\nrecipient = "a"\nkind = "note"\nat = "1x"', "notify[0].at: '1x' is no duration"),
        (START + '[[notify]]\nrecipient = "a"\nkind = "note"\nkey = "1"', "notify[0].key: there is no such field"),
        (START + '[[resolve]]\nrecipient = "a"', "resolve[0].dedup_key: is missing"),
        (START + "[[erase_recipient]]", "erase_recipient[0].recipient: is missing"),
        (
            START + '[[put_recipient]]\nrecipient = "a"\nprofile = 3',
            "put_recipient[0].profile: must be a table, and is",
        ),
        (
            START + '[recipients.a]\ntimezone = "UTC"',
            "recipients.a.timezone: there is no such field; did you mean time_",
        ),
        (START + "[recipients.a]\naddresses = { email = 1 }", "recipients.a: this is no profile: Expected `str`, got"),
        (
            START + '[recipients.a]\nquiet_hours = { form = "22:00", from = "22:00", until = "08:00" }',
            "recipients.a.qui",
        ),
        (
            START + '[[provider]]\nchannel = "email"',
            'provider[0].answers: must be an array of answers, such as ["503", ',
        ),
        (START + '[[provider]]\nchannel = "email"\nanswers = []', "provider[0].answers: must be an array of answers"),
        (
            START + '[[provider]]\nchannel = "email"\nanswers = ["sent", "maybe"]',
            "provider[0].answers[1]: 'maybe' is no",
        ),
        (
            START + '[[provider]]\nchannel = "email"\nanswers = [{ answer = "no" }]',
            "provider[0].answers[0].answer: 'no' ",
        ),
        (
            START + '[[provider]]\nchannel = "email"\nanswers = [{ answer = "503", receipt = "bounced" }]',
            "provider[0].answers[0].receipt: comes for a message that was sent",
        ),
        (START + '[[provider]]\nchannel = "email"\nanswers = [{}]', "provider[0].answers[0].answer: is missing"),
        (
            START + '[[provider]]\nchannel = "email"\nanswers = [{ answer = "sent", retry_after = 3 }]',
            "provider[0].answers[0].retry_after: must be a duration in quotes",
        ),
        (
            START + '[[provider]]\nchannel = "fax"\nanswers = ["sent"]',
            'provider: no ladder uses channel "fax"; they use e',
        ),
    ],
)
def test_a_fault_names_its_place(text: str, told: str) -> None:
    """One fault is one line with the file's name, the field and what to write."""
    assert problem(text).startswith(told)


def test_all_faults_are_told_together() -> None:
    """A scenario is repaired once."""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario("until = 1\n[[notify]]\n[[resolve]]\nat = 2026-05-01", "s.toml")
    assert len(caught.value.problems) == 7


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("sent", Answer(OutcomeKind.SENT)),
        ("202", Answer(OutcomeKind.SENT)),
        ("503", Answer(OutcomeKind.FAILED, "http_503")),
        ("429", Answer(OutcomeKind.FAILED, "http_429")),
        ("408", Answer(OutcomeKind.FAILED, "http_408")),
        ("404", Answer(OutcomeKind.REJECTED, "http_404")),
        ("failed: connection refused", Answer(OutcomeKind.FAILED, "connection refused")),
        ("rejected:mailbox does not exist", Answer(OutcomeKind.REJECTED, "mailbox does not exist")),
        ("unknown", Answer(OutcomeKind.UNKNOWN, "timeout", unknown_policy=UnknownPolicy.RESEND)),
        ("unknown: cut off", Answer(OutcomeKind.UNKNOWN, "cut off", unknown_policy=UnknownPolicy.RESEND)),
        ("lost", Answer(None)),
    ],
)
def test_answers_in_their_short_form(text: str, answer: Answer) -> None:
    """Each form of an answer is one of the adapter contract's outcomes."""
    assert parse_answer(text) == answer


@pytest.mark.parametrize("text", ["", "maybe", "99", "600", "sent: really", "lost: why", "503: why", "delivered"])
def test_other_answers_are_refused(text: str) -> None:
    """What is no answer is refused with the forms that there are."""
    with pytest.raises(ValueError, match="is no answer: write"):
        parse_answer(text)


def test_moments_are_lengths_or_dates_and_keep_their_order() -> None:
    """A date with an offset and a length of time name the same moment; things of one moment keep the stated order."""
    scenario = parse_scenario(
        START
        + """
        until = 2026-05-01T14:10:00+02:00
        [[erase_recipient]]
        at = "5m"
        recipient = "a"
        [[resolve]]
        at = 2026-05-01T12:05:00Z
        recipient = "a"
        dedup_key = "k"
        [[notify]]
        at = "5m"
        recipient = "a"
        kind = "note"
        expires_at = "6m"
        [[put_recipient]]
        at = "300s"
        recipient = "a"
        profile = { locale = "de" }
        [recipients.a]
        locale = "en"
        """,
        "s.toml",
    )
    assert scenario.until == START_MS + 600_000
    assert [happening.at - START_MS for happening in scenario.happenings] == [0, *[300_000] * 4]
    names = [type(happening.request).__name__ for happening in scenario.happenings]
    assert names == ["PutRecipient", "PutRecipient", "Notify", "Resolve", "EraseRecipient"]


def test_nothing_happens_after_the_end() -> None:
    """What a scenario asks for after its `until` is not played, and a ladder may still be open then."""
    simulation = simulate(
        LADDERS.replace("0s", "10m"),
        START
        + """
        until = "1m"
        [[notify]]
        recipient = "a"
        kind = "note"
        [[notify]]
        at = "2m"
        recipient = "b"
        kind = "note"
        """,
    )
    assert [(state.recipient, state.state) for state in simulation.states] == [("a", "open")]


def test_another_day_is_told_with_its_date() -> None:
    """A time of day alone would not say which day."""
    simulation = simulate(
        LADDERS.replace("0s", "13h"),
        START + '[recipients.a]\naddresses = { email = "a" }\n[[notify]]\nrecipient = "a"\nkind = "note"',
    )
    assert [(line.time, line.text) for line in simulation.log] == [("2026-05-02 01:00:00", "attempt 1: sent")]


def test_an_empty_scenario_says_so() -> None:
    """Nothing asked for is nothing told."""
    assert simulate(LADDERS, START).log == ()


@pytest.mark.parametrize("broken", ["ladders", "scenario"])
def test_a_fault_of_a_file_ends_with_two(broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints each fault on standard error with the file's name, and its status tells a script."""
    files = {"ladders": tmp_path / "l.toml", "scenario": tmp_path / "s.toml"}
    files["ladders"].write_text(LADDERS)
    files["scenario"].write_text(START)
    for fault, told in ((b"x = 1", "x: there is no such field"), (b"\xff", "this is not UTF-8 at byte 0")):
        files[broken].write_bytes(fault)
        assert run(files["ladders"], files["scenario"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(f"{files[broken]}: {told}")
    files[broken].unlink()
    assert run(files["ladders"], files["scenario"]) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


fields = st.sampled_from(
    ["at", "recipient", "kind", "dedup_key", "data", "answers", "channel", "profile", "start", "until", "notify", "x"]
)
values = st.recursive(
    st.sampled_from(
        ["1", "true", "nan", '"a"', '"1s"', '"email"', '"note"', '"503"', "1979-05-27", "1979-05-27T07:32:00Z"]
    ),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(fields, inner, max_size=4).map(
            lambda items: "{" + ", ".join(f"{k} = {v}" for k, v in items.items()) + "}"
        )
    ),
    max_leaves=6,
)
sections = st.sampled_from(["[[notify]]", "[[resolve]]", "[[put_recipient]]", "[[provider]]", "[recipients.a]"])


@given(st.text(max_size=30) | st.tuples(sections, st.dictionaries(fields, values, max_size=5)).map(
    lambda part: START + part[0] + "\n" + "\n".join(f"{k} = {v}" for k, v in part[1].items())
))  # fmt: skip
def test_any_text_is_played_or_refused(text: str) -> None:
    """No text makes the lab raise anything but its own error."""
    try:
        played = simulate(LADDERS, text).requests is not None
    except ScenarioError as error:
        played = bool(error.problems)
    assert played
