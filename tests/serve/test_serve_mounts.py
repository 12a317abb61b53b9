"""What was added, laid over the plan."""

from __future__ import annotations

from mooring.config.plan import Added, Plan, Workspace
from mooring.config.plan_servers import Process, Timeouts
from mooring.serve.mounts import Made, Record, made, with_mounts, with_registry

ADDED = Added(Timeouts(start=1.0, pull=2.0, look_up=3.0, discover=4.0), 5.0)


def one() -> Made:
    record = Record(workspace="w", entry_id="ours/it", name="It", prefix="it", launch=Process(argv=("it",)))
    return record, made(record, lambda _: None, lambda _: "")


def test_the_limits_of_what_is_added_are_the_plans() -> None:
    """R14 R36: of mounts, and of what is only tried."""
    plan = Plan(workspaces={"w": Workspace("w")}, added=ADDED)
    record, variant = one()
    for over in (with_mounts(plan, [one()], []), with_mounts(plan, [], [variant])):
        found = over.variants[record.variant]
        assert (found.timeouts, found.idle_timeout) == (ADDED.timeouts, 5.0)
        assert found.digest == variant.digest


def test_an_add_may_be_silent_for_as_long_as_its_steps_may_take() -> None:
    plan = with_registry(Plan(workspaces={"w": Workspace("w", registry=True)}, added=ADDED))
    (variant,) = plan.variants.values()
    assert variant.timeouts.call == 10.0
