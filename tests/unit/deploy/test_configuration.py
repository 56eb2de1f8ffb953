"""The configuration directory: everything that is wrong at once, secrets before a start, and the commands for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.configuration import ConfigurationError, load_configuration, secrets
from deploy.hints import hints, program
from deploy.settings import DEFAULT_CONFIG_DIR

NEEDS_SECRET = """
[channels.push]
providers = [{ adapter = "webhook", url = "https://push.example.com", secret_env = "RUNG_SECRET_PUSH" }]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the configuration that comes with the package."""
    return Path(shutil.copytree(DEFAULT_CONFIG_DIR, tmp_path / "config"))


def rung(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with no other settings than these."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RUNG_")}
    command = [sys.executable, "-m", "deploy.cli", *arguments]
    return subprocess.run(command, env=ours | environment, capture_output=True, text=True, timeout=60, check=False)


def add_secret(folder: Path) -> None:
    """Let a provider of the configuration need a secret."""
    channels = folder / "channels.toml"
    text = channels.read_text().replace('[channels.push]\nproviders = [{ adapter = "console" }]\n', NEEDS_SECRET)
    assert 'RUNG_SECRET_PUSH"' in text
    channels.write_text(text)


def test_the_faults_of_all_three_parts_are_told_together(folder: Path) -> None:
    """A bad ladder, a bad channel and a bad template: one message, so that one round of mending is enough."""
    ladders = folder / "ladders.toml"
    ladders.write_text(ladders.read_text().replace('stop_on = "resolution"', 'stop_on = "acted"', 1))
    (folder / "channels.toml").write_text('[channels.push]\nproviders = [{ adapter = "pigeon" }]\n')
    with pytest.raises(ConfigurationError) as raised:
        load_configuration(folder)
    assert "stop_on" in str(raised.value)
    assert "pigeon" in str(raised.value) or "adapter" in str(raised.value)


def test_a_fault_of_the_channels_does_not_hide_those_of_templates(folder: Path) -> None:
    """Templates belong to ladders; they are looked at whatever the channels say."""
    (folder / "channels.toml").unlink()
    next((folder / "templates").rglob("push.j2")).unlink()
    with pytest.raises(ConfigurationError) as raised:
        load_configuration(folder)
    assert "channels.toml: the file cannot be read" in str(raised.value)
    assert "push.j2: there is no such template" in str(raised.value)


def test_a_folder_that_is_not_there_is_one_fault(tmp_path: Path) -> None:
    """Not one for each file that it should hold."""
    with pytest.raises(ConfigurationError, match=r"no-such does not exist$"):
        load_configuration(tmp_path / "no-such")


def test_a_secret_that_is_not_set_is_named(folder: Path) -> None:
    """By variable and provider; set, its value is found."""
    add_secret(folder)
    found = load_configuration(folder)
    with pytest.raises(ConfigurationError, match="RUNG_SECRET_PUSH is not set"):
        secrets(found, {})
    assert secrets(found, {"RUNG_SECRET_PUSH": "s"}) == {"RUNG_SECRET_PUSH": "s"}


def test_check_warns_of_a_secret_and_a_start_refuses(folder: Path, tmp_path: Path) -> None:
    """The check runs where secrets need not be; `up` refuses before it starts a server, a service with its message
    alone."""
    add_secret(folder)
    checked = rung("ladders", "check", "--config", str(folder))
    assert (checked.returncode, "all well" in checked.stdout) == (0, True)
    assert "warning" in checked.stderr
    assert "RUNG_SECRET_PUSH is not set" in checked.stderr
    refused = rung("up", "--config", str(folder), "--state", str(tmp_path / "state"))
    assert refused.returncode == 2
    assert "RUNG_SECRET_PUSH is not set" in refused.stderr
    assert "starting" not in refused.stderr
    service = rung("deliver", RUNG_CONFIG_DIR=str(folder), RUNG_KAFKA="127.0.0.1:1")
    assert service.returncode == 2
    assert "RUNG_SECRET_PUSH is not set" in service.stderr
    assert "Traceback" not in service.stderr + refused.stderr


def test_a_service_without_its_settings_says_what_is_missing() -> None:
    """Exit code 2 and one line."""
    result = rung("processor")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("rung: RUNG_KAFKA is not set")
    assert "Traceback" not in result.stderr


def test_the_hints_are_of_the_kinds_that_are_there(folder: Path) -> None:
    """A known kind, addresses for its channels, the data that its templates ask for, and `rung status`."""
    configuration = load_configuration(folder)
    lines = hints(configuration, "postgresql://127.0.0.1/rung", "bin/rung")
    notify = next(line for line in lines if line.startswith("bin/rung notify"))
    kind = notify.split()[3]
    assert kind in configuration.ladders
    assert all(f'"{step.channel}"' in lines[0] for step in configuration.ladders[kind].steps)
    assert any(line.startswith("bin/rung status") for line in lines)


def test_the_program_is_named_as_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the folder where that is shorter, by its bare name where the shell finds it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    file = tmp_path / "bin" / "rung"
    file.parent.mkdir()
    file.touch(mode=0o755)
    assert program(str(file)) == "bin/rung"
    monkeypatch.chdir(file.parent)
    assert program(str(file)) == "./rung"
    monkeypatch.setenv("PATH", str(file.parent))
    assert program(str(file)) == "rung"
    assert program("/x/deploy/cli.py").endswith("-m deploy.cli")


def test_a_command_for_people_loads_no_service() -> None:
    """`--help` and `notify` answer at once: the libraries of services, which take seconds, are not loaded."""
    code = (
        "import sys, deploy.cli; "
        "print(*{'quixstreams', 'aiohttp', 'structlog', 'prometheus_client', 'confluent_kafka'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == ""


def test_the_version_is_told() -> None:
    """`rung --version`."""
    result = rung("--version")
    assert (result.returncode, result.stdout.split()[0]) == (0, "rung")
