"""Where a server may send Mooring to, and that it goes nowhere else."""

from __future__ import annotations

import asyncio
import ipaddress

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.wire import egress_transport
from mooring.wire.egress import Forbidden, Reach, check_addresses, check_url, reach, standing
from mooring.wire.egress_transport import GuardedTransport, trust
from raw_http_server import Exchange, RawServer


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.216.34", "public"),
        ("2606:4700::1111", "public"),
        ("10.1.2.3", "private"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("fec0::1", "private"),
        ("127.0.0.1", "loopback"),
        ("127.255.0.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("2002:7f00:1::", "loopback"),
        ("64:ff9b::a00:1", "private"),
        ("169.254.169.254", "never"),
        ("::ffff:169.254.169.254", "never"),
        ("fe80::1%eth0", "never"),
        ("0.0.0.0", "never"),
        ("::", "never"),
        ("224.0.0.1", "never"),
        ("ff02::1", "never"),
        ("240.0.0.1", "never"),
        ("255.255.255.255", "never"),
        ("192.0.2.1", "never"),
        ("198.18.0.1", "never"),
        ("2001:db8::1", "never"),
    ],
)
def test_every_address_has_its_reach(address: str, expected: Reach) -> None:
    assert reach(address) == expected


@given(st.ip_addresses())
def test_only_global_addresses_are_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """Whatever the standard library holds for not global is never public here."""
    if reach(str(address)) == "public":
        assert address.is_global or getattr(address, "teredo", None) or getattr(address, "sixtofour", None)


@pytest.mark.parametrize("trusted", ["public", "private", "loopback"])
def test_https_is_gone_to_and_little_else(trusted: Reach) -> None:
    assert check_url("https://Login.Example.com/a?b", trusted) == "login.example.com"
    for url in (
        "http://login.example.com/",
        "ftp://login.example.com/",
        "file:///etc/passwd",
        "https://user:pass@login.example.com/",
        "https:///nowhere",
        "https://host:notaport/",
        "https://[::1",
        "javascript:alert(1)",
        "",
    ):
        with pytest.raises(Forbidden):
            check_url(url, trusted)


@pytest.mark.parametrize("url", ["http://localhost:3000/x", "http://127.0.0.1/", "http://[::1]:80/"])
def test_plain_http_is_for_this_machine_and_those_trusted_with_it(url: str) -> None:
    assert check_url(url, "loopback")
    for trusted in ("public", "private", "never"):
        with pytest.raises(Forbidden):
            check_url(url, trusted)


def test_one_forbidden_address_spoils_all() -> None:
    """A name that is public and private at once would be a matter of luck."""
    assert check_addresses("h", ["93.184.216.34"], "public") == ("93.184.216.34",)
    for addresses in (["93.184.216.34", "127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], []):
        with pytest.raises(Forbidden):
            check_addresses("h", addresses, "public")
    assert check_addresses("h", ["10.0.0.1"], "private")
    for trusted in ("private", "loopback", "never"):
        with pytest.raises(Forbidden):
            check_addresses("h", ["169.254.169.254"], trusted)
    with pytest.raises(Forbidden):
        check_addresses("h", ["127.0.0.1"], "private")


@pytest.mark.parametrize(
    ("host", "addresses", "expected"),
    [
        ("far.example", ["93.184.216.34"], "public"),
        ("far.example", ["10.0.0.1"], "private"),
        ("far.example", ["93.184.216.34", "10.0.0.1"], "public"),
        ("far.example", ["127.0.0.1"], "public"),
        ("far.example", ["10.0.0.1", "127.0.0.1"], "public"),
        ("169.254.1.1", ["169.254.1.1"], "public"),
        ("localhost", ["::1", "127.0.0.1"], "loopback"),
        ("localhost", ["10.0.0.1"], "public"),
        ("web.localhost", ["127.0.0.1"], "loopback"),
        ("127.0.0.2", ["127.0.0.2"], "loopback"),
        ("::1", ["::1"], "loopback"),
    ],
)
def test_the_configured_server_says_how_far_it_is_trusted(host: str, addresses: list[str], expected: Reach) -> None:
    """By its name as it is written, where that counts: what a name stands for is up to its owner, at any moment."""
    assert standing(host, addresses) == expected


async def test_a_server_on_this_machine_may_send_to_this_machine() -> None:
    async with RawServer("legacy") as server:
        transport = GuardedTransport(await trust(server.url))
        async with httpx2.AsyncClient(transport=transport) as client:
            assert (await client.post(server.url, json={"method": "initialize", "id": 1})).status_code == 200
        assert server.seen[0].headers["host"] == f"127.0.0.1:{server.port}"


async def test_a_name_that_nobody_looks_up_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(host: str, port: int) -> list[str]:
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(egress_transport, "TIMEOUT", 0.01)
    with pytest.raises(OSError, match=r"no address of far\.example within 0\.01 s"):
        await trust("https://far.example/mcp", silent)


async def test_a_redirect_hop_is_looked_at_too() -> None:
    """And it goes to the very address that was looked at, whatever the name says a moment later."""
    async with RawServer("legacy") as server:
        answers = [["127.0.0.1"], ["127.0.0.1"], ["169.254.169.254"]]

        async def find(host: str, port: int) -> list[str]:
            return answers.pop(0)

        async def redirect(it: Exchange) -> bool:
            await it.reply(307, b"", location=f"http://b.localhost:{server.port}/next")
            return True

        server.override = redirect
        transport = GuardedTransport("loopback", find)
        async with httpx2.AsyncClient(transport=transport, follow_redirects=True) as client:
            with pytest.raises(Forbidden):
                await client.get(f"http://a.localhost:{server.port}/")
        assert [it.headers["host"].partition(":")[0] for it in server.seen] == ["a.localhost", "b.localhost"]


async def test_from_outside_nothing_reaches_this_machine() -> None:
    async with RawServer("legacy") as server:

        async def find(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        async with httpx2.AsyncClient(transport=GuardedTransport("public", find)) as client:
            for url in (f"https://evil.example:{server.port}/", f"http://localhost:{server.port}/"):
                with pytest.raises(Forbidden):
                    await client.get(url)
        assert server.seen == []
