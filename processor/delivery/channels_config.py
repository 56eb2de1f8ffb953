"""Read `channels.toml`: per channel an ordered list of providers, checked as a whole before anything starts.

    [[channels.email.providers]]
    adapter = "smtp"
    name = "mail"
    host = "127.0.0.1"
    port = 2525
    sender = "Rung <rung@example.test>"
    rate = 50
    unknown = "hold"

    [channels.push]
    providers = [{ adapter = "webhook", url = "http://127.0.0.1:9000/push", secret_env = "PUSH_SECRET" }]

Fields of every provider: `adapter` (smtp, webhook, console), `name` (default `<channel>-<adapter>`; a metric label),
`timeout` of a call (2s, at most 5s), `rate` (calls per second over all workers; no limit if absent), `burst` (calls
that may follow at once after a pause; a tenth of a second's worth, at least one), `concurrency` (calls in flight per
worker; 16), `unknown` (what to do when a call may have been accepted: "resend", "lookup" or "hold").

smtp: `host`, `port`, `sender`, `tls` ("auto" takes STARTTLS where offered, "starttls", "implicit", "none"),
`username_env` and `password_env`. webhook: `url` (absent: the recipient's address is the URL), `secret_env` (for the
signature), `token_env` (bearer token), `lookup_url` (holds `{key}`), `allow_private` (development: recipients' URLs may
lead to internal addresses). Secrets are never written here, only the names of the environment variables that hold them.
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.headerregistry import Address
from email.utils import parseaddr
from typing import Literal
from urllib.parse import urlsplit

from processor.domain.durations import format_duration
from processor.domain.ladders import NAME
from processor.domain.toml_table import Table
from schemas.records import UnknownPolicy
from schemas.topics import PROVIDER_TIMEOUT_LIMIT_MS

DEFAULT_TIMEOUT_MS = 2_000
DEFAULT_CONCURRENCY = 16
LEAST_BURST = 1.0
BURST_SECONDS = 0.1
"""A burst's default: small enough that no second sees much more than the rate, and large enough that a timer that is
a few milliseconds late loses no tokens."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMON = ("adapter", "name", "timeout", "rate", "burst", "concurrency", "unknown")
_ADAPTERS: tuple[Literal["smtp", "webhook", "console"], ...] = ("smtp", "webhook", "console")
_TLS: tuple[Literal["auto", "starttls", "implicit", "none"], ...] = ("auto", "starttls", "implicit", "none")
_PORTS = {"auto": 25, "starttls": 587, "implicit": 465, "none": 25}


@dataclass(frozen=True, slots=True)
class SmtpOptions:
    """A mail server that takes our messages. SMTP knows no key, so an unclear call is not repeated by default."""

    host: str
    port: int
    sender: str
    tls: Literal["auto", "starttls", "implicit", "none"]
    username_env: str | None = None
    password_env: str | None = None


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """An HTTP endpoint; `url` None means that each recipient's address is the URL."""

    url: str | None = None
    secret_env: str | None = None
    token_env: str | None = None
    lookup_url: str | None = None
    allow_private: bool = False


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """Prints what would be sent; for development."""


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """One provider of one channel."""

    channel: str
    name: str
    options: SmtpOptions | WebhookOptions | ConsoleOptions
    unknown: UnknownPolicy
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    rate: float | None = None
    burst: float = LEAST_BURST
    concurrency: int = DEFAULT_CONCURRENCY

    def secret_names(self) -> tuple[str, ...]:
        """The environment variables that hold this provider's secrets."""
        match self.options:
            case SmtpOptions(username_env=username, password_env=password):
                found: tuple[str | None, ...] = (username, password)
            case WebhookOptions(secret_env=secret, token_env=token):
                found = (secret, token)
            case _:
                found = ()
        return tuple(name for name in found if name is not None)


class ChannelsError(ValueError):
    """Everything that is wrong with the channels; `problems` holds one line for each fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def parse_channels(text: str, source: str) -> dict[str, tuple[ProviderConfig, ...]]:
    """The providers of a TOML text by channel, in order. `source` is the name that error messages begin with.

    Raises:
        ChannelsError: at least one provider is not as the contract says; all faults are listed.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ChannelsError([f"{source}: this is no TOML: {error}"]) from error
    problems: list[str] = []
    root = Table(document, f"{source}: ", problems)
    root.refuse_unknown(("channels",))
    channels = root.table("channels")
    if not channels.values and not problems:
        root.problem("channels", "there is no channel: add a table [channels.<name>] with its providers")
    found = {channel: _channel(channel, channels) for channel in channels.values}
    _refuse_repeated_names(found, channels)
    if problems:
        raise ChannelsError(problems)
    return found


def read_secrets(
    channels: Mapping[str, Sequence[ProviderConfig]], environ: Mapping[str, str], source: str = "channels.toml"
) -> dict[str, str]:
    """The values of the environment variables that the providers name.

    Raises:
        ChannelsError: one is not set or empty; names it and the provider, and no value.
    """
    problems, found = [], {}
    for providers in channels.values():
        for provider in providers:
            for name in provider.secret_names():
                value = environ.get(name, "")
                if not value:
                    problems.append(
                        f"{source}: channels.{provider.channel}, provider {provider.name}: "
                        f"the environment variable {name} is not set; set it to the provider's secret"
                    )
                found[name] = value
    if problems:
        raise ChannelsError(problems)
    return found


def _channel(channel: str, channels: Table) -> tuple[ProviderConfig, ...]:
    if NAME.fullmatch(channel) is None:
        channels.problem(channel, "this is no name for a channel: use lower-case letters, digits, - and _")
    table = channels.table(channel)
    if not isinstance(channels.values[channel], dict):
        return ()
    table.refuse_unknown(("providers",))
    tables = table.tables("providers")
    if not tables and "providers" not in table.faulty:
        table.problem("providers", 'at least one is needed, such as { adapter = "console" }')
    return tuple(_provider(channel, item) for item in tables)


def _provider(channel: str, table: Table) -> ProviderConfig:
    if "adapter" not in table.values:
        table.problem("adapter", f"is missing: write one of {', '.join(_ADAPTERS)}")
        return ProviderConfig(channel, "", ConsoleOptions(), UnknownPolicy.HOLD)
    adapter = table.choice("adapter", _ADAPTERS)
    if "adapter" in table.faulty:
        return ProviderConfig(channel, "", ConsoleOptions(), UnknownPolicy.HOLD)
    options: SmtpOptions | WebhookOptions | ConsoleOptions
    match adapter:
        case "smtp":
            options = _smtp(table)
        case "webhook":
            options = _webhook(table)
        case "console":
            table.refuse_unknown(_COMMON)
            options = ConsoleOptions()
    name = table.text("name", f"{channel}-{adapter}")
    if "name" in table.values and "name" not in table.faulty and NAME.fullmatch(name) is None:
        table.problem("name", "use lower-case letters, digits, - and _, and start with a letter")
    timeout = table.duration("timeout", DEFAULT_TIMEOUT_MS)
    if timeout == 0:
        table.problem("timeout", "must be longer than 0s")
    elif timeout > PROVIDER_TIMEOUT_LIMIT_MS:
        limit = format_duration(PROVIDER_TIMEOUT_LIMIT_MS)
        table.problem("timeout", f"must be at most {limit}: a call that takes longer would be made a second time")
    rate = _number(table, "rate")
    burst = _number(table, "burst", least=LEAST_BURST)
    if burst is None:
        burst = max(LEAST_BURST, (rate or 0) * BURST_SECONDS)
    concurrency = table.whole_number("concurrency", DEFAULT_CONCURRENCY, 1, 10_000)
    return ProviderConfig(channel, name, options, _unknown(table, options), timeout, rate, burst, concurrency)


def _smtp(table: Table) -> SmtpOptions:
    table.refuse_unknown((*_COMMON, "host", "port", "sender", "tls", "username_env", "password_env"))
    tls = table.choice("tls", _TLS)
    username, password = _env_name(table, "username_env"), _env_name(table, "password_env")
    if (username is None) is not (password is None):
        table.problem("password_env" if username else "username_env", "username_env and password_env go together")
    if username is not None and tls in ("auto", "none"):
        table.problem("tls", 'a password needs an encrypted connection: write tls = "starttls" or tls = "implicit"')
    sender = table.text("sender", None)
    if sender and not _is_mailbox(sender):
        table.problem("sender", 'must be a mail address, such as "Rung <rung@example.com>"')
    port = table.whole_number("port", _PORTS[tls], 1, 65_535)
    return SmtpOptions(table.text("host", None), port, sender, tls, username, password)


def _webhook(table: Table) -> WebhookOptions:
    table.refuse_unknown((*_COMMON, "url", "secret_env", "token_env", "lookup_url", "allow_private"))
    url, lookup_url = _url(table, "url"), _url(table, "lookup_url")
    if lookup_url is not None and "{key}" not in lookup_url:
        table.problem("lookup_url", "must hold {key} where the attempt's key goes")
    allow_private = table.values.get("allow_private", False)
    if not isinstance(allow_private, bool):
        table.problem("allow_private", "must be true or false")
        allow_private = False
    token = _env_name(table, "token_env")
    if token is not None and url is None:
        table.problem("token_env", "a token goes to the provider's own url alone: add url, or remove token_env")
    return WebhookOptions(url, _env_name(table, "secret_env"), token, lookup_url, allow_private)


def _unknown(table: Table, options: SmtpOptions | WebhookOptions | ConsoleOptions) -> UnknownPolicy:
    default = UnknownPolicy.HOLD if isinstance(options, SmtpOptions) else UnknownPolicy.RESEND
    policy = table.choice("unknown", (default, *(p for p in UnknownPolicy if p is not default)))
    can_look_up = isinstance(options, WebhookOptions) and options.lookup_url is not None
    if policy == UnknownPolicy.LOOKUP and not can_look_up:
        table.problem("unknown", '"lookup" needs an adapter that can be asked: a webhook with lookup_url')
    return UnknownPolicy(policy)


def _refuse_repeated_names(found: Mapping[str, tuple[ProviderConfig, ...]], channels: Table) -> None:
    seen: dict[str, str] = {}
    for channel, providers in found.items():
        for provider in providers:
            if not provider.name:
                continue
            if provider.name in seen:
                channels.problem(
                    channel,
                    f"the provider name {provider.name} is taken by {seen[provider.name]}: give it another name",
                )
            seen[provider.name] = channel


def _number(table: Table, field: str, least: float = 0.0) -> float | None:
    value = table.values.get(field)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        if value >= least:
            return float(value)
        table.problem(field, f"must be at least {least:g}")
    else:
        table.problem(field, "must be a number above 0")
    return None


def _env_name(table: Table, field: str) -> str | None:
    if field not in table.values:
        return None
    name = table.text(field, None)
    if field not in table.faulty and _ENV_NAME.fullmatch(name) is None:
        # The message leaves the value out: it may be a secret that was written here by mistake.
        table.problem(field, "must be the name of an environment variable that holds the secret")
    return name


def _url(table: Table, field: str) -> str | None:
    if field not in table.values:
        return None
    url = table.text(field, None)
    if field in table.faulty:
        return url
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        table.problem(field, 'must be an http or https URL, such as "https://push.example.com/send"')
    elif parts.username or parts.password:
        table.problem(field, "must hold no user name or password: name a variable in token_env")
    return url


def _is_mailbox(text: str) -> bool:
    try:
        address = Address(addr_spec=parseaddr(text)[1])
    except (ValueError, IndexError):
        return False
    return bool(address.username and address.domain and text.isprintable())
