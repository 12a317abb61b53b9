"""The scripted model on each of its wire formats, whole and streamed, and what it remembers of requests."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx2
import msgspec
import pytest

from mooring.testing.model import Model

LIMIT = 20.0
JSON = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
PROMPT = '%call echo {"text": "a"}\n%and echo {"text": "b"}\n%call echo'
ANSWER = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


class Said(msgspec.Struct):
    """An answer, whatever it came as: its text, its calls as (id, name, arguments), and what goes into the history."""

    text: str
    calls: list[tuple[str, str, JSON]]
    history: list[JSON]


class Format(msgspec.Struct):
    """How a wire format is spoken by its clients."""

    path: str
    ask: Callable[[list[JSON]], JSON]
    """Body of a request with this history, offering the tool ``x_echo``."""
    user: Callable[[str], JSON]
    results: Callable[[Said], list[JSON]]
    """What follows calls in the history: each answered with ``r`` and its number."""
    whole: Callable[[JSON], Said]
    joined: Callable[[list[JSON]], Said]
    """Of streamed events."""
    for_json: JSON
    """Members of a request that wants JSON."""
    streamed: str = ""
    """Another path for streams, in place of the member ``stream``."""


def anthropic() -> Format:
    tools = [{"name": "x_echo", "description": "echoes", "input_schema": SCHEMA}]

    def results(said: Said) -> list[JSON]:
        blocks = [
            {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": f"r{number}"}]}
            for number, (id, _, _) in enumerate(said.calls)
        ]
        return [{"role": "user", "content": blocks}]

    def whole(message: JSON) -> Said:
        blocks = message["content"]
        calls = [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        assert message["stop_reason"] == ("tool_use" if calls else "end_turn")
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        return Said(text, calls, [{"role": "assistant", "content": blocks}])

    def joined(events: list[JSON]) -> Said:
        message, blocks = events[0]["message"], list[JSON]()
        for event in events:
            match event["type"]:
                case "content_block_start":
                    blocks.append({**event["content_block"], "partial": ""})
                case "content_block_delta":
                    delta = event["delta"]
                    blocks[-1]["partial"] += delta.get("text", "") + delta.get("partial_json", "")
                case "message_delta":
                    message |= event["delta"]
        for block in blocks:
            partial = block.pop("partial")
            block |= {"text": partial} if block["type"] == "text" else {"input": json.loads(partial)}
        return whole({**message, "content": blocks})

    return Format(
        path="/v1/messages",
        ask=lambda history: {"model": "m", "messages": history, "tools": tools},
        user=lambda text: {"role": "user", "content": text},
        results=results,
        whole=whole,
        joined=joined,
        for_json={"output_config": {"format": {"type": "json_schema", "schema": ANSWER}}},
    )


def responses() -> Format:
    function = {"type": "function", "name": "echo", "description": "echoes", "parameters": SCHEMA}
    space = {"type": "namespace", "name": "x", "tools": [function]}

    def whole(response: JSON) -> Said:
        items = response["output"]
        text = "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
        made = [item for item in items if item["type"] == "function_call"]
        assert all(item["namespace"] == "x" for item in made)
        calls = [(item["call_id"], f"x_{item['name']}", json.loads(item["arguments"])) for item in made]
        return Said(text, calls, items)

    def joined(events: list[JSON]) -> Said:
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        deltas = "".join(event["delta"] for event in events if event["type"].endswith(".delta"))
        said = whole({"output": done})
        assert deltas == said.text + "".join(json.dumps(arguments) for _, _, arguments in said.calls)
        assert events[-1]["response"]["output"] == done
        return said

    return Format(
        path="/v1/responses",
        ask=lambda history: {"model": "m", "input": history, "tools": [space]},
        user=lambda text: {"role": "user", "content": [{"type": "input_text", "text": text}]},
        results=lambda said: [
            {"type": "function_call_output", "call_id": id, "output": f"r{number}"}
            for number, (id, _, _) in enumerate(said.calls)
        ],
        whole=whole,
        joined=joined,
        for_json={"text": {"format": {"type": "json_schema", "name": "n", "schema": ANSWER}}},
    )


def chat() -> Format:
    function = {"name": "x_echo", "description": "echoes", "parameters": SCHEMA}

    def whole(completion: JSON) -> Said:
        message = completion["choices"][0]["message"]
        made = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
        calls = [(id, function["name"], json.loads(function["arguments"])) for id, function in made]
        assert completion["choices"][0]["finish_reason"] == ("tool_calls" if calls else "stop")
        return Said(message["content"] or "", calls, [message])

    def joined(events: list[JSON]) -> Said:
        message: JSON = {"role": "assistant", "content": ""}
        choices = [choice for event in events for choice in event["choices"]]
        for choice in choices:
            message["content"] += choice["delta"].get("content", "")
            for call in choice["delta"].get("tool_calls", ()):
                made = message.setdefault("tool_calls", [])
                if call["index"] == len(made):
                    made.append({**call, "function": {**call["function"]}})
                else:
                    made[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        return whole({"choices": [{"message": message, "finish_reason": choices[-1]["finish_reason"]}]})

    return Format(
        path="/v1/chat/completions",
        ask=lambda history: {"model": "m", "messages": history, "tools": [{"type": "function", "function": function}]},
        user=lambda text: {"role": "user", "content": text},
        results=lambda said: [
            {"role": "tool", "tool_call_id": id, "content": f"r{number}"}
            for number, (id, _, _) in enumerate(said.calls)
        ],
        whole=whole,
        joined=joined,
        for_json={"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": ANSWER}}},
    )


def gemini() -> Format:
    declared = [{"name": "x_echo", "description": "echoes", "parametersJsonSchema": SCHEMA}]

    def results(said: Said) -> list[JSON]:
        answers = [
            {"functionResponse": {"id": id, "name": name, "response": {"output": f"r{number}"}}}
            for number, (id, name, _) in enumerate(said.calls)
        ]
        return [{"role": "user", "parts": answers}]

    def whole(reply: JSON) -> Said:
        content = reply["candidates"][0]["content"]
        made = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        text = "".join(part.get("text", "") for part in content["parts"])
        return Said(text, [(call["id"], call["name"], call["args"]) for call in made], [content])

    return Format(
        path="/v1beta/models/m:generateContent",
        ask=lambda history: {"contents": history, "tools": [{"functionDeclarations": declared}]},
        user=lambda text: {"role": "user", "parts": [{"text": text}]},
        results=results,
        whole=whole,
        joined=lambda events: whole(events[0]),
        for_json={"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": ANSWER}},
        streamed="/v1beta/models/m:streamGenerateContent?alt=sse",
    )


FORMATS = {"anthropic": anthropic(), "responses": responses(), "chat": chat(), "gemini": gemini()}


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Model() as running:
        yield running


@pytest.fixture(params=FORMATS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def form(name: str) -> Format:
    return FORMATS[name]


async def post(model: Model, path: str, body: JSON) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=LIMIT) as http:
        return await http.post(model.url + path, json=body, headers={"X-Own": "yes"})


async def turn(model: Model, form: Format, history: list[JSON], streamed: bool) -> Said:
    """The model's next turn."""
    body = form.ask(history)
    if not streamed:
        return form.whole((await post(model, form.path, body)).json())
    path = form.streamed or form.path
    reply = await post(model, path, body if form.streamed else {**body, "stream": True})
    assert reply.headers["content-type"] == "text/event-stream"
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
    return form.joined([json.loads(line) for line in lines if line != "[DONE]"])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_script_is_followed_turn_by_turn(model: Model, name: str, form: Format, streamed: bool) -> None:
    history = [form.user(PROMPT)]
    first = await turn(model, form, history, streamed)
    assert [(tool[-4:], arguments) for _, tool, arguments in first.calls] == [
        ("echo", {"text": "a"}),
        ("echo", {"text": "b"}),
    ]
    history += [*first.history, *form.results(first)]
    second = await turn(model, form, history, streamed)
    assert [arguments for _, _, arguments in second.calls] == [{}]
    history += [*second.history, *form.results(second)]
    assert (await turn(model, form, history, streamed)).text == "got:\nr0"
    assert [each.wire for each in model.requests] == [name] * 3
    assert [each.results for each in model.turns] == [[], ["r0", "r1"], ["r0"]]


async def test_a_conversation_goes_on_after_its_script(model: Model, form: Format) -> None:
    first = await turn(model, form, [form.user("%say one")], streamed=False)
    second = await turn(model, form, [form.user("%say one"), *first.history, form.user("%say two")], streamed=True)
    assert (first.text, second.text) == ("one", "two")


async def test_what_is_offered_is_recorded(model: Model, form: Format) -> None:
    said = await turn(model, form, [form.user("%tools")], streamed=False)
    (asked,) = model.turns
    assert said.text == f"offered: {asked.offered[0]}"
    (tool,) = asked.tools
    assert (tool.description, tool.schema) == ("echoes", SCHEMA)
    assert (asked.method, asked.path.partition(":")[0] in form.path, asked.headers["x-own"]) == ("POST", True, "yes")


async def test_json_is_answered_where_json_is_wanted(model: Model, form: Format) -> None:
    body = {**form.ask([form.user(PROMPT)]), **form.for_json}
    assert json.loads(form.whole((await post(model, form.path, body)).json()).text) == {"ok": False}


async def test_a_refusal_has_the_shape_of_the_format(model: Model, form: Format) -> None:
    reply = await post(model, form.path, form.ask([form.user("%fail 429")]))
    assert reply.status_code == 429
    assert reply.json()["error"]["message"] == "refused as the script says"


async def test_a_wait_delays_the_answer_and_ends_with_its_client(model: Model, form: Format) -> None:
    waiting = asyncio.create_task(post(model, form.path, form.ask([form.user("%wait 600\n%say late")])))
    async with asyncio.timeout(LIMIT):
        while not model.turns:
            await asyncio.sleep(0.005)
        assert (await turn(model, form, [form.user("%wait 0.01\n%say soon")], streamed=False)).text == "soon"
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_tool_is_not_offered_before_a_search_has_found_it(model: Model) -> None:
    tool = {"name": "x_echo", "defer_loading": True}
    body = {"model": "m", "tools": [tool], "messages": [{"role": "user", "content": "%call find\n%call echo"}]}
    await post(model, "/v1/messages", body)
    assert model.requests[-1].offered == []
    found = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "tool_reference", "tool_name": "x_echo"}]}
    call = {"type": "tool_use", "id": "1", "name": "find", "input": {}}
    body["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [found]}]
    await post(model, "/v1/messages", body)
    assert model.requests[-1].offered == ["x_echo"]


async def test_tools_that_come_later_and_tools_of_free_text_are_called(model: Model) -> None:
    more = {"type": "additional_tools", "tools": [{"type": "custom", "name": "patch"}]}
    body = {"model": "m", "input": [{"role": "user", "content": '%call patch {"input": "+a"}'}, more]}
    (call,) = (await post(model, "/v1/responses", body)).json()["output"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "patch", "+a")
    streamed = await post(model, "/v1/responses", {**body, "stream": True})
    assert "response.custom_tool_call_input.delta" in streamed.text


async def test_a_response_to_plain_text_input_is_given(model: Model) -> None:
    reply = await post(model, "/v1/responses", {"model": "m", "input": "%say hello"})
    assert FORMATS["responses"].whole(reply.json()).text == "hello"


async def test_what_clients_ask_besides_is_answered(model: Model) -> None:
    counted = await post(model, "/v1/messages/count_tokens", {"messages": []})
    assert counted.json() == {"input_tokens": 1}
    assert (await post(model, "/v1beta/models/m:countTokens", {})).json() == {"totalTokens": 1}
    async with httpx2.AsyncClient(timeout=LIMIT) as http:
        assert (await http.get(f"{model.url}/v1/models")).json()["data"][0]["id"] == "scripted"
        assert (await http.head(model.url)).status_code == 200
        assert (await http.get(f"{model.url}/elsewhere")).status_code == 404
        assert (await http.post(f"{model.url}/v1/messages", content=b"{")).status_code == 400
    assert model.turns == []
    assert len(model.requests) == 6


async def test_it_runs_by_itself_and_prints_its_address() -> None:
    argv = [sys.executable, "-m", "mooring.testing.model", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT), httpx2.AsyncClient() as http:
            url = (await process.stdout.readline()).decode().strip()
            assert (await http.get(f"{url}/v1/models")).status_code == 200
    finally:
        process.terminate()
        async with asyncio.timeout(LIMIT):
            await process.wait()
