"""What the client half of the conformance suite runs: a real gateway in front of the suite's mock server, and a client
of it that does what the scenario asks for.

    python client_driver.py FOLDER URL      the suite appends the URL and says the rest in the environment

The suite starts all scenarios at once, each with a daemon of its own here; locks in FOLDER let a few run at a time.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mooring.testing import HttpClient
from mooring.testing.daemon import Daemon, daemon
from mooring.testing.login import log_in
from mooring.testing.speech import DIALOGUE, Era
from mooring.testing.waiting import wait_for
from mooring.wire.param_headers import Marked, marked, outgoing

JSON = dict[str, Any]
SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT: JSON = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
ERA: Era = "modern" if os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] >= "2026-07-28" else "legacy"
LOGINS = 3
"""The suite wants a client to give up after this many."""
AT_ONCE = 3
LISTED = 90.0
"""Seconds for the gateway to know what the server offers, and for one answer: all scenarios share this machine."""
NEEDED = "needs login"
"""What Mooring says where a login is missing, or does not go far enough."""
EXTENSIONS = ("auth/client-credentials", "auth/enterprise", "auth/dpop", "auth/wif")
"""Not scored."""
METADATA = "https://conformance-test.local/client-metadata.json"
"""The client metadata document that the suite knows."""


def defaults(params: JSON) -> JSON:
    """Accept, with the defaults of the form."""
    properties = params.get("requestedSchema", {}).get("properties", {})
    return {"action": "accept", "content": {name: it["default"] for name, it in properties.items() if "default" in it}}


class Client(HttpClient):
    """One that repeats arguments in headers, as HTTP clients must. What it is offered has valid marks only."""

    marks: dict[str, tuple[Marked, ...]] = {}

    def _mirrored(self, method: str, params: JSON) -> dict[str, str]:
        usual = super()._mirrored(method, params)
        marks = self.marks.get(params["name"], ()) if usual and method == "tools/call" else ()
        return {**usual, **outgoing(marks, json.dumps(params).encode(), {})}


async def tools(client: Client) -> dict[str, JSON]:
    """What the gateway offers, by name."""
    found = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
    client.marks = {name: marked(tool["inputSchema"]) for name, tool in found.items()}
    return found


async def listed(client: Client) -> dict[str, JSON]:
    """The same, once there is something."""
    found: dict[str, JSON] = {}

    async def any_there() -> bool:
        found.update(await tools(client))
        return bool(found)

    await wait_for(any_there, LISTED, 0.05)
    return found


async def call_one(client: Client, name: str, arguments: JSON) -> None:
    await listed(client)
    result = await client.call(name, arguments)
    assert not result.get("isError"), result


async def call_and_listen(client: Client) -> None:
    """The mock server asks outside of the call's stream."""
    async with client.listening():
        await call_one(client, "test_client_elicitation_defaults", {})


async def call_all(client: Client) -> None:
    """Every tool that is offered, with something for each argument."""
    samples: JSON = {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}
    for name, tool in (await listed(client)).items():
        schema = tool["inputSchema"]
        types = {key: schema["properties"][key].get("type") for key in schema.get("required", ())}
        await client.call(name, {key: samples.get(kind, "x") for key, kind in types.items()})


async def call_as_told(client: Client) -> None:
    """The calls of the context."""
    await listed(client)
    for call in CONTEXT["toolCalls"]:
        await client.call(call["name"], call["arguments"])


async def call_rounds(client: Client) -> None:
    """Questions inside calls, and calls without any between them."""
    client.answers["elicitation/create"] = {"action": "accept", "content": {"confirmed": True}}
    await listed(client)
    for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
        await client.call(f"test_mrtr_{name}")


async def echo_schema(client: Client) -> None:
    found = await listed(client)
    await client.call("json_schema_echo", {"schema": found["json_schema_2020_12_tool"]["inputSchema"]})


async def only_list(client: Client) -> None:
    await listed(client)


async def add(client: Client) -> None:
    await call_one(client, "add_numbers", {"a": 5, "b": 3})


STEPS: dict[str, Callable[[Client], Coroutine[Any, Any, None]]] = {
    "initialize": tools,  # pyright: ignore[reportAssignmentType]
    "tools_call": add,
    "request-metadata": add,
    "http-standard-headers": add,
    "sse-retry": lambda client: call_one(client, "test_reconnection", {}),
    "elicitation-sep1034-client-defaults": call_and_listen,
    "sep-2322-client-request-state": call_rounds,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_all,
    "json-schema-ref-no-deref": only_list,
    "json-schema-2020-12-preservation": echo_schema,
}


async def authorized(running: Daemon, client: Client) -> None:
    """List and call, logging in whenever that is what is missing."""
    for _ in range(LOGINS):
        if await served(client) or not await logged_in(running):
            return
    await served(client)


async def served(client: Client) -> bool:
    """Whether there is nothing to log in for: what needs a login is not listed, or the call of its first tool refused.
    A call that fails otherwise is no reason for another login."""
    listed: JSON = {}

    async def decided() -> bool:
        listed.update(await client.result("tools/list"))
        return bool(listed["tools"]) or NEEDED in str(listed["_meta"])

    await wait_for(decided, LISTED, 0.05)
    if not listed["tools"]:
        return False
    called = await client.call(listed["tools"][0]["name"])
    return not (called.get("isError") and NEEDED in str(called["content"]))


async def logged_in(running: Daemon) -> bool:
    code, _, err = await log_in(running.env, "mock")
    sys.stderr.write(err)
    return code == 0


def server(url: str) -> JSON:
    """The mock server as the configuration names it."""
    if not SCENARIO.startswith("auth/"):
        return {"url": url, "dialogue": "session" if ERA == "legacy" else "call"}
    client: JSON = {}
    if SCENARIO == "auth/basic-cimd":
        client["client_id"] = METADATA
    elif SCENARIO == "auth/pre-registration":
        os.environ["CONFORMANCE_SECRET"] = CONTEXT["client_secret"]
        client = {"client_id": CONTEXT["client_id"], "client_secret": {"env": "CONFORMANCE_SECRET"}}
    return {"url": url, "auth": "oauth", "oauth": client}


async def main(url: str) -> None:
    if SCENARIO.startswith(EXTENSIONS):
        sys.exit("Mooring logs in as its user does, in a browser, and in no other way")
    workspace = {"w": {"mcp_servers": ["*"], "prefix": "", "anonymous": "loopback"}}
    with tempfile.TemporaryDirectory(prefix="mrg-") as home:
        os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
        async with daemon(Path(home), {"mock": server(url)}, workspace) as running:
            client = Client(running.endpoint, era=ERA, capabilities=DIALOGUE, timeout=LISTED)
            client.answers["elicitation/create"] = defaults
            async with client:
                await client.open()
                await (authorized(running, client) if SCENARIO.startswith("auth/") else STEPS[SCENARIO](client))
            sys.stderr.write(running.output)


@contextmanager
def turn(folder: Path) -> Generator[None]:
    """Wait, as long as the suite does, until few enough others run."""
    slots = [os.open(folder / f"slot{number}", os.O_RDWR | os.O_CREAT, 0o600) for number in range(AT_ONCE)]
    while not any(taken(slot) for slot in slots):
        time.sleep(0.1)
    yield


def taken(slot: int) -> bool:
    try:
        fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    with turn(Path(sys.argv[1])):
        asyncio.run(main(sys.argv[2]))
