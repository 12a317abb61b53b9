"""Which addresses Mooring may be sent to by somebody else: URLs that a server names and that nobody here wrote down.

Asked for every discovered URL (OAuth metadata, endpoints) and every redirect on the way. Pure: names are resolved by
``wire.egress_transport``, which connects to exactly the addresses that were looked at here. What the configuration
itself says is trusted as far as it goes: who configures a server at a private address may be sent to private addresses,
who configures one on this machine also to this machine.

Source: MCP 2026-07-28 "Security Best Practices: SSRF"; RFC 6890.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal
from urllib.parse import urlsplit

from mooring.errors import MooringError

Address = IPv4Address | IPv6Address
Reach = Literal["public", "private", "loopback", "never"]
"""How near an address is. ``never``: link-local (cloud metadata), multicast, unspecified, reserved."""

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_CARRIER = ip_network("100.64.0.0/10")
_PRIVATE6 = ip_network("fc00::/7")
_SITE6 = ip_network("fec0::/10")
"""The private addresses of the past, which some networks still have."""
_TRANSLATED = ip_network("64:ff9b::/96")
_ALLOWED: dict[Reach, tuple[Reach, ...]] = {
    "public": ("public",),
    "private": ("public", "private"),
    "loopback": ("public", "private", "loopback"),
    "never": ("public",),
}


class Forbidden(MooringError):
    """A server named an address that Mooring does not go to."""

    kind = "forbidden_address"
    status = 502


def reach(address: str) -> Reach:
    """How near an IP address is. An IPv4 address inside an IPv6 one counts as itself. Raises ValueError."""
    found = _inner(ip_address(address.partition("%")[0]))
    if found.is_loopback:
        return "loopback"
    if found.is_link_local or found.is_multicast or found.is_unspecified:
        return "never"
    if found in _CARRIER or found in _PRIVATE6 or found in _SITE6 or (found.version == 4 and _is_private4(found)):
        return "private"
    return "public" if found.is_global and not found.is_reserved else "never"


def _is_private4(address: Address) -> bool:
    return any(address in network for network in _PRIVATE4)


_PRIVATE4 = tuple(ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


def _inner(address: Address) -> Address:
    if not isinstance(address, IPv6Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def standing(host: str, addresses: Iterable[str]) -> Reach:
    """How near the server of the configuration is: what it may send Mooring to. A server elsewhere can give its name
    any address from one moment to the next, so being on this machine takes a local name or address in the
    configuration, and being private takes all addresses."""
    found = {reach(address) for address in addresses}
    if _local(host) or _is_loopback(host):
        return "loopback" if found == {"loopback"} else "public"
    return "private" if found == {"private"} else "public"


def _local(host: str) -> bool:
    return host in _LOCAL_NAMES or host.endswith(".localhost")


def _is_loopback(host: str) -> bool:
    try:
        return reach(host) == "loopback"
    except ValueError:
        return False


def check_url(url: str, trusted: Reach) -> str:
    """The host of a URL that may be tried, in lower case: https, or http on this machine for those who are trusted
    with it; no user or password. ``trusted``: ``standing`` of the configured server. Raises Forbidden."""
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise Forbidden("a server named a URL that is none") from None
    if parts.username is not None or parts.password is not None:
        raise Forbidden(f"a server named a URL with a user in it, at {host}")
    if parts.scheme != "https" and not (parts.scheme == "http" and _local(host) and trusted == "loopback"):
        raise Forbidden(f"a server named {parts.scheme}://{host}; only https is gone to")
    if not host:
        raise Forbidden("a server named a URL without a host")
    return host


def check_addresses(host: str, addresses: Iterable[str], trusted: Reach) -> tuple[str, ...]:
    """The addresses of ``host``, if each of them may be gone to; one that may not spoils all, for which of them is
    taken is not up to us. Raises Forbidden."""
    found = tuple(addresses)
    if not found:
        raise Forbidden(f"{host} has no address")
    for address in found:
        if reach(address) not in _ALLOWED[trusted]:
            raise Forbidden(f"a server named {host}, which is at {address}: not an address to be sent to from outside")
    return found
