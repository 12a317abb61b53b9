"""An agent's own Python functions as tools of its view: added, removed, switched on and off while it runs.

They are one more server of the agent's workspace, under the prefix ``own``, so that list, key, confirmation and refusal
are the same as for any other tool. Used by people as ``agent.tools``.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from mooring.errors import ConfigError
from mooring.launch.functions import Function, answered, result
from mooring.wire import jsonrpc
from mooring.wire.connection import Caller
from mooring.wire.jsonrpc import Answer

CALL_IDS = ("claudecode/toolUseId", "mooring/callId", "callId", "progressToken")
"""Where a client says, in ``_meta``, which of its calls this is; the first that is there counts."""


class Context:
    """What a function may know of the call it serves: a parameter of this type is filled, and is no argument."""

    def __init__(self, agent: str, run: str, call_id: str, deps: Any, caller: Caller | None) -> None:
        self.agent = agent
        """Name of the agent."""
        self.run = run
        """Id of the run that the call belongs to; "" outside of one."""
        self.call_id = call_id
        """The agent's own id of the call, where it tells."""
        self.deps = deps
        """What ``run(prompt, deps=...)`` was given."""
        self._caller = caller

    async def elicit(self, message: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the person behind this run; the answer is {"action": ..., "content": ...}. Without one: declined."""
        asked = jsonrpc.text({"mode": "form", "message": message, "requestedSchema": schema})
        answer = await self._caller.ask("elicitation/create", asked) if self._caller is not None else None
        if answer is None or answer.result is None:
            return {"action": "decline"}
        return jsonrpc.value(answer.result)


class _Tool:
    """A function and what is known about it."""

    def __init__(self, function: Function, confirm: bool) -> None:
        self.function = function
        self.confirm = confirm


Serving = Callable[[Caller | None, str], Context]
"""The context of a call: who calls, and the agent's id of the call."""


class Tools:
    """The own tools of one agent. Implements ``launch.functions.Served``; each change is on the agent's endpoint when
    its method returns."""

    def __init__(self, context: Serving, changed: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._changed = changed
        self._tools: dict[str, _Tool] = {}
        self._disabled: set[str] = set()
        """Names; they keep their state when a tool of that name is added again."""

    @property
    def names(self) -> list[str]:
        """All tools, the disabled ones too."""
        return list(self._tools)

    def enabled(self, name: str) -> bool:
        """Whether the tool of this name is, or would be, offered."""
        return name not in self._disabled

    def confirms(self, name: str) -> bool:
        """Whether the function was added with ``confirm``."""
        tool = self._tools.get(name)
        return tool is not None and tool.confirm

    async def add(self, *functions: Callable[..., Any], confirm: bool = False) -> None:
        """Offer functions; with ``confirm`` a person must approve each call. Raises ConfigError; none is added then."""
        made = [Function(function, Context) for function in functions]
        for tool in made:
            if tool.name in self._tools:
                raise ConfigError(f"The agent has a tool {tool.name!r} already.")
        self._tools.update({tool.name: _Tool(tool, confirm) for tool in made})
        try:
            await self._changed()
        except BaseException:
            for tool in made:
                self._tools.pop(tool.name, None)
            raise

    async def remove(self, *names: str) -> None:
        """Offer tools no more. Raises ConfigError when there is no such tool."""
        for name in names:
            self._known(name)
        for name in names:
            del self._tools[name]
        await self._changed()

    async def enable(self, name: str) -> None:
        """Offer a tool again. Raises ConfigError when there is no such tool."""
        self._known(name)
        self._disabled.discard(name)
        await self._changed()

    async def disable(self, name: str) -> None:
        """Keep a tool and do not offer it. Raises ConfigError when there is no such tool."""
        self._known(name)
        self._disabled.add(name)
        await self._changed()

    @asynccontextmanager
    async def temporary(self, *functions: Callable[..., Any], confirm: bool = False) -> AsyncGenerator[None]:
        """Offer functions as long as the block lasts. Raises ConfigError."""
        await self.add(*functions, confirm=confirm)
        try:
            yield
        finally:
            await self.remove(*(function.__name__ for function in functions if function.__name__ in self._tools))

    def listed(self) -> list[dict[str, Any]]:
        """See ``launch.functions.Served``."""
        return [tool.function.listed for name, tool in self._tools.items() if name not in self._disabled]

    async def call(self, name: str, params: Mapping[str, msgspec.Raw], caller: Caller | None) -> Answer:
        """See ``launch.functions.Served``. What was removed a moment ago is refused as what never was."""
        tool = self._tools.get(name)
        if tool is None or name in self._disabled:
            return result(f"The tool {name!r} was removed. List the tools to see what there is.", failed=True)
        context = self._context(caller, call_id(params.get("_meta")))
        return await answered(tool.function.call(params.get("arguments", jsonrpc.EMPTY), context))

    def _known(self, name: str) -> None:
        if name not in self._tools:
            raise ConfigError(f"The agent has no tool {name!r}. Its own tools: {', '.join(self._tools) or 'none'}.")


def call_id(meta: msgspec.Raw | None) -> str:
    """The client's id of a call. Pure."""
    parts = jsonrpc.fields(meta)
    found = next((parts[key] for key in CALL_IDS if key in parts), None)
    return "" if found is None else str(jsonrpc.value(found))


def imported(paths: Iterable[str]) -> list[Callable[..., Any]]:
    """The functions behind import paths, ``module:name`` of one or of a list of them. Raises ConfigError."""
    found: list[Callable[..., Any]] = []
    for path in paths:
        module, _, name = path.partition(":")
        try:
            value = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"{path!r} cannot be imported: {error}. Write module:name.") from None
        found += [value] if callable(value) else list(value)
    return found
