"""``host:port``: one form for what a person writes and what a server asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.peers import is_address, is_here, parse_peer, show_peer


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("GitHub.com:443", ("github.com", 443)),
        ("github.com.:443", ("github.com", 443)),
        ("db_1.internal:5432", ("db_1.internal", 5432)),
        ("localhost:080", ("localhost", 80)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("[FE80::0:1]:80", ("fe80::1", 80)),
    ],
)
def test_equal_peers_have_one_form(written: str, means: tuple[str, int]) -> None:
    assert parse_peer(written) == means
    assert parse_peer(show_peer(*means)) == means


NO_PEERS = (
    *("", ":", "a", "a:", "a:0", "a:65536", "a:999999", "a:x", "a:٣", ":80", "::1:80", "[::1]", "[a]:80"),
    *("[10.0.0.1]:80", "[fe80::1%eth0]:80", "a b:80", "a..b:80", "-a:80", "*.a:80", "http://a:80", "u@a:80"),
    *("a/b:80", "ä.example:80"),
)


@pytest.mark.parametrize("written", NO_PEERS)
def test_what_is_no_peer_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_peer(written)


@given(st.text(max_size=40), st.integers(-1, 70000))
def test_whatever_is_taken_is_taken_the_same_way_again(host: str, port: int) -> None:
    try:
        peer = parse_peer(f"{host}:{port}")
    except ValueError:
        return
    assert parse_peer(show_peer(*peer)) == peer


def test_a_host_is_an_address_or_a_name() -> None:
    assert [is_address(host) for host in ("10.0.0.1", "::1", "10.0.0", "2130706433", "localhost")] == [True] * 2 + [
        False
    ] * 3


def test_this_machine_and_its_link_are_here() -> None:
    here = [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "169.254.169.254",
        "fe80::1%eth0",
        "ff02::1",
    ]
    there = ["10.0.0.1", "192.168.1.1", "fd00::1", "203.0.113.80", "2001:db8::1", "8.8.8.8", "100.64.0.1"]
    assert [is_here(address) for address in (*here, *there)] == [True] * len(here) + [False] * len(there)
