"""What each feature of the matrix means: what a client does and sees, whatever lies in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cancelling import cancelled
from mooring.testing import HttpClient, wait_for
from mooring.testing.speech import META

LIMIT = 30.0
"""Seconds that anything may take."""
HUGE = 4_000_000
LEVEL = {META + "logLevel": "info"}
WATCHED = "test://watched-resource"

Feature = Callable[[HttpClient], Awaitable[None]]


def text(result: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in result["content"])


async def call(client: HttpClient) -> None:
    """Arguments and results arrive as they were sent."""
    arguments = {"n": 2**70, "deep": [None, {"é": 1.5}]}
    assert (await client.call("echo", arguments))["structuredContent"] == arguments


async def progress(client: HttpClient) -> None:
    """A call reports progress under the client's own token, each step once, before it is answered."""
    await client.call("sleep", {"seconds": 0.05, "steps": 3}, _meta={"progressToken": "mine"})
    notes = [note["params"] for note in client.notifications if note["method"] == "notifications/progress"]
    assert [(note["progressToken"], note["progress"]) for note in notes] == [("mine", step) for step in (1, 2, 3)]


async def log(client: HttpClient) -> None:
    """A call sends a log message of the level that was asked for, and none below it."""
    more: dict[str, Any] = {"_meta": LEVEL}
    if client.era == "legacy":
        assert await client.result("logging/setLevel", {"level": "info"}) == {}
        more = {}
    await client.call("log", {"level": "debug", "text": "no"}, **more)
    await client.call("log", {"level": "warning", "text": "yes"}, **more)
    assert (await client.heard("notifications/message"))["data"] == "yes"


async def cancel(client: HttpClient) -> None:
    """The server learns that a call was cancelled."""

    async def seen() -> int:
        return len((await client.call("seen"))["structuredContent"]["cancelled"])

    before = await seen()
    params = {"name": "sleep", "arguments": {"seconds": 600, "steps": 60000}, "_meta": {"progressToken": 2}}
    await cancelled(client, params)

    async def one_more() -> bool:
        return await seen() == before + 1

    await wait_for(one_more, LIMIT)


async def elicit(client: HttpClient) -> None:
    """The user is asked within a call, and the server gets the answer."""
    result = await client.call("elicit")
    assert result["structuredContent"] == client.answers["elicitation/create"]


async def sample(client: HttpClient) -> None:
    """The client's model is asked within a call."""
    assert (await client.call("sample"))["structuredContent"] == client.answers["sampling/createMessage"]


async def roots(client: HttpClient) -> None:
    """The client is asked for its roots within a call."""
    assert (await client.call("roots"))["structuredContent"] == client.answers["roots/list"]


async def list_changed(client: HttpClient) -> None:
    """A tool that appears is announced, listed and callable."""

    async def names() -> set[str]:
        return {tool["name"] for tool in (await client.result("tools/list"))["tools"]}

    async with client.listening({"toolsListChanged": True}):
        if client.era == "modern":
            await client.heard("notifications/subscriptions/acknowledged")
        added = text(await client.call("change", {"kind": "tools"}))
        await client.heard("notifications/tools/list_changed")

        async def listed() -> bool:
            return added in await names()

        await wait_for(listed, LIMIT)


async def subscribe(client: HttpClient) -> None:
    """A watched resource that changes is announced."""
    async with client.listening({"resourceSubscriptions": [WATCHED]}):
        if client.era == "modern":
            honoured = await client.heard("notifications/subscriptions/acknowledged")
            assert honoured["notifications"]["resourceSubscriptions"] == [WATCHED]
        else:
            assert await client.result("resources/subscribe", {"uri": WATCHED}) == {}
        await client.call("touch")
        assert (await client.heard("notifications/resources/updated"))["uri"] == WATCHED


async def resource(client: HttpClient) -> None:
    """A listed resource, one of a template, and one that only a link names are read; an unknown one is refused."""
    for uri, expected in (("test://static-text", "a static text"), ("test://template/7/data", '{"id":"7"}')):
        assert (await client.result("resources/read", {"uri": uri}))["contents"][0]["text"] == expected
    link = (await client.call("link"))["content"][0]["uri"]
    assert (await client.result("resources/read", {"uri": link}))["contents"][0]["text"] == "found"
    refused = (await client.request("resources/read", {"uri": "test://none"}))["error"]
    assert refused["data"] == {"uri": "test://none"}
    assert refused["code"] in ((-32602,) if client.era == "modern" else (-32602, -32002))


async def prompt(client: HttpClient) -> None:
    """A prompt is filled in."""
    result = await client.result("prompts/get", {"name": "greeting", "arguments": {"name": "Ann"}})
    assert result["messages"][0]["content"]["text"] == "Greet Ann (plain)"


async def completion(client: HttpClient) -> None:
    """Arguments of a prompt and of a template are completed."""
    for reference, name, expected in (
        ({"type": "ref/prompt", "name": "greeting"}, "name", ["alice", "albert"]),
        ({"type": "ref/resource", "uri": "test://template/{id}/data"}, "id", ["1", "13"]),
    ):
        argument = {"name": name, "value": "al" if name == "name" else "1"}
        result = await client.result("completion/complete", {"ref": reference, "argument": argument})
        assert result["completion"]["values"] == expected


async def paging(client: HttpClient) -> None:
    """A server that pages is listed to its end, in one page."""
    for method, member, count in (("tools/list", "tools", 20), ("resources/list", "resources", 3)):
        listed = await client.result(method)
        assert len(listed[member]) >= count
        assert not listed.get("nextCursor")


async def error(client: HttpClient) -> None:
    """A failed tool, and the server's own error, arrive as what they are."""
    assert (await client.call("error"))["isError"]
    refused = (await client.request("tools/call", {"name": "rpc_error", "arguments": {"code": -32055}}))["error"]
    assert (refused["code"], refused["data"]) == (-32055, {"vendor": [1, 2]})


async def huge(client: HttpClient) -> None:
    """Megabytes, there and back."""
    assert len(text(await client.call("huge", {"bytes": HUGE}))) == HUGE
    letters = "y" * HUGE
    assert (await client.call("echo", {"text": letters}))["structuredContent"] == {"text": letters}


FEATURES: dict[str, Feature] = {
    run.__name__.replace("_", "-"): run
    for run in (
        *(call, progress, log, cancel, elicit, sample, roots, list_changed),
        *(subscribe, resource, prompt, completion, paging, error, huge),
    )
}
