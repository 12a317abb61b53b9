"""What cannot be started here, and why, for every launch that a plan may hold. Pure; handed to ``config.resolve``."""

from __future__ import annotations

from mooring.config.plan import Container, Functions, Launch, Plugin, Process, Remote
from mooring.launch.process import unsupported as unsupported_process
from mooring.launch.remote import unsupported as unsupported_remote


def unsupported(launch: Launch) -> str:
    """Why nothing here can start this; "" when something can."""
    match launch:
        case Process():
            return unsupported_process(launch)
        case Functions():
            return ""
        case Container():
            from mooring.launch.obstacles import unsupported as unsupported_container  # most people have none

            return unsupported_container(launch)
        case Remote():
            return unsupported_remote(launch)
        case Plugin():
            return launch.why
