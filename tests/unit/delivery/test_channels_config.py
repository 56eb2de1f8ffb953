"""channels.toml: what it means, and messages that say where a fault is and what to do."""

from __future__ import annotations

import pytest

from processor.delivery.channels_config import (
    ChannelsError,
    ConsoleOptions,
    SmtpOptions,
    WebhookOptions,
    parse_channels,
    read_secrets,
)

SECRET = "not-a-real-secret"


def _one(fields: str) -> str:
    return f"[channels.push]\nproviders = [{{ {fields} }}]\n"


def test_defaults_are_the_documented_ones() -> None:
    """Time-out 2 s, 16 in flight, no rate; SMTP holds what is unclear, webhooks send again."""
    channels = parse_channels(
        '[channels.email]\nproviders = [{ adapter = "smtp", host = "h", sender = "a@b.example" }]\n'
        + _one('adapter = "webhook", url = "http://h/x"')
        + '[channels.log]\nproviders = [{ adapter = "console" }]\n',
        "c",
    )
    (mail,), (push,), (log,) = channels["email"], channels["push"], channels["log"]
    assert (mail.name, mail.timeout_ms, mail.concurrency, mail.rate, mail.unknown) == (
        "email-smtp",
        2_000,
        16,
        None,
        "hold",
    )
    assert mail.options == SmtpOptions("h", 25, "a@b.example", "auto")
    assert (push.unknown, push.options) == ("resend", WebhookOptions("http://h/x"))
    assert log.options == ConsoleOptions()


def test_the_order_of_providers_is_kept_and_rates_give_bursts() -> None:
    """A tenth of a second's worth, at least one."""
    text = (
        '[channels.push]\nproviders = [\n  { adapter = "console", name = "b", rate = 50 },\n'
        '  { adapter = "console", name = "a", rate = 2.5 },\n]\n'
    )
    found = parse_channels(text, "c")["push"]
    assert [(p.name, p.rate, p.burst) for p in found] == [("b", 50, 5), ("a", 2.5, 1)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = [", "f: this is no TOML"),
        ("", "f: channels: there is no channel"),
        ("[channels.push]", "f: channels.push.providers: at least one is needed"),
        ("[channels.Push]\nproviders = []", "f: channels.Push: this is no name for a channel"),
        (_one('adapter = "smpt"'), 'f: channels.push.providers[0].adapter: must be "smtp" or "webhook" or "console"'),
        (_one('name = "x"'), "f: channels.push.providers[0].adapter: is missing"),
        (_one('adapter = "webhook", ulr = "http://x"'), "ulr: there is no such field; did you mean url?"),
        (_one('adapter = "console", host = "x"'), "host: there is no such field"),
        (_one('adapter = "webhook", url = "ftp://x"'), "url: must be an http or https URL"),
        (_one('adapter = "webhook", url = "http://u:p@x"'), "url: must hold no user name"),
        (_one('adapter = "webhook", timeout = 2'), "timeout: must be a duration in quotes"),
        (_one('adapter = "webhook", timeout = "0s"'), "timeout: must be longer than 0s"),
        (_one('adapter = "webhook", timeout = "6s"'), "timeout: must be at most 5s"),
        (_one('adapter = "webhook", rate = 0'), "rate: must be a number above 0"),
        (_one('adapter = "webhook", rate = inf'), "rate: must be a number above 0"),
        (_one('adapter = "webhook", burst = 0.5'), "burst: must be at least 1"),
        (_one('adapter = "webhook", concurrency = 0'), "concurrency: must be a whole number"),
        (_one('adapter = "webhook", unknown = "retry"'), 'unknown: must be "resend" or "lookup" or "hold"'),
        (_one('adapter = "webhook", unknown = "lookup"'), 'unknown: "lookup" needs an adapter that can be asked'),
        (_one('adapter = "webhook", lookup_url = "http://x/"'), "lookup_url: must hold {key}"),
        (_one('adapter = "webhook", allow_private = "yes"'), "allow_private: must be true or false"),
        (_one('adapter = "webhook", token_env = "T"'), "token_env: a token goes to the provider's own url alone"),
        (_one('adapter = "smtp", sender = "a@b.c"'), "host: is missing"),
        (_one('adapter = "smtp", host = "h"'), "sender: is missing"),
        (_one('adapter = "smtp", host = "h", sender = "nobody"'), "sender: must be a mail address"),
        (_one('adapter = "smtp", host = "h", sender = "a@b.c", port = 0'), "port: must be a whole number"),
        (_one('adapter = "smtp", host = "h", sender = "a@b.c", username_env = "U"'), "password_env: username_env and"),
        (
            _one('adapter = "smtp", host = "h", sender = "a@b.c", username_env = "U", password_env = "P"'),
            "tls: a password needs an encrypted connection",
        ),
        (_one('adapter = "console", name = "x"') + '[channels.b]\nproviders = [{ adapter = "console", name = "x" }]',
         "channels.b: the provider name x is taken by push"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_place_and_its_remedy(text: str, problem: str) -> None:
    """One line that a person can act on."""
    with pytest.raises(ChannelsError) as caught:
        parse_channels(text, "f")
    assert any(problem in line and line.startswith("f: ") for line in caught.value.problems), caught.value.problems


def test_a_secret_that_was_written_into_the_file_is_not_repeated() -> None:
    """The message says what belongs there, without the value."""
    with pytest.raises(ChannelsError) as caught:
        parse_channels(_one(f'adapter = "webhook", secret_env = "{SECRET}!"'), "f")
    assert "secret_env" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_secrets_are_read_once_and_a_missing_one_is_named() -> None:
    """Every variable that the providers name, and no other."""
    channels = parse_channels(_one('adapter = "webhook", url = "http://x", secret_env = "A", token_env = "B"'), "f")
    assert read_secrets(channels, {"A": "1", "B": "2", "C": "3"}) == {"A": "1", "B": "2"}
    with pytest.raises(ChannelsError, match="environment variable B is not set"):
        read_secrets(channels, {"A": SECRET, "B": ""}, "f")
