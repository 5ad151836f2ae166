"""Tells public network addresses from the others, which tools may reach only by permission.

The check uses the address that is connected to and not the host's name, which may resolve to
another address later.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# IANA's registries of special-purpose addresses; Python's `is_global` knows only some of them.
_SPECIAL_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_UNICAST_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "3fff::/20"))
# Addresses that lead to the IPv4 address in their last 32 bits.
_TRANSLATED_V6 = IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Return whether the text is a public IP address.

    An IPv6 address that carries an IPv4 address (mapped, 6to4, NAT64) counts as that one.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        inner = _inner(address)
        if inner is None:
            return address in _UNICAST_V6 and not any(address in net for net in _SPECIAL_V6)
        address = inner
    return not any(address in network for network in _SPECIAL_V4)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address carries, if any."""
    if address in _TRANSLATED_V6:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
