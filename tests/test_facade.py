"""The façade: one method a verb, typed on the way back."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import mooring
from mooring.config.home import Home
from mooring.errors import ConfigError, DaemonAbsent
from mooring.facade import Heard, Mooring
from mooring.nouns import NewKey
from mooring.serve.verbs import Verbs


class Recorder:
    """A control that notes what it is asked, and answers from a list."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers = list(answers)

    async def invoke(self, verb: str, parameters: Mapping[str, Any], heard: Heard | None = None) -> Any:
        self.asked.append((verb, dict(parameters)))
        if heard is not None:
            heard("progress", 1)
        return self.answers.pop(0)


async def test_what_comes_back_is_typed_whatever_carried_it() -> None:
    control = Recorder(
        {"key": "mrg_x", "id": "k_1", "workspace": "w"}, [{"name": "a_t", "server": "a", "upstream": "t"}]
    )
    m = Mooring(control)
    assert await m.key_create("w", name="n", replace=True) == NewKey("mrg_x", "k_1", "w")
    assert control.asked[0][1]["replace"] is True
    (tool,) = await m.tools("w")
    assert (tool.name, tool.server, tool.input_schema, tool.output_schema) == ("a_t", "a", {}, None)
    control.answers.append({"content": []})
    assert await tool.call(x=1) == {"content": []}
    assert control.asked[-1] == ("call", {"workspace": "w", "tool": "a_t", "arguments": {"x": 1}, "agreed": False})


async def test_an_answer_of_another_shape_is_an_error_and_not_a_surprise() -> None:
    with pytest.raises(msgspec.ValidationError):
        await Mooring(Recorder("no list")).ps()


async def test_what_a_verb_reports_reaches_its_asker() -> None:
    heard: list[Any] = []
    await Mooring(Recorder([])).logs("a", heard=lambda *said: heard.append(said))
    assert heard == [("progress", 1)]


async def test_functions_need_a_mooring_of_this_process() -> None:
    with pytest.raises(ConfigError, match="opened in this process"):
        await Mooring(Recorder()).add_server("x", functions=[])


async def test_connecting_without_a_daemon_says_so(tmp_path: Path) -> None:
    with pytest.raises(DaemonAbsent):
        async with mooring.connect(Home(str(tmp_path), str(tmp_path), str(tmp_path))):
            pass


def test_every_verb_behind_the_facade_is_there_and_none_is_hidden() -> None:
    """One list of verbs: what the façade asks for, the daemon knows."""
    verbs = set(Verbs(cast("Any", None))._verbs)
    methods = {name for name, _ in inspect.getmembers(Mooring, inspect.iscoroutinefunction)}
    assert (methods - {"_ask", "tool_rows", "add_server"}) | {"lend"} == verbs, "agents ask for lend"
