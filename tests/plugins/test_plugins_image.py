"""The image of a plugin's server: what it is built from, and what is mounted."""

from __future__ import annotations

import msgspec

from mooring.plugins.found import Server
from mooring.plugins.image import derived, dockerfile, import_path, mounts

PACKAGE = Server(name="voice", command="python", host_source="/src/voice_plugin", is_package=True)
FOLDER = msgspec.structs.replace(PACKAGE, host_source="/src/tools", is_package=False)


def test_r29_a_package_is_mounted_under_its_own_name_and_a_folder_as_it_is() -> None:
    """R29: mounted read-only, import path set."""
    assert mounts("voice", PACKAGE) == [("/src/voice_plugin", "/workspace/plugins/voice/voice_plugin")]
    assert mounts("voice", FOLDER) == [("/src/tools", "/workspace/plugins/voice")]
    assert import_path("voice", PACKAGE) == import_path("voice", FOLDER) == "/workspace/plugins/voice"
    nothing = msgspec.structs.replace(PACKAGE, host_source=None)
    assert (mounts("voice", nothing), import_path("voice", nothing)) == ([], "")


def test_everything_that_is_declared_is_built_in() -> None:
    assert dockerfile("base:1", True, ("ffmpeg", "sox"), "/p:/q") == (
        "ARG BASE=base:1\n"
        "FROM ${BASE}\n"
        "USER root\n"
        "RUN apt-get update && apt-get install -y --no-install-recommends ffmpeg sox && rm -rf /var/lib/apt/lists/*\n"
        "COPY requirements.txt /workspace/requirements.txt\n"
        "ARG PIP_BREAK_SYSTEM_PACKAGES=1\n"
        'RUN ["python3", "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "-r", '
        '"/workspace/requirements.txt"]\n'
        'ENV PYTHONPATH="/p:/q${PYTHONPATH:+:${PYTHONPATH}}"\n'
        "ENTRYPOINT []\n"
    )
    assert "RUN" not in dockerfile("base:1", False, (), "/p")
    assert '"/\\$x\\"y' in dockerfile("base:1", False, (), '/$x"y')


def test_the_name_tells_one_content_from_another() -> None:
    def made(server: Server = PACKAGE, base: str | None = "base", path: str = "", version: str = "3.13") -> str:
        return derived("voice", server, base, path, "/state", "/lib/mooring", version).name

    assert made() == made()
    needs = msgspec.structs.replace(PACKAGE, requirements=("x",))
    system = msgspec.structs.replace(PACKAGE, packages=("x",))
    names = {made(), made(needs), made(system), made(base="other"), made(path="/p"), made(base=None)}
    assert len(names | {made(base=None, version="3.14")}) == 7


def test_the_default_image_is_given_the_library_for_servers() -> None:
    made = derived("voice", PACKAGE, None, "", "/state", "/lib/mooring", "3.13")
    texts = list(made.files.values())
    assert made.base == "docker.io/library/python:3.13-slim"
    assert texts[0].startswith(f"ARG BASE={made.base}\n")
    assert texts[1] == "mcp\n"
    assert made.files[made.dockerfile] == texts[0]
