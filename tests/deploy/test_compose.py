"""The compose file and the image: every service of ours is there, and what they name exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from typer.main import get_command

from deploy.cli import app
from deploy.operate import SERVICE_COMMANDS
from deploy.settings import PREFIX, Settings
from tests.deploy.conftest import DEPLOY

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "rung:local"}
KNOWN = {PREFIX + name.upper() for name in Settings.model_fields}


def commands(service: dict[str, Any]) -> list[list[str]]:
    """The words after `rung` that a service runs."""
    (line, *rest) = service["command"]
    if "entrypoint" in service:
        return [part.split()[1:] for part in line.split("&&")]
    return [[line, *(word for word in rest if not word.startswith("--"))]]


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_a_command_that_exists(name: str) -> None:
    """A renamed command would leave a container that restarts for ever."""
    for words in commands(OURS[name]):
        command: Any = get_command(app)
        for word in words:
            assert word in command.commands, words
            command = command.commands[word]


def test_every_service_is_there() -> None:
    """One container per service command, one that audits them, and one that prepares database and cluster."""
    assert set(OURS) == {command.__name__ for command in SERVICE_COMMANDS} | {"audit", "prepare"}
    assert {"kafka", "postgres", "prometheus", "grafana"} <= set(SERVICES)
    assert commands(OURS["prepare"]) == [["migrate"], ["topics", "create"], ["ladders", "apply"]]


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_told_only_what_it_knows(name: str) -> None:
    """An unknown variable with our prefix stops a service at its start."""
    environment = OURS[name]["environment"]
    assert {"RUNG_KAFKA", "RUNG_DATABASE_URL", "RUNG_CONFIG_DIR", "RUNG_METRICS_PORT"} <= set(environment) <= KNOWN
    assert environment["RUNG_METRICS_PORT"] == "9464"
    if name != "prepare":
        assert environment["RUNG_INSTANCE_ID"] == f"{name}-1"
        assert OURS[name]["depends_on"] == {"prepare": {"condition": "service_completed_successfully"}}


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists(name: str) -> None:
    """A missing source would be made as an empty folder by the engine."""
    for volume in SERVICES[name].get("volumes", ()):
        source = volume.split(":")[0]
        if source.startswith("."):
            assert (DEPLOY / source).is_dir(), source
        else:
            assert source in COMPOSE["volumes"]


def test_servers_have_versions() -> None:
    """No image moves by itself."""
    for name, service in SERVICES.items():
        if name not in OURS:
            assert re.fullmatch(r"[\w/]+:v?\d[\d.]*", service["image"]), name


def test_prometheus_scrapes_every_service() -> None:
    """One job per service, at the port that the services are given."""
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text("utf-8"))
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    assert jobs == {f"rung-{name}": [f"{name}:9464"] for name in OURS if name != "prepare"}


def test_the_image_is_made_of_what_exists() -> None:
    """Every file that the Dockerfile copies is in the project and is let through to the builder."""
    let_through = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    for source in " ".join(copied).split():
        assert (DEPLOY.parent / source).exists(), source
        assert f"!{source.split('/')[0]}" in let_through, source


def test_docker_accepts_the_compose_file() -> None:
    """Compose itself reads it, where it is installed; no engine is needed."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    command = [docker, "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
