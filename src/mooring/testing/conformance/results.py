"""What the suite found, and how two runs compare. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

GOOD = ("SUCCESS", "INFO", "SKIPPED")
_WORST_FIRST = ("FAILURE", "WARNING", "SUCCESS", "SKIPPED", "INFO")
ABSENT = "absent"
"""The status of a check that a run did not get to."""


class Check(msgspec.Struct, frozen=True, rename="camel"):
    """One check of one scenario. ``status``: SUCCESS, FAILURE, WARNING, SKIPPED or INFO."""

    id: str
    name: str
    status: str
    error_message: str = ""


class Results(msgspec.Struct, frozen=True):
    """One run: the scenarios that count, and the checks of each that ran, by ``id/name``."""

    required: list[str]
    scenarios: dict[str, dict[str, Check]]

    def failed(self, scenario: str) -> list[Check]:
        """The failures of a scenario, as the suite counts them: warnings are none."""
        return [check for check in self.scenarios[scenario].values() if check.status == "FAILURE"]

    @property
    def passed(self) -> list[str]:
        """The scenarios that count and passed."""
        return [scenario for scenario in self.required if not self.failed(scenario)]

    def status(self, scenario: str, check: str) -> tuple[str, str]:
        """Status and message of a check, also of one that was not reached."""
        found = self.scenarios.get(scenario, {}).get(check)
        return (ABSENT, "") if found is None else (found.status, found.error_message)


class Loss(msgspec.Struct, frozen=True):
    """A check that passes directly and does not through the gateway."""

    scenario: str
    check: str
    status: str
    message: str

    @property
    def place(self) -> str:
        """How a baseline names it: ``scenario:check``."""
        return f"{self.scenario}:{self.check}"

    def __str__(self) -> str:
        return f"{self.place}\n    directly SUCCESS; through the gateway {self.status} {self.message}".rstrip()


def collect(checks: Iterable[Check]) -> dict[str, Check]:
    """Checks by ``id/name``; of those with the same name the worst counts."""
    found: dict[str, Check] = {}
    for check in checks:
        place = check.id if check.id.lower() == check.name.lower() else f"{check.id}/{check.name}"
        former = found.get(place)
        if former is None or _WORST_FIRST.index(check.status) < _WORST_FIRST.index(former.status):
            found[place] = check
    return found


def losses(direct: Results, through: Results) -> list[Loss]:
    """All that is lost on the way, in the suite's order."""
    found: list[Loss] = []
    for scenario, checks in direct.scenarios.items():
        for place, check in checks.items():
            status, message = through.status(scenario, place)
            if check.status == "SUCCESS" and status not in GOOD:
                found.append(Loss(scenario, place, status, message))
    return found


def unexpected(lost: Iterable[Loss], baseline: Mapping[str, str]) -> list[Loss]:
    """Losses that the baseline (``scenario`` or ``scenario:check`` to its reason) does not name."""
    return [loss for loss in lost if loss.scenario not in baseline and loss.place not in baseline]


def stale(lost: Iterable[Loss], baseline: Mapping[str, str]) -> list[str]:
    """Entries of the baseline that name nothing that is lost."""
    places = {place for loss in lost for place in (loss.scenario, loss.place)}
    return [place for place in baseline if place not in places]
