"""What containers of one daemon share: names, labels and what is swept. The engine is a script that does nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mooring.config.plan import Variant
from mooring.config.plan_servers import Container, SecretRef
from mooring.errors import LaunchMissing, StartFailed
from mooring.launch import command, container, runtime
from mooring.launch.base import Pipes
from mooring.launch.container import ContainerLauncher
from mooring.launch.engine import Engine
from mooring.launch.handover import handover
from mooring.launch.kept import Keeper, Kept
from mooring.launch.runtime import INSTANCE, Runtime
from mooring.nouns import InstanceKey

KEY = InstanceKey("v", "d")


def engine(folder: Path, name: str = "podman") -> Engine:
    program = folder / name
    program.write_text("#!/bin/sh\ncat >/dev/null\n")
    program.chmod(0o755)
    return Engine(name, str(program), "5.0")  # type: ignore[arg-type]


async def test_two_containers_of_one_key_have_labels_and_secrets_of_their_own(tmp_path: Path) -> None:
    """Also when another server has two: one's secrets must not be in the way of the other's."""
    async with Keeper() as keeper:
        running = Runtime(keeper, engine(tmp_path), "i", None)
        with ExitStack() as stack:
            names = [stack.enter_context(running.name(server, KEY)) for server in ("one", "one", "one")]
            other = InstanceKey("w", "d")
            names += [stack.enter_context(running.name("two-tier", other)) for _ in range(2)]
            assert len({running.labels("s", name)[INSTANCE] for name in names}) == len(set(names)) == 5
            stored: list[str] = []
            for name in names:
                async with handover(running, name, {"T": SecretRef("env", "T")}, {"T": "x"}) as given:
                    stored += given.stored
            assert len(set(stored)) == 5


async def test_a_secret_that_no_pipe_holds_is_refused_and_not_cut_off(tmp_path: Path) -> None:
    async with Keeper() as keeper:
        running = Runtime(keeper, engine(tmp_path), "i", None)
        with pytest.raises(StartFailed, match="secret T is larger than 64 KiB"):
            async with handover(running, "n", {"T": SecretRef("env", "T")}, {"T": "x" * 65537}):
                pass
        with pytest.raises(OSError, match="larger than a pipe holds"):
            await command.run(keeper, (running.engine.program,), {}, limit=5, stdin=b"x" * (1 << 21))


def test_what_is_swept_is_ours_and_never_behind_a_link(tmp_path: Path) -> None:
    """Everybody may make a name in the folder for memory, and container labels tell which we would sweep."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "0").write_text("secret")
    (tmp_path / "valuable").mkdir()
    (tmp_path / "valuable" / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "valuable")
    for name in ("mine", "link", "absent"):
        runtime.remove_folder(tmp_path / name)
    assert not (tmp_path / "mine").exists()
    assert (tmp_path / "valuable" / "file").read_text() == "kept"


async def test_a_sweep_of_another_engine_leaves_the_secrets_of_running_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one with nothing running removes what was left."""
    monkeypatch.setattr(runtime, "FILES", tmp_path)
    docker = engine(tmp_path, "docker")

    async def chosen(*_: object) -> Engine:
        return docker

    monkeypatch.setattr(container, "choose", chosen)
    files = tmp_path / "mooring-i-abc"
    files.mkdir()
    (files / "0").write_text("x")
    async with Keeper() as keeper:
        launcher = ContainerLauncher(keeper, "podman", "i", None)
        launcher._runtime = Runtime(keeper, engine(tmp_path), "i", None)
        await launcher._sweep_other("docker")
        assert files.is_dir()
        launcher._runtime = None
        await launcher._sweep_other("docker")
        assert not files.exists()


async def test_what_the_engine_does_not_remove_is_in_the_way_of_its_own_server_only(tmp_path: Path) -> None:
    podman, said = engine(tmp_path), tmp_path / "said"
    Path(podman.program).write_text(f'#!/bin/sh\necho "$@" >> {said}\ncase "$*" in *stuck*) exit 1;; esac\n')
    async with Keeper() as keeper:
        running = Runtime(keeper, podman, "i", None)
        with running.name("stuck", KEY) as name:
            await running.remove(name)
        await running.settle("other", KEY)
        with pytest.raises(StartFailed, match=f"podman does not remove {name}"):
            await running.settle("stuck", KEY)
        Path(podman.program).write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
        await running.tidy()
        before = said.read_text()
        await running.settle("stuck", KEY)
        assert said.read_text() == before, "it is gone already"


async def test_a_removal_that_is_tried_again_never_meets_the_next_container(tmp_path: Path) -> None:
    """Of two who try, the second waits, and finds nothing left: its own container may run by the end of the first."""
    podman, said = engine(tmp_path), tmp_path / "said"
    Path(podman.program).write_text("#!/bin/sh\nexit 1\n")
    async with Keeper() as keeper:
        running = Runtime(keeper, podman, "i", None)
        with running.name("s", KEY) as name:
            await running.remove(name)
        Path(podman.program).write_text(f'#!/bin/sh\necho "$@" >> {said}\nsleep 0.1\n')
        await asyncio.gather(running.tidy(), running.settle("s", KEY))
        assert said.read_text().count(name) == 1


async def test_an_engine_of_earlier_times_that_does_not_answer_holds_up_no_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    podman, asked, answers = engine(tmp_path), asyncio.Event(), asyncio.Event()

    async def chosen(_: Keeper, name: str) -> Engine:
        if name == "podman":
            return podman
        asked.set()
        await answers.wait()
        raise LaunchMissing("docker does not answer")

    monkeypatch.setattr(container, "choose", chosen)
    runtime.remember(tmp_path, "docker")
    wanted = Variant("v", "s", "{}", "d", Container("image", pull="always"))
    async with Keeper() as keeper:
        launcher = ContainerLauncher(keeper, "podman", "i", tmp_path)
        looking = asyncio.create_task(launcher.look_after([wanted]))
        async with asyncio.timeout(20):
            await asked.wait()
            assert (await launcher.runtime()).engine is podman
            answers.set()
            await looking


async def test_a_limit_that_could_not_be_set_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors are limited when the server answers: too late to refuse it."""
    podman, told = engine(tmp_path), asyncio.get_running_loop().create_future()
    Path(podman.program).write_text(
        '#!/bin/sh\ncase $1 in run) exec cat;; update) echo "Error: no controller" >&2; exit 125;; esac\n'
    )
    monkeypatch.setattr(container, "SETTLE", 0.0)
    variant = Variant("v", "s", "{}", "d", Container("image", cpus=0.5))
    async with Keeper() as keeper:
        launcher = ContainerLauncher(keeper, "podman", "i", None, lambda name, _, data: told.set_result((name, data)))
        launcher._runtime = Runtime(keeper, podman, "i", None)
        async with launcher.launch(variant, KEY, {}) as it:
            it.answered()
            try:
                name, data = await asyncio.wait_for(told, 20)
            finally:
                assert isinstance(it.endpoint, Pipes)
                os.close(it.endpoint.writer)
                os.close(it.endpoint.reader)
    assert name == "limits.ignored"
    assert data["reason"].endswith("to 0.5: no controller")


async def test_a_start_that_is_called_off_before_it_is_known_to_run_leaves_no_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine may have begun, and go on when its program is killed."""
    podman, said, begun = engine(tmp_path), tmp_path / "said", asyncio.Event()
    Path(podman.program).write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    monkeypatch.setattr(container, "LATE", 0.0)

    class Slow(Keeper):
        async def spawn(self, argv: Sequence[str], *args: Any) -> Kept:
            if argv[1] == "run":
                begun.set()
                await asyncio.Event().wait()
            return await super().spawn(argv, *args)

    async with Slow() as keeper:
        launcher = ContainerLauncher(keeper, "podman", "i", None)
        launcher._runtime = Runtime(keeper, podman, "i", None)

        async def start() -> None:
            async with launcher.launch(Variant("v", "s", "{}", "d", Container("image")), KEY, {}):
                pass

        starting = asyncio.create_task(start())
        async with asyncio.timeout(20):
            await begun.wait()
            starting.cancel()
            await asyncio.wait((starting,))
    assert starting.cancelled()
    removals = [line for line in said.read_text().splitlines() if line.startswith("rm ")]
    assert [line.split()[-1] for line in removals] == [runtime.container_name("s", "i", KEY)] * 2
