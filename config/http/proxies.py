"""The client address of a request: the peer, or the client that trusted proxies report."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_MOST_HOPS = 32
_FORWARDED_FOR, _FORWARDED_PROTO = b"x-forwarded-for", b"x-forwarded-proto"
_SCHEMES = frozenset({"http", "https"})


class Proxies:
    """Trusted proxies, by `networks`. Forwarding headers of other peers are ignored."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(ipaddress.ip_network(one) for one in networks)
        self.trusts = lru_cache(maxsize=4096)(self._trusts)

    def _trusts(self, address: str) -> bool:
        found = _address(address)
        return found is not None and any(found in network for network in self._networks)

    def apply(self, scope: dict[str, Any]) -> None:
        """Puts client and scheme of a request into its ASGI scope, and takes the headers out, so
        that nothing else believes them. `forwarded` in its state says that there were any."""
        peer, port = scope["client"] or ("", 0)
        said = {
            wanted: b",".join(text for name, text in scope["headers"] if name == wanted).decode(
                "latin-1"
            )
            for wanted in (_FORWARDED_FOR, _FORWARDED_PROTO)
        }
        scope["headers"][:] = [one for one in scope["headers"] if one[0] not in said]
        scope["client"] = self.client(peer, said[_FORWARDED_FOR]), port
        scope["scheme"] = self.scheme(peer, said[_FORWARDED_PROTO], scope["scheme"])
        scope["state"]["forwarded"] = bool(said[_FORWARDED_FOR])

    def client(self, peer: str, forwarded_for: str) -> str:
        """The address of the client: of the hops, the last that is no trusted proxy.

        `forwarded_for` is what `X-Forwarded-For` says, of several headers with commas between them.
        What is no address ends the search: the proxy that passed it on is the last one known.
        """
        known = peer
        for hop in reversed(forwarded_for.split(",")[-_MOST_HOPS:]):
            if not self.trusts(known):
                break
            found = _address(_without_port(hop.strip()))
            if found is None:
                break
            known = str(found)
        return known

    def scheme(self, peer: str, forwarded_proto: str, otherwise: str) -> str:
        """What the nearest proxy says (`X-Forwarded-Proto`), where it is trusted."""
        said = forwarded_proto.rpartition(",")[2].strip().lower()
        return said if said in _SCHEMES and self.trusts(peer) else otherwise


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """IPv4 addresses that are mapped into IPv6 are IPv4 addresses."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
