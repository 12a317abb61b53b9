"""What cannot be started here, and why, for every launch that a plan may hold. Pure; handed to ``config.resolve``.

Loads what it asks only for the kinds that it is asked about: a boot from the plan of the last run asks nothing.
"""

from __future__ import annotations

from mooring.config.plan_servers import Container, Functions, Launch, Plugin, Process, Remote


def unsupported(launch: Launch) -> str:
    """Why nothing here can start this; "" when something can."""
    match launch:
        case Process():
            from mooring.launch.process import unsupported as unsupported_process

            return unsupported_process(launch)
        case Functions():
            return ""
        case Container():
            from mooring.launch.obstacles import unsupported as unsupported_container

            return unsupported_container(launch)
        case Remote():
            from mooring.launch.remote import unsupported as unsupported_remote

            return unsupported_remote(launch)
        case Plugin():
            return launch.why
