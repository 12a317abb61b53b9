"""Servers inside this process: no process of their own, no pipe, nothing to start. Python functions, and the registry.

Functions are for the library only: ``Mooring.add_server(name, functions=[...])``. Name, description and schema come
from the function: its name, its docstring, its type hints (msgspec's JSON Schema); arguments are validated before it
runs. Sync functions run in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, get_type_hints

import msgspec

from mooring.config.plan import Functions, Variant
from mooring.errors import ConfigError, StartFailed
from mooring.launch.base import Local
from mooring.nouns import Facts, InstanceKey
from mooring.wire import jsonrpc
from mooring.wire.connection import Caller
from mooring.wire.jsonrpc import Answer

_FACTS = Facts("legacy", "2025-11-25", b'{"tools":{}}', b'{"name":"functions","version":"1"}')


class Function:
    """One function as a tool. Raises ConfigError when its signature cannot be described."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = getattr(function, "__name__", "")
        self._function = function
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
            plain = parameter.default is parameter.empty
            fields.append((parameter.name, hint) if plain else (parameter.name, hint, parameter.default))
        return msgspec.defstruct(self.name, fields, forbid_unknown_fields=True, kw_only=True)

    async def call(self, arguments: msgspec.Raw | bytes) -> Any:
        """Run it. Raises msgspec.ValidationError for wrong arguments, and whatever it raises itself."""
        given = msgspec.json.decode(arguments, type=self._arguments)
        named = {field: getattr(given, field) for field in given.__struct_fields__}
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**named)
        return await asyncio.to_thread(self._function, **named)


class FunctionConnection:
    """Implements ``wire.connection.Connection`` over functions."""

    facts = _FACTS

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def request(self, method: str, params: bytes, caller: Caller | None = None) -> Answer:
        """Answer ``tools/list``, ``tools/call`` and ``ping``."""
        match method:
            case "tools/list":
                return Answer(result=jsonrpc.text({"tools": [tool.listed for tool in self._functions.values()]}))
            case "tools/call":
                parts = jsonrpc.members(params)
                return await self._call(jsonrpc.string(parts.get("name")) or "", parts.get("arguments", jsonrpc.EMPTY))
            case "ping":
                return Answer(result=jsonrpc.EMPTY)
            case _:
                return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, f"functions have no {method}")

    def notify(self, method: str, params: bytes) -> None:
        """Nothing to tell a function."""

    async def _call(self, name: str, arguments: msgspec.Raw | bytes) -> Answer:
        function = self._functions.get(name)
        if function is None:
            return jsonrpc.failure(jsonrpc.INVALID_PARAMS, f"no function {name!r}")
        try:
            value = await function.call(arguments)
            shown = jsonrpc.text(value)
        except Exception as error:  # the error boundary of a tool: its caller reads what went wrong
            return _result(f"{type(error).__name__}: {error}", None, failed=True)
        if isinstance(value, str):
            return _result(value, None)
        return _result(shown.decode(), msgspec.Raw(shown) if shown.startswith(b"{") else None)


def _result(text: str, structured: msgspec.Raw | None, failed: bool = False) -> Answer:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if structured is not None:
        result["structuredContent"] = structured
    if failed:
        result["isError"] = True
    return Answer(result=jsonrpc.text(result))


class _Silent:
    """Functions have no stderr of their own."""

    def text(self, lines: int = 20) -> str:
        return ""

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        return lambda: None


class _Running:
    """Implements ``launch.base.Launched``."""

    pid: int | None = None
    container: str | None = None

    def __init__(self, connection: Any) -> None:
        self.endpoint = Local(connection)
        self.stderr = _Silent()
        self.exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def signal(self, number: int) -> None:
        """There is no process."""


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
        self._servers[name] = lambda _: FunctionConnection(tools)

    @asynccontextmanager
    async def launch(
        self, variant: Variant, key: InstanceKey, secrets: Mapping[str, str]
    ) -> AsyncGenerator[_Running, None]:
        """Nothing starts; the functions are there."""
        assert isinstance(variant.launch, Functions)
        connect = self._servers.get(variant.launch.name)
        if connect is None:
            raise StartFailed(f"No functions were added as {variant.launch.name}.", server=variant.server)
        connection = connect(key)
        try:
            yield _Running(connection)
        finally:
            connection.closed.set_result("removed")
