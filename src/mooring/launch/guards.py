"""What a container gets and what it does not: the arguments of ``run``, from a definition. Pure.

Used by ``launch.container``; ``config.report`` shows it in words. Everything is confined unless the definition says
otherwise: no privilege can be gained, all capabilities are dropped, system calls are filtered by ``seccomp.json``, the
root is read-only, and processes, memory and processors are limited.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping

import msgspec

from mooring.config.plan_servers import Container
from mooring.launch.engine import Engine

SECCOMP = os.path.join(os.path.dirname(__file__), "seccomp.json")
"""One profile for both engines, whose own ones differ: Podman's lets a process make a user namespace."""
SCRATCH = "/tmp:rw,noexec,nosuid,nodev,size=64m"  # noqa: S108 - in the container
LOOPBACK = "127.0.0.1"
SECRETS = "/run/secrets"
"""Folder of a container for secrets that are files."""
ENV_FILE = 3
"""Descriptor on which Docker's program finds secrets that are variables."""


class Secrets(msgspec.Struct, frozen=True):
    """How secrets reach a container, by the name of the variable."""

    stored: Mapping[str, str] = {}
    """Variable to a secret that the engine holds (Podman)."""
    files: Mapping[str, str] = {}
    """Variable to a file of this machine that is mounted."""
    env_file: bool = False
    """There is something to read on ``ENV_FILE`` (Docker)."""


def run_arguments(
    engine: Engine, name: str, labels: Mapping[str, str], launch: Container, image: str, secrets: Secrets
) -> list[str]:
    """The arguments of the engine's program that start a container and stay attached to it. Holds no secret value."""
    arguments = ["run", "--rm", "--name", name, "--pull", "never"]
    arguments += (f"--label={label}={value}" for label, value in labels.items())
    arguments += _attached(engine, launch)
    arguments += _confined(engine, launch)
    arguments += _network(launch)
    arguments += (f"--volume={volume}" for volume in launch.volumes)
    arguments += (f"--env={name}={value}" for name, value in {**launch.env, **_proxy(launch)}.items())
    arguments += _secret(secrets)
    return [*arguments, image, *launch.args]


def _attached(engine: Engine, launch: Container) -> Iterator[str]:
    """Its streams are ours and nobody else's: by default Docker would keep all that a server says in a file."""
    if launch.port is None:
        yield "--interactive"
    if engine.name == "podman":
        # The container gets the very pipes; nothing copies in between. Elsewhere than here there is nothing to pass.
        yield f"--log-driver={'passthrough' if engine.local else 'none'}"
        yield "--http-proxy=false"
    else:
        yield "--log-driver=none"


def _confined(engine: Engine, launch: Container) -> Iterator[str]:
    yield from ("--init", "--cap-drop=all", "--security-opt=no-new-privileges", f"--security-opt=seccomp={SECCOMP}")
    if launch.read_only:
        yield from ("--read-only", f"--tmpfs={SCRATCH}")
        if engine.name == "podman":
            yield "--read-only-tmpfs=false"
    if launch.memory and "memory" not in engine.ignored:
        yield from (f"--memory={launch.memory}", f"--memory-swap={launch.memory}")
    if launch.pids and "pids" not in engine.ignored:
        yield f"--pids-limit={launch.pids}"
    if launch.cpus and "cpus" not in engine.ignored and not engine.updates:
        yield f"--cpus={launch.cpus:g}"


def _network(launch: Container) -> Iterator[str]:
    if launch.network != "open":
        yield "--network=none"
        return
    for port in published(launch):
        yield f"--publish={LOOPBACK}::{port}"


def _proxy(launch: Container) -> dict[str, str]:
    """How the server finds the only way out, where its network is a list."""
    if isinstance(launch.network, str):
        return {}
    from mooring.launch.egress_proxy import proxy_environment, proxy_port

    return proxy_environment(launch.network, proxy_port(launch.port))


def published(launch: Container) -> list[int]:
    """The ports of the container that get one of this machine."""
    if launch.network != "open":
        return []
    return list(dict.fromkeys((*(() if launch.port is None else (launch.port,)), *launch.ports)))


def _secret(secrets: Secrets) -> Iterator[str]:
    for variable, stored in secrets.stored.items():
        yield f"--secret={stored},type=env,target={variable}"
    for variable, file in secrets.files.items():
        yield from (f"--volume={file}:{SECRETS}/{variable}:ro", f"--env={variable}_FILE={SECRETS}/{variable}")
    if secrets.env_file:
        yield f"--env-file=/dev/fd/{ENV_FILE}"
