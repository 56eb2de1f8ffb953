"""The contract of a ladder file: what is read, and what every fault is told as."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.domain.durations import LIMIT_MS, format_duration
from processor.domain.ladders import LadderError, parse_ladders
from schemas.state import Ladder, LadderStep, RetryPolicy

STEPS = 'steps = [{ channel = "push", after = "0s" }, { channel = "email", after = "2h" }]'


def problems(text: str) -> list[str]:
    """What is wrong with a text, each line without the file's name, which every line must begin with."""
    with pytest.raises(LadderError) as caught:
        parse_ladders(text, "ladders.toml")
    assert str(caught.value).splitlines() == list(caught.value.problems)
    assert all(line.startswith("ladders.toml: ") for line in caught.value.problems)
    return [line.removeprefix("ladders.toml: ") for line in caught.value.problems]


def of_kind(body: str, kind: str = "pay") -> str:
    """A file with one kind of this body."""
    return f"[kinds.{kind}]\n{body}\n"


def with_step(step: str) -> str:
    """A file whose kind has a good step and then this one."""
    return of_kind(f'steps = [{{ channel = "push", after = "1m" }}, {step}]')


def test_every_field_is_read() -> None:
    """A kind that states everything becomes a ladder with all of it."""
    text = of_kind(
        """
        stop_on = "delivered"
        expires_after = "3h"
        quiet_hours = "ignore"
        ordering = "strict"
        retry = { max_attempts = 7, base = "500ms", cap = "1m", jitter = 0 }
        steps = [
          { channel = "push",  after = "0s" },
          { channel = "email", after = "2h", template = "payment_reminder" },
        ]
        """
    )
    assert parse_ladders(text, "ladders.toml") == {
        "pay": Ladder(
            kind="pay",
            stop_on="delivered",
            expires_after_ms=10_800_000,
            quiet_hours="ignore",
            ordering="strict",
            retry=RetryPolicy(max_attempts=7, base_ms=500, cap_ms=60_000, jitter=0.0),
            steps=(
                LadderStep(channel="push", after_ms=0, template="pay"),
                LadderStep(channel="email", after_ms=7_200_000, template="payment_reminder"),
            ),
        )
    }


def test_only_the_steps_are_required() -> None:
    """What a kind leaves out has the defaults of the schema, and a step's template is the kind's name."""
    ladder = parse_ladders(of_kind(STEPS), "ladders.toml")["pay"]
    assert ladder == Ladder(
        kind="pay",
        steps=(
            LadderStep(channel="push", after_ms=0, template="pay"),
            LadderStep(channel="email", after_ms=7_200_000, template="pay"),
        ),
    )


def test_a_base_above_the_default_cap_raises_the_cap() -> None:
    """A file that states only a long base means it; the cap that it does not state is no fault of it."""
    ladder = parse_ladders(of_kind(STEPS + '\nretry = { base = "2m" }'), "x")["pay"]
    assert (ladder.retry.base_ms, ladder.retry.cap_ms) == (120_000, 120_000)


def test_kinds_keep_the_order_of_the_file() -> None:
    """Listings show the kinds as their author put them."""
    text = of_kind(STEPS, "zebra") + of_kind(STEPS, "ant")
    assert list(parse_ladders(text, "x")) == ["zebra", "ant"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "kinds: there is no kind: add a table [kinds.<name>] with its steps"),
        ("[kinds]", "kinds: there is no kind: add a table [kinds.<name>] with its steps"),
        ("kinds = 3", "kinds: must be a table, and is a whole number"),
        ("[kind.pay]", "kind: there is no such field; did you mean kinds?"),
        (of_kind(STEPS) + "[other]", "other: there is no such field; the fields here are kinds"),
        (of_kind(STEPS) + '["a\\nb"]', '"a\\nb": there is no such field; the fields here are kinds'),
        ("[kinds]\npay = 1979-05-27", "kinds.pay: must be a table, and is a date or a time"),
        (of_kind(STEPS, "Pay"), "kinds.Pay: this is no name for a kind: use lower-case letters, digits, - and _"),
        (of_kind(STEPS, '"ä pay"'), 'kinds."\\u00e4 pay": this is no name for a kind'),
        (of_kind(STEPS + "\nexpires_afer = '1h'"), "kinds.pay.expires_afer: there is no such field; did you mean exp"),
        (of_kind('stop_on = "sent"'), "kinds.pay.steps: 1 to 100 are needed, such as { channel"),
        (of_kind("steps = []"), "kinds.pay.steps: 1 to 100 are needed"),
        (of_kind(f"steps = [{', '.join(['{}'] * 101)}]"), "kinds.pay.steps: 1 to 100 are needed"),
        (of_kind("steps = {}"), "kinds.pay.steps: must be an array of tables, and is a table"),
        (with_step("5"), "kinds.pay.steps[1]: must be a table, and is a whole number"),
        (with_step('{ after = "2m" }'), "kinds.pay.steps[1].channel: is missing"),
        (with_step('{ channel = 1.5, after = "2m" }'), "kinds.pay.steps[1].channel: must be a string, and is a number"),
        (with_step('{ channel = "E-Mail", after = "2m" }'), "kinds.pay.steps[1].channel: 'E-Mail' is no name for a ch"),
        (
            with_step('{ channel = "email", after = "2m", template = "../secret" }'),
            "kinds.pay.steps[1].template: '../secret' is no name for a template",
        ),
        (
            with_step('{ channel = "a", after = "2m", templat = "x" }'),
            "kinds.pay.steps[1].templat: there is no such fi",
        ),
        (with_step('{ channel = "email" }'), "kinds.pay.steps[1].after: is missing: write a duration, such as"),
        (
            with_step('{ channel = "a", after = 600 }'),
            "kinds.pay.steps[1].after: must be a duration in quotes, such as",
        ),
        (
            with_step('{ channel = "a", after = "soon" }'),
            "kinds.pay.steps[1].after: 'soon' is no duration: write a who",
        ),
        (with_step('{ channel = "a", after = "30s" }'), "kinds.pay.steps[1].after: 30s is before the step above (1m)"),
        (with_step('{ channel = "push", after = "1m" }'), "kinds.pay.steps[1].channel: push has a step at the same ti"),
        (
            of_kind(STEPS + '\nstop_on = "read"'),
            'kinds.pay.stop_on: must be "resolution" or "sent" or "delivered", and',
        ),
        (
            of_kind(STEPS + "\nquiet_hours = true"),
            'kinds.pay.quiet_hours: must be "shift" or "ignore", and is a boolean',
        ),
        (
            of_kind(STEPS + '\nordering = ["strict"]'),
            'kinds.pay.ordering: must be "first-attempt" or "strict", and is a',
        ),
        (
            of_kind(STEPS + '\nexpires_after = "2h"'),
            "kinds.pay.expires_after: 2h must be longer than the last step's a",
        ),
        (of_kind(STEPS + '\nexpires_after = "x"'), "kinds.pay.expires_after: 'x' is no duration"),
        (
            of_kind('steps = [{ channel = "a", after = "24h" }]'),
            "kinds.pay.expires_after: 1d must be longer than the l",
        ),
        (of_kind(STEPS + "\nretry = 3"), "kinds.pay.retry: must be a table, and is a whole number"),
        (
            of_kind(STEPS + "\nretry = { attempts = 3 }"),
            "kinds.pay.retry.attempts: there is no such field; did you mea",
        ),
        (
            of_kind(STEPS + "\nretry = { max_attempts = 0 }"),
            "kinds.pay.retry.max_attempts: must be a whole number from",
        ),
        (of_kind(STEPS + "\nretry = { max_attempts = true }"), "kinds.pay.retry.max_attempts: must be a whole number "),
        (of_kind(STEPS + "\nretry = { max_attempts = nan }"), "kinds.pay.retry.max_attempts: must be a whole number f"),
        (of_kind(STEPS + "\nretry = { max_attempts = '4' }"), "kinds.pay.retry.max_attempts: must be a whole number f"),
        (of_kind(STEPS + '\nretry = { base = "1m", cap = "30s" }'), "kinds.pay.retry.base: 1m must not be longer than"),
        (of_kind(STEPS + "\nretry = { jitter = 1.5 }"), "kinds.pay.retry.jitter: must be a number from 0 to 1"),
        (of_kind(STEPS + "\nretry = { jitter = false }"), "kinds.pay.retry.jitter: must be a number from 0 to 1"),
        (of_kind(STEPS + "\nretry = { jitter = nan }"), "kinds.pay.retry.jitter: must be a number from 0 to 1"),
        ("kinds = [", "this is no TOML: Invalid value (at end of document)"),
        (of_kind(STEPS) + of_kind(STEPS), "this is no TOML: Cannot declare ('kinds', 'pay') twice (at line 3"),
        ("a = " + "[" * 5_000, "this is no TOML: "),
        ("a = " + "9" * 5_000, "this is no TOML: "),
    ],
)
def test_a_fault_names_its_place_and_the_way_out(text: str, told: str) -> None:
    """One fault is one line that names file, kind and field (with the step's index) and what to write."""
    (line,) = problems(text)
    assert line.startswith(told)


def test_all_faults_are_told_together() -> None:
    """A person repairs a file once, and not once for each fault."""
    text = """
        [kinds.pay]
        stop_on = "never"
        steps = [{ channel = "push", after = "1 hour" }, 7, { channel = "Email", after = "1h" }]
        [kinds.Welcome]
        steps = []
        retry = { base = "1m", cap = "1s", max_attempts = 1000 }
        """
    places = [line.split(": ")[0] for line in problems(text)]
    assert places == [
        "kinds.pay.steps[1]",
        "kinds.pay.steps[0].after",
        "kinds.pay.steps[2].channel",
        "kinds.pay.stop_on",
        "kinds.Welcome",
        "kinds.Welcome.steps",
        "kinds.Welcome.retry.base",
        "kinds.Welcome.retry.max_attempts",
    ]


names = st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True)
lengths = st.integers(0, LIMIT_MS // 2)


@st.composite
def ladders(draw: st.DrawFn, kind: str) -> Ladder:
    """Any ladder that the contract allows."""
    afters = sorted(draw(st.lists(lengths, min_size=1, max_size=4, unique=True)))
    base = draw(lengths)
    return Ladder(
        kind=kind,
        steps=tuple(LadderStep(channel=draw(names), after_ms=after, template=draw(names)) for after in afters),
        stop_on=draw(st.sampled_from(["resolution", "sent", "delivered"])),
        expires_after_ms=afters[-1] + draw(st.integers(1, LIMIT_MS // 2)),
        quiet_hours=draw(st.sampled_from(["shift", "ignore"])),
        ordering=draw(st.sampled_from(["first-attempt", "strict"])),
        retry=RetryPolicy(
            max_attempts=draw(st.integers(1, 100)),
            base_ms=base,
            cap_ms=base + draw(lengths),
            jitter=draw(st.floats(0, 1)),
        ),
    )


def to_toml(ladder: Ladder) -> str:
    """A ladder as a person would write it."""
    retry = ladder.retry
    steps = ", ".join(
        f'{{ channel = "{s.channel}", after = "{format_duration(s.after_ms)}", template = "{s.template}" }}'
        for s in ladder.steps
    )
    return f"""
        [kinds.{ladder.kind}]
        stop_on = "{ladder.stop_on}"
        expires_after = "{format_duration(ladder.expires_after_ms)}"
        quiet_hours = "{ladder.quiet_hours}"
        ordering = "{ladder.ordering}"
        retry.max_attempts = {retry.max_attempts}
        retry.base = "{format_duration(retry.base_ms)}"
        retry.cap = "{format_duration(retry.cap_ms)}"
        retry.jitter = {retry.jitter:.20f}
        steps = [{steps}]
        """


@given(st.lists(names, min_size=1, max_size=3, unique=True).flatmap(lambda kinds: st.tuples(*map(ladders, kinds))))
def test_what_is_written_is_read_back(written: tuple[Ladder, ...]) -> None:
    """Any valid ladders, written as TOML, are read back as they were (jitter to 1e-15)."""
    read = parse_ladders("\n".join(map(to_toml, written)), "x")
    assert list(read) == [ladder.kind for ladder in written]
    for ladder in written:
        assert read[ladder.kind].retry.jitter == pytest.approx(ladder.retry.jitter, abs=1e-15)
        assert _without_jitter(read[ladder.kind]) == _without_jitter(ladder)


def _without_jitter(ladder: Ladder) -> dict[str, object]:
    retry = ladder.retry
    return {
        **{field: getattr(ladder, field) for field in Ladder.__struct_fields__ if field != "retry"},
        "retry": (retry.max_attempts, retry.base_ms, retry.cap_ms),
    }


def refusal_is_a_ladder_error(text: str) -> None:
    """Read a text that may be anything: it is ladders, or it is a `LadderError` with at least one line."""
    try:
        found = bool(parse_ladders(text, "garbage.toml"))
    except LadderError as error:
        found = bool(error.problems)
    assert found


@given(st.text())
def test_any_text_is_ladders_or_a_ladder_error(text: str) -> None:
    """No text makes the reader raise anything else."""
    refusal_is_a_ladder_error(text)


scalars = st.sampled_from(
    ["1", "-1", "1.5", "nan", "true", '""', '"0s"', '"1h"', '"push"', '"sent"', "1979-05-27", "[]"]
)
fields = st.sampled_from(
    ["channel", "after", "template", "steps", "stop_on", "expires_after", "retry", "base", "cap", "max_attempts", "é"]
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(fields, inner, max_size=4).map(
            lambda items: "{" + ", ".join(f'"{k}" = {v}' for k, v in items.items()) + "}"
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(fields, values, max_size=6))
def test_any_toml_in_any_field_is_ladders_or_a_ladder_error(body: dict[str, str]) -> None:
    """No value of any TOML type in any place makes the reader raise anything else."""
    refusal_is_a_ladder_error(of_kind("\n".join(f'"{field}" = {value}' for field, value in body.items())))
