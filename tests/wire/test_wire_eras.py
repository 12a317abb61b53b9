"""One message carried between the eras: what Mooring does not know survives, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import jsonrpc as sdk
from mcp_types import version as sdk_version
from msgspec import Raw

from mooring.wire import eras
from mooring.wire.eras import ModernMeta
from mooring.wire.jsonrpc import Answer, BadFrame, members

BIG = b"123456789012345678901234567890"
CAPABILITIES = b'{"elicitation":{}}'
CLIENT = b'{"name":"c","version":"1"}'
SERVER = b'{"name":"s","version":"1"}'
OURS = {eras.PROTOCOL_VERSION_KEY, eras.CLIENT_CAPABILITIES_KEY, eras.CLIENT_INFO_KEY, eras.LOG_LEVEL_KEY}

words = st.text('ab_"\\/\n\x00é€😀\ud800', max_size=4)  # lone surrogates included
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(words, json_values, max_size=5)


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def modern(params: bytes, log_level: str | None = "info") -> bytes:
    return eras.to_modern_params(
        params, version="2026-07-28", capabilities=CAPABILITIES, client_info=CLIENT, log_level=log_level
    )


def error_of(answer: ModernMeta | Answer) -> dict[str, Any]:
    assert isinstance(answer, Answer)
    assert answer.error is not None
    return json.loads(answer.error)


def test_constants_are_those_of_the_specification() -> None:
    """A16: versions, codes and keys agree with the SDK's tables."""
    assert set(eras.LEGACY_VERSIONS) == set(sdk_version.HANDSHAKE_PROTOCOL_VERSIONS)
    assert set(eras.MODERN_VERSIONS) == set(sdk_version.MODERN_PROTOCOL_VERSIONS)
    assert tuple(sorted(sdk_version.KNOWN_PROTOCOL_VERSIONS, reverse=True)) == eras.SUPPORTED_VERSIONS
    assert eras.PROTOCOL_VERSION_KEY == mcp_types.PROTOCOL_VERSION_META_KEY
    assert eras.CLIENT_CAPABILITIES_KEY == mcp_types.CLIENT_CAPABILITIES_META_KEY
    assert eras.CLIENT_INFO_KEY == mcp_types.CLIENT_INFO_META_KEY
    assert eras.SERVER_INFO_KEY == mcp_types.SERVER_INFO_META_KEY
    assert eras.LOG_LEVEL_KEY == mcp_types.LOG_LEVEL_META_KEY
    assert eras.HEADER_MISMATCH == sdk.HEADER_MISMATCH
    assert eras.MISSING_CAPABILITY == sdk.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert eras.UNSUPPORTED_VERSION == sdk.UNSUPPORTED_PROTOCOL_VERSION


@pytest.mark.parametrize("version", eras.LEGACY_VERSIONS)
def test_a_known_legacy_version_is_echoed(version: str) -> None:
    """A16"""
    assert eras.negotiate(version) == version


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", ""])
def test_any_other_version_gets_the_newest_legacy_one(version: str) -> None:
    """A16"""
    assert eras.negotiate(version) == "2025-11-25"


def test_modern_meta_is_read() -> None:
    meta = {eras.PROTOCOL_VERSION_KEY: "2026-07-28", eras.CLIENT_CAPABILITIES_KEY: {}}
    assert eras.modern_meta(dump({"_meta": meta})) == ModernMeta("2026-07-28", b"{}")
    more = {**meta, eras.CLIENT_INFO_KEY: {"name": "c"}, eras.LOG_LEVEL_KEY: "debug", "progressToken": 7}
    assert eras.modern_meta(dump({"_meta": more})) == ModernMeta("2026-07-28", b"{}", b'{"name": "c"}', "debug")


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({}, eras.PROTOCOL_VERSION_KEY),
        ([], "object"),
        ({"_meta": 5}, "object"),
        ({"_meta": {eras.PROTOCOL_VERSION_KEY: "2026-07-28"}}, eras.CLIENT_CAPABILITIES_KEY),
        ({"_meta": {eras.PROTOCOL_VERSION_KEY: 5, eras.CLIENT_CAPABILITIES_KEY: {}}}, "string"),
        ({"_meta": {eras.PROTOCOL_VERSION_KEY: "2026-07-28", eras.CLIENT_CAPABILITIES_KEY: 1}}, "object"),
    ],
)
def test_a_modern_request_that_misses_what_is_required_is_told_what(params: Any, named: str) -> None:
    error = error_of(eras.modern_meta(dump(params)))
    assert error["code"] == -32602
    assert named in error["message"]


def test_an_unknown_version_is_told_the_known_ones() -> None:
    """A16: and what is told is understood on the other side."""
    meta = {eras.PROTOCOL_VERSION_KEY: "2030-01-01", eras.CLIENT_CAPABILITIES_KEY: {}}
    answer = eras.modern_meta(dump({"_meta": meta}))
    error = error_of(answer)
    assert error["code"] == -32022
    assert error["data"] == {"supported": list(eras.SUPPORTED_VERSIONS), "requested": "2030-01-01"}
    assert eras.supported_versions(dump(error)) == eras.SUPPORTED_VERSIONS


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32601, "message": "no", "data": {"supported": ["2026-07-28"]}},
        {"code": -32022, "message": "no"},
        {"code": -32022, "data": {"supported": "2026-07-28"}},
        {"code": "-32022"},
        "text",
    ],
)
def test_other_errors_are_no_sign_of_a_modern_server(error: Any) -> None:
    """A16"""
    assert eras.supported_versions(dump(error)) is None


@given(objects, objects)
def test_params_come_back_whole_from_the_other_era(params: dict[str, Any], meta: dict[str, Any]) -> None:
    """A17: whatever a client sent that is not the envelope of an era survives the way there and back."""
    original = {**params, "_meta": {key: value for key, value in meta.items() if key not in OURS}}
    there = json.loads(modern(dump(original)))
    assert {key: value for key, value in there["_meta"].items() if key not in OURS} == original["_meta"]
    back = json.loads(eras.to_legacy_params(modern(dump(original))))
    assert back == (original if original["_meta"] else {k: v for k, v in original.items() if k != "_meta"})


def test_numbers_and_surrogates_survive_as_bytes() -> None:
    """A17: 30-digit integers, lone surrogates and number spellings are not touched."""
    raw = b'{"n":' + BIG + b',"f":1.00e+5,"s":"\\ud800","_meta":{"x":' + BIG + b',"\\ud800":"\\udc00"}}'
    changed = modern(raw)
    for part in (b'"n":' + BIG, b'"f":1.00e+5', b'"s":"\\ud800"', b'"x":' + BIG, b'"\\ud800":"\\udc00"'):
        assert part in changed
    assert eras.to_legacy_params(changed) == raw


def test_params_that_need_no_change_are_returned_as_they_are() -> None:
    legacy = b'{ "a" : 1, "_meta" : { "progressToken" : 1 } }'
    assert eras.to_legacy_params(legacy) is legacy
    assert eras.to_legacy_params(b'{"_meta":{}}') == b'{"_meta":{}}'
    assert eras.to_legacy_params(b'{"_meta":null}') == b'{"_meta":null}'
    already = modern(legacy)
    assert modern(already) is already


def test_modern_params_say_what_the_caller_gave() -> None:
    params = eras.to_modern_params(b"{}", version="2026-07-28", capabilities=b"{}", client_info=b"{}")
    assert json.loads(params) == {"_meta": {eras.PROTOCOL_VERSION_KEY: "2026-07-28", eras.CLIENT_CAPABILITIES_KEY: {}}}
    again = json.loads(modern(params))["_meta"]
    assert again[eras.CLIENT_CAPABILITIES_KEY] == {"elicitation": {}}
    assert again[eras.CLIENT_INFO_KEY] == {"name": "c", "version": "1"}
    assert again[eras.LOG_LEVEL_KEY] == "info"
    assert isinstance(eras.modern_meta(modern(b"{}")), ModernMeta)


def test_params_that_are_no_object_are_refused() -> None:
    with pytest.raises(BadFrame):
        modern(b"[]")
    with pytest.raises(BadFrame):
        eras.to_legacy_params(b"[]")


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (b"{}", "complete"),
        (b'{"resultType":"complete"}', "complete"),
        (b'{"resultType":"input_required","requestState":"x"}', "input_required"),
        (b'{"result\\u0054ype":"task"}', "task"),
        (b'{"resultType":5}', ""),
        (b"5", "complete"),
    ],
)
def test_result_types_are_told_apart(result: bytes, kind: str) -> None:
    """A18"""
    assert eras.result_type(result) == kind


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "prompts/list", "resources/read"])
def test_lists_and_reads_get_hints_that_forbid_caching(method: str) -> None:
    result = json.loads(eras.to_modern_result(method, b'{"a":1}', SERVER))
    assert result == {
        "a": 1,
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {eras.SERVER_INFO_KEY: {"name": "s", "version": "1"}},
    }


def test_calls_get_no_hints() -> None:
    assert eras.to_modern_result("tools/call", b'{"a":1}', b"{}") == b'{"a":1,"resultType":"complete"}'


def test_what_the_server_said_itself_stays() -> None:
    """A17"""
    said = b'{"ttlMs":5,"cacheScope":"public","resultType":"task","_meta":{"x":1}}'
    assert eras.to_modern_result("tools/list", said, b"{}") is said
    named = eras.to_modern_result("tools/list", said, SERVER)
    assert members(members(named)["_meta"]) == {"x": Raw(b"1"), eras.SERVER_INFO_KEY: Raw(SERVER)}
    assert eras.to_modern_result("tools/list", named, b'{"name":"other"}') is named
    odd = b'{"resultType":"complete","_meta":null}'
    assert eras.to_modern_result("tools/call", odd, SERVER) is odd


@given(objects)
def test_results_come_back_whole_from_the_other_era(result: dict[str, Any]) -> None:
    """A17: a legacy client gets every member a modern server sent, but for the type of a complete result."""
    result.pop("resultType", None)
    there = eras.to_modern_result("tools/call", dump(result), b"{}")
    assert json.loads(there) == {**result, "resultType": "complete"}
    assert json.loads(eras.to_legacy_result("tools/call", there)) == result


def test_only_complete_results_are_changed_for_legacy_clients() -> None:
    for result in (b'{"a":1}', b'{"resultType":"input_required"}', b'{"resultType":5}'):
        assert eras.to_legacy_result("tools/call", result) is result
