"""Which processes a server consists of, and how to reach them all. Standard library only: the keeper uses it too.

On Linux each server's soft RLIMIT_LOCKS is its mark. The kernel ignores that limit since 2.4.25, every descendant
inherits it, and one user's processes may read it of each other; so a helper that left the group, the session and the
process tree is still known, and one that became another user is once its parent has ended. (What a keeper inside a
server marks is that keeper's to end.) Elsewhere it is the process group and the tree as it is when asked.
"""

import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Mapping
else:  # the C half: the public module costs 5 ms of imports at each start of the keeper
    import _signal as signal

RLIMIT_LOCKS = 10
"""The module ``resource`` has no name for it."""


def become_subreaper() -> None:
    """Make orphaned descendants children of this process (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _marks_work() -> bool:
    """Whether RLIMIT_LOCKS can carry marks here: Linux, with no hard limit in the way."""
    try:
        soft, hard = resource.getrlimit(RLIMIT_LOCKS)
        resource.setrlimit(RLIMIT_LOCKS, (soft, hard))
    except (OSError, ValueError):
        return False
    return sys.platform == "linux" and hard == resource.RLIM_INFINITY


MARKS = _marks_work()


def members(servers: "Mapping[int, int]") -> dict[int, list[int]]:
    """The processes of each server, zombies too. ``servers``: leader's pid by mark."""
    found: dict[int, list[int]] = {mark: [] for mark in servers}
    if not MARKS:
        table = process_table()
        return {mark: _family(leader, table) for mark, leader in servers.items()}
    for pid in _pids():
        try:
            mark = _mark(pid)
        except OSError:  # gone meanwhile
            continue
        if mark in found:
            found[mark].append(pid)
    return found


def _mark(pid: int) -> int:
    """Its mark. Another user's may be asked for with a privilege only that root may lack, in a container itself; the
    file that anybody may read takes far longer, so it is read of this process's own children: nobody else stands for
    one whose parent has ended. 0: a stranger's. Raises OSError when it is gone."""
    try:
        return resource.prlimit(pid, RLIMIT_LOCKS)[0]
    except PermissionError:
        if not _is_child(pid):
            return 0
    with open(f"/proc/{pid}/limits", "rb", buffering=0) as file:
        lines = file.read(4096).splitlines()
    soft = next((line.split()[3] for line in lines if line.startswith(b"Max file locks")), b"")  # nothing: just gone
    return int(soft) if soft.isdigit() else 0


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def process_table() -> dict[int, tuple[int, int]]:
    """Every process: pid -> (parent, process group)."""
    if sys.platform != "linux":
        import subprocess

        listed = subprocess.run(["/bin/ps", "-axo", "pid=,ppid=,pgid="], capture_output=True, check=False).stdout
        return {int(pid): (int(parent), int(group)) for pid, parent, group in map(bytes.split, listed.splitlines())}
    table: dict[int, tuple[int, int]] = {}
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                _, parent, group = file.read(1024).rpartition(b")")[2].split()[:3]
        except OSError:
            continue
        table[pid] = int(parent), int(group)
    return table


def descendants(root: int, table: "Mapping[int, tuple[int, int]]") -> list[int]:
    """Children, grandchildren and so on of ``root``."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:  # grows while it is walked
        found += children.get(pid, ())
    return found


def _family(leader: int, table: "Mapping[int, tuple[int, int]]") -> list[int]:
    group = [pid for pid, (_, pgid) in table.items() if pgid == leader != 0]
    return list({pid for member in group for pid in (member, *descendants(member, table))})


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def nested(pid: int) -> bool:
    """Whether a process is alive in a PID namespace below this one: it is in a container. Linux."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            lines = file.read(4096).splitlines()
    except OSError:
        return False
    fields = {name: value.split() for name, _, value in (line.partition(b":") for line in lines)}
    return len(fields.get(b"NSpid", [])) > 1 and fields[b"State"][0] not in (b"Z", b"X")


def kill(pids: "Iterable[int]", number: int = signal.SIGKILL) -> None:
    """Signal each one that still exists and may be signalled."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def group_of(pid: int) -> int:
    """Its process group; -1 when it is gone."""
    try:
        return os.getpgid(pid)
    except OSError:
        return -1
