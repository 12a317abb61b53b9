"""The tools that the conformance suite calls. Names, texts and behaviour are the suite's. Standard library only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from mooring.testing.conformance.call import CAPABILITY, Call
from mooring.testing.conformance.content import AUDIO, IMAGE
from mooring.testing.conformance.schemas import ADDRESS, DEFAULTS, ENUMS, MIRRORED, elicit, properties, sample
from mooring.testing.peer import JSON, RpcError

Tool = Callable[[Call], Awaitable[JSON]]
PAUSE = 0.05
"""Seconds between two reports of a tool that reports."""
RETRY = 0.5
"""Seconds that ``test_reconnection`` waits for its client to come back."""

TOOLS: dict[str, Tool] = {}
SCHEMAS: dict[str, JSON] = {}
"""Input schemas; those that are not here take no arguments."""


def tool(schema: JSON | None = None) -> Callable[[Tool], Tool]:
    """Offer a function as the tool of its name; its docstring is the description."""

    def offer(run: Tool) -> Tool:
        name: str = run.__name__  # pyright: ignore[reportFunctionMemberAccess]
        TOOLS[name] = run
        SCHEMAS[name] = schema or {"type": "object", "properties": {}}
        return run

    return offer


def definition(name: str) -> JSON:
    """A tool as it is listed."""
    return {"name": name, "description": TOOLS[name].__doc__, "inputSchema": SCHEMAS[name]}


def text(value: str) -> JSON:
    """A block of text."""
    return {"type": "text", "text": value}


def result(*blocks: JSON, **more: Any) -> JSON:
    """A tool result."""
    return {"content": list(blocks), **more}


def embedded(uri: str, kind: str, value: str) -> JSON:
    """A block with a resource in it."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": value}}


@tool()
async def test_simple_text(call: Call) -> JSON:
    """Answers a text"""
    return result(text("This is a simple text response for testing."))


@tool()
async def test_image_content(call: Call) -> JSON:
    """Answers an image"""
    return result(IMAGE)


@tool()
async def test_audio_content(call: Call) -> JSON:
    """Answers a sound"""
    return result(AUDIO)


@tool()
async def test_embedded_resource(call: Call) -> JSON:
    """Answers a resource"""
    return result(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))


@tool()
async def test_multiple_content_types(call: Call) -> JSON:
    """Answers text, image and resource"""
    mixed = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return result(text("Multiple content types test:"), IMAGE, mixed)


@tool()
async def test_tool_with_logging(call: Call) -> JSON:
    """Sends three log messages at level info"""
    call.log("info", "Tool execution started")
    await asyncio.sleep(PAUSE)
    call.log("info", "Tool processing data")
    await asyncio.sleep(PAUSE)
    call.log("info", "Tool execution completed")
    return result(text("Tool with logging executed successfully"))


@tool()
async def test_logging_tool(call: Call) -> JSON:
    """Sends a log message at level info"""
    call.log("info", "logged")
    return result(text("logged"))


@tool()
async def test_tool_with_progress(call: Call) -> JSON:
    """Reports progress three times"""
    for done in (0, 50):
        call.progress(done, 100)
        await asyncio.sleep(PAUSE)
    call.progress(100, 100)
    return result(text("Tool with progress executed successfully"))


@tool()
async def test_error_handling(call: Call) -> JSON:
    """Always fails"""
    return result(text("This tool intentionally returns an error for testing"), isError=True)


@tool()
async def test_reconnection(call: Call) -> JSON:
    """Closes its stream in the middle; the answer is for the client that comes back (legacy HTTP)"""
    call.pause()
    await asyncio.sleep(RETRY)
    return result(text("Reconnection test completed successfully"))


@tool(properties(prompt="string"))
async def test_sampling(call: Call) -> JSON:
    """Asks the client's model"""
    answers = await call.ask({"sample": sample(str(call.arguments.get("prompt", "")))})
    return result(text(f"LLM response: {json.dumps(answers['sample'].get('content'))}"))


@tool(properties(message="string"))
async def test_elicitation(call: Call) -> JSON:
    """Asks the user for a name and an address"""
    wanted = {"username": {"type": "string", "description": "User's response"}}
    wanted["email"] = {"type": "string", "description": "User's email address"}
    answers = await call.ask({"user": elicit(str(call.arguments.get("message", "")), wanted, "username", "email")})
    return result(text(f"User response: {json.dumps(answers['user'])}"))


@tool()
async def test_elicitation_sep1034_defaults(call: Call) -> JSON:
    """Asks the user with a default value of each type"""
    answers = await call.ask({"user": elicit("Please review the values", DEFAULTS)})
    return result(text(f"Elicitation completed: {json.dumps(answers['user'])}"))


@tool()
async def test_elicitation_sep1330_enums(call: Call) -> JSON:
    """Asks the user with each kind of choice"""
    answers = await call.ask({"user": elicit("Please choose", ENUMS)})
    return result(text(f"Elicitation completed: {json.dumps(answers['user'])}"))


@tool()
async def test_streaming_elicitation(call: Call) -> JSON:
    """Reports progress, then asks the user"""
    call.progress(0, 1)
    answers = await call.ask({"user": elicit("Continue?", {"ok": {"type": "boolean"}}, "ok")})
    return result(text(f"User response: {json.dumps(answers['user'])}"))


@tool()
async def test_missing_capability(call: Call) -> JSON:
    """Needs a client that declares sampling"""
    call.require("sampling")
    return result(text("the client declared sampling"))


@tool(MIRRORED)
async def test_x_mcp_header(call: Call) -> JSON:
    """Has an argument that HTTP clients repeat in a header"""
    return result(text(f"region: {call.arguments.get('region')}"))


@tool(ADDRESS)
async def json_schema_2020_12_tool(call: Call) -> JSON:
    """Tool with JSON Schema 2020-12 features"""
    return result(text(json.dumps(call.arguments)))


ASK_NAME = elicit("What is your name?", {"name": {"type": "string"}}, "name")
CONFIRM = elicit("Please confirm", {"ok": {"type": "boolean"}}, "ok")
ROOTS: JSON = {"method": "roots/list", "params": {}}


@tool()
async def test_input_required_result_elicitation(call: Call) -> JSON:
    """Asks the user for a name"""
    answers = await call.ask({"user_name": ASK_NAME})
    return result(text(f"Hello, {answers['user_name'].get('content', {}).get('name')}!"))


@tool()
async def test_input_required_result_sampling(call: Call) -> JSON:
    """Asks the model for a capital"""
    answers = await call.ask({"capital_question": sample("What is the capital of France?")})
    return result(text(json.dumps(answers["capital_question"].get("content"))))


@tool()
async def test_input_required_result_list_roots(call: Call) -> JSON:
    """Asks for the client's roots"""
    answers = await call.ask({"client_roots": ROOTS})
    return result(text(json.dumps(answers["client_roots"].get("roots"))))


@tool()
async def test_input_required_result_request_state(call: Call) -> JSON:
    """Asks for a confirmation, and for its state back"""
    await call.ask({"confirm": CONFIRM}, sealed=True)
    return result(text("state-ok"))


@tool()
async def test_input_required_result_multiple_inputs(call: Call) -> JSON:
    """Asks user, model and client at once"""
    greeting = sample("Generate a greeting", 50)
    answers = await call.ask({"user_name": ASK_NAME, "greeting": greeting, "client_roots": ROOTS}, sealed=True)
    return result(text(json.dumps(answers)))


@tool()
async def test_input_required_result_multi_round(call: Call) -> JSON:
    """Asks the user twice, one question after the other"""
    first = await call.ask(
        {"step1": elicit("Step 1: What is your name?", {"name": {"type": "string"}}, "name")}, sealed=True
    )
    color = {"color": {"type": "string"}}
    second = await call.ask({"step2": elicit("Step 2: What is your favorite color?", color, "color")}, sealed=True)
    return result(text(json.dumps({**first, **second})))


@tool()
async def test_input_required_result_tampered_state(call: Call) -> JSON:
    """Refuses a state that is not its own"""
    await call.ask({"confirm": CONFIRM}, sealed=True)
    return result(text("state-ok"))


@tool()
async def test_input_required_result_capabilities(call: Call) -> JSON:
    """Asks only what the client declared"""
    possible = {"user": CONFIRM, "model": sample("Say hi"), "roots": ROOTS}
    questions = {name: each for name, each in possible.items() if CAPABILITY[each["method"]] in call.capabilities}
    return result(text(json.dumps(await call.ask(questions))))


async def run(call: Call) -> JSON:
    """Run the tool that a call names. Errors in the dialogue with a legacy client are results that say so."""
    try:
        return await TOOLS[call.params["name"]](call)
    except RpcError as error:
        if call.era == "modern":
            raise
        return result(text(f"Error: {error}"), isError=True)
