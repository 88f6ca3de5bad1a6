"""Which addresses are public. A table of our own, from the registries of special addresses.

`ipaddress.is_global` is not asked: its answers differ between Python releases.
"""

import socket
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_network,
)

from sandbox.egress.rules.grammar import Address

type Network = IPv4Network | IPv6Network

_IPV4 = (
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by a carrier's customers"),
    ("100.100.100.200/32", "a metadata service"),
    ("127.0.0.0/8", "loopback"),
    ("168.63.129.16/32", "a metadata service"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "a protocol assignment"),
    ("192.0.2.0/24", "documentation"),
    ("192.31.196.0/24", "a sink of reverse names"),
    ("192.52.193.0/24", "a multicast relay"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("192.168.0.0/16", "private"),
    ("192.175.48.0/24", "a sink of reverse names"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved or broadcast"),
)
# Outside 2000::/3 nothing is public; these names serve the reader of a refusal.
_IPV6 = (
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "a mapped IPv4 address"),
    ("::ffff:0:0:0/96", "a translated IPv4 address"),
    ("::/96", "a compatible IPv4 address"),
    ("64:ff9b:1::/48", "a local translation to IPv4"),
    ("100::/64", "discarded"),
    ("2001::/32", "Teredo"),
    ("2001::/23", "a protocol assignment"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4"),
    ("2620:4f:8000::/48", "a sink of reverse names"),
    ("3ffe::/16", "a network that was given back"),
    ("3fff::/20", "documentation"),
    ("5f00::/16", "a segment identifier"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
_SPECIAL_IPV4 = tuple((IPv4Network(text), reason) for text, reason in _IPV4)
_SPECIAL_IPV6 = tuple((IPv6Network(text), reason) for text, reason in _IPV6)
_PUBLIC_IPV6 = IPv6Network("2000::/3")
# The one translation that DNS itself hands out: a network without IPv4 reaches all of it so.
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
_LOW_32 = 0xFFFF_FFFF
_WIDEST = 7  # fc00::/7


def special(address: Address) -> str:
    """What makes the address not public; empty for one that is."""
    if isinstance(address, IPv4Address):
        return _table_name(address, _SPECIAL_IPV4)
    if address in _NAT64:
        return special(_behind(address))
    if int(address) >> 32 & _LOW_32 in _ISATAP:
        return "ISATAP"
    if reason := _table_name(address, _SPECIAL_IPV6):
        return reason
    return "" if address in _PUBLIC_IPV6 and address.scope_id is None else "reserved"


def is_own_address(address: Address) -> bool:
    """True for an address of this machine: nothing is sent, the kernel is asked for a source.

    Raises OSError when the kernel cannot be asked.
    """
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        if probe.connect_ex((str(address), 9)):
            return False  # there is no way to it, so it is not here
        return bool(probe.getsockname()[0] == str(address))


class AddressGate:
    """Lets public addresses through, and those of the networks an operator opened."""

    def __init__(self, opened: Iterable[Network] = ()) -> None:
        self._opened = tuple(opened)

    def is_opened(self, address: Address) -> bool:
        return any(address in network for network in self._opened)

    def refusal(self, address: Address) -> str:
        """Empty for an address that may be dialled."""
        if self.is_opened(address):
            return ""
        return special(address) or _own_name(_behind(address))


def read_network(text: str) -> Network:
    """Raises ValueError, also for bits behind the length and for what opens half the world."""
    network = ip_network(text, strict=True)
    if network.prefixlen < _WIDEST:
        raise ValueError(f"{text} is wider than any private network")
    return network


def _behind(address: Address) -> Address:
    """What a NAT64 gateway dials; any other address itself."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        return IPv4Address(int(address) & _LOW_32)
    return address


def _own_name(address: Address) -> str:
    try:
        return "an address of this machine" if is_own_address(address) else ""
    except OSError:
        return "an address that cannot be looked at now"


def _table_name(address: Address, table: Iterable[tuple[Network, str]]) -> str:
    return next((reason for network, reason in table if address in network), "")
