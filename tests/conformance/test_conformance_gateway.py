"""What the suite found on the way through the gateway, each as a test of its own that needs no network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import HttpClient
from mooring.testing.conformance.runs import gateway
from mooring.testing.speech import DIALOGUE

ASKS = "test_input_required_result_sampling"


@pytest.fixture(params=["stdio-legacy", "http-legacy"])
async def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """A gateway in front of a legacy server."""
    async with gateway(request.param, tmp_path) as url:
        yield url


def modern(endpoint: str, capabilities: dict[str, Any]) -> HttpClient:
    return HttpClient(endpoint, era="modern", capabilities=capabilities, timeout=30)


async def test_a_legacy_server_asks_the_modern_clients_that_can_answer_and_no_others(endpoint: str) -> None:
    """A18: capabilities are declared with each request; the first caller does not speak for those after it."""
    async with modern(endpoint, {}) as mute, modern(endpoint, DIALOGUE) as able:
        for _ in range(2):
            refused = await mute.result("tools/call", {"name": ASKS, "arguments": {}})
            assert refused["isError"]
            assert "did not declare sampling" in refused["content"][0]["text"]
            answered = await able.call(ASKS, {})
            assert "sampled" in answered["content"][0]["text"]


async def test_a_legacy_client_is_asked_by_a_legacy_server(endpoint: str) -> None:
    """A18"""
    async with HttpClient(endpoint, era="legacy", capabilities=DIALOGUE, timeout=30) as client:
        await client.open()
        answered = await client.call("test_elicitation", {"message": "Who?"})
        assert "octocat" in answered["content"][0]["text"]
        assert [each["method"] for each in client.asked] == ["elicitation/create"]


async def test_a_modern_client_meets_no_code_that_its_era_gave_up(endpoint: str) -> None:
    async with modern(endpoint, {}) as client:
        await client.result("resources/list")  # waits until the server was looked at
        answer = await client.request("resources/read", {"uri": "test://nowhere"})
        assert (answer["error"]["code"], answer["error"]["data"]) == (-32602, {"uri": "test://nowhere"})


async def test_the_legacy_handshake_is_no_method_of_the_modern_era(endpoint: str) -> None:
    async with modern(endpoint, {}) as client:
        answer = await client.request("initialize", {})
        assert (answer["error"]["code"], client.replies[-1].status) == (-32601, 404)


@pytest.mark.parametrize("cell", ["stdio-modern", "http-modern", "http-legacy"])
async def test_arguments_repeated_as_headers_must_agree_with_the_body(cell: str, tmp_path: Path) -> None:
    """SEP-2243, whatever the server behind the gateway is."""
    call = {"name": "test_x_mcp_header", "arguments": {"region": "eu"}}
    async with gateway(cell, tmp_path) as url, modern(url, {}) as client:
        await client.result("tools/list")
        for headers in ({}, {"Mcp-Param-Region": "us"}):
            answer = await client.request("tools/call", call, headers)
            assert (answer["error"]["code"], client.replies[-1].status) == (-32020, 400)
        answer = await client.request("tools/call", call, {"mcp-param-region": "=?base64?ZXU=?="})
        assert answer["result"]["content"]


async def test_a_legacy_client_need_not_know_that_a_server_wants_arguments_in_headers(tmp_path: Path) -> None:
    async with gateway("http-modern", tmp_path) as url, HttpClient(url, era="legacy", timeout=30) as client:
        await client.open()
        assert not (await client.call("test_x_mcp_header", {"region": "Zoë"})).get("isError")
