"""Durations, names and addresses: the small words of the configuration."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config import names
from mooring.config.durations import Limit, Seconds, decode, parse
from mooring.config.listen import beyond_loopback, parse_address, public_url


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(0, 0), (90, 90), (1.5, 1.5), ("10m", 600), ("1h30m", 5400), ("1h 30m", 5400), ("500ms", 0.5), (" 2d ", 172800)],
)
def test_durations_are_seconds_or_text(written: object, seconds: float) -> None:
    assert parse(written) == seconds


@pytest.mark.parametrize(
    "written", ["", " ", "10", "m", "1x", "-5s", "1..5s", -1, True, None, float("nan"), 10**30, "9" * 400 + "s"]
)
def test_what_is_no_duration_says_how_to_write_one(written: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write"):
        parse(written)


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(["ms", "s", "m", "h"])), min_size=1, max_size=4))
def test_parts_of_a_duration_add_up(parts: list[tuple[int, str]]) -> None:
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    total = sum(number * units[unit] for number, unit in parts)
    assert parse("".join(f"{number}{unit}" for number, unit in parts)) == pytest.approx(total)


@given(st.text(alphabet="0123456789.msh d-"))
def test_any_text_is_a_duration_or_an_error(text: str) -> None:
    with suppress(ValueError):
        assert parse(text) >= 0


def test_a_limit_is_more_than_nothing() -> None:
    assert type(decode(Limit, "1s")) is Limit
    assert decode(Seconds, 0) == 0
    with pytest.raises(ValueError, match="never met"):
        decode(Limit, 0)


@pytest.mark.parametrize("name", ["list", "add", "show", "test", "enable", "disable", "remove"])
def test_verbs_cannot_name_servers(name: str) -> None:
    """A22: reserved words."""
    assert "is a verb" in names.server_fault(name)


def test_names_of_servers_are_fit_for_prefixes_paths_and_labels() -> None:
    """A20."""
    assert [name for name in ("time", "a-b_c", "3d", "x" * 64) if names.server_fault(name)] == []
    bad = ["", "A", "-a", "_a", "a.b", "a/b", "é", "x" * 65]
    assert [name for name in bad if not names.server_fault(name)] == []
    assert names.prefix_of("a-b") == "a_b"
    assert names.prefix_fault("a_b") == ""
    assert names.prefix_fault("A")
    assert names.prefix_fault("")


@pytest.mark.parametrize(
    ("written", "address"),
    [("127.0.0.1:7420", ("127.0.0.1", 7420)), ("[::1]:0", ("::1", 0)), ("localhost:80", ("localhost", 80))],
)
def test_addresses_are_host_and_port(written: str, address: tuple[str, int]) -> None:
    assert parse_address(written) == address


@pytest.mark.parametrize("written", ["", "7420", "a:", ":7420", "::1:7420", "a:x", "a:65536", "a:-1", "a:²"])
def test_what_is_no_address_says_how_to_write_one(written: str) -> None:
    with pytest.raises(ValueError, match="write host:port"):
        parse_address(written)


def test_what_other_machines_reach_is_known() -> None:
    assert not beyond_loopback([("127.0.0.9", 1), ("::1", 1), ("localhost", 1)])
    for host in ("0.0.0.0", "::", "192.168.1.2", "gateway.example"):
        assert beyond_loopback([("127.0.0.1", 1), (host, 1)])


def test_the_public_url_can_be_opened_on_this_machine() -> None:
    assert public_url(("0.0.0.0", 80)) == "http://127.0.0.1:80"
    assert public_url(("::", 80)) == "http://[::1]:80"
    assert public_url(("example.org", 80)) == "http://example.org:80"
