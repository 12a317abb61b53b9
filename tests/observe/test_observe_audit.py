"""The audit file: whole lines, private, rotated, and honest about what a full disk cost."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.config.plan import Audit
from mooring.nouns import AuditRow
from mooring.observe import audit as module
from mooring.observe.audit import AuditLog, record
from mooring.observe.audit_files import following, rows
from mooring.observe.events import Event
from mooring.observe.redact import Redactor
from mooring.testing import wait_for


def call(tool: str = "a_t", **data: Any) -> Event:
    shown = {"tool": tool, "key": "k_1", "outcome": "ok", "seconds": 0.5, "sent": 3, "received": 4, **data}
    return Event("call.finished", time.time(), "w", "a", "a", data=shown)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINGER", 0.01)
    monkeypatch.setattr(module, "RETRY", 0.02)


async def test_calls_and_changes_are_lines_and_the_life_of_servers_is_not(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with AuditLog(str(file), Audit(), Redactor()) as audit:
        audit(call())
        audit(Event("policy.denied", 1.0, "w", data={"tool": "x", "key": "k_2", "reason": "no such tool"}))
        audit(Event("key.revoked", 2.0, "w", data={"key": "k_1", "name": "n"}))
        audit(Event("instance.ready", 3.0, "", "a", "a"))
        audit(Event("session.opened", 3.0, "w"))
    done, denied, revoked = rows(str(file))
    assert (done.workspace, done.key, done.tool, done.server, done.decision, done.outcome, done.seconds) == (
        "w",
        "k_1",
        "a_t",
        "a",
        "allowed",
        "ok",
        0.5,
    )
    assert (done.sent, done.received, done.refused) == (3, 4, False)
    assert (denied.decision, denied.reason, denied.refused) == ("denied", "no such tool", True)
    assert (revoked.event, revoked.data) == ("key.revoked", {"key": "k_1", "name": "n"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_half_a_character_in_a_record_ends_nothing(tmp_path: Path) -> None:
    """Such as in the error about a file in conf.d whose name is not UTF-8."""
    file = tmp_path / "audit.jsonl"
    async with AuditLog(str(file), Audit(), Redactor()) as audit:
        audit(Event("config.rejected", 1.0, data={"error": os.fsdecode(b"conf.d/\xff.toml: not valid TOML: \xc3\xa9")}))
        audit(call(arguments=msgspec.Raw(b'{"a":1}'), target=os.fsdecode(b"\xff")))
        audit(call("a_u"))
    rejected, odd, later = rows(str(file))
    assert rejected.data == {"error": "conf.d/?.toml: not valid TOML: é"}
    assert (odd.target, odd.arguments, later.tool) == ("?", {"a": 1}, "a_u")


async def test_nobody_hides_a_call_by_half_a_character_in_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with AuditLog(str(file), Audit(), Redactor()) as audit:
        audit(call(arguments=msgspec.Raw(b'{"a":"\\ud800"}')))
    (row,) = rows(str(file))
    assert (row.tool, row.arguments) == ("a_t", {"a": "?"})


async def test_nobody_writes_a_record_by_line_ends_in_arguments(tmp_path: Path) -> None:
    """A client may send its JSON on several lines."""
    file = tmp_path / "audit.jsonl"
    forged = b'{"a":\r\n{"ts":1.0,"event":"key.revoked","data":{"key":"k_9"}}\n}'
    async with AuditLog(str(file), Audit(), Redactor()) as audit:
        audit(call(arguments=msgspec.Raw(forged)))
    (row,) = rows(str(file))
    assert (row.tool, row.arguments) == ("a_t", {"a": {"ts": 1.0, "event": "key.revoked", "data": {"key": "k_9"}}})


async def test_a_record_is_on_disk_soon_without_an_end(tmp_path: Path) -> None:
    file = str(tmp_path / "audit.jsonl")
    async with AuditLog(file, Audit(), Redactor()) as audit:
        for number in range(3):
            audit(call(f"t{number}"))
            await wait_for(lambda: not audit.waiting, 5)
            assert [row.tool for row in rows(file)] == [f"t{n}" for n in range(number + 1)]


async def test_secrets_in_arguments_and_reasons_are_masked(tmp_path: Path) -> None:
    """R22"""
    file = tmp_path / "audit.jsonl"
    redact = Redactor()
    redact.add('hunter2 "x"')
    async with AuditLog(str(file), Audit(), redact) as audit:
        audit(call(arguments=msgspec.Raw(b'{"token":"hunter2 \\"x\\"","n":1}')))
        audit(Event("config.rejected", 1.0, data={"error": 'it says hunter2 "x"'}))
    assert "hunter2" not in file.read_text()
    first, second = rows(str(file))
    assert first.arguments == {"token": "****", "n": 1}
    assert second.data == {"error": "it says ****"}


async def test_files_are_put_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    file = str(tmp_path / "audit.jsonl")
    async with AuditLog(file, Audit(max_bytes=400, files=3), Redactor()) as audit:
        for number in range(30):
            audit(call(f"t{number}"))
            await wait_for(lambda: not audit.waiting, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    kept = [row.tool for row in rows(file)]
    assert kept == [f"t{n}" for n in range(30 - len(kept), 30)]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())


async def test_one_file_only_starts_over(tmp_path: Path) -> None:
    file = str(tmp_path / "audit.jsonl")
    async with AuditLog(file, Audit(max_bytes=200, files=1), Redactor()) as audit:
        for number in range(5):
            audit(call(f"t{number}"))
            await wait_for(lambda: not audit.waiting, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["audit.jsonl"]
    assert list(rows(file))[-1].tool == "t4"


async def test_a_full_disk_stops_nobody_and_what_it_cost_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a line is taken back, what waits is written later, and what did not fit is counted."""
    file = tmp_path / "audit.jsonl"
    monkeypatch.setattr(module, "WAITING", 3)
    real, full = os.write, True

    def write(descriptor: int, data: bytes) -> int:
        if not full:
            return real(descriptor, data)
        real(descriptor, bytes(data)[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "write", write)
    async with AuditLog(str(file), Audit(), Redactor()) as audit:
        for number in range(5):
            audit(call(f"t{number}"))
        await wait_for(lambda: audit._failing, 5)
        assert file.read_bytes() == b""
        assert (audit.waiting, audit.lost) == (3, 2)
        full = False
        await wait_for(lambda: not audit.waiting, 5)
        audit(call("after"))
    found = list(rows(str(file)))
    assert [row.tool for row in found] == ["t0", "t1", "t2", "", "after"]
    assert (found[3].event, found[3].data) == ("audit.lost", {"records": 2})


async def test_an_unwritable_folder_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with AuditLog(str(tmp_path / "missing" / "audit.jsonl"), Audit(), Redactor()) as audit:
        audit(call())
        await wait_for(lambda: audit._failing, 5)
    assert audit.waiting == 1


async def test_a_line_that_a_power_cut_left_half_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_bytes(msgspec.json.encode(AuditRow(1.0, "call.finished", tool="before")) + b'\n{"ts":2.0,"ev')
    async with AuditLog(str(file), Audit(), Redactor()) as audit:
        audit(call("after"))
    assert [row.tool for row in rows(str(file))] == ["before", "after"]


async def test_a_disk_that_is_full_when_the_file_is_opened_costs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is there nor what comes, which does not go on in a line that a power cut left half."""
    file = tmp_path / "audit.jsonl"
    half = '{"ts": 1, "ev'
    file.write_bytes(msgspec.json.encode(record(call("a_before"))) + b"\n" + half.encode())
    full = [True, True, True]
    write, fchmod = os.write, os.fchmod

    def write_later(descriptor: int, data: Any) -> int:
        if full and os.fstat(descriptor).st_ino == file.stat().st_ino:
            full.pop()
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    def fail_once(descriptor: int, mode: int) -> None:
        monkeypatch.setattr(module.os, "fchmod", fchmod)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module.os, "write", write_later)
    monkeypatch.setattr(module.os, "fchmod", fail_once)
    async with AuditLog(str(file), Audit(), Redactor()) as audit:
        audit(call("a_after"))
        await wait_for(lambda: not audit.waiting)
    assert [row.tool for row in rows(str(file))] == ["a_before", "a_after"]


async def test_nothing_is_written_where_it_is_switched_off(tmp_path: Path) -> None:
    async with AuditLog(str(tmp_path / "audit.jsonl"), Audit(enabled=False), Redactor()) as audit:
        audit(call())
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_a_person_refused_counts_as_refused() -> None:
    row = record(call(decision="denied", reason="the user did not agree", error="declined", outcome="failed"))
    assert row is not None
    assert row.refused
    assert record(Event("instance.ready", 1.0)) is None


def test_who_follows_misses_nothing_at_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "audit.jsonl"

    def append(name: str) -> None:
        with file.open("ab") as end:
            end.write(msgspec.json.encode(AuditRow(1.0, name)) + b"\n")

    def rotate() -> None:
        append("two")
        file.rename(tmp_path / "audit.jsonl.1")
        append("three")

    append("before")
    pauses = iter([lambda: append("one"), rotate, file.unlink, lambda: append("four")])
    monkeypatch.setattr("mooring.observe.audit_files.time.sleep", lambda _: next(pauses)())
    seen = following(str(file))
    with closing(seen):
        assert [next(seen).event for _ in range(4)] == ["one", "two", "three", "four"]


async def test_a_file_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with AuditLog(str(file), Audit(), Redactor()) as audit:
        audit(call("a_t"))
        await wait_for(lambda: audit.waiting == 0 and file.exists() and file.stat().st_size > 0)
        file.unlink()
        audit(call("a_u"))
    assert [row.tool for row in rows(str(file))] == ["a_u"]
