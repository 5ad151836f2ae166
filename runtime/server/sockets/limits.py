"""The bounds on clients' connections, and the sockets' own ones."""

import socket
from dataclasses import dataclass, fields

from caesura.runtime.errors import UsageError

DESCRIPTORS_KEPT = 128
"""File descriptors that connections leave to the engine, the tools and the files."""
_PROBES = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Seconds of silence before the kernel probes a peer, between probes, and lost probes."""
_UNACKNOWLEDGED_MS = 120_000


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """The bounds on clients' connections, which keep no request waiting for another client.

    A body may take `body_seconds`, and one second more for every `body_rate` bytes that have
    come. A client that takes no byte of its answer for `write_seconds` is cut off, and its run
    ends. Raises `UsageError` for a bound that is not positive.
    """

    header_seconds: float = 10.0
    """From a connection, or a request's first byte, to the end of its headers."""
    body_seconds: float = 10.0
    body_rate: int = 16 * 2**10
    """Bytes per second."""
    idle_seconds: int = 75
    """How long a connection stays open between requests. Clients then open a new one."""
    write_seconds: float = 60.0
    max_connections: int = 4096
    max_per_address: int = 2048
    """The most connections of one IPv4 address, or of one IPv6 network of 64 bits."""
    max_body_bytes_read: int = 512 * 2**20
    """The most bytes of all bodies that are being read."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise UsageError(f"{each.name} must be positive, got {value!r}")

    def most_connections(self, descriptors: int | None) -> int:
        """Return how many connections fit into a process that may open so many files."""
        if descriptors is None:
            return self.max_connections
        return min(self.max_connections, max(descriptors // 2, descriptors - DESCRIPTORS_KEPT))


def descriptors() -> int | None:
    """Return how many files this process may open, or None where that is not limited."""
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def notice_dead_peers(listener: socket.socket) -> None:
    """Let the kernel end accepted connections whose other end is gone without a word.

    Linux hands these options on from the listening socket.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**_PROBES, "TCP_USER_TIMEOUT": _UNACKNOWLEDGED_MS}.items():
        option = getattr(socket, name, None)  # not on every system
        if option is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
