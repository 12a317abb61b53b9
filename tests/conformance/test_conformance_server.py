"""The conformance server by itself, on both transports, and how runs are compared; needs no network."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mooring.testing import HttpClient, StdioClient
from mooring.testing.conformance.results import Check, Results, collect, losses, stale, unexpected
from mooring.testing.conformance.runs import served
from mooring.testing.speech import DIALOGUE, Era, retry

COMMAND = [sys.executable, "-m", "mooring.testing.conformance"]
ERAS: tuple[Era, ...] = ("legacy", "modern")
Client = HttpClient | StdioClient


@pytest.fixture(params=["stdio", "http"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Makes clients of the server on one of its transports."""
    if request.param == "stdio":
        yield lambda era: StdioClient(COMMAND, era=era, capabilities=DIALOGUE)
        return
    async with served() as url:
        yield lambda era: HttpClient(url, era=era, capabilities=DIALOGUE)


@pytest.mark.parametrize("era", ERAS)
async def test_the_client_is_asked_in_the_way_of_its_era(connect: Any, era: Era) -> None:
    async with connect(era) as client:
        await client.open()
        result = await client.call("test_input_required_result_multiple_inputs", {})
        said = json.loads(result["content"][0]["text"])
        assert set(said) == {"user_name", "greeting", "client_roots"}
        assert said["user_name"]["content"] == {"name": "octocat"}
        assert [each["method"] for each in client.asked] == (
            ["elicitation/create", "sampling/createMessage", "roots/list"] if era == "legacy" else []
        )


async def test_a_request_state_that_was_changed_or_moved_is_refused(connect: Any) -> None:
    async with connect("modern") as client:
        await client.open()
        call = {"name": "test_input_required_result_tampered_state", "arguments": {}}
        first = await client.result("tools/call", call)
        answers = {"elicitation/create": {"action": "accept", "content": {"ok": True}}}
        again = retry(call, first, answers)
        elsewhere = {**again, "name": "test_input_required_result_request_state"}
        for wrong in ({**again, "requestState": again["requestState"] + "x"}, elsewhere):
            refusal = await client.request("tools/call", wrong)
            assert refusal["error"]["code"] == -32602
        assert (await client.result("tools/call", again))["content"][0]["text"] == "state-ok"


async def test_a_paused_stream_goes_on_where_it_was_left() -> None:
    """The answer of ``test_reconnection`` comes to the client that names the last event it saw."""
    async with served() as url, HttpClient(url, era="legacy") as client, asyncio.timeout(10):
        await client.open()
        call = {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": {"name": "test_reconnection"}}
        headers = {"Mcp-Session-Id": client.session or "", "Accept": "text/event-stream, application/json"}
        async with client.post(json.dumps(call).encode(), headers) as reply:
            (primed,) = [event async for event in reply.events()]
        assert (primed["data"], primed["retry"]) == ("", "200")
        async with client.exchange("GET", b"", {**headers, "Last-Event-ID": primed["id"]}) as reply:
            (answer,) = [json.loads(event["data"]) async for event in reply.events()]
        assert answer["id"] == 77


@pytest.mark.parametrize(("era", "other"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_server_of_one_era_refuses_the_other(era: Era, other: Era) -> None:
    async with StdioClient([*COMMAND, "--era", era], era=other) as client:
        with pytest.raises(Exception, match=r"-32601|-32022|no method|not supported"):
            await client.open()


def results(**statuses: str) -> Results:
    return Results(["s"], {"s": {name: Check(name, name, status) for name, status in statuses.items()}})


def test_only_what_passes_directly_can_be_lost() -> None:
    direct = results(kept="SUCCESS", failed="SUCCESS", warned="SUCCESS", gone="SUCCESS", never="FAILURE")
    through = results(kept="SUCCESS", failed="FAILURE", warned="WARNING", never="FAILURE")
    lost = losses(direct, through)
    assert [(loss.check, loss.status) for loss in lost] == [
        ("failed", "FAILURE"),
        ("warned", "WARNING"),
        ("gone", "absent"),
    ]
    assert [loss.check for loss in unexpected(lost, {"s:failed": "why", "s:gone": "why"})] == ["warned"]
    assert unexpected(lost, {"s": "why"}) == []
    assert stale(lost, {"s": "why", "s:kept": "why", "t": "why"}) == ["s:kept", "t"]


def test_of_checks_with_one_name_the_worst_counts() -> None:
    found = collect([Check("a", "A", "SUCCESS"), Check("a", "A", "FAILURE"), Check("a", "A", "INFO")])
    assert {place: check.status for place, check in found.items()} == {"a": "FAILURE"}
