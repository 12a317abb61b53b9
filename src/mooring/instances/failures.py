"""Failures of instances in words: an exception from anywhere, an exit code, a closed conversation. Pure.

Used by ``instances.instance`` and ``instances.life``.
"""

from __future__ import annotations

from typing import cast

from mooring.errors import MooringError, StartFailed
from mooring.instances import rules
from mooring.instances.opener import Birth


def cause(error: BaseException) -> BaseException:
    """The one exception inside (nested) groups that says most: Mooring's own before others, earlier before later."""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        error = next((one for one in map(cause, inner) if isinstance(one, MooringError)), inner[0])
    return error


def start_failure(error: BaseException, server: str, birth: Birth, timed_out: bool) -> MooringError:
    """The error that everyone who waits for this start is told; it keeps its class when it is one of Mooring's."""
    error = cause(error)
    phase = birth.at
    if timed_out:
        setting = rules.limit_name(phase)
        error = StartFailed(
            f"{server} did not start within {birth.limit():g} s; it was at the step: {phase} ({setting} sets the limit)"
        )
    elif not isinstance(error, MooringError):
        said = str(error) or type(error).__name__
        error = StartFailed(f"{server} did not start (step: {phase}): {said}")
    for name, value in (("server", server), ("phase", phase), ("stderr", birth.tail())):
        if value:
            error.details.setdefault(name, value)
    return error


def again(error: MooringError) -> MooringError:
    """The same error for one more who waits: an exception that is raised twice mixes up its tracebacks."""
    import copy

    return copy.copy(error)


def crash_reason(exit_code: int | None, closed: str, unkept: bool = False) -> str:
    """Why a ready instance is gone. ``unkept``: it was ended together with what kept it."""
    if unkept:
        return "the server was ended together with what kept it"
    if exit_code is None:
        return closed or "the server closed the conversation"
    if exit_code < 0:
        return f"the server was ended by signal {-exit_code}"
    return f"the server exited with code {exit_code}"
