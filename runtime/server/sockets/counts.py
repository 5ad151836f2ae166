"""How many connections are open, in total and by address, and which may come."""

import ipaddress
from collections import Counter
from collections.abc import Callable
from enum import Enum

SPARE = 32
"""Connections beyond the bounds, which are answered only where that takes no work."""
_NETWORK_BITS = 64
"""A provider gives a customer a network of this size, so one client has all of its addresses."""


class Place(Enum):
    """What a new connection may do."""

    OPEN = "open"
    SPARE = "spare"
    """It is beyond a bound: a request for health is answered, and any other one is refused."""
    NONE = "none"
    """It is closed at once."""


class ConnectionCounts:
    """Counts the open connections of one server."""

    def __init__(self, most: int, most_per_address: int, spare: int = SPARE) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._spare = spare
        self._addresses: Counter[str] = Counter()
        self._spares = 0
        self._lent: list[tuple[Callable[[], bool], str]] = []

    def __len__(self) -> int:
        """Return the number of connections with a place of their own."""
        return self._addresses.total()

    def enter(self, address: str) -> Place:
        """Return the place of a new connection; `leave` gives it back."""
        if self._is_full(address):
            self._end_lent()
        if not self._is_full(address):
            self._addresses[address] += 1
            return Place.OPEN
        if self._spares < self._spare:
            self._spares += 1
            return Place.SPARE
        return Place.NONE

    def leave(self, address: str, place: Place) -> None:
        """Give back the place of a connection that has ended."""
        if place is Place.SPARE:
            self._spares -= 1
        elif place is Place.OPEN:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    def lend(self, address: str, has_ended: Callable[[], bool]) -> None:
        """Keep an open place for a connection whose end is known only by asking."""
        self._lent.append((has_ended, address))

    def _is_full(self, address: str) -> bool:
        return len(self) >= self._most or self._addresses[address] >= self._most_per_address

    def _end_lent(self) -> None:
        lent, self._lent = self._lent, []
        for has_ended, address in lent:
            if has_ended():
                self.leave(address, Place.OPEN)
            else:
                self._lent.append((has_ended, address))


def client_of(host: str) -> str:
    """Return the address by which a client is counted: its IPv4 address, or its IPv6 network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False).network_address)
