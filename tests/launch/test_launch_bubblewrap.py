"""The command line of a sandbox."""

from __future__ import annotations

import pytest

from mooring.config.plan_servers import Sandbox
from mooring.launch.bubblewrap import command, private_home, visible


def options(sandbox: Sandbox, cwd: str | None = None, **environment: str) -> str:
    return " ".join(command("/bin/bwrap", ["/bin/cat"], sandbox, environment, cwd))


@pytest.mark.parametrize(("home", "private"), [("/home/x/", "/home/x"), ("/", ""), ("//", ""), ("x", ""), ("", "")])
def test_the_private_home_never_hides_everything(home: str, private: str) -> None:
    assert private_home({"HOME": home}) == private


def test_only_an_open_network_is_shared() -> None:
    assert "--unshare-net" not in options(Sandbox())
    assert "--unshare-net" in options(Sandbox(network="none"))
    assert "--unshare-net" in options(Sandbox(network=()))


def test_a_folder_comes_before_what_is_in_it() -> None:
    shown = options(Sandbox(writable=("/d/a/b", "/d"), readable=("/d/a",)), "/d/a", HOME="/d")
    places = [
        shown.index(part) for part in ("--tmpfs /d ", "--bind /d /d ", "--ro-bind /d/a /d/a", "--bind /d/a/b /d/a/b")
    ]
    assert places == sorted(places)


def test_the_folder_it_runs_in_is_seen_and_written_only_where_declared() -> None:
    assert "--ro-bind /w /w --chdir /w" in options(Sandbox(), "/w")
    assert "--ro-bind /w/x" not in options(Sandbox(writable=("/w",)), "/w/x")
    assert "--chdir /h --remount-ro /" in options(Sandbox(), HOME="/h")
    assert "--chdir / --remount-ro /" in options(Sandbox())


def test_certificates_that_the_environment_names_are_seen() -> None:
    assert "--ro-bind-try /ca.pem /ca.pem" in options(Sandbox(), SSL_CERT_FILE="/ca.pem")
    assert "/usr/ca.pem" not in options(Sandbox(), SSL_CERT_FILE="/usr/ca.pem").replace("SSL", "")


def test_groups_are_entered_before_anything_else() -> None:
    made = command("/bin/bwrap", ["/bin/cat"], Sandbox(), {}, None, groups=["/a", "/b"])
    assert made[3:8] == ["mooring", "/a", "/b", "--", "/bin/bwrap"]
    assert made[-1] == "/bin/cat"


@pytest.mark.parametrize(
    ("path", "seen"),
    [("/usr/bin/x", True), ("/usr2/x", False), ("/usr/../root/x", False), ("/d/x", True), ("/r", True), ("/w/x", True)],
)
def test_what_can_be_seen(path: str, seen: bool) -> None:
    assert visible(path, Sandbox(writable=("/d",), readable=("/r",)), "/w") is seen
