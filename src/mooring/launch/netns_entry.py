"""Make one socket inside a network namespace that belongs to another user namespace. Standard library only.

Run by ``launch.netns`` as ``python -I -S netns_entry.py FAMILY`` where the daemon is a plain user: it may enter what it
owns, but only by way of the user namespace, and a process with threads cannot go there. Descriptor 0 is a socket: the
namespace comes in on it by SCM_RIGHTS, and the new socket, or the number of the error, goes out. Then it ends.

Source: setns(2), ioctl_ns(2).
"""

import ctypes
import fcntl
import os
import socket
import sys

CLONE_NEWNET = 0x40000000
CLONE_NEWUSER = 0x10000000
NS_GET_USERNS = 0xB701


def enter(fd: int, kind: int) -> None:
    """Move the calling thread into the namespace behind ``fd``. Raises OSError."""
    if sys.version_info >= (3, 12):
        os.setns(fd, kind)
    elif ctypes.CDLL(None, use_errno=True).setns(fd, kind):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main() -> None:
    """The whole life of the process."""
    channel = socket.socket(fileno=0)
    _, (namespace, *_), _, _ = socket.recv_fds(channel, 1, 1)
    try:
        owner = fcntl.ioctl(namespace, NS_GET_USERNS)
        enter(owner, CLONE_NEWUSER)
        enter(namespace, CLONE_NEWNET)
        made = socket.socket(int(sys.argv[1]), socket.SOCK_STREAM)
    except OSError as error:
        channel.send(str(error.errno).encode())
    else:
        socket.send_fds(channel, [b"."], [made.fileno()])


if __name__ == "__main__":
    main()
