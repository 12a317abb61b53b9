"""What a reload would change."""

from __future__ import annotations

from collections.abc import Callable

from mooring.config.diff import Changes, diff
from mooring.config.plan import Issuer, Plan
from mooring.serve.reload import changes_report

Planned = Callable[..., Plan]
BASE = "[mcp_servers.a]\ncommand='a'\n[mcp_servers.b]\ncommand='b'\n[workspaces.w]\nmcp_servers=['*']\n"


def test_a_boot_is_a_change_from_nothing(planned: Planned) -> None:
    changes = diff(Plan(), planned(BASE))
    assert (changes.added, changes.workspaces_added, changes.needs_restart) == (("a", "b"), ("w",), ())


def test_equal_plans_differ_in_nothing(planned: Planned) -> None:
    assert diff(planned(BASE), planned("# other lines\n" + BASE)).empty


def test_what_came_went_and_changed_is_named(planned: Planned) -> None:
    after = planned(BASE.replace("'b'", "'c'").replace("[mcp_servers.a]", "[mcp_servers.x]") + "[workspaces.v]\n")
    assert diff(planned(BASE), after) == Changes(
        added=("x",), removed=("a",), changed=("b",), workspaces_added=("v",), workspaces_changed=("w",)
    )
    assert diff(after, planned(BASE)).workspaces_removed == ("v",)


def test_what_only_a_restart_takes_up_is_named(planned: Planned) -> None:
    after = planned("[gateway]\nlisten=['127.0.0.1:1']\nengine='podman'\npins='strict'\n" + BASE)
    assert diff(planned(BASE), after).needs_restart == ("gateway.listen", "gateway.engine")


def test_issuers_are_told_apart_by_name() -> None:
    old = Plan(identity=(Issuer("a", "https://a"), Issuer("b", "https://b"), Issuer("c", "https://c")))
    new = Plan(identity=(Issuer("b", "https://b"), Issuer("c", "https://c", leeway=1.0), Issuer("d", "https://d")))
    changes = diff(old, new)
    assert (changes.issuers_added, changes.issuers_removed, changes.issuers_changed) == (("d",), ("a",), ("c",))
    report = changes_report(old, new)
    assert (report.added, report.removed, report.changed) == (("identity d",), ("identity a",), ("identity c",))
