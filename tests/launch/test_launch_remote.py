"""Remotes: nothing starts, and secrets end up in headers only."""

from __future__ import annotations

import pytest

from mooring.config.plan import Variant
from mooring.config.plan_servers import Process, Remote, SecretRef
from mooring.errors import NoLauncher, StartFailed
from mooring.launch.base import Launched, Launcher, Url
from mooring.launch.remote import RemoteLauncher, filled, unsupported

REF = SecretRef("env", "X")


def variant(launch: Remote | Process) -> Variant:
    return Variant("it", "it", "{}", "d" * 8, launch)


async def test_it_is_a_launcher_and_gives_a_url() -> None:
    launcher: Launcher = RemoteLauncher()
    assert launcher.kinds == ("remote",)
    remote = Remote("https://x/mcp", "sse", {"X-Team": "docs", "X-Key": "{KEY}"}, {"KEY": REF}, auth=REF)
    what = variant(remote)
    async with launcher.launch(what, what.key(), {"KEY": "k", "authorization": "t"}) as it:
        given: Launched = it
        assert given.endpoint == Url(
            "https://x/mcp", {"X-Team": "docs", "X-Key": "k", "Authorization": "Bearer t"}, "sse"
        )
        assert (given.pid, given.container, given.stderr.text()) == (None, None, "")
        assert not given.exited.done()
        given.signal(15)
        given.stderr.follow(print)()


@pytest.mark.parametrize(
    ("template", "value"),
    [("{A}", "a"), ("x{A}y{B}{A}", "xa y{A}a".replace(" ", "")), ("{C}", "{C}"), ("{NONE}", ""), ("{a}", "{a}")],
)
def test_secrets_fill_headers_and_are_not_looked_at_again(template: str, value: str) -> None:
    """A value that looks like a placeholder stays as it is; a missing optional secret leaves nothing."""
    remote = Remote("https://x", headers={"H": template}, secrets=dict.fromkeys(("A", "B", "NONE"), REF))
    assert filled(remote, {"A": "a", "B": "{A}"})["H"] == value


def test_the_bearer_token_replaces_a_header_of_the_same_name() -> None:
    remote = Remote("https://x", headers={"AUTHORIZATION": "Basic x"}, auth=REF)
    assert filled(remote, {"authorization": "t"}) == {"Authorization": "Bearer t"}


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\0", "é"])
async def test_a_value_that_no_header_can_carry_is_refused_without_being_shown(value: str) -> None:
    what = variant(Remote("https://x", headers={"X-Key": "{KEY}"}, secrets={"KEY": REF}))
    with pytest.raises(StartFailed, match="X-Key") as raised:
        async with RemoteLauncher().launch(what, what.key(), {"KEY": value}):
            pass
    assert value not in str(raised.value)


@pytest.mark.parametrize("url", ["https://x/mcp", "http://localhost:1/mcp", "http://127.0.0.1/mcp", "http://[::1]/mcp"])
def test_one_logs_in_where_nobody_can_read_along(url: str) -> None:
    assert not unsupported(Remote(url, auth="oauth"))


@pytest.mark.parametrize(("launch", "why"), [(Remote("http://x", auth="oauth"), "https"), (Process(("cat",)), "url")])
async def test_what_it_cannot_open_has_a_reason(launch: Remote | Process, why: str) -> None:
    """R12"""
    assert why in unsupported(launch)
    what = variant(launch)
    with pytest.raises(NoLauncher, match=why):
        async with RemoteLauncher().launch(what, what.key(), {}):
            pass
