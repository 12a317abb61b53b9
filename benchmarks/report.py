"""A run as markdown, and what makes it invalid. Pure; used by ``__main__``."""

from __future__ import annotations

from typing import Any

VALID_RELAY = 4.5
"""The reference relay costs at most this many times the floor at one caller; above, the machine was disturbed."""


def invalid(suites: dict[str, Any]) -> str:
    """Why the run may not be used, or nothing."""
    rows = suites.get("calls", {})
    relay, floor = (rows.get(name, {}).get("CPU s/1000") for name in ("raw-relay", "floor"))
    if not relay or not floor:
        return ""
    ratio = relay / floor
    if ratio <= VALID_RELAY:
        return ""
    return f"raw-relay costs {ratio:.1f} times the floor at one caller; more than {VALID_RELAY} means a disturbed run"


def markdown(run: dict[str, Any]) -> str:
    """The whole run, one table a suite."""
    facts = ", ".join(f"{key} {value}" for key, value in run["environment"].items())
    parts = [f"# Benchmark, {run['date']}", facts, f"Made by `{run['command']}`."]
    if run["mooring"]:
        parts.append(f"Mooring runs with {run['mooring']}.")
    if run["invalid"]:
        parts.append(f"**Invalid:** {run['invalid']}.")
    for name, rows in run["suites"].items():
        parts += [f"## {name}", run["about"][name], table(rows)]
    return "\n\n".join(parts) + "\n"


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Peers down, figures across; CPU also as a multiple of the reference relay's."""
    shown = {name: with_ratio(row, rows.get(reference(name), {})) for name, row in rows.items()}
    titles = list(dict.fromkeys(title for row in shown.values() for title in row))
    lines = [["peer", *titles], ["---"] * (len(titles) + 1)]
    lines += [[name, *(str(row.get(title, "")) for title in titles)] for name, row in shown.items()]
    return "\n".join("| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |" for line in lines)


def reference(name: str) -> str:
    """The row to compare with: the reference relay's under the same setting ("c=8 mooring": "c=8 raw-relay")."""
    setting, space, _ = name.rpartition(" ")
    return f"{setting}{space}raw-relay"


def with_ratio(row: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """The row with ``x raw`` behind every figure of CPU that the reference has too."""
    shown: dict[str, Any] = {}
    for title, value in row.items():
        shown[title] = value
        if "CPU" in title and "idle" not in title and base.get(title):
            shown[title.replace("CPU s/1000", "x raw").replace("CPU ms", "x raw")] = f"{value / base[title]:.1f}"
    return shown
