"""What the gateway says about itself to those who have no token yet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mooring.wire.resource import WELL_KNOWN, Resource

PLAIN = Resource("https://m.example", ("https://login.example",), ("mcp",))
BELOW = Resource("https://host.example/tools", ("https://login.example",))


def document(resource: Resource, path: str) -> dict[str, Any]:
    found = resource.metadata(path)
    assert found is not None
    return json.loads(found)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", ""),
        ("/", ""),
        ("/mcp", "/mcp"),
        ("/w/docs/mcp", "/w/docs/mcp"),
        ("/w/agent%2Fx/mcp", "/w/agent%2Fx/mcp"),
    ],
)
def test_each_endpoint_is_a_resource_of_its_own_name(path: str, name: str) -> None:
    """RFC 9728 section 3.3: the name is the address that the client asked about."""
    assert document(PLAIN, WELL_KNOWN + path) == {
        "resource": f"https://m.example{name}",
        "authorization_servers": ["https://login.example"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Mooring",
        "scopes_supported": ["mcp"],
    }


@pytest.mark.parametrize(
    "path", ["/", "/mcp", f"{WELL_KNOWN}x", f"{WELL_KNOWN}/s/echo/mcp", f"{WELL_KNOWN}/w//mcp", f"{WELL_KNOWN}/healthz"]
)
def test_all_else_is_no_place_for_it(path: str) -> None:
    assert PLAIN.metadata(path) is None


def test_behind_a_proxy_the_path_of_the_public_address_stands_where_the_rfc_wants_it() -> None:
    """RFC 9728 section 3.1: the well-known part goes between host and path."""
    place = b'resource_metadata="https://host.example/.well-known/oauth-protected-resource/tools/mcp"'
    assert BELOW.challenge("/mcp") == (place,)
    for path in ("/tools/mcp", "/mcp"):
        assert document(BELOW, WELL_KNOWN + path)["resource"] == "https://host.example/tools/mcp"
    assert "scopes_supported" not in document(BELOW, WELL_KNOWN)


def test_the_challenge_names_place_and_scopes_and_nothing_breaks_out_of_it() -> None:
    place = f'resource_metadata="https://m.example{WELL_KNOWN}/w/docs/mcp"'
    assert PLAIN.challenge("/w/docs/mcp") == (place.encode(), b'scope="mcp"')
    (odd, _) = PLAIN.challenge('/w/a"b\\c\xe9/mcp')
    assert odd.count(b'"') == 2
    assert b"\\" not in odd
    assert odd.isascii()
    assert PLAIN.challenge("/s/echo/mcp") == (), "only keys open it"
