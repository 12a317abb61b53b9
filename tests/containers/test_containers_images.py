"""Images are pulled or built by policy, with a limit of their own, and what goes wrong says what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_kit import LIMIT, Kept, Table, answer, called
from registry import Registry, registry

from mooring.testing import containers, wait_for


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry that both engines take without TLS."""
    with registry() as found:
        settings = tmp_path / "registries.conf"
        settings.write_text(f'[[registry]]\nlocation = "{found.address}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
        yield found


def forget(engine: str, *images: str) -> None:
    """Remove images, as far as they are there."""
    for image in images:
        subprocess.run([engine, "rmi", "--force", image], capture_output=True, timeout=LIMIT, check=False)


async def test_a_missing_image_is_pulled_once_and_from_where_it_is_written(
    kept: Kept, tmp_path: Path, probe: Table, served: Registry
) -> None:
    """R16: at boot already; ``always`` asks at each start; the start after that asks nobody."""
    once, each = f"{served.address}/one/once:2", f"{served.address}/one/each"
    forget(kept.engine, once, each)
    servers = {
        "once": probe(network="none", image=once, idle_timeout=0.2),
        "each": probe(network="none", image=each, pull="always", idle_timeout=0.2),
    }
    try:
        async with kept.daemon(tmp_path / "home", servers) as daemon:
            for name in servers:
                assert (await called(daemon, f"{name}_echo", n=1)) == {"n": 1}
            assert "/v2/one/once/manifests/2" in served.asked
            await wait_for(lambda: not kept.names(daemon.home), LIMIT, 0.05)
            before = len(served.asked)
            await called(daemon, "once_echo")
            assert len(served.asked) == before
            await called(daemon, "each_echo")
            assert len(served.asked) > before
    finally:
        forget(kept.engine, once, each)


async def test_an_image_that_cannot_be_had_says_why_and_what_to_do(
    kept: Kept, tmp_path: Path, probe: Table, served: Registry
) -> None:
    """R12 R16: not there, not allowed to look, not built; each by itself, and the others run."""
    (tmp_path / "Dockerfile").write_text(f"FROM {containers.IMAGE}\nCOPY nothing /x\n")
    servers = {
        "missing": probe(image=f"{served.address}/missing"),
        "never": probe(image="localhost/mooring-testing-nothing:1", pull="never"),
        "unbuilt": probe(image="localhost/mooring-testing-unbuilt:1", dockerfile=str(tmp_path / "Dockerfile")),
        "nofile": probe(image="localhost/mooring-testing-unbuilt:1", dockerfile=str(tmp_path / "none" / "Dockerfile")),
        "fine": probe(network="none"),
    }
    async with kept.daemon(tmp_path / "home", servers) as daemon:
        assert await called(daemon, "fine_echo", n=1) == {"n": 1}
        missing = await answer(daemon, "missing_echo")
        assert missing["_meta"]["mooring/error"]["kind"] in ("pull_failed", "backing_off")
        assert "Check its name and tag" in str(missing)
        assert (
            '"never": The image localhost/mooring-testing-nothing:1 is not on this machine, and pull = "never"'
            in str(await answer(daemon, "never_echo")).replace("\\'", "'")
        )
        assert "could not be built from" in str(await answer(daemon, "unbuilt_echo"))
        assert "there is no file" in str(await answer(daemon, "nofile_echo"))


async def test_an_image_is_built_and_built_again_when_its_file_changes(
    kept: Kept, tmp_path: Path, probe: Table
) -> None:
    """R16: relative to the configuration; no registry is asked."""
    image, home = "localhost/mooring-testing-built:1", tmp_path / "home"
    (home / "image").mkdir(parents=True)
    recipe = home / "image" / "Dockerfile"
    recipe.write_text(f"FROM {containers.IMAGE}\nENV MADE=first\n")
    look = "import os; found = os.environ['MADE']"
    table = probe(network="none", image=image, dockerfile="image/Dockerfile", idle_timeout=0.2)
    try:
        async with kept.daemon(home, {"one": table}) as daemon:
            assert (await called(daemon, "one_look", code=look))["found"] == "first"
            recipe.write_text(f"FROM {containers.IMAGE}\nENV MADE=second\n")
            await wait_for(lambda: not kept.names(home), LIMIT, 0.05)
            assert (await called(daemon, "one_look", code=look))["found"] == "second"
    finally:
        forget(kept.engine, image)


async def test_an_image_that_went_away_is_got_again(kept: Kept, tmp_path: Path, probe: Table, served: Registry) -> None:
    """R16: the start that finds it gone says so, the next one gets it."""
    image = f"{served.address}/one/gone:1"
    forget(kept.engine, image)
    try:
        async with kept.daemon(
            tmp_path / "home", {"one": probe(network="none", image=image, idle_timeout=0.2)}
        ) as daemon:
            await called(daemon, "one_echo")
            await wait_for(lambda: not kept.names(daemon.home), LIMIT, 0.05)
            forget(kept.engine, image)
            assert "the next start gets it" in str(await answer(daemon, "one_echo"))

            async def again() -> bool:
                return bool(await called(daemon, "one_echo", n=1))

            await wait_for(again, LIMIT, 0.2)
    finally:
        forget(kept.engine, image)
