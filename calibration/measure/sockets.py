"""Who listens on a port of this host, as the kernel's tables tell (Linux)."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from calibration.measure.supervisor import descendants

__all__ = ["listens_below"]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_PROCESSES = Path("/proc")
_LISTENS = "0A"
"""The state TCP_LISTEN (include/net/tcp_states.h)."""
_LOOKS = 3
_PAUSE_S = 0.02
"""A process that loses its parent while one looks may be missed: it is looked for again before it counts as foreign."""


def listens_below(port: int, root: int) -> bool | None:
    """Whether a connection to a port of the loopback interface reaches a process below ``root``.

    False: another program listens there. None: it cannot be told, since nobody listens, ``root`` is gone, open files of its processes may not be read, or there is no /proc.

    Of several listeners, those that the kernel prefers count: an address of its own before any address, then IPv4 before IPv6 (``inet_lookup_listener``). They
    are found in /proc/net/tcp and /proc/net/tcp6 by their inodes, as the links in /proc/PID/fd name them.
    """
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_S)
        wanted = _preferred(_listeners(port))
        below = descendants(root)
        if not wanted or not below:
            return None
        held, is_complete = _held_by(below)
        if wanted <= held:
            return True
        if not is_complete:
            return None
    return False


def _listeners(port: int) -> Iterator[tuple[str, int]]:
    """Addresses and inodes of the sockets that listen on a port, in the network of this process."""
    for table in _TABLES:
        with contextlib.suppress(OSError), table.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                fields = line.split()
                with contextlib.suppress(ValueError, IndexError):
                    address, _, number = fields[1].rpartition(":")
                    if fields[3] == _LISTENS and int(number, 16) == port:
                        yield address, int(fields[9])


def _preferred(listeners: Iterable[tuple[str, int]]) -> set[int]:
    """Inodes of those that get a connection to the loopback interface."""
    found: dict[str, set[int]] = {}
    for address, inode in listeners:
        found.setdefault(address, set()).add(inode)
    own, any_ipv4, any_ipv6 = _address("127.0.0.1"), _address("0.0.0.0"), _address("::")  # noqa: S104  looked for, not bound to
    mapped = _address("::ffff:127.0.0.1")
    for addresses in ((own, mapped), (any_ipv4,), (any_ipv6,)):
        inodes = set[int]().union(*(found.get(address, ()) for address in addresses))
        if inodes:
            return inodes
    return set()


def _address(text: str) -> str:
    """An address as the tables write it: words of 32 bits in the byte order of the host."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    words = (packed[i : i + 4] for i in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _held_by(pids: Iterable[int]) -> tuple[set[int], bool]:
    """Inodes of the sockets that processes hold, and whether all of their open files could be read."""
    inodes, is_complete = set(), True
    for pid in pids:
        folder = _PROCESSES / str(pid) / "fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208  names are enough
        except PermissionError:
            is_complete = False
            continue
        except OSError:
            continue  # it has ended
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                kind, _, number = os.readlink(folder / name).partition(":")  # noqa: PTH115  a link to no path
                if kind == "socket":
                    inodes.add(int(number.strip("[]")))
    return inodes, is_complete
