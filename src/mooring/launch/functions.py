"""Servers inside this process: no process of their own, no pipe, nothing to start. Python functions, and the registry.

Functions are for the library only: ``Mooring.add_server(name, functions=[...])``, and the own tools of agents
(``agents.tools``). Name, description and schema come from the function: its name, its docstring, its type hints
(msgspec's JSON Schema); arguments are validated before it runs. Sync functions run in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Protocol, get_type_hints

import msgspec

from mooring.config.plan import Variant
from mooring.config.plan_servers import Functions
from mooring.errors import ConfigError, StartFailed
from mooring.launch.base import Elsewhere, Local
from mooring.nouns import Facts, InstanceKey
from mooring.wire import jsonrpc
from mooring.wire.connection import Caller
from mooring.wire.jsonrpc import Answer

_FACTS = Facts("legacy", "2025-11-25", b'{"tools":{}}', b'{"name":"functions","version":"1"}')


class Function:
    """One function as a tool. Raises ConfigError when its signature cannot be described."""

    def __init__(self, function: Callable[..., Any], context: type | None = None) -> None:
        """``context``: parameters of this type are no arguments; ``call`` fills them."""
        self.name = getattr(function, "__name__", "")
        self._function = function
        self._context = context
        self._injected: list[str] = []
        try:
            self._arguments = self._described(function)
            (schema,), components = msgspec.json.schema_components([self._arguments], ref_template="#/$defs/{name}")
        except (TypeError, ValueError, NameError) as error:
            raise ConfigError(f"{self.name or function!r} cannot be described as a tool: {error}") from None
        body = components.pop(self.name, schema)
        self.listed = {
            "name": self.name,
            "description": inspect.getdoc(function) or "",
            "inputSchema": {**body, "$defs": components} if components else body,
        }

    def _described(self, function: Callable[..., Any]) -> type[msgspec.Struct]:
        """The arguments of a function as a type. Raises what inspection and msgspec raise for those that have none."""
        hints = get_type_hints(function)
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError("it has *args, **kwargs or positional-only parameters")
            hint = hints.get(parameter.name, Any)
            if self._context is not None and hint is self._context:
                self._injected.append(parameter.name)
                continue
            plain = parameter.default is parameter.empty
            fields.append((parameter.name, hint) if plain else (parameter.name, hint, parameter.default))
        return msgspec.defstruct(self.name, fields, forbid_unknown_fields=True, kw_only=True)

    async def call(self, arguments: msgspec.Raw | bytes, context: Any = None) -> Any:
        """Run it. Raises msgspec.ValidationError for wrong arguments, and whatever it raises itself."""
        given = msgspec.json.decode(arguments, type=self._arguments)
        named = {field: getattr(given, field) for field in given.__struct_fields__}
        named.update(dict.fromkeys(self._injected, context))
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**named)
        return await asyncio.to_thread(self._function, **named)


class Served(Protocol):
    """What a function server offers at this moment."""

    def listed(self) -> list[dict[str, Any]]:
        """Its tools as ``tools/list`` has them."""
        ...

    async def call(self, name: str, params: Mapping[str, msgspec.Raw], caller: Caller | None) -> Answer:
        """The answer to ``tools/call`` with these params."""
        ...


class _Fixed:
    """Functions that stay as they are."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions

    def listed(self) -> list[dict[str, Any]]:
        return [tool.listed for tool in self._functions.values()]

    async def call(self, name: str, params: Mapping[str, msgspec.Raw], caller: Caller | None) -> Answer:
        function = self._functions.get(name)
        if function is None:
            return jsonrpc.failure(jsonrpc.INVALID_PARAMS, f"no function {name!r}")
        return await answered(function.call(params.get("arguments", jsonrpc.EMPTY)))


class FunctionConnection:
    """Implements ``wire.connection.Connection`` over functions."""

    facts = _FACTS

    def __init__(self, served: Served) -> None:
        self._served = served
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def request(self, method: str, params: bytes, caller: Caller | None = None) -> Answer:
        """Answer ``tools/list``, ``tools/call`` and ``ping``."""
        match method:
            case "tools/list":
                return Answer(result=jsonrpc.text({"tools": self._served.listed()}))
            case "tools/call":
                parts = jsonrpc.members(params)
                return await self._served.call(jsonrpc.string(parts.get("name")) or "", parts, caller)
            case "ping":
                return Answer(result=jsonrpc.EMPTY)
            case _:
                return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, f"functions have no {method}")

    def notify(self, method: str, params: bytes) -> None:
        """Nothing to tell a function."""


async def answered(call: Awaitable[Any]) -> Answer:
    """What a function returned, as the result of a tool: text as it is, anything else as JSON too, in ``result`` where
    it is no object (clients refuse structured content that is none, and some make such of text that is JSON)."""
    try:
        value = await call
        shown = jsonrpc.text(value)
    except Exception as error:  # the error boundary of a tool: its caller reads what went wrong
        return result(f"{type(error).__name__}: {error}", failed=True)
    if isinstance(value, str):
        return result(value)
    structured = shown if shown.startswith(b"{") else jsonrpc.build({"result": shown})
    return result(shown.decode(), msgspec.Raw(structured))


def result(text: str, structured: msgspec.Raw | None = None, failed: bool = False) -> Answer:
    """A tool's result that says ``text``."""
    made: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if structured is not None:
        made["structuredContent"] = structured
    if failed:
        made["isError"] = True
    return Answer(result=jsonrpc.text(made))


Connect = Callable[[InstanceKey], Any]
"""Makes a ``wire.connection.Connection`` whose ``closed`` is a future, for one instance."""


class FunctionsLauncher:
    """Holds the servers of this process by name."""

    kinds: ClassVar[tuple[str, ...]] = ("functions",)

    def __init__(self) -> None:
        self._servers: dict[str, Connect] = {}

    def offer(self, name: str, connect: Connect) -> None:
        """Add a server of Mooring's own."""
        self._servers[name] = connect

    def add(self, name: str, functions: Sequence[Callable[..., Any]]) -> None:
        """Add a server. Raises ConfigError."""
        tools: dict[str, Function] = {}
        for function in functions:
            tool = Function(function)
            if tools.setdefault(tool.name, tool) is not tool:
                raise ConfigError(f"Two functions of {name} are called {tool.name!r}.")
        self.serve(name, _Fixed(tools))

    def serve(self, name: str, served: Served | None) -> None:
        """Add a server that decides at each moment what it offers; None removes it."""
        if served is None:
            self._servers.pop(name, None)
        else:
            self.offer(name, lambda _: FunctionConnection(served))

    @asynccontextmanager
    async def launch(
        self, variant: Variant, key: InstanceKey, secrets: Mapping[str, str]
    ) -> AsyncGenerator[Elsewhere, None]:
        """Nothing starts; the functions are there."""
        assert isinstance(variant.launch, Functions)
        connect = self._servers.get(variant.launch.name)
        if connect is None:
            raise StartFailed(f"No functions were added as {variant.launch.name}.", server=variant.server)
        connection = connect(key)
        try:
            yield Elsewhere(Local(connection))
        finally:
            connection.closed.set_result("removed")
