"""Frames: any bytes are an envelope or a refusal, and payloads stay the bytes they were."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from mooring.wire import jsonrpc, lenient
from mooring.wire.jsonrpc import Answer, BadFrame, Envelope, decode, members, replace

any_text = st.text('ab_"\\/,:{}[] \n\x00é€😀\ud800', max_size=6)  # lone surrogates included
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(any_text, json_values, max_size=5)
layouts = st.sampled_from([(",", ":"), (" , ", " : "), ("\n,\t", "\r:  ")])


def dump(value: Any, layout: tuple[str, str] = (",", ":"), ascii_only: bool = True) -> bytes:
    return json.dumps(value, separators=layout, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


fragments = st.lists(
    st.sampled_from([b'{"id"', b":1", b"1", b",", b'"method":"x"', b'"result":', b"{}", b"{", b"}", b"[", b"]", b'"'])
    | st.sampled_from(
        [b"\\ud800", b"\\", b"\xff", b"NaN", b"1e999", b"null", b" ", b'"\\ud800":1', b'"jsonrpc":"2.0"']
    ),
    max_size=10,
).map(b"".join)


@given(st.binary(max_size=60) | fragments | json_values.map(dump))
@example(b'{"id":1,"result":{}}trailing')
@example(b'{"id":' + b"1" * 5000 + b',"result":"\\ud800"}')
def test_any_bytes_are_an_envelope_or_a_refusal(frame: bytes) -> None:
    """R27: nothing else is ever raised, and what is accepted is what the standard library reads as an object."""
    with suppress(BadFrame):
        assert isinstance(decode(frame), Envelope)
        assert isinstance(json.loads(frame), dict)


@pytest.mark.parametrize("depth", [500, 200_000])
def test_deep_nesting_is_no_crash(depth: int) -> None:
    """R27"""
    for filler in (b"", b'"\\ud800",'):
        frame = b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * depth + filler.rstrip(b",") + b"]" * depth + b"}"
        with suppress(BadFrame):
            assert decode(frame).id == 1
        with suppress(BadFrame):
            assert set(members(frame)) == {"jsonrpc", "id", "result"}


@given(objects, layouts, st.booleans())
def test_members_are_those_of_the_standard_library(value: dict[str, Any], layout: tuple[str, str], plain: bool) -> None:
    """A17: the fast way and the way for lone surrogates see the same members, each with its own bytes."""
    raw = dump(value, layout, plain)
    assume(plain or _is_utf8(raw))
    parts = members(raw)
    assert list(parts) == list(value)
    for key, part in parts.items():
        assert json.loads(bytes(part)) == value[key]
        assert bytes(part) in raw
    assert lenient.members(raw) == parts


@given(objects.map(dump) | fragments | st.binary(max_size=30))
def test_the_slow_way_refuses_what_the_standard_library_refuses(raw: bytes) -> None:
    try:
        parts = lenient.members(raw)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011  (JSON and UTF-8 errors alike)
            assert isinstance(json.loads(raw.decode(), parse_constant=_refuse), dict) or _fail()
        return
    assert json.loads(raw.decode()).keys() == parts.keys()


@given(objects, any_text.filter(lambda key: key != "raw"), json_values)
def test_replace_keeps_every_other_member_as_it_was(value: dict[str, Any], key: str, new: Any) -> None:
    """A17"""
    raw = dump(value)
    changed = replace(raw, **{key: dump(new)})
    assert json.loads(changed) == {**value, key: new}
    before, after = members(raw), members(changed)
    assert {k: v for k, v in after.items() if k != key} == {k: v for k, v in before.items() if k != key}
    assert json.loads(replace(changed, **{key: None})) == {k: v for k, v in value.items() if k != key}


@given(objects, st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5), st.text(max_size=5))
def test_frames_come_back_as_they_were_sent(params: dict[str, Any], request_id: int | str, method: str) -> None:
    """A15"""
    raw, raw_id = dump(params), jsonrpc.text(request_id)
    request = decode(jsonrpc.request(raw_id, method, raw))
    assert (request.id, request.method, request.params, request.jsonrpc) == (request_id, method, Raw(raw), "2.0")
    notice = decode(jsonrpc.notification(method, raw))
    assert (notice.id, notice.method, notice.params) == (UNSET, method, Raw(raw))
    result = decode(jsonrpc.response(raw_id, Answer(result=raw)))
    assert (result.id, result.result, result.error) == (request_id, Raw(raw), UNSET)
    error = decode(jsonrpc.response(raw_id, Answer(error=raw)))
    assert (error.id, error.result, error.error) == (request_id, UNSET, Raw(raw))


def test_payloads_stay_bytes() -> None:
    """A17: 30-digit integers, spellings of numbers and lone surrogates pass unchanged."""
    payload = b'{"n":123456789012345678901234567890,"f":1.000e-07,"s":"\\ud83d","t":"\xc3\xa4"}'
    assert decode(b'{"id":1,"jsonrpc":"2.0","result": ' + payload + b" }").result == Raw(payload)


def test_requests_without_params_have_none() -> None:
    assert decode(jsonrpc.request(b"1", "ping", None)).params is UNSET
    assert decode(jsonrpc.notification("x")).params is UNSET
    assert decode(jsonrpc.response(b"1", Answer())).result == Raw(b"{}")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"listening on port 80", jsonrpc.PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":', jsonrpc.PARSE_ERROR),
        (b'{"id":1,"result":"\xff"}', jsonrpc.PARSE_ERROR),
        (b'{"id":1,"result":[NaN,"\\ud800"]}', jsonrpc.PARSE_ERROR),
        (b'{"id":1,"result":"\\ud800",}', jsonrpc.PARSE_ERROR),
        (b'{"id":1,"result":"\\ud800";}', jsonrpc.PARSE_ERROR),
        (b'{"id":1,"result":"\\ud800"}}', jsonrpc.PARSE_ERROR),
        (b"[]", jsonrpc.INVALID_REQUEST),
        (b"5", jsonrpc.INVALID_REQUEST),
        (b"{}", jsonrpc.INVALID_REQUEST),
        (b'{"id":1}', jsonrpc.INVALID_REQUEST),
        (b'{"id":1,"result":{},"error":{}}', jsonrpc.INVALID_REQUEST),
        (b'{"id":1,"result":null,"error":null}', jsonrpc.INVALID_REQUEST),
        (b'{"result":{},"error":null}', jsonrpc.INVALID_REQUEST),
        (b'{"id":true,"result":{}}', jsonrpc.INVALID_REQUEST),
        (b'{"id":{},"method":"x"}', jsonrpc.INVALID_REQUEST),
        (b'{"id":1,"method":5,"params":"\\ud800"}', jsonrpc.INVALID_REQUEST),
    ],
)
def test_what_is_no_message_is_refused_with_the_right_code(frame: bytes, code: int) -> None:
    """R27"""
    with pytest.raises(BadFrame) as refusal:
        decode(frame)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("frame", "has"),
    [
        (b'{"id":1}', "neither a result nor an error"),
        (b'{"id":1,"error":{},"result":{}}', "both a result and an error"),
        (b'{"id":1,"error":null,"result":null}', "both a result and an error"),
    ],
)
def test_of_a_response_that_is_none_it_is_known_what_it_answers(frame: bytes, has: str) -> None:
    with pytest.raises(jsonrpc.BadResponse) as refusal:
        decode(frame)
    assert (refusal.value.id, refusal.value.has) == (1, has)


def test_a_response_may_say_null_of_what_it_does_not_have() -> None:
    """As JSON-RPC 1.0 wants it, and servers that serialise every member."""
    fine, failed = (
        decode(b'{"id":1,"result":{"a":1},"error":null}'),
        decode(b'{"id":1,"result":null,"error":{"code":1}}'),
    )
    assert (fine.result, fine.error) == (Raw(b'{"a":1}'), UNSET)
    assert (failed.result, failed.error) == (UNSET, Raw(b'{"code":1}'))
    assert decode(b'{"id":1,"result":null}').result == Raw(b"null")


@pytest.mark.parametrize("name", ["Name", "ARGUMENTS", "argument\u017f", "taskid", "_Meta"])
def test_members_that_decide_are_told_apart_by_case(name: str) -> None:
    """``encoding/json`` of Go reads each of these as the one that it resembles."""
    with pytest.raises(BadFrame, match="told apart by case"):
        jsonrpc.decisive(json.dumps({"name": "a", name: "b"}).encode())
    assert list(jsonrpc.decisive(b'{"name":"a","arguments":{},"task":{},"later":1}')) == [
        "name", "arguments", "task", "later",
    ]  # fmt: skip


def test_any_buffer_is_read() -> None:
    for kind in (bytes, bytearray, memoryview):
        assert decode(kind(b'{"id":1,"result":{}}')).id == 1


def test_what_is_no_object_has_no_members() -> None:
    for raw in (b"[]", b"5", b'"\\ud800"', b'["\\ud800"]'):
        with pytest.raises(BadFrame):
            members(raw)
        assert jsonrpc.fields(raw) == {}
    assert jsonrpc.fields(None) == {}
    assert jsonrpc.fields(b'{"a":1}') == {"a": Raw(b"1")}


def test_the_last_of_duplicate_members_wins() -> None:
    """Both ways agree, so that policy decides on the very value that is forwarded."""
    assert members(b'{"a":1,"a":2}') == {"a": Raw(b"2")}
    assert members(b'{"a":1,"a":2,"b":"\\ud800"}')["a"] == Raw(b"2")


def test_strings_are_read_or_none() -> None:
    assert jsonrpc.string(b'"a"') == "a"
    for raw in (None, b"5", b'"\\ud800"', b"nonsense"):
        assert jsonrpc.string(raw) is None


def test_failures_carry_code_message_and_data() -> None:
    answer = jsonrpc.failure(-32000, "no", {"a": 1})
    assert json.loads(answer.error or b"") == {"code": -32000, "message": "no", "data": {"a": 1}}
    assert json.loads(jsonrpc.failure(1, "no").error or b"") == {"code": 1, "message": "no"}


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _fail() -> bool:
    raise ValueError("not an object")


def test_text_that_is_no_unicode_goes_out_as_it_came_in() -> None:
    """JSON can escape half a surrogate pair: in a method that is passed on, and in a failure that quotes it."""
    assert jsonrpc.value(jsonrpc.notification("x/\ud800"))["method"] == "x/\ud800"
    assert jsonrpc.value(jsonrpc.request(b"1", "x/\ud800", None))["method"] == "x/\ud800"
    assert jsonrpc.value(jsonrpc.failure(1, "no \ud800").error or b"")["message"] == "no \ud800"
