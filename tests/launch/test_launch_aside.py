"""Work in threads of its own: how many there are when it hangs."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable

import pytest

from mooring.launch import aside as module
from mooring.launch.aside import aside


class Keyring:
    """Answers once its password was given."""

    def __init__(self) -> None:
        self.given = threading.Event()
        self._asked = itertools.count(1)

    def __call__(self) -> str:
        number = next(self._asked)
        assert self.given.wait(20)
        return f"value {number}"


@pytest.fixture
def keyring() -> Keyring:
    return Keyring()


async def give_up(work: Callable[[], str], about: object) -> None:
    task = asyncio.create_task(aside(work, about))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_hangs_costs_one_thread_however_often_it_is_tried(keyring: Keyring) -> None:
    for _ in range(5):
        await give_up(keyring, keyring)
    waiting = [asyncio.create_task(aside(keyring, keyring)) for _ in range(3)]
    await asyncio.sleep(0)
    keyring.given.set()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 20) == ["value 1"] * 3
    assert await aside(keyring, keyring) == "value 2", "what was there before the question is no answer to it"
    assert module._given_up == {}


async def test_what_was_not_given_up_is_asked_for_each_by_itself(keyring: Keyring) -> None:
    keyring.given.set()
    assert sorted(await asyncio.gather(*(aside(keyring, keyring) for _ in range(2)))) == ["value 1", "value 2"]


async def test_only_the_same_waits_for_what_hangs(keyring: Keyring) -> None:
    await give_up(keyring, keyring)
    assert await aside(lambda: "another", "y") == "another"
    assert await aside(lambda: "whatever") == "whatever"
    keyring.given.set()


async def test_what_hangs_for_too_long_is_tried_again(keyring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keyring may have gone."""
    monkeypatch.setattr(module, "LOST", 0.0)
    await give_up(keyring, keyring)
    assert await asyncio.wait_for(aside(lambda: "of the new one", keyring), 20) == "of the new one"
    keyring.given.set()


async def test_a_failure_that_nobody_waits_for_is_nobodys(keyring: Keyring) -> None:
    def fail() -> str:
        keyring()
        raise OSError("locked")

    await give_up(fail, keyring)
    waiting = asyncio.create_task(aside(fail, keyring))
    await asyncio.sleep(0)
    keyring.given.set()
    with pytest.raises(OSError, match="locked"):
        await waiting
