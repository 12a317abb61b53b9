"""From a definition to the arguments of ``run``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mooring.config.plan_servers import Container
from mooring.errors import PullFailed, StartFailed
from mooring.launch import obstacles
from mooring.launch.engine import Engine
from mooring.launch.guards import SECCOMP, Secrets, published, run_arguments
from mooring.launch.images import qualified
from mooring.launch.runtime import container_name, installation_id, remember, remembered
from mooring.nouns import InstanceKey

PODMAN = Engine("podman", "/usr/bin/podman", "5.4.0")
DOCKER = Engine("docker", "/usr/bin/docker", "28.0")
PLAIN = Container("img:1", memory="1g", pids=256, cpus=1.0)
ALWAYS = {"--rm", "--init", "--cap-drop=all", "--security-opt=no-new-privileges", f"--security-opt=seccomp={SECCOMP}"}


def arguments(engine: Engine, launch: Container, secrets: Secrets = Secrets()) -> list[str]:
    return run_arguments(engine, "n", {"a": "b"}, launch, launch.image, secrets)


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
def test_everything_is_confined_by_default(engine: Engine) -> None:
    """R25: in both engines, whatever else a definition says."""
    for launch in (PLAIN, Container("img:1", read_only=False, port=80), Container("img:1", network="none")):
        assert set(arguments(engine, launch)) >= ALWAYS
    found = arguments(engine, PLAIN)
    assert {"--read-only", "--memory=1g", "--memory-swap=1g", "--pids-limit=256", "--label=a=b"} < set(found)
    assert not [one for one in found if one.startswith("--cpus")]  # lowered once the server answers
    assert found[-1] == "img:1"


def test_limits_that_would_fail_or_be_ignored_are_left_out() -> None:
    ignoring = Engine("podman", "podman", "4.2", ignored=("memory", "pids", "cpus"), updates=False)
    assert not [one for one in arguments(ignoring, PLAIN) if one.startswith(("--memory", "--pids", "--cpus"))]
    old = Engine("podman", "podman", "4.2", updates=False)
    assert "--cpus=1" in arguments(old, PLAIN)
    none = Container("i")
    assert not [one for one in arguments(PODMAN, none) if one.startswith(("--memory", "--pids", "--cpus"))]


def test_ports_are_published_only_where_there_is_a_network() -> None:
    """R9: on a free port of the loopback interface, each once."""
    launch = Container("i", port=80, ports=(81, 80))
    assert published(launch) == [80, 81]
    assert {"--publish=127.0.0.1::80", "--publish=127.0.0.1::81"} < set(arguments(DOCKER, launch))
    closed = Container("i", port=80, network="none")
    assert published(closed) == []
    assert "--network=none" in arguments(DOCKER, closed)
    assert "--interactive" not in arguments(DOCKER, closed)


def test_streams_are_passed_through_where_the_engine_can() -> None:
    assert "--log-driver=passthrough" in arguments(PODMAN, PLAIN)
    assert "--log-driver=none" in arguments(Engine("podman", "p", "5", local=False), PLAIN)
    assert {"--log-driver=none", "--interactive"} < set(arguments(DOCKER, PLAIN))


def test_the_rest_of_a_definition_is_passed_on() -> None:
    """R10 R16: environment, volumes, and arguments behind the image; secrets by name only."""
    launch = Container("i", args=("--x", "1"), env={"A": "b"}, volumes=("n:/data:ro",))
    secrets = Secrets(stored={"T": "kept"}, files={"F": "/dev/shm/x"}, env_file=True)
    found = arguments(PODMAN, launch, secrets)
    assert found[-3:] == ["i", "--x", "1"]
    assert {"--env=A=b", "--volume=n:/data:ro", "--secret=kept,type=env,target=T"} < set(found)
    assert {"--volume=/dev/shm/x:/run/secrets/F:ro", "--env=F_FILE=/run/secrets/F", "--env-file=/dev/fd/3"} < set(found)


def test_the_seccomp_profile_refuses_by_default_and_names_what_leads_out() -> None:
    with open(SECCOMP) as file:
        profile = json.load(file)
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    assert {"read", "openat", "execve", "futex", "epoll_wait", "socket", "clone"} < allowed
    assert not allowed & {"mount", "unshare", "setns", "bpf", "ptrace", "keyctl", "init_module", "clone3", "reboot"}


@pytest.mark.parametrize(
    ("launch", "why"),
    [
        (PLAIN, ""),
        (Container("i", network="none", port=80), ""),
        (Container("i", credentials={}), ""),
        (Container("i", network=("a:1",)), ""),
        (Container("i", network="none", ports=(1,)), 'ports need network = "open"'),
        (Container("i", volumes=("x",)), 'the volume "x"'),
        (Container("i", volumes=("x:y",)), 'the volume "x:y"'),
    ],
)
def test_what_no_engine_could_start_is_said_in_the_plan(launch: Container, why: str) -> None:
    """R12."""
    said = obstacles.unsupported(launch)
    assert why in said if why else said == ""


def test_a_guarded_network_is_refused_where_it_cannot_be_entered() -> None:
    """R25: never opened instead."""
    far = Engine("podman", "p", "5", local=False)
    for guarded in (Container("i", network="none", port=80), Container("i", network=("a:1",))):
        assert obstacles.unreachable(guarded, PODMAN) == ""
        assert "not on this machine" in obstacles.unreachable(guarded, far)
    for other in (Container("i", network="none"), Container("i", port=80)):
        assert obstacles.unreachable(other, far) == ""


def test_a_failed_start_says_what_to_do() -> None:
    """R12 R13: missing image, the engine's words, a read-only root, too little memory."""
    error = StartFailed("it ended", server="s")

    def told(launch: Container, code: int | None, stderr: str) -> Exception:
        return obstacles.explained(error, launch, PODMAN, code, stderr)

    assert isinstance(told(PLAIN, 125, "Error: i: image not known"), PullFailed)
    assert "could not start the container: no such runtime" in str(told(PLAIN, 125, "Error: no such runtime"))
    assert "could not start the container: no tun" in str(told(PLAIN, 126, "server\nError: no tun"))
    assert told(PLAIN, 127, "sh: x: not found") is error
    no_tunnel = 'Error: slirp4netns failed: "open(\\"/dev/net/tun\\"): Permission denied"'
    assert "chmod 0666" not in str(told(PLAIN, 126, no_tunnel))
    rootless = Engine("podman", "p", "5", rootless=True)
    assert "chmod 0666 /dev/net/tun" in str(obstacles.explained(error, PLAIN, rootless, 126, no_tunnel))
    assert "set read_only = false" in str(told(PLAIN, 1, "OSError: [Errno 30] Read-only file system: '/x'"))
    assert told(Container("i", read_only=False), 1, "EROFS") is error
    assert "limits.memory = 1g" in str(told(PLAIN, 137, ""))
    assert told(PLAIN, 1, "else") is error


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("python", "docker.io/library/python"),
        ("mcp/time:1", "docker.io/mcp/time:1"),
        ("ghcr.io/a/b", "ghcr.io/a/b"),
        ("localhost/x", "localhost/x"),
        ("host:5000/x", "host:5000/x"),
    ],
)
def test_registries_are_kept_as_written(image: str, full: str) -> None:
    """R16."""
    assert qualified(image) == full


def test_names_tell_homes_and_instances_apart(tmp_path: Path) -> None:
    """R7: the same in every run, another for another home, definition or scope."""
    one, other = (installation_id(b"k" * 32, place) for place in ("/a", "/b"))
    key = InstanceKey("v", "d", "w:alice")
    name = container_name("my server", one, key)
    assert name == container_name("my server", one, key)
    assert name.startswith("mooring-mcp-my-server-")
    assert name != container_name("my server", other, key)
    assert name != container_name("my server", one, InstanceKey("v", "e", "w:alice"))
    assert remembered(tmp_path) == []
    for engine in ("podman", "docker", "podman"):
        remember(tmp_path, engine)
    assert remembered(tmp_path) == ["podman", "docker"]
