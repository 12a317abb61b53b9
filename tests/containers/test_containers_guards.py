"""What a container cannot do and reach, looked at from inside, in both engines."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from container_kit import LIMIT, Kept, Table, answer, called

from mooring.testing import containers, wait_for
from mooring.testing.daemon import Daemon

STATUS = "found = dict(l.split(':\\t') for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)"
SYSCALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(number, *arguments):
    ctypes.set_errno(0)
    return "done" if libc.syscall(number, *arguments) >= 0 else os.strerror(ctypes.get_errno())
found = {name: tried(*call) for name, call in CALLS.items()}
"""
CALLS = {  # x86_64
    "unshare user namespace": (272, 0x10000000),
    "clone user namespace": (56, 0x10000000 | 17, 0),
    "mount": (165, b"none", b"/tmp", b"tmpfs", 0, 0),
    "setns": (308, 0, 0),
    "bpf": (321, 0, 0, 0),
    "keyctl": (250, 0, 0, 0),
    "add_key": (248, b"user", b"x", b"y", 1, -2),
    "ptrace": (101, 0, 0, 0, 0),
    "init_module": (175, 0, 0, b""),
    "io_uring": (425, 1, 0),
    "userfaultfd": (323, 0),
    "perf_event_open": (298, 0, 0, 0, 0, 0),
}


async def look(daemon: Daemon, server: str, code: str) -> Any:
    """What ``code`` finds inside a container."""
    return (await called(daemon, f"{server}_look", code=code))["found"]


async def test_it_has_no_privileges_and_cannot_gain_any(kept: Kept, tmp_path: Path, probe: Table) -> None:
    """R25: no capabilities, no new ones, seccomp on, and the image's own user, whose root is no better off."""
    containers.image(kept.engine, "localhost/mooring-testing-root:1", 0)
    servers = {"user": probe(network="none"), "root": probe(network="none", image="localhost/mooring-testing-root:1")}
    async with kept.daemon(tmp_path / "home", servers) as daemon:
        for server, uid in (("user", str(containers.USER)), ("root", "0")):
            status = await look(daemon, server, STATUS)
            assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
            assert status["NoNewPrivs"] == "1"
            assert status["Seccomp"] == "2"
            assert status["Uid"].split()[0] == uid


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of system calls are those of x86_64")
async def test_system_calls_that_lead_out_are_refused(kept: Kept, tmp_path: Path, probe: Table) -> None:
    """R25: the same profile in both engines; what a server needs still works."""
    async with kept.daemon(tmp_path / "home", {"one": probe(network="none")}) as daemon:
        found = await look(daemon, "one", f"CALLS = {CALLS!r}\n{SYSCALL}")
        refused = {"Operation not permitted", "Function not implemented"}
        assert {name: said for name, said in found.items() if said not in refused} == {}
        useful = "import subprocess, threading; t = threading.Thread(target=print); t.start(); t.join()\n"
        assert await look(daemon, "one", f"{useful}found = subprocess.run(['/usr/bin/true']).returncode") == 0
        families = (
            "import socket\ndef tried(f):\n try: socket.socket(f, socket.SOCK_RAW if f == 16 else socket.SOCK_STREAM)"
        )
        families += "\n except OSError as e: return e.errno not in (1, 38)\n return True\n"
        assert await look(daemon, "one", f"{families}found = [tried(f) for f in (2, 10, 1, 16, 38, 40)]") == [
            *(True, True, True, True),
            *(False, False),
        ]


async def test_processes_memory_and_processors_are_limited(kept: Kept, tmp_path: Path, probe: Table) -> None:
    """R25: forks end, memory ends, and the processors are all there only until the server answers."""
    limits = {"memory": "64m", "pids": 32, "cpus": 0.5}
    async with kept.daemon(tmp_path / "home", {"one": probe(network="none", limits=limits)}) as daemon:
        forks = """
import os, time
children = []
found = "no limit"
for _ in range(100):
    try: pid = os.fork()
    except OSError as error:
        found = error.strerror; break
    if not pid:
        time.sleep(60); os._exit(0)
    children.append(pid)
for pid in children: os.kill(pid, 9); os.waitpid(pid, 0)
"""
        assert await look(daemon, "one", forks) == "Resource temporarily unavailable"
        hog = "import os\npid = os.fork()\nif not pid:\n x = bytearray(200 << 20); os._exit(0)\n"
        hog += "found = os.waitpid(pid, 0)[1]"
        assert await look(daemon, "one", hog) == 9
        (name,) = kept.names(daemon.home)

        def lowered() -> bool:
            limits = containers.inspected(kept.engine, name)["HostConfig"]
            quota = limits["CpuQuota"] / (limits["CpuPeriod"] or 100_000)
            return 0.5 in (limits["NanoCpus"] / 1e9, quota) or _quota(name, kept.engine) == 0.5

        await wait_for(lowered, LIMIT, 0.05)


def _quota(name: str, engine: str) -> float:
    """The processors of a container by its cgroup; 0 when it has no limit."""
    pid = containers.inspected(engine, name)["State"]["Pid"]
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            quota = int(Path(f"/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us").read_text())
            return max(0, quota) / 100_000
        if not controllers and (file := Path(f"/sys/fs/cgroup{path}/cpu.max")).exists():
            first = file.read_text().split()[0]
            return 0.0 if first == "max" else int(first) / 100_000
    return 0.0


async def test_its_root_is_read_only_but_for_a_small_tmp(kept: Kept, tmp_path: Path, probe: Table) -> None:
    """R16 R25: nothing else can be written, nothing in /tmp can be run; ``read_only = false`` lifts it."""
    servers = {"shut": probe(network="none"), "open": probe(network="none", read_only=False)}
    write = (
        "def tried(path):\n try: open(path, 'w').close(); return 'written'\n except OSError as e: return e.strerror\n"
    )
    paths = ["/data/x", "/var/x", "/run/x", "/tmp/x"]
    containers.image(kept.engine, "localhost/mooring-testing-root:1", 0)
    for table in servers.values():
        table["image"] = "localhost/mooring-testing-root:1"
    async with kept.daemon(tmp_path / "home", servers) as daemon:
        found = await look(daemon, "shut", f"{write}found = [tried(path) for path in {paths}]")
        assert found[:3] == ["Read-only file system"] * 3
        assert found[3] == "written"
        run = "import shutil, subprocess\nshutil.copy('/usr/bin/true', '/tmp/true')\n"
        run += "try: found = subprocess.run(['/tmp/true']).returncode"
        assert await look(daemon, "shut", f"{run}\nexcept OSError as e: found = e.strerror") == "Permission denied"
        assert (await look(daemon, "open", f"{write}found = [tried(path) for path in {paths}]"))[0] == "written"


async def test_a_server_that_needs_to_write_is_told_which_setting_helps(
    kept: Kept, tmp_path: Path, probe: Table
) -> None:
    """R12 R25: the error names ``read_only``."""
    table = probe(network="none")
    table["args"] = [table["args"][0], "-c", "open('/data/x', 'w')"]
    table["image"] = "localhost/mooring-testing-root:1"
    containers.image(kept.engine, table["image"], 0)
    async with kept.daemon(tmp_path / "home", {"one": table}) as daemon:
        result = await answer(daemon, "one_look")
        assert result["isError"]
        assert "read_only = false" in str(result)


async def test_it_sees_itself_only(kept: Kept, tmp_path: Path, probe: Table) -> None:
    """R25: own processes, own files, no engine, and with no network not even a name is resolved."""
    async with kept.daemon(tmp_path / "home", {"one": probe(network="none")}) as daemon:
        pids = await look(daemon, "one", "import os; found = [int(p) for p in os.listdir('/proc') if p.isdigit()]")
        assert 1 in pids
        assert len(pids) < 5
        sockets = ["/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd"]
        assert not await look(daemon, "one", f"import os; found = [p for p in {sockets} if os.path.exists(p)]")
        listener = await asyncio.start_server(lambda *_: None, "0.0.0.0", 0)
        port = listener.sockets[0].getsockname()[1]
        own = "127.0.0.1"
        code = f"""
import socket
def tried(host, port):
    try: socket.create_connection((host, port), 2); return "connected"
    except OSError as error: return type(error).__name__
found = [tried({own!r}, {port}), tried("172.17.0.1", {port}), tried("10.88.0.1", {port}), tried("example.com", 80)]
found.append([name for _, name in socket.if_nameindex()])
"""
        *reached, names = await look(daemon, "one", code)
        listener.close()
        assert "connected" not in reached
        assert names == ["lo"]


async def test_volumes_are_only_those_that_were_granted(kept: Kept, tmp_path: Path, probe: Table) -> None:
    """R16 R25: named, relative to the configuration's file, absolute; read-only where it says so; one file too."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "in").mkdir()
    (home / "in" / "note").write_text("hello")
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    single = tmp_path / "single"
    single.write_text("one file")
    named = f"mooring-testing-{os.getpid()}"
    volumes = ["./in:/in:ro", f"{out}:/out", f"{named}:/named", f"{single}:/single:ro"]
    servers = {"one": probe(network="none", volumes=volumes), "gone": probe(volumes=[f"{tmp_path}/nothing:/x"])}
    try:
        async with kept.daemon(home, servers) as daemon:
            assert (
                await look(daemon, "one", "found = open('/in/note').read() + open('/single').read()") == "helloone file"
            )
            write = "try:\n open('/in/x', 'w'); found = 'written'\nexcept OSError as e: found = e.strerror"
            assert await look(daemon, "one", write) == "Read-only file system"
            await look(daemon, "one", "open('/out/answer', 'w').write('42'); found = 1")
            assert (out / "answer").read_text() == "42"
            assert await look(daemon, "one", "import os; found = os.path.ismount('/named')")
            result = await answer(daemon, "gone_echo")
            assert f"{tmp_path}/nothing does not exist" in str(result)
    finally:
        containers.command(kept.engine, "volume", "rm", "--force", named)
