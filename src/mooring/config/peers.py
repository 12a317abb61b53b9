"""The ``host:port`` entries of ``network``: what they look like, and which of them are the same. Pure.

Used by ``config.decode`` for what a person wrote and by ``launch.egress_proxy`` for what a server asks for, so that
both are compared in one form.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address

NAME = re.compile(r"(?=.{1,253}\.?\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*\.?")
"""A host name in lower case."""


def parse_peer(text: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[IPv6]:port``, in the one form that is compared: addresses as the standard
    writes them, names in lower case without a dot at the end. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) <= 65535:
        raise ValueError(f'"{text}" is not a peer; write host:port')
    return parse_host(host), int(port)


def parse_host(text: str) -> str:
    """A host name, an IPv4 address or an IPv6 address in brackets, in the form of ``parse_peer``. Raises ValueError."""
    bracketed = text.startswith("[") and text.endswith("]")
    try:
        address = ip_address(text[1:-1] if bracketed else text)
    except ValueError:
        address = None
    if address is not None and bracketed == (address.version == 6) and "%" not in text:
        return str(address)
    name = text.lower()
    if address is None and NAME.fullmatch(name):
        return name.removesuffix(".")
    raise ValueError(f'"{text}" is not a host; write a name, an IPv4 address, or an IPv6 address in brackets')


def is_address(host: str) -> bool:
    """Whether a host, as ``parse_host`` gives it, is an address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_here(address: str) -> bool:
    """Whether an address is this machine, or bound to its link as the metadata of clouds is. Private networks are not:
    their names are as good as any."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_loopback or found.is_unspecified or found.is_link_local or found.is_multicast


def show_peer(host: str, port: int) -> str:
    """The peer as it is written in the configuration."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
