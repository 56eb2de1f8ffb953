"""The environment, read once at the entry point into frozen settings; services never read it themselves."""

from __future__ import annotations

import difflib
import os
import socket
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings import SettingsError as PydanticSettingsError

from deploy.errors import CommandError
from schemas.topics import Naming

PREFIX = "RUNG_"
SECRET_PREFIX = "RUNG_SECRET_"  # noqa: S105 - a prefix of names, not a secret
"""Variables with this prefix are for `channels.toml`, which names the variables that hold its secrets."""
DEFAULT_CONFIG_DIR = Path(__file__).parent / "config"


PARTITIONS_MEANING = "of every topic, fixed once the topics exist; 4 on the embedded stack unless set"


class SettingsError(CommandError, ValueError):
    """The environment does not describe a system; the message names each variable and the fix."""


class Settings(BaseSettings):
    """Everything that is set from outside, as `RUNG_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    kafka: str = Field(default="", description="Kafka's bootstrap servers, `host:port,…`")
    kafka_config: dict[str, str] = Field(
        default_factory=dict, description="more librdkafka settings for every client, as JSON (TLS, SASL)"
    )
    database_url: SecretStr = Field(
        default=SecretStr(""), description="PostgreSQL, `postgresql://user:password@host/db`"
    )
    config_dir: Path = Field(
        default=DEFAULT_CONFIG_DIR, description="the folder with ladders.toml, channels.toml, templates/"
    )
    topic_prefix: str = Field(default="", description="put before every topic and group name")
    partitions: int = Field(default=12, ge=1, le=10_000, description=PARTITIONS_MEANING)
    replication_factor: int = Field(
        default=1, ge=1, le=15, description="of every topic, changelogs included; 3 in production"
    )
    instance_id: str = Field(
        default_factory=socket.gethostname,
        description="this replica's name, the same after a restart and unique among replicas of a service",
    )
    state_dir: Path = Field(
        default=Path(".rung/state"), description="where the processor keeps its store between restarts"
    )
    engine: Literal["quix", "faust"] = Field(
        default="quix",
        description="what the processor runs on; `faust` needs the extra `rung[faust]`",
    )
    state_store: Literal["rocksdb", "memory"] = Field(
        default="rocksdb",
        description="where the processor keeps its store; `memory`, which the engine `faust` alone has, is read back "
        "from Kafka at each start",
    )
    state_memory_mib: int = Field(
        default=64,
        ge=1,
        description="the most that the processor's cache of the store takes; 8 MiB of buffers a partition come on top",
    )
    delivery_concurrency: int = Field(
        default=64, ge=1, le=10_000, description="the most provider calls at once of a delivery worker"
    )
    metrics_port: int = Field(
        default=9464, ge=0, le=65535, description="of `/metrics`, `/healthz` and `/readyz`; 0 serves none"
    )
    api_host: str = Field(default="127.0.0.1", description="where the HTTP API listens")
    api_port: int = Field(default=8080, ge=0, le=65535, description="where the HTTP API listens; 0 is a free port")
    api_token: SecretStr | None = Field(default=None, description="bearer token that the HTTP API asks for, if set")
    journal_retention_days: int = Field(default=30, ge=1, description="how long the journal keeps events")
    shutdown_seconds: float = Field(default=10.0, gt=0, description="how long a service may take to stop in order")
    stall_seconds: float = Field(
        default=60.0,
        ge=0,
        description="a service that makes no progress for so long, with its servers there, ends itself; 0 never",
    )
    log_level: str = Field(
        default="info", pattern="^(debug|info|warning|error)$", description="of the JSON logs on stderr"
    )
    cache_dir: Path | None = Field(
        default=None, description="where the embedded stack keeps Kafka's jars; `~/.cache/rung` if not set"
    )
    crash_at: str = Field(
        default="",
        description="for tests of crashes alone: the point at which a service kills itself, `name` or `name:N` for "
        "its N-th passing",
    )
    maven_repository: str = Field(default="", description="a mirror to download Kafka's jars from")

    @field_validator("kafka_config")
    @classmethod
    def _leaves_what_promises_rest_on(cls, value: dict[str, str]) -> dict[str, str]:
        if found := sorted(_FIXED & value.keys()):
            raise ValueError(f"may not set {', '.join(found)}: the services' promises rest on their own values")
        return value

    @field_validator("config_dir", "state_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @property
    def naming(self) -> Naming:
        """How topics and groups are named on the cluster."""
        return Naming(self.topic_prefix)

    @property
    def client(self) -> dict[str, str]:
        """The librdkafka settings that every client starts from; `RUNG_KAFKA_CONFIG` may change them."""
        if not self.kafka:
            raise SettingsError("RUNG_KAFKA is not set: give Kafka's bootstrap servers, such as 127.0.0.1:9092")
        return {**_CLIENT, **self.kafka_config, "bootstrap.servers": self.kafka}

    @property
    def database(self) -> str:
        """The database's address, which holds a password: never log it."""
        url = self.database_url.get_secret_value()
        if not url:
            raise SettingsError("RUNG_DATABASE_URL is not set: give PostgreSQL's address, postgresql://…")
        return url


# Kafka is back for us when the client has asked again: its own ten seconds between two tries are too long for that.
_CLIENT = {"reconnect.backoff.max.ms": "1000"}


_FIXED = frozenset(
    {
        "acks",
        "request.required.acks",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "group.instance.id",
        "isolation.level",
        "partition.assignment.strategy",
        "partitioner",
        "transactional.id",
    }
)
"""The services set these themselves. A value of the operator's would be passed over in silence, and whoever gives one
(another partitioner, say, because other producers have it) expects what would not come."""


def load() -> Settings:
    """Read the settings from the environment.

    Raises:
        SettingsError: a variable with our prefix is unknown, or a value is not what it must be.
    """
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    faults = []
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known and not name.startswith(SECRET_PREFIX):
            near = difflib.get_close_matches(name, known, 1)
            faults.append(f"{name} is not a setting" + (f"; did you mean {near[0]}?" if near else ""))
    if faults:
        raise SettingsError("; ".join(faults))
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError("; ".join(map(_fault, error.errors()))) from None
    except PydanticSettingsError:
        # Of all settings only this one is a JSON object; the error holds its text, and that may hold a password.
        raise SettingsError(f"{PREFIX}KAFKA_CONFIG: the value is no JSON object") from None


def load_with(config_dir: Path | None) -> Settings:
    """The environment's settings, with a configuration directory given on the command line. SettingsError as `load`."""
    settings = load()
    if config_dir is None:
        return settings
    return settings.model_copy(update={"config_dir": config_dir.expanduser().absolute()})


_SECRET = frozenset({"KAFKA_CONFIG", "DATABASE_URL", "API_TOKEN"})
_TYPE_FAULTS = {"int_parsing": "is no whole number", "float_parsing": "is no number"}


def _fault(error: ErrorDetails) -> str:
    """What is wrong with one variable, in the words of somebody who sets it."""
    name = str(error["loc"][0]).upper()
    value = "the value" if name in _SECRET else repr(error["input"])
    limits = error.get("ctx", {})
    match error["type"]:
        case kind if kind in _TYPE_FAULTS:
            problem = _TYPE_FAULTS[kind]
        case "greater_than_equal":
            problem = f"is less than {limits['ge']:g}"
        case "less_than_equal":
            problem = f"is more than {limits['le']:g}"
        case "greater_than":
            problem = f"must be more than {limits['gt']:g}"
        case "string_pattern_mismatch":
            problem = f"is none of {', '.join(str(limits['pattern']).strip('^$()').split('|'))}"
        case "literal_error":
            problem = f"is none of {limits['expected']}"
        case "value_error":
            problem = str(limits["error"])
        case _:
            problem = f"is not taken: {error['msg']}"
    return f"{PREFIX}{name}: {value} {problem}"
