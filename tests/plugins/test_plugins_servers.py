"""Servers of plugins in the configuration: there without being written, changed by the field, never in the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.config.load import load
from mooring.config.plan import Plan
from mooring.config.plan_servers import Container, Plugin, Process
from mooring.config.resolve import resolve
from mooring.errors import ConfigError
from mooring.nouns import Problem
from mooring.plugins.found import Found, Installed, Server
from mooring.plugins.servers import Here, Plugged, plugged
from mooring.serve.kinds import unsupported

HERE = Here(engine=False, python="/py/bin/python", version="3.13", state="/state", library="/lib/mooring")
VOICE = Server(
    name="voice",
    command="python",
    args=("-m", "voice.mcp"),
    env={"LANGUAGE": "en"},
    host_source="/site/voice",
    is_package=True,
    source="c0de",
)
USED = "[workspaces.w]\nmcp_servers=['*']\n"
Planned = Callable[..., tuple[Plan, tuple[Problem, ...]]]


def brings(*servers: Server, name: str = "voice", distribution: str = "mooring-voice", **more: Any) -> Found:
    return Found(name=name, distribution=distribution, distribution_version="1.0", servers=servers, **more)


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """What a configuration means with these plugins: the plan and the problems of plugins."""

    def planned(text: str, *plugins: Found, here: Here = HERE, **more: Any) -> tuple[Plan, tuple[Problem, ...]]:
        made: list[Plugged] = []

        def extend(written: Any) -> Any:
            made.append(plugged(written, Installed(plugins=plugins, **more), here))
            return made[-1].config

        file = tmp_path / "mooring.toml"
        file.write_text(text)
        plan = resolve(load(file, None, extend), fingerprint=lambda _: "00", unsupported=unsupported)
        return plan, made[-1].problems

    return planned


def process(plan: Plan, name: str = "voice") -> Process:
    launch = plan.variants[name].launch
    assert isinstance(launch, Process)
    return launch


def container(plan: Plan, name: str = "voice") -> Container:
    launch = plan.variants[name].launch
    assert isinstance(launch, Container)
    return launch


def test_a_server_of_a_plugin_is_there_and_is_granted_like_any_other(planned: Planned) -> None:
    plan, problems = planned(
        "[workspaces.a]\nmcp_servers=['voice']\n[workspaces.b]\nmcp_servers=['*']\n", brings(VOICE)
    )
    assert problems == ()
    assert plan.problems == ()
    assert [mount.variant for room in plan.workspaces.values() for mount in room.mounts] == ["voice", "voice"]
    assert process(plan) == Process(
        argv=("/py/bin/python", "-m", "voice.mcp"), env={"LANGUAGE": "en", "PYTHONPATH": "/site"}, source="c0de"
    )


def test_kwargs_fill_placeholders_and_become_flags(planned: Planned) -> None:
    server = msgspec.structs.replace(VOICE, args=("-m", "voice.mcp", "{size}"), env={"W": "{workspace}"})
    text = "[workspaces.w]\nmcp_servers=['voice']\nmcp.voice={size='large', fast=true}\n"
    plan, _ = planned(text, brings(server))
    (variant,) = plan.variants.values()
    assert variant.sharing == "workspace"
    assert variant.launch.argv[1:] == ("-m", "voice.mcp", "large", "--fast")  # type: ignore[union-attr]
    assert variant.launch.env["W"] == "w"  # type: ignore[union-attr]


def test_r28_the_configuration_changes_single_fields(planned: Planned) -> None:
    """R28: user config can override single fields."""
    text = """[mcp_servers.voice]
plugin = "voice"
env = { MODEL = "large", PYTHONPATH = "/mine" }
idle_timeout = 5
secrets = { TOKEN = { env = "T" } }
tools = { deny = ["x"] }
"""
    plan, _ = planned(text + USED, brings(VOICE))
    assert process(plan).argv[1:] == ("-m", "voice.mcp")
    assert process(plan).env == {"LANGUAGE": "en", "MODEL": "large", "PYTHONPATH": "/site:/mine"}
    assert list(process(plan).secrets) == ["TOKEN"]
    variant = plan.variants["voice"]
    assert (variant.idle_timeout, variant.tools.deny) == (5.0, ("x",))
    plan, _ = planned("[mcp_servers.voice]\nplugin='voice'\nargs=['other']\n" + USED, brings(VOICE))
    assert process(plan).argv[1:] == ("other",)


def test_r28_the_configuration_disables_one(planned: Planned) -> None:
    """R28: user config can disable it."""
    plan, problems = planned("[mcp_servers.voice]\nplugin='voice'\nenabled=false\n" + USED, brings(VOICE))
    assert plan.variants["voice"].unavailable == "it is disabled in the configuration"
    assert problems == ()


def test_one_of_several_servers_can_be_named_otherwise(planned: Planned) -> None:
    two = msgspec.structs.replace(VOICE, name="fast", args=("fast",))
    text = "[mcp_servers.dictation]\nplugin='voice'\nserver='fast'\n" + USED
    plan, _ = planned(text, brings(VOICE, two))
    assert sorted(plan.variants) == ["dictation", "fast", "voice"]
    assert process(plan, "dictation").argv[1:] == ("fast",)
    plan, _ = planned("[mcp_servers.dictation]\nplugin='voice'\n" + USED, brings(VOICE))
    assert process(plan, "dictation").argv[1:] == ("-m", "voice.mcp")
    plan, (problem,) = planned("[mcp_servers.dictation]\nplugin='voice'\n" + USED, brings(VOICE, two))
    assert 'brings no server "dictation"; it brings voice, fast' in problem.message
    assert "brings no server" in plan.variants["dictation"].unavailable


def test_r28_servers_of_one_name_are_told_and_none_is_offered_until_a_person_says_which(planned: Planned) -> None:
    """R28: name clashes are reported."""
    other = brings(msgspec.structs.replace(VOICE, args=("other",)), name="other", distribution="mooring-other")
    plan, _ = planned(USED, brings(VOICE), other)
    assert plan.variants == {}
    plan, problems = planned("[mcp_servers.voice]\nplugin='other'\n" + USED, brings(VOICE), other)
    assert process(plan).argv[1:] == ("other",)
    assert problems == ()


def test_r28_what_is_written_goes_before_what_a_plugin_brings(planned: Planned) -> None:
    """R28: name clashes are reported."""
    plan, (problem,) = planned("[mcp_servers.voice]\ncommand='mine'\n" + USED, brings(VOICE))
    assert process(plan).argv == ("mine",)
    assert problem.level == "warning"
    assert "mooring-voice" in problem.message
    text = "[mcp_servers.a]\ncommand='a'\n[mcp_groups]\nvoice=['a']\n" + USED
    plan, (problem,) = planned(text, brings(VOICE))
    assert list(plan.variants) == ["a"]
    assert "mooring-voice" in problem.message


def test_r29_a_server_that_is_gone_is_no_error_where_it_is_still_granted(planned: Planned) -> None:
    """R29: uninstall makes the tools disappear."""
    text = "[workspaces.w]\nmcp_servers=['voice']\n"
    with pytest.raises(ConfigError, match='unknown server or group "voice"'):
        planned(text)
    plan, (problem,) = planned(text, gone={"voice": "voice"})
    assert plan.variants["voice"].launch == Plugin("voice", plan.variants["voice"].unavailable)
    assert "is not installed" in plan.variants["voice"].unavailable
    assert problem.level == "warning"
    plan, problems = planned(USED, gone={"voice": "voice"})
    assert (plan.variants, problems) == ({}, ())


GRANTED = "[workspaces.w]\nmcp_servers=['voice']\n"
BROKEN = brings(skipped="RuntimeError: boom")


@pytest.mark.parametrize(
    ("plugins", "disabled", "said"),
    [
        ((BROKEN,), (), 'the plugin "voice" of mooring-voice cannot be used: RuntimeError: boom'),
        ((brings(name="other", skipped="boom"),), (), 'the plugin "other" of mooring-voice cannot be used, and might'),
        ((brings(skipped="it is disabled in [plugins]"),), ("voice",), "it is disabled in [plugins]"),
        ((brings(VOICE), brings(VOICE, name="two", distribution="x")), (), '[mcp_servers.voice] plugin = "voice"'),
    ],
    ids=["broken", "may be of a broken one", "disabled", "two of one name"],
)
def test_r28_what_is_granted_and_no_plugin_brings_now_stops_nothing_else(
    planned: Planned, plugins: tuple[Found, ...], disabled: tuple[str, ...], said: str
) -> None:
    """R28: one raising plugin does not stop boot; name clashes are reported."""
    text = "[mcp_servers.a]\ncommand='a'\n" + GRANTED.replace("['voice']", "['a', 'voice']")
    plan, problems = planned(text, *plugins, disabled=disabled)
    assert plan.variants["a"].unavailable == ""
    assert said in plan.variants["voice"].unavailable
    assert [problem.path for problem in problems if problem.level == "warning"] == ["mcp_servers.voice"]


def test_a_name_that_no_plugin_can_mean_is_an_error(planned: Planned) -> None:
    off = brings(name="other", skipped="it is disabled in [plugins]")
    with pytest.raises(ConfigError, match='unknown server or group "voice"'):
        planned(GRANTED, off, disabled=("other",))
    with pytest.raises(ConfigError, match='unknown server or group "voice"'):
        planned(GRANTED, brings(msgspec.structs.replace(VOICE, name="two"), name="two"))


def test_what_is_wrong_with_a_plugin_is_told_with_its_package(planned: Planned) -> None:
    _, problems = planned(
        USED,
        brings(skipped="RuntimeError: boom"),
        brings(VOICE, name="half", distribution="mooring-half", problems=("its server is bad",)),
        brings(name="off", distribution="mooring-off", skipped="it is disabled in [plugins]"),
        disabled=("off",),
    )
    assert [problem.message for problem in problems] == [
        'plugin "voice" of mooring-voice 1.0: RuntimeError: boom',
        'plugin "half" of mooring-half 1.0: its server is bad',
    ]
    assert {problem.level for problem in problems} == {"error"}


def test_a_table_for_a_plugin_that_is_not_there_says_so(planned: Planned) -> None:
    text = "[mcp_servers.voice]\nplugin='voice'\n"
    plan, (problem,) = planned(text + USED)
    assert problem.level == "error"
    assert "is not installed" in plan.variants["voice"].unavailable
    plan, _ = planned(text + "[plugins]\ndisable=['voice']\n" + USED)
    assert "is disabled in [plugins]" in plan.variants["voice"].unavailable


@pytest.mark.parametrize(
    ("text", "server", "engine", "expected"),
    [
        ("", VOICE, True, Container),
        ("", VOICE, False, Process),
        ("", msgspec.structs.replace(VOICE, host_source=None, is_package=False), True, Process),
        ("", msgspec.structs.replace(VOICE, host_source=None, is_package=False, image="i"), True, Container),
        ("", msgspec.structs.replace(VOICE, run="host"), True, Process),
        ("", msgspec.structs.replace(VOICE, run="container"), False, Container),
        ("[plugins]\nrun='host'\n", VOICE, True, Process),
        ("[plugins]\nrun='container'\n", VOICE, False, Container),
        ("[plugins]\nrun='host'\n", msgspec.structs.replace(VOICE, run="container"), True, Container),
        (
            "[mcp_servers.voice]\nplugin='voice'\nrun='host'\n",
            msgspec.structs.replace(VOICE, run="container"),
            True,
            Process,
        ),
    ],
)
def test_it_runs_in_a_container_where_there_is_an_engine_unless_somebody_says_otherwise(
    planned: Planned, text: str, server: Server, engine: bool, expected: type
) -> None:
    plan, _ = planned(text + USED, brings(server), here=msgspec.structs.replace(HERE, engine=engine))
    assert type(plan.variants["voice"].launch) is expected


def test_r29_in_a_container_its_code_is_mounted_and_the_path_extended(planned: Planned) -> None:
    """R29: mounted read-only, import path set without losing an existing one."""
    engine = msgspec.structs.replace(HERE, engine=True)
    text = "[plugins]\nimage='mine'\n[mcp_servers.voice]\nplugin='voice'\nvolumes=['data:/data']\nnetwork='none'\n"
    server = msgspec.structs.replace(VOICE, env={"PYTHONPATH": "/its", "A": "1"})
    launch = container(planned(text + USED, brings(server), here=engine)[0])
    assert launch.args == ("python", "-m", "voice.mcp")
    assert launch.env == {"A": "1"}
    assert launch.volumes == (
        "/lib/mooring:/workspace/mooring/mooring:ro",
        "/site/voice:/workspace/plugins/voice/voice:ro",
        "data:/data",
    )
    assert (launch.network, launch.source) == ("none", "c0de")
    assert launch.image.startswith("localhost/mooring-plugin-voice:")
    assert launch.dockerfile is not None
    assert launch.dockerfile.startswith("/state/plugins/images/")


def test_what_is_for_containers_is_not_ignored_on_this_machine(planned: Planned) -> None:
    plan, (problem,) = planned("[mcp_servers.voice]\nplugin='voice'\nnetwork='none'\n" + USED, brings(VOICE))
    assert "are for containers" in plan.variants["voice"].unavailable
    assert problem.level == "error"


def test_other_code_is_another_instance_of_the_same_variant(planned: Planned) -> None:
    before = planned(USED, brings(VOICE))[0].variants["voice"]
    after = planned(USED, brings(msgspec.structs.replace(VOICE, source="other")))[0].variants["voice"]
    assert before.id == after.id
    assert before.digest != after.digest


def test_r29_what_it_requires_is_in_an_environment_of_its_own(planned: Planned) -> None:
    """R29: declared packages."""
    server = msgspec.structs.replace(VOICE, requirements=("whisper>=1",), packages=("ffmpeg",))
    launch = process(planned(USED, brings(server))[0])
    environment = launch.environment
    assert environment is not None
    assert environment.folder.startswith("/state/plugins/environments/")
    assert environment.requirements == ("whisper>=1", "mcp")
    assert environment.links == {"mooring": "/lib/mooring", "voice": "/site/voice"}
    assert environment.packages == ("ffmpeg",)
    assert launch.argv[0] == f"{environment.folder}/bin/python"
    assert "PYTHONPATH" not in launch.env
    other = process(planned(USED, brings(msgspec.structs.replace(server, requirements=("whisper>=2",))))[0])
    assert other.environment is not None
    assert other.environment.folder != environment.folder


def test_system_packages_alone_need_no_environment(planned: Planned) -> None:
    server = msgspec.structs.replace(VOICE, packages=("ffmpeg",), command="tool", host_source="/d", is_package=False)
    launch = process(planned(USED, brings(server))[0])
    assert launch.environment is not None
    assert (launch.environment.folder, launch.environment.packages) == ("", ("ffmpeg",))
    assert (launch.argv[0], launch.env["PYTHONPATH"]) == ("tool", "/d")
