"""What is kept of a login, and what follows from it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from mooring.wire import login as it
from mooring.wire.login import Challenge, Client, Login

URL = "https://there.example/mcp"


def test_what_is_kept_comes_back_for_the_same_address_only() -> None:
    login = Login(URL, access_token="a", client=Client("c"), challenge=Challenge(403, "x"), expires_at=1.5)
    assert it.decoded(it.encoded(login), URL) == login
    assert it.decoded(it.encoded(login), "https://other.example/mcp") == Login("https://other.example/mcp")


@pytest.mark.parametrize("raw", [None, b"", b"{", b"[]", b'{"url": 1}'])
def test_what_cannot_be_read_is_no_login(raw: bytes | None) -> None:
    assert it.decoded(raw, URL) == Login(URL)


@pytest.mark.parametrize(("ends", "expected"), [(None, False), (100.0, True), (129.0, True), (131.0, False)])
def test_a_token_counts_as_ended_a_little_early(ends: float | None, expected: bool) -> None:
    assert it.stale(Login(URL, expires_at=ends), 100.0) is expected


@pytest.mark.parametrize(
    ("status", "header", "expected"),
    [
        (401, "", Challenge(401)),
        (401, "Bearer x", Challenge(401, "Bearer x")),
        (403, 'Bearer error="insufficient_scope"', Challenge(403, 'Bearer error="insufficient_scope"')),
        (403, "Bearer", None),
        (200, "Bearer", None),
    ],
)
def test_a_refusal_that_a_login_may_end(status: int, header: str, expected: Challenge | None) -> None:
    assert it.challenge(status, header) == expected


def test_a_refusal_is_kept_within_limits() -> None:
    found = it.challenge(401, "x" * 100_000)
    assert found is not None
    assert len(found.header) == it.LONGEST_CHALLENGE


@pytest.mark.parametrize(
    ("client", "secret", "headers", "form"),
    [
        (Client("me"), "", {}, {"client_id": "me"}),
        (Client("me", "s", "none"), "", {}, {"client_id": "me"}),
        (Client("me", "s", "client_secret_post"), "", {}, {"client_id": "me", "client_secret": "s"}),
        (Client("me", "", "client_secret_post"), "t", {}, {"client_id": "me", "client_secret": "t"}),
        (Client("m:e", "s/", "client_secret_basic"), "", {"Authorization": "m%3Ae:s%2F"}, {"client_id": "m:e"}),
    ],
)
def test_a_client_proves_itself(client: Client, secret: str, headers: dict[str, str], form: dict[str, str]) -> None:
    found, sent = it.credentials(client, secret)
    decoded = {name: base64.b64decode(value.removeprefix("Basic ")).decode() for name, value in found.items()}
    assert (decoded, sent) == (headers, form)


def test_a_renewal_keeps_what_it_does_not_say() -> None:
    old = Login(URL, access_token="a", refresh_token="r", scope="x", expires_at=1.0, issuer="i")
    new = it.renewed(old, b'{"access_token": "b", "token_type": "Bearer"}', 10.0)
    assert new == Login(URL, access_token="b", refresh_token="r", scope="x", issuer="i")
    body = b'{"access_token":"c","token_type":"bearer","expires_in":"60","refresh_token":"s","scope":"","more":1}'
    assert it.renewed(old, body, 10.0) == Login(
        URL, access_token="c", refresh_token="s", scope="", issuer="i", expires_at=70.0
    )


@pytest.mark.parametrize("body", [b"", b"{}", b'{"access_token": ""}', b'{"access_token": "a", "token_type": "mac"}'])
def test_what_is_no_bearer_token_is_none(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        it.renewed(Login(URL), body, 0.0)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, b"<html>", True),
        (401, b'{"error":"invalid_client"}', True),
        (403, b'{"error":"invalid_grant"}', True),
        (403, b"<html>", False),
        (404, b'{"error":"not found"}', False),
        (302, b"", False),
        (503, b'{"error":"invalid_grant"}', False),
    ],
)
def test_only_the_token_endpoint_itself_can_end_a_login(status: int, body: bytes, expected: bool) -> None:
    assert it.refused(status, body) is expected


def test_an_ended_login_still_knows_the_client() -> None:
    old = Login(URL, access_token="a", refresh_token="r", expires_at=1.0, client=Client("c"), scope="x")
    assert it.ended(old) == Login(URL, client=Client("c"), scope="x")


@pytest.mark.parametrize(
    ("client", "port"), [(None, 0), (Client("c"), 0), (Client("c", redirect_uri="http://localhost:81/callback"), 81)]
)
def test_the_port_of_a_registered_client_is_known(client: Any, port: int) -> None:
    assert Login(URL, client=client).port == port
