"""From a provider's configuration to its adapter."""

from collections.abc import Mapping, Sequence

from processor.delivery.channels.console import ConsoleAdapter
from processor.delivery.channels.port import Adapter
from processor.delivery.channels.smtp import SmtpAdapter
from processor.delivery.channels.webhook import WebhookAdapter
from processor.delivery.channels_config import ConsoleOptions, ProviderConfig, SmtpOptions, WebhookOptions


def build_adapter(provider: ProviderConfig, secrets: Mapping[str, str]) -> Adapter:
    """The adapter of a provider; needs a running event loop.

    Raises:
        KeyError: a secret that the provider names is not among `secrets`.
        ValueError: a secret has the wrong form; the message says which variable.
    """
    match provider.options:
        case SmtpOptions() as options:
            return SmtpAdapter(provider, options, secrets)
        case WebhookOptions() as options:
            return WebhookAdapter(provider, options, secrets)
        case ConsoleOptions():
            return ConsoleAdapter()


def build_adapters(channels: Mapping[str, Sequence[ProviderConfig]], secrets: Mapping[str, str]) -> dict[str, Adapter]:
    """All adapters by the provider's name."""
    return {p.name: build_adapter(p, secrets) for providers in channels.values() for p in providers}
