"""The image that a plugin's server runs in: its base, with import path, packages and requirements added. Pure.

Every such server has an image of its own, even one that needs nothing: only a build can add to the ``PYTHONPATH`` that
an image sets, and only a build can take its entry point away. An engine makes it in a second, once.
"""

from __future__ import annotations

import hashlib
import json

import msgspec

from mooring.plugins.found import Server

DEFAULT = "docker.io/library/python:{}-slim"
"""With the version of the interpreter that plugins are installed for."""
ALWAYS = ("mcp",)
"""What the default image, and an environment on this machine, are given besides."""
PLUGINS = "/workspace/plugins"
LIBRARY = "/workspace/mooring"
"""Where Mooring's package is: the plugin's package may import it."""


class Derived(msgspec.Struct, frozen=True):
    """An image to build, and what is mounted in it."""

    name: str
    base: str
    dockerfile: str
    volumes: tuple[str, ...]
    files: dict[str, str]


def derived(
    name: str, server: Server, base: str | None, python_path: str, state: str, library: str, version: str
) -> Derived:
    """The image of the server that is called ``name``. ``python_path``: what it declares itself."""
    requirements = server.requirements if base else (*server.requirements, *ALWAYS)
    base_name = base or DEFAULT.format(version)
    text = dockerfile(
        base_name,
        bool(requirements),
        server.packages,
        ":".join(filter(None, (import_path(name, server), LIBRARY, python_path))),
    )
    listed = "".join(f"{requirement}\n" for requirement in requirements)
    digest = hashlib.sha256(f"{text}\0{listed}".encode()).hexdigest()[:16]
    folder = f"{state}/plugins/images/{digest}"
    files = {f"{folder}/Dockerfile": text, f"{folder}/requirements.txt": listed}
    volumes = (f"{library}:{LIBRARY}/mooring:ro", *(f"{source}:{target}:ro" for source, target in mounts(name, server)))
    image = f"localhost/mooring-plugin-{name}:{digest}"
    return Derived(image, base_name, f"{folder}/Dockerfile", volumes, files)


def mounts(name: str, server: Server) -> list[tuple[str, str]]:
    """Folders of this machine, and where a container has them: a package under its own name, so that none of its
    modules (its ``mcp.py``, say) hides a library."""
    if server.host_source is None:
        return []
    inside = f"{PLUGINS}/{name}"
    return [(server.host_source, f"{inside}/{server.host_source.rpartition('/')[2]}" if server.is_package else inside)]


def import_path(name: str, server: Server) -> str:
    """What is added to ``PYTHONPATH`` there; "" for nothing."""
    return "" if server.host_source is None else f"{PLUGINS}/{name}"


def dockerfile(base: str, requirements: bool, packages: tuple[str, ...], python_path: str) -> str:
    """How it is built. ``BASE`` is what the engine calls the base: it knows some by a longer name."""
    lines = [f"ARG BASE={base}", "FROM ${BASE}"]
    if packages:
        install = f"apt-get install -y --no-install-recommends {' '.join(packages)}"
        lines += ["USER root", f"RUN apt-get update && {install} && rm -rf /var/lib/apt/lists/*"]
    if requirements:
        command = ["python3", "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
        lines += [
            "COPY requirements.txt /workspace/requirements.txt",
            "ARG PIP_BREAK_SYSTEM_PACKAGES=1",  # nothing else lives in this image whose packages could break
            f"RUN {json.dumps([*command, '-r', '/workspace/requirements.txt'])}",
        ]
    lines += [f'ENV PYTHONPATH="{_quoted(python_path)}${{PYTHONPATH:+:${{PYTHONPATH}}}}"', "ENTRYPOINT []"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    for special in '\\"$':
        text = text.replace(special, f"\\{special}")
    return text
