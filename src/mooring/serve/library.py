"""Mooring inside another program: the same parts, with a store in memory, no port and no lock.

Behind ``mooring.open``. Ends with its block, and every server with it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mooring.config.home import Home
from mooring.config.plan import Plan
from mooring.config.secrets import Secrets
from mooring.errors import ConfigError
from mooring.launch.kept import Keeper
from mooring.observe.redact import Redactor
from mooring.serve.app import App
from mooring.serve.reload import Configuration
from mooring.serve.verbs import Verbs
from mooring.store.sqlite import MEMORY, SqliteStore


@asynccontextmanager
async def opened(
    config: str | Path | Mapping[str, Any], user: Home | None = None, placed: Callable[[Plan], Plan] | None = None
) -> AsyncGenerator[Verbs, None]:
    """Verbs over parts that run here. ``user``: the home whose secrets are meant; ``placed``: see ``serve.reload``.
    Raises ConfigError."""
    async with AsyncExitStack() as stack:
        own = Path(stack.enter_context(TemporaryDirectory(prefix="mooring-")))
        # Secret references resolve as in the daemon of this user.
        home = Home(str(own), (user or Home.locate()).state, str(own))
        file, texts = _source(config, own)
        redact = Redactor()
        secrets = Secrets(home, found=redact.add)
        keeper = await stack.enter_async_context(Keeper())
        store = await stack.enter_async_context(SqliteStore(MEMORY))
        configuration = Configuration(file, secrets, None, texts)
        configuration.placed = placed
        app = App(configuration, store, secrets, keeper, redact)
        await app.start(stack)
        app.look()
        yield app.verbs


def _source(config: str | Path | Mapping[str, Any], own: Path) -> tuple[str, dict[str, str] | None]:
    """The file to load, and its text when there is no such file."""
    if not isinstance(config, Mapping):
        return os.path.abspath(config), None
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    file = str(own / "mooring.toml")
    try:
        return file, {file: tomlkit.dumps(config)}
    except (TOMLKitError, TypeError, ValueError) as error:
        raise ConfigError(f"The configuration holds what TOML cannot say: {error}") from None
