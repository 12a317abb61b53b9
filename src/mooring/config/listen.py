"""Addresses to listen on, as people write them: ``host:port``. Pure; called by ``config.resolve``."""

from __future__ import annotations

from collections.abc import Sequence

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 -- recognised, not bound


def parse_address(written: str) -> tuple[str, int]:
    """Host and port; ``[::1]:7420`` for IPv6. Raises ValueError."""
    host, colon, port = written.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f'"{written}" is not an address; write host:port, such as "127.0.0.1:7420" or "[::1]:7420"')
    return host, int(port)


def beyond_loopback(addresses: Sequence[tuple[str, int]]) -> bool:
    """Whether another machine could connect."""
    return any(host not in ("::1", "localhost") and not host.startswith("127.") for host, _ in addresses)


def public_url(address: tuple[str, int]) -> str:
    """The URL under which this machine reaches ``address``."""
    host, port = address
    host = _EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
