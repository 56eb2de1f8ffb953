"""Recipients' URLs do not lead inside."""

from __future__ import annotations

import contextlib
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st

from processor.delivery.ssrf import BadUrlError, ForbiddenAddressError, PublicResolver, check_url, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd12:3456::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:a00:1:0:0:f5ff:fffe",
        "::127.0.0.1",
        "localhost",
        "",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    """Loopback, private, link-local (cloud metadata), shared, documentation, multicast, and all of them in disguise."""
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_addresses_that_are_public(address: str) -> None:
    """The internet, also behind a translator."""
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    ["ftp://a.example", "file:///etc/passwd", "//a.example", "a.example", "", "http://", "http://u:p@a.example/",
     "http://u@a.example", "http://a.example:99999/", "javascript:alert(1)", "http://[::1",
     "http://[]@", "http://a[b]@", "http://[::1]@"],
)  # fmt: skip
def test_what_is_no_url_for_a_webhook(url: str) -> None:
    """Other schemes, no host, user names, broken ports."""
    with pytest.raises(BadUrlError):
        check_url(url, allow_private=True)


@given(st.text(st.sampled_from("htp:/[]@a.é%?#1-"), max_size=14).map("http://".__add__) | st.text(max_size=20))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    """The library fails over texts in many ways; none of them gets through."""
    with contextlib.suppress(BadUrlError, ForbiddenAddressError):
        assert check_url(text, allow_private=False).host


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://[::1]:80/", "https://169.254.169.254/x", "http://10.0.0.1"]
)
def test_a_literal_address_is_checked_before_the_connector_sees_it(url: str) -> None:
    """Unless development allows it."""
    with pytest.raises(ForbiddenAddressError):
        check_url(url, allow_private=False)
    assert check_url(url, allow_private=True).host


class _Fixed(AbstractResolver):
    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=a, port=port, family=family, proto=0, flags=0) for a in self.addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


async def test_a_name_with_one_inner_address_is_refused() -> None:
    """Every address must be public; the connector would take any of them."""
    assert await PublicResolver(_Fixed("1.1.1.1")).resolve("a.example")
    with pytest.raises(ForbiddenAddressError):
        await PublicResolver(_Fixed("1.1.1.1", "10.0.0.1")).resolve("a.example")


@pytest.mark.parametrize("name", ["localhost", "2130706433", "0x7f.1", "127.1"])
async def test_names_that_the_system_takes_for_loopback_are_refused(name: str) -> None:
    """The odd spellings of 127.0.0.1 go through the system's resolver and are checked by what comes out."""
    with pytest.raises(ForbiddenAddressError):
        await PublicResolver().resolve(name, 80, socket.AF_INET)
