"""URLs that a recipient controls must not lead inside: resolve, check every address, connect to the checked ones.

The check sits in the resolver of the connector, so the address that is checked is the one that is connected to, and
a name that answers differently the second time (DNS rebinding) gains nothing. Redirects are not followed.
"""

import ipaddress
import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class ForbiddenAddressError(OSError):
    """The name or the URL leads to an address that recipients may not reach."""


class BadUrlError(ValueError):
    """The address is no URL that a webhook can be sent to."""


def is_public(address: str) -> bool:
    """Whether this IP address is on the public internet, looking inside addresses that carry another one."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(a.is_global and not a.is_multicast and not a.is_reserved for a in _with_embedded(ip))


def _with_embedded(ip: IpAddress) -> list[IpAddress]:
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    if ip.ipv4_mapped is not None:
        return [ip.ipv4_mapped]
    if ip in _NAT64:
        # The well-known prefix is not global to Python; what counts is where the translator leads.
        return [ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)]
    if ip in _NAT64_LOCAL:
        return [ipaddress.IPv4Address("127.0.0.1")]
    if ip.sixtofour is not None:
        return [ip.sixtofour]
    if ip.teredo is not None:
        return [ip, *ip.teredo]
    return [ip]


def check_url(text: str, *, allow_private: bool) -> URL:
    """The URL of a recipient's address.

    Raises:
        BadUrlError: it is no http or https URL, or carries a user name.
        ForbiddenAddressError: its host is an IP address that is not public.
    """
    try:
        url = URL(text)
        host, port = url.host, url.port
        (host or "").encode("idna")  # a label that is empty or too long would fail only when it is looked up
    except Exception as error:  # an address is whatever somebody wrote, and the library fails over it in many ways
        raise BadUrlError("no URL") from error
    if url.scheme not in ("http", "https") or not host or not port:
        raise BadUrlError("no http or https URL")
    if url.user is not None or url.password is not None:
        raise BadUrlError("a URL with a user name")
    if not allow_private and _is_ip(host) and not is_public(host):
        # aiohttp connects to a literal address without asking the resolver.
        raise ForbiddenAddressError("the host is not a public address")
    return url


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class PublicResolver(AbstractResolver):
    """Resolves names and refuses those of which any address is not public."""

    def __init__(self, inner: AbstractResolver | None = None) -> None:
        self._inner = inner or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name.

        Raises:
            ForbiddenAddressError: one of them is not public.
        """
        found = await self._inner.resolve(host, port, family)
        if not all(is_public(result["host"]) for result in found):
            raise ForbiddenAddressError("the name leads to an address that is not public")
        return found

    async def close(self) -> None:
        """Close the resolver underneath."""
        await self._inner.close()
