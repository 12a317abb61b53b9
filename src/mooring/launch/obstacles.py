"""Why a container cannot be started: before it is tried, and after it failed. Pure.

``unsupported`` goes into the plan, before any engine is known; the others are used by ``launch.container``.
"""

from __future__ import annotations

from collections.abc import Iterable

from mooring.config.plan_servers import Container, Launch
from mooring.errors import MooringError, PullFailed, StartFailed
from mooring.launch.engine import ENGINE_FAILED, Engine, words

READ_ONLY_SIGNS = ("read-only file system", "erofs", "errno 30]")
NO_IMAGE_SIGNS = ("image not known", "no such image", "unable to find image")
NOT_RUN = (126, 127)
"""Exit codes of an engine's program when the command could not be run; but a server may end with them itself."""
ENGINE_SPEAKS = ("Error: ", "docker: ")
"""How the engine's own lines on stderr begin."""
TUNNEL = "/dev/net/tun"
OPEN_OR_NONE = 'network = "open" works, and "none" for servers without a port'
KILLED = 137
"""Exit code of what was ended by SIGKILL."""


def unsupported(launch: Launch) -> str:
    """Why no engine could start it, "" when one can."""
    if not isinstance(launch, Container):
        return "it is not an image"
    if launch.network != "open" and launch.ports:
        return 'ports need network = "open"'
    return volume_fault(launch.volumes)


def volume_fault(volumes: Iterable[str]) -> str:
    """What is wrong with how a volume is written; "" when nothing is."""
    for volume in volumes:
        source, _, rest = volume.partition(":")
        target = rest.partition(":")[0]
        if not source or not target.startswith("/"):
            return f'the volume "{volume}" is not "source:/target" or "source:/target:ro"'
    return ""


def sources(volumes: Iterable[str]) -> list[str]:
    """The sources of ``volumes`` that are paths."""
    return [source for source in (volume.partition(":")[0] for volume in volumes) if "/" in source]


def unreachable(launch: Container, engine: Engine) -> str:
    """Why this engine cannot run it as it is meant; "" when it can."""
    if engine.local or not entered(launch):
        return ""
    return f"{engine} runs containers that are not on this machine, so their network cannot be guarded: {OPEN_OR_NONE}"


def entered(launch: Container) -> bool:
    """Whether its network has to be entered: for the list of what it may reach, or to reach its port."""
    return isinstance(launch.network, tuple) or (launch.network == "none" and launch.port is not None)


def unenforced(engine: Engine) -> str:
    """A warning about limits that would not hold."""
    return f"{engine} cannot enforce limits here: {', '.join(engine.ignored)}. What runs in it may use all there is."


def elsewhere(launch: Container) -> str:
    """What a person may decide when the engine or the image cannot be had for a plugin's server, which nobody wrote to
    be a container; "" for any other. Mooring itself never decides it: on this machine the server is less confined."""
    if not launch.source:
        return ""
    return (
        "\nA server of a plugin runs in a container where an engine is installed. Another image: [plugins] image; "
        'on this machine, without a container: [plugins] run = "host"'
    )


def explained(error: MooringError, launch: Container, engine: Engine, code: int | None, stderr: str) -> MooringError:
    """``error`` of a failed start, with what the exit code and the last lines say about it."""
    said = words(stderr)
    if code == ENGINE_FAILED or (
        code in NOT_RUN and any(line.startswith(ENGINE_SPEAKS) for line in stderr.split("\n"))
    ):
        if missing_image(code, stderr):
            return PullFailed(f"{engine.name} has no image {launch.image} any more; the next start gets it: {said}")
        return StartFailed(f"{engine.name} could not start the container: {said}{_tunnel(engine, stderr)}")
    advice = ""
    if launch.read_only and any(sign in stderr.lower() for sign in READ_ONLY_SIGNS):
        advice = (
            "It writes to its root file system, which is read-only. Give it a volume where it writes, "
            "or set read_only = false"
        )
    elif code == KILLED and launch.memory:
        advice = f"It was killed, perhaps because it needs more memory than limits.memory = {launch.memory}"
    if not advice:
        return error
    return StartFailed(f"{error}. {advice}.", **{k: v for k, v in error.details.items() if k != "retry_at"})


def _tunnel(engine: Engine, stderr: str) -> str:
    """What helps where a plain user's Podman may not make a network: slirp4netns and pasta need that device."""
    if not engine.rootless or TUNNEL not in stderr:
        return ""
    return (
        f'. Without root, network = "open" needs {TUNNEL} for everybody (as root: chmod 0666 {TUNNEL}); '
        'network = "none" and a list of hosts do without'
    )


def missing_image(code: int | None, stderr: str) -> bool:
    """Whether the engine did not start it for lack of the image."""
    return code == ENGINE_FAILED and any(sign in stderr.lower() for sign in NO_IMAGE_SIGNS)
