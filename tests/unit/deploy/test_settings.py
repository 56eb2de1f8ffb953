"""The environment: what is refused, and that secrets stay out of sight."""

from __future__ import annotations

import os
import re

import pytest

from deploy.settings import Settings, SettingsError, load


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine that runs the tests counts."""
    for name in list(os.environ):
        if name.startswith("RUNG_"):
            monkeypatch.delenv(name)


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a test."""
    return monkeypatch


def test_the_defaults_need_no_environment() -> None:
    """An empty environment is a valid one; what cannot be guessed is asked for when it is needed."""
    settings = load()
    assert settings.partitions == 12
    with pytest.raises(SettingsError, match="RUNG_KAFKA"):
        _ = settings.client
    with pytest.raises(SettingsError, match="RUNG_DATABASE_URL"):
        _ = settings.database


def test_an_unknown_variable_is_refused_with_a_guess(env: pytest.MonkeyPatch) -> None:
    """A typing error must not become a default in silence; other programs' variables are none of our business."""
    env.setenv("RUNG_KAFKAA", "x")
    with pytest.raises(SettingsError, match=re.escape("RUNG_KAFKAA is not a setting; did you mean RUNG_KAFKA?")):
        load()


def test_a_secret_for_the_channels_may_have_our_prefix(env: pytest.MonkeyPatch) -> None:
    """`channels.toml` names the variables of its secrets; RUNG_SECRET_ is kept free for them."""
    env.setenv("RUNG_SECRET_SMTP", "x")
    assert load().kafka == ""


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("RUNG_PARTITIONS", "0", "'0' is less than 1"),
        ("RUNG_PARTITIONS", "many", "'many' is no whole number"),
        ("RUNG_METRICS_PORT", "70000", "'70000' is more than 65535"),
        ("RUNG_SHUTDOWN_SECONDS", "soon", "'soon' is no number"),
        ("RUNG_LOG_LEVEL", "loud", "'loud' is none of debug, info, warning, error"),
        ("RUNG_KAFKA_CONFIG", '{"sasl.password": hunter2', "the value is no JSON object"),
        (
            "RUNG_KAFKA_CONFIG",
            '{"partitioner": "consistent_random", "acks": "1", "sasl.password": "hunter2"}',
            "the value may not set acks, partitioner: the services' promises rest on their own values",
        ),
    ],
)
def test_a_bad_value_names_its_variable(env: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
    """The message says which variable is wrong and how, in the words of somebody who sets it."""
    env.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        load()
    assert str(raised.value) == f"{name}: {says}"


def test_values_are_read_and_frozen(env: pytest.MonkeyPatch) -> None:
    """Text becomes what the field is, and nobody changes it afterwards."""
    env.setenv("RUNG_KAFKA", "a:1")
    env.setenv("RUNG_PARTITIONS", "4")
    env.setenv("RUNG_KAFKA_CONFIG", '{"sasl.password": "p"}')
    settings = load()
    assert settings.partitions == 4
    assert settings.client == {
        "sasl.password": "p",
        "bootstrap.servers": "a:1",
        "reconnect.backoff.max.ms": "1000",
    }
    with pytest.raises(ValueError, match="frozen"):
        settings.partitions = 5
    env.setenv("RUNG_KAFKA_CONFIG", '{"reconnect.backoff.max.ms": "5000"}')
    assert load().client["reconnect.backoff.max.ms"] == "5000"


def test_secrets_are_masked() -> None:
    """Neither the database's password nor the API's token shows in a log of the settings."""
    settings = Settings.model_validate({"database_url": "postgresql://u:hunter2@h/d", "api_token": "hunter3"})
    assert "hunter" not in repr(settings)
