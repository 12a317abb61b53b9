"""What a daemon does once those who waited for it have been served."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from mooring.config.home import Home
from mooring.testing import wait_for
from mooring.testing.daemon import daemon, server

AWAY = "INSERT INTO eras VALUES ('away', 'd', 'legacy', '2025-11-25', 1)", "INSERT INTO gone VALUES ('away', 1)"


async def test_what_was_stored_of_servers_that_are_long_gone_goes_at_a_start(tmp_path: Path) -> None:
    file = Home.below(tmp_path).store_file

    def eras() -> set[str]:
        with closing(sqlite3.connect(file)) as store:
            return {variant for (variant,) in store.execute("SELECT variant FROM eras")}

    async with daemon(tmp_path, {"echo": server()}):
        await wait_for(lambda: eras() == {"echo"}, 20, 0.05)
    with closing(sqlite3.connect(file)) as store, store:
        for statement in AWAY:
            store.execute(statement)
        store.execute("UPDATE eras SET seen_at = ? WHERE variant = 'echo'", (time.time() - 10**8,))
    assert eras() == {"echo", "away"}
    async with daemon(tmp_path, {"echo": server()}):
        await wait_for(lambda: eras() == {"echo"}, 20, 0.05)
