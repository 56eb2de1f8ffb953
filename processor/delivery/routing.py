"""Which provider of a channel a claim goes to. Pure but for the adapters' naming of targets."""

from collections.abc import Callable, Mapping, Sequence

from processor.delivery.channels_config import ProviderConfig
from processor.delivery.limits import ProviderLimits
from processor.delivery.scheduler import Claim
from schemas.records import Delivery


class Router:
    """The first attempt goes to the first provider, the next one to the next, round and round. A provider that is
    closed is passed over while another is open. A claim that names a provider stays with it: that one may have accepted
    an earlier attempt."""

    def __init__(
        self,
        channels: Mapping[str, Sequence[ProviderConfig]],
        limits: Mapping[str, ProviderLimits],
        target: Callable[[str, str], str],
    ) -> None:
        self._channels = channels
        self._limits = limits
        self._target = target

    def obstacle(self, claim: Delivery) -> str | None:
        """Why no provider can take this claim: `unknown_channel`, `provider_gone`, or None."""
        providers = self._channels.get(claim.channel)
        if not providers:
            return "unknown_channel"
        if claim.provider is not None and all(p.name != claim.provider for p in providers):
            return "provider_gone"
        return None

    def route(self, claim: Claim, now: int) -> None:
        """Choose the provider; the claim has no obstacle."""
        wanted = claim.delivery
        if wanted.provider is not None:
            claim.provider = wanted.provider
        else:
            names = [p.name for p in self._channels[wanted.channel]]
            first = max(0, wanted.attempt - 1) % len(names)
            order = names[first:] + names[:first]
            claim.provider = next((n for n in order if self._limits[n].closed_until <= now), order[0])
        claim.target = self._target(claim.provider, wanted.address)
