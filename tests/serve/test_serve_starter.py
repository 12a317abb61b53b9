"""What a start needs before there is a server."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mooring.config.plan_servers import Launch, Process, SecretRef
from mooring.serve.starter import fetched


class Locked:
    """Secrets in a keyring that waits for its password."""

    def __init__(self) -> None:
        self.given = threading.Event()
        self.asked: list[Launch] = []

    def fetch_all(self, launch: Launch) -> dict[str, str]:
        self.asked.append(launch)
        assert self.given.wait(20)
        return {"TOKEN": "hunter2"}

    def login(self, variant: str) -> object:
        raise NotImplementedError


async def test_starts_that_give_up_on_the_same_secret_leave_one_look_up_behind() -> None:
    secrets = Locked()
    launch = Process(("x",), secrets={"TOKEN": SecretRef("keyring", "ledger")})
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await fetched(secrets, launch)
    assert len(secrets.asked) == 1
    last = asyncio.create_task(fetched(secrets, launch))
    await asyncio.sleep(0)
    secrets.given.set()
    assert await asyncio.wait_for(last, 20) == {"TOKEN": "hunter2"}
    assert len(secrets.asked) == 1
