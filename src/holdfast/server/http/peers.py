"""Peer: the address a connection or a request is counted under.

Behind a proxy every connection comes from the proxy. The addresses of `ServerSettings.proxies` are therefore not
counted one by one, and of their requests the last address of `X-Forwarded-For` that is no proxy's is the peer. That
header of anybody else is ignored.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from starlette.requests import Request

_MOST_HOPS: Final = 10
_ONE_CALLERS: Final = 8  # bytes: 64 bits


class Proxies:
    """The networks that speak for others."""

    def __init__(self, networks: tuple[str, ...]) -> None:
        self._networks = [ip_network(one, strict=False) for one in networks]

    def has(self, address: str) -> bool:
        found = _address(address)
        return found is not None and any(found in network for network in self._networks)

    def peer_of(self, request: Request) -> str:
        """Find the last address that is no proxy's; a hop that is no address was not written by a proxy and ends the
        search.
        """
        peer = request.client.host if request.client else ""
        if not self.has(peer):
            return counted(peer)
        hops = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        for hop in hops[: -_MOST_HOPS - 1 : -1]:
            if (address := _address(hop.strip())) is None:
                break
            peer = str(address)
            if not self.has(peer):
                break
        return counted(peer)


def counted(host: str) -> str:
    """The name that an address is counted under. An IPv6 network of 64 bits is one caller's, with all its addresses."""
    address = _address(host)
    if address is None:
        return host
    return str(address) if address.version == 4 else f"{IPv6Address(address.packed[:_ONE_CALLERS] + bytes(8))}/64"


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an address, with or without a port; None for a Unix socket or a caller's invention."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
