"""Imports point down: who may import whom in ``src/mooring``, read from the source, lazy imports included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "mooring"

NAME, DECIDE, TOUCH, RUN, ASSEMBLE = range(5)
LAYERS = {
    "errors": NAME,
    "nouns": NAME,
    "nouns_check": NAME,
    "nouns_litellm": NAME,
    "nouns_registry": NAME,
    "tasks": NAME,
    "config.plan": NAME,
    "config.plan_servers": NAME,
    "config": DECIDE,
    "catalog.sources": TOUCH,
    "catalog.shelf": RUN,
    "catalog.refresh": RUN,
    "wire.jsonrpc": DECIDE,
    "wire.lenient": DECIDE,
    "wire.connection": DECIDE,
    "wire.session": DECIDE,
    "wire.eras": DECIDE,
    "wire.egress": DECIDE,
    "wire.headers": DECIDE,
    "wire.lines": DECIDE,
    "wire.login": DECIDE,
    "wire.param_headers": DECIDE,
    "wire.resource": DECIDE,
    "wire.sse": DECIDE,
    "wire.upstream_params": DECIDE,
    "wire.upstream_refusal": DECIDE,
    "instances.state": DECIDE,
    "instances.rules": DECIDE,
    "relay.client_names": DECIDE,
    "relay.table": DECIDE,
    "relay.view": DECIDE,
    "access.claims": DECIDE,
    "access.policy": DECIDE,
    "agents.layers": DECIDE,
    "observe.events": DECIDE,
    "observe.redact": DECIDE,
    "plugins.found": DECIDE,
    "plugins.hooks": DECIDE,
    "plugins.image": DECIDE,
    "plugins.servers": DECIDE,
    "plugins.spec": DECIDE,
    "launch.base": DECIDE,
    "launch": TOUCH,
    "wire": TOUCH,
    "store": TOUCH,
    "catalog": DECIDE,
    "config.edit": TOUCH,
    "config.files": TOUCH,
    "config.home": TOUCH,
    "config.importer": TOUCH,
    "config.load": TOUCH,
    "config.locate": TOUCH,
    "config.logins": TOUCH,
    "config.reference": TOUCH,
    "config.secrets": TOUCH,
    "config.store": TOUCH,
    "observe": TOUCH,
    "relay": RUN,
    "instances": RUN,
    "access": RUN,
    "agents": RUN,
    "export": RUN,
    "export.base": DECIDE,
    "export.litellm_entries": DECIDE,
    "export.litellm_plan": DECIDE,
    "export.litellm_rows": DECIDE,
    "export.litellm_wanted": DECIDE,
    "cli": ASSEMBLE,
    "serve": ASSEMBLE,
    "facade": ASSEMBLE,
    "plugins": ASSEMBLE,
    "__main__": ASSEMBLE,
}
"""The longest matching prefix counts."""

SIDEWAYS = {("relay", "instances"), ("relay", "access"), ("agents", "relay"), ("export", "relay")}
"""Rooms of one layer that may import each other; within a room everything may."""

CLOCKS_AND_DICE = {"time", "datetime", "random", "secrets"}
SYSTEM = {"os", "io", "shutil", "tempfile", "select", "signal", "socket", "ssl", "subprocess", "threading", "sqlite3"}
IMPURE = {*CLOCKS_AND_DICE, *SYSTEM, "httpx2", "urllib.request"}
"""What a module that is pure has no use for; ``os.path`` only joins names."""

OUTSIDE = ("smcp", "launch.keeper", "launch.family", "plugins.spec")
"""What runs outside the daemon."""

SDK = ("mcp", "mcp_types", "pydantic", "fastmcp", "anyio")
SDK_ADAPTER = "wire.oauth"
"""The one module that may use the SDK, and it does so lazily."""


def modules() -> list[str]:
    """Every module below the package, dotted, without the package's own name; a package is its ``__init__``."""
    names = (".".join(file.relative_to(PACKAGE).with_suffix("").parts) for file in PACKAGE.rglob("*.py"))
    return sorted(name.removesuffix(".__init__") for name in names if name != "__init__")


def source(module: str) -> Path:
    """Its file."""
    path = PACKAGE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(module: str) -> Iterator[str]:
    """Absolute names of what it imports anywhere in its source."""
    for node in ast.walk(ast.parse(source(module).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: write imports in full"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                own = name.removeprefix("mooring.")
                yield name if own in ALL else str(node.module)


ALL = modules()


def layer(module: str) -> int | None:
    """The layer of the longest prefix in the table."""
    parts = module.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((LAYERS[prefix] for prefix in prefixes if prefix in LAYERS), None)


def why_not(importer: str, target: str) -> str:
    """The rule that an import breaks, or nothing."""
    rooms = importer.split(".")[0], target.split(".")[0]
    if rooms[1] == "testing":
        return "nothing imports testing"
    if rooms[0] == "smcp":
        return "smcp.py uses the standard library only"
    above, below = layer(importer), layer(target)
    if above is None or below is None:
        return "a module has no layer in the table"
    if below > above:
        return "it points up"
    if below == above and above > DECIDE and rooms[0] != rooms[1] and rooms not in SIDEWAYS and above != ASSEMBLE:
        return "it points sideways into another room"
    return ""


def layered() -> list[str]:
    """The modules that the arrows hold for."""
    return [module for module in ALL if module.split(".")[0] != "testing"]


@pytest.mark.parametrize("module", layered())
def test_every_import_points_down(module: str) -> None:
    """Design section 2: assemble, run, touch, decide, name."""
    targets = [name.removeprefix("mooring.") for name in imported(module) if name.startswith("mooring.")]
    assert [(target, reason) for target in targets if (reason := why_not(module, target))] == []


@pytest.mark.parametrize("module", [module for module in layered() if module != SDK_ADAPTER])
def test_the_sdk_and_its_models_stay_out(module: str) -> None:
    """Only the adapter for OAuth may load the MCP SDK; the data path is raw, and asyncio is the only loop."""
    assert [name for name in imported(module) if name.split(".")[0] in SDK] == []


@pytest.mark.parametrize("module", [module for module in layered() if layer(module) in (NAME, DECIDE)])
def test_what_decides_does_no_io_and_has_no_clock(module: str) -> None:
    assert [name for name in imported(module) if name in IMPURE] == []


@pytest.mark.parametrize("module", OUTSIDE)
def test_what_runs_outside_the_daemon_needs_the_standard_library_only(module: str) -> None:
    """The keeper is started with ``-I -S``, and servers copy the SMCP helper into their own environment."""
    allowed = (*sys.stdlib_module_names, *(f"mooring.{other}" for other in OUTSIDE))
    assert [name for name in imported(module) if name not in allowed and name.split(".")[0] not in allowed] == []
