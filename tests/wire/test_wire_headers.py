"""The header rules of an MCP endpoint: pure, so no socket is needed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.wire import headers as rules
from mooring.wire.eras import ModernMeta
from mooring.wire.headers import Hosts
from mooring.wire.jsonrpc import Answer, failure

HOSTS = Hosts(
    [("127.0.0.1", 7420), ("::", 7421), ("192.168.1.5", 7422)],
    allowed=["gateway.lan", "proxy.example:8443"],
    public_url="https://MCP.example.com/mooring",
)


OWN = """127.0.0.1:7420 localhost:7420 LOCALHOST:7420 [::1]:7420 localhost:7421 192.168.1.5:7422
    gateway.lan gateway.lan:9 proxy.example:8443 mcp.example.com mcp.example.com:443"""
FOREIGN = """evil.example evil.example:7420 localhost:80 localhost localhost:7420.evil.example [::]:7421
    proxy.example proxy.example:1 127.0.0.1:7420@evil.example xgateway.lan gateway.lan: :7420"""
FOREIGN_PAGES = """null http://evil.example http://localhost:3000 file:// localhost:7420 ftp://localhost:7420
    http://localhost:7420.evil.example http://evil.example/localhost:7420 http://gateway.lan@evil.example"""


@pytest.mark.parametrize("host", OWN.split())
def test_own_names_are_known(host):
    assert HOSTS.know(host.encode())
    assert HOSTS.trust(b"http://" + host.encode())
    assert rules.foreign({b"host": host.encode(), b"origin": f"https://{host}".encode()}, HOSTS) is None


@pytest.mark.parametrize("host", ["", *FOREIGN.split()])
def test_foreign_names_are_refused_421(host):
    assert rules.foreign({b"host": host.encode()}, HOSTS)[0] == 421


def test_a_missing_host_is_refused():
    assert rules.foreign({}, HOSTS)[0] == 421


@pytest.mark.parametrize("origin", ["", *FOREIGN_PAGES.split()])
def test_pages_of_other_origins_are_refused_403(origin):
    assert rules.foreign({b"host": b"localhost:7420", b"origin": origin.encode()}, HOSTS)[0] == 403


@given(st.binary(max_size=40))
def test_no_host_of_random_bytes_raises_or_passes(host):
    assert not HOSTS.know(host + b".evil.example")
    assert not HOSTS.trust(host + b".evil.example")


@pytest.mark.parametrize(
    ("accept", "kind", "status"),
    [
        (b"application/json, text/event-stream", b"application/json", None),
        (b"text/event-stream;q=0.9,Application/JSON", b"Application/JSON; charset=utf-8", None),
        (b"*/*", b"application/json", None),
        (b"application/*, text/*", b"application/json", None),
        (None, None, None),
        (b"application/json", b"application/json", 406),
        (b"text/event-stream", b"application/json", 406),
        (b"text/html", b"application/json", 406),
        (None, b"text/plain", 415),
        (None, b"application/x-www-form-urlencoded", 415),
        (None, b"application/jsonx", 415),
    ],
)
def test_media_types_may_be_missing_but_not_wrong(accept, kind, status):
    given_headers = {b"accept": accept, b"content-type": kind}
    wrong = rules.unacceptable({name: value for name, value in given_headers.items() if value is not None})
    assert (wrong and wrong[0]) == status


@pytest.mark.parametrize(
    ("version", "era"),
    [
        (None, "legacy"),
        (b"2024-11-05", "legacy"),
        (b"2025-11-25", "legacy"),
        (b"2026-07-28", "modern"),
        (b"1900-01-01", "modern"),
        (b"", "modern"),
        (b"\xff", "modern"),
    ],
)
def test_the_version_header_decides_the_era(version, era):
    assert rules.era_of(version) == era


def params(version="2026-07-28", **more) -> bytes:
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": {"roots": {}}}
    return json.dumps({"_meta": meta, **more}).encode()


def head(version=b"2026-07-28", method=b"tools/call", name=b"echo"):
    named = {b"mcp-protocol-version": version, b"mcp-method": method, b"mcp-name": name}
    return {key: value for key, value in named.items() if value is not None}


def code_of(outcome) -> int:
    assert isinstance(outcome, Answer)
    return json.loads(outcome.error)["code"]


def test_headers_that_agree_with_the_body_pass_and_give_the_meta():
    meta = rules.ladder(head(), "tools/call", params(name="echo"))
    assert isinstance(meta, ModernMeta)
    assert (meta.version, meta.capabilities) == ("2026-07-28", b'{"roots": {}}')
    assert isinstance(rules.ladder(head(method=b"prompts/get"), "prompts/get", params(name="echo")), ModernMeta)
    uri = rules.ladder(head(method=b"resources/read", name=b"a://b"), "resources/read", params(uri="a://b"))
    assert isinstance(uri, ModernMeta)
    assert isinstance(rules.ladder(head(method=b"tools/list", name=b"stray"), "tools/list", params()), ModernMeta)


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        (head(), b"{}", -32602),
        (head(), b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}', -32602),
        (head(), b'{"_meta":7}', -32602),
        (head(version=b"2099-01-01"), params("2099-01-01", name="echo"), -32022),
        (head(version=b"2099-01-01"), b"{}", -32022),
        (head(version=b"2099-01-01"), params(name="echo"), -32020),
        (head(), params("2099-01-01", name="echo"), -32020),
        (head(version=b"\xff"), params(name="echo"), -32020),
        (head(method=None), params(name="echo"), -32020),
        (head(method=b"Tools/call"), params(name="echo"), -32020),
        (head(name=None), params(name="echo"), -32020),
        (head(name=b"other"), params(name="echo"), -32020),
        (head(name=b"=?base64?!!?="), params(name="echo"), -32020),
        (head(name="é".encode()), params(name="é"), -32020),
        (head(), params(), -32020),
        (head(), params(name=7), -32602),
    ],
)
def test_what_disagrees_is_named_by_its_code(headers, body, code):
    outcome = rules.ladder(headers, "tools/call", body)
    assert code_of(outcome) == code
    assert rules.status_of(outcome) == 400


def test_an_unknown_version_is_told_what_is_supported():
    error = json.loads(rules.ladder(head(version=b"2099-01-01"), "tools/call", params("2099-01-01")).error)
    assert error["data"]["requested"] == "2099-01-01"
    assert "2026-07-28" in error["data"]["supported"]


def test_lone_surrogates_elsewhere_do_not_hide_the_name():
    body = params(name="echo")[:-1] + b',"arguments":{"x":"\\ud800"}}'
    assert isinstance(rules.ladder(head(), "tools/call", body), ModernMeta)


@pytest.mark.parametrize(("code", "status"), [(-32601, 404), (-32602, 400), (-32603, 200), (-32000, 200), (1, 200)])
def test_modern_errors_have_the_status_of_their_code(code, status):
    assert rules.status_of(failure(code, "x")) == status


def test_results_and_odd_errors_are_200():
    for answer in (Answer(result=b"{}"), Answer(error=b"[]"), Answer(error=b'{"code":"x"}'), Answer(error=b"{")):
        assert rules.status_of(answer) == 200


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_values_are_encoded_as_the_specification_shows(value, encoded):
    assert rules.encode_value(value) == encoded
    assert rules.decode_value(encoded.encode()) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_value_survives_the_header(value):
    encoded = rules.encode_value(value)
    assert encoded.isascii()
    assert rules.decode_value(encoded.encode()) == value


@pytest.mark.parametrize(
    "value", [b"=?base64?YR==?=", b"=?base64?YQ?=", b"=?base64?/w==?=", b"=?base64?Y Q=?=", b"\xe9", None]
)
def test_malformed_values_equal_nothing(value):
    assert rules.decode_value(value) is None


@given(st.binary())
def test_decoding_never_raises(value):
    rules.decode_value(value)
    rules.decode_value(b"=?base64?" + value + b"?=")
