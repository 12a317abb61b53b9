"""The echo server's tools. Standard library only."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any, NoReturn

from mooring.testing import content
from mooring.testing.call import Call
from mooring.testing.peer import INVALID_PARAMS, JSON, Raw, RpcError, encode, member

Answer = JSON | Raw

VENDOR_RESULT = Raw(
    '{"content":[{"type":"text","text":"vendor","x-vendor":{"exact":1.10,"long":123456789012345678901234567890}},'
    '{"type":"vendor/new","payload":[1E2,"\\ud800"]}],"x-vendor":{"kept":true},"_meta":{"vendor/trace":"abc"}}'
)


def _text(text: str, **more: Any) -> JSON:
    return {"content": [{"type": "text", "text": text}], **more}


def _both(value: JSON) -> JSON:
    return _text(encode(value), structuredContent=value)


def _echo(call: Call) -> Answer:
    """Answers its arguments: as text and as structuredContent, byte for byte"""
    raw = member(call.text, "params", "arguments")
    return Raw(f'{{"content":[{{"type":"text","text":{json.dumps(raw)}}}],"structuredContent":{raw}}}')


def _counter(call: Call) -> Answer:
    """Adds `by` (default 1) to a number this process keeps, and answers it"""
    call.server.counter += call.params.get("arguments", {}).get("by", 1)
    return _text(str(call.server.counter), structuredContent={"count": call.server.counter})


def _pid(call: Call) -> Answer:
    """Answers its process id; structuredContent has the parent's, the grandchildren's and the working folder too"""
    more = {"pid": os.getpid(), "parent": os.getppid(), "grandchildren": grandchildren, "cwd": os.getcwd()}
    return _text(str(os.getpid()), structuredContent={**more, "argv": sys.argv})


def _env(call: Call) -> Answer:
    """Answers its environment"""
    return _both(dict(os.environ))


def _seen(call: Call) -> Answer:
    """Answers what it has received: methods in order, cancelled ids, params of initialize, this call's _meta"""
    server = call.server
    return _both({"methods": server.seen, "cancelled": server.cancelled, "hello": server.hello, "meta": call.meta})


def _huge(call: Call) -> Answer:
    """Answers `bytes` (default: the flag --huge) letters"""
    return _text("x" * call.params.get("arguments", {}).get("bytes", call.server.flags.huge))


def _sleep(call: Call) -> Answer:
    """Sleeps `seconds` in `steps` (default 4), reports progress after each, and stops when cancelled"""
    arguments = call.params.get("arguments", {})
    seconds, steps = float(arguments.get("seconds", 0.2)), int(arguments.get("steps", 4))
    for step in range(steps):
        call.wait(seconds / steps)
        call.progress(step + 1, steps)
    return _text(f"slept {seconds}")


def _log(call: Call) -> Answer:
    """Sends `text` as a log message of `level` (default info)"""
    arguments = call.params.get("arguments", {})
    call.log(arguments.get("level", "info"), arguments.get("text", "hello"))
    return _text("logged")


def _complain(call: Call) -> Answer:
    """Writes `text` as a line to stderr"""
    print(call.params.get("arguments", {}).get("text", "complaint"), file=sys.stderr, flush=True)
    return _text("complained")


def _error(call: Call) -> Answer:
    """Answers a result with isError"""
    return _text("it went wrong", isError=True)


def _rpc_error(call: Call) -> Answer:
    """Answers a JSON-RPC error with `code` (default -32050) and data"""
    raise RpcError(call.params.get("arguments", {}).get("code", -32050), "an error of its own", {"vendor": [1, 2]})


def _vendor(call: Call) -> Answer:
    """Answers fields and a content type that no revision knows"""
    return VENDOR_RESULT


def _link(call: Call) -> Answer:
    """Answers a link to a resource that is in no list"""
    return {"content": [{"type": "resource_link", "uri": content.HIDDEN, "name": "hidden"}]}


def _touch(call: Call) -> Answer:
    """Changes the watched resource and tells those who subscribed"""
    call.server.watched_version += 1
    call.server.resource_updated(content.WATCHED)
    return _text(str(call.server.watched_version))


def _change(call: Call) -> Answer:
    """Adds an item to the list `kind` (tools, prompts or resources; default tools) and announces it"""
    kind = call.params.get("arguments", {}).get("kind", "tools")
    name = call.server.catalogue.add(kind)
    call.server.list_changed(kind)
    return _text(name)


def _named(call: Call) -> Answer:
    """Answers its name"""
    return _both({"tool": call.params["name"]})


def _crash(call: Call) -> Answer:
    """Ends the process with `code` (default 1), unanswered"""
    die("crashed when asked to", call.params.get("arguments", {}).get("code", 1))


def _hang_up(call: Call) -> Answer:
    """Closes one of its pipes, `what` being input (the default) or output, and lives on"""
    what = call.params.get("arguments", {}).get("what", "input")
    reader, writer = os.pipe()
    os.dup2(*((reader, 0) if what == "input" else (writer, 1)))
    return _text(f"hung up {what}")


def _elicit(call: Call) -> Answer:
    """Asks the user for a name (elicitation) and answers what came back"""
    message = call.params.get("arguments", {}).get("message", "Who are you?")
    schema: JSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return _both(call.ask("elicitation", "elicitation/create", {"message": message, "requestedSchema": schema}))


def _sample(call: Call) -> Answer:
    """Asks the client's model (sampling) and answers what came back"""
    prompt = call.params.get("arguments", {}).get("prompt", "Say hi")
    messages = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return _both(call.ask("sampling", "sampling/createMessage", {"messages": messages, "maxTokens": 100}))


def _roots(call: Call) -> Answer:
    """Asks the client for its roots and answers what came back"""
    return _both(call.ask("roots", "roots/list", {}))


grandchildren: list[int] = []
"""Process ids of what ``--spawn-grandchild`` started."""

_TOOLS: dict[str, Callable[[Call], Answer]] = {
    run.__name__[1:]: run
    for run in (
        *(_echo, _counter, _pid, _env, _seen, _huge, _sleep, _log, _complain, _error, _rpc_error),
        *(_vendor, _link, _touch, _change, _crash, _hang_up, _elicit, _sample, _roots),
    )
}
more: dict[str, Callable[[Call], Answer]] = {}
"""Tools that another server than the plain echo server adds."""
_WAITING = ("sleep", "elicit", "sample", "roots")


def waits(name: object) -> bool:
    """Whether a tool may take a while, so that it needs a thread."""
    return name in _WAITING


def offered(flags: Namespace) -> list[JSON]:
    """The tool list that the flags ask for."""
    known: list[JSON] = [_definition(name, run) for name, run in _TOOLS.items() if name != "change" or flags.changing]
    known += [_definition(name, run) for name, run in more.items()]
    known += [_definition(f"tool_{number}", _echo) for number in range(flags.tools)]
    return known + [_definition(name, _named) for name in flags.tool]


def _definition(name: str, run: Callable[[Call], Answer]) -> JSON:
    extra: JSON = {"x-vendor": {"kept": [1, None, 123456789012345678901234567890]}} if name == "vendor" else {}
    return {"name": name, "description": run.__doc__, "inputSchema": {"type": "object"}, **extra}


def die(reason: str, code: int = 1) -> NoReturn:
    """End the process at once, with last words on stderr."""
    os.write(2, f"echo server: {reason}\nlast words\n".encode())
    os._exit(code)


def _call(call: Call) -> Answer:
    name = call.params.get("name")
    if name not in [tool["name"] for tool in call.server.catalogue.lists["tools"]]:
        raise RpcError(INVALID_PARAMS, f"no tool {name}")
    unknown = _named if name in call.server.flags.tool else _echo
    return {**_TOOLS, **more}.get(str(name), unknown)(call)


METHODS: dict[str, Callable[[Call], Answer]] = {"tools/call": _call}
