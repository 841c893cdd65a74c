"""Addresses of outgoing requests: read strictly, resolved once, and refused unless public.

Every trick of server-side request forgery is a second reading of the same text: another spelling of an address, a name
that resolves to two addresses, a name that resolves differently the second time. So there is one reading. The host is
either a plain name or an IP address in its usual spelling; the name is resolved once per delivery, all its addresses
must be public, and the connection goes to the very address that was checked.

Hosts an operator has put on the allow-list are trusted: no check, and plain http is good enough there.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

import idna
import msgspec

from holdfast.runtime.effects.delivery import EffectFailed

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

LONGEST_URL: Final = 2048
_PORTS: Final = {"https": 443, "http": 80}
_UNFIT: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMERIC: Final = re.compile(r"\d+|0x[0-9a-f]*")

_PRIVATE_V4: Final = [
    IPv4Network(block)
    for block in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # looks public, answers from inside a cloud's host
    )
]  # fmt: skip
_PUBLIC_V6: Final = IPv6Network("2000::/3")
_PRIVATE_V6: Final = [
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarking
        "2001:db8::/32", "2002::/16",  # documentation; 6to4 hides an IPv4 address
        "3fff::/20",
    )
]  # fmt: skip
_NAT64: Final = IPv6Network("64:ff9b::/96")


class Target(msgspec.Struct, frozen=True):
    """A destination as it was read."""

    scheme: str
    host: str  # lower case, ASCII, without a trailing dot; IPv6 without brackets
    port: int
    path: str  # with the query

    @property
    def origin(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def at(self, address: str) -> str:
        """The same resource at an address that was checked."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class AllowList:
    """`host` or `host:port`, as an operator wrote it."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._entries = frozenset(entry.strip().lower().rstrip(".") for entry in entries if entry.strip())

    def __contains__(self, target: object) -> bool:
        if not isinstance(target, Target):
            return False
        bracketed = f"[{target.host}]" if ":" in target.host else target.host
        return not self._entries.isdisjoint({target.host, bracketed, f"{bracketed}:{target.port}"})


def read_target(url: object) -> Target:
    """Read an address once and strictly; refuse one that could be read in two ways."""
    if not isinstance(url, str) or not 1 <= len(url) <= LONGEST_URL:
        raise _invalid(f"has no address, or one longer than {LONGEST_URL} characters")
    if _UNFIT.search(url):
        raise _invalid("contains a space, a control character or a backslash")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _invalid("cannot be read") from None
    if parts.scheme not in _PORTS:
        raise _invalid("is neither https nor http")
    if "@" in parts.netloc:
        raise _invalid("carries a user or password; use a header with a secret")
    if parts.fragment or "#" in url:
        raise _invalid("has a fragment, which no server sees")
    if port == 0 or parts.netloc.endswith(":"):
        raise _invalid("has no usable port")
    return Target(parts.scheme, _host(parts), port or _PORTS[parts.scheme], _path(parts))


async def find_address(target: Target, allowed: AllowList, resolve: Resolver, attempt: int) -> str:
    """The address to connect to: resolved once, checked in full. Attempts take turns where a name has several."""
    trusted = target in allowed
    if target.scheme != "https" and not trusted:
        raise _forbidden(f"{target.host} is not on the allow-list, so it must be reached by https")
    try:
        found = list(dict.fromkeys(await resolve(target.host, target.port)))
    except (OSError, UnicodeError) as failure:
        raise EffectFailed("EFFECT_TARGET_UNRESOLVED", f"{target.host} cannot be resolved: {failure}") from None
    if not found:
        raise EffectFailed("EFFECT_TARGET_UNRESOLVED", f"{target.host} has no address.")
    if not trusted and not all(is_public(address) for address in found):
        raise _forbidden(f"{target.host} is, or resolves to, an address that is not public")
    return found[(attempt - 1) % len(found)]


async def resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(entry[4][0]) for entry in found]


def is_public(text: str) -> bool:
    """Check that packets to the address leave for the internet, including any address embedded in it."""
    try:
        address = ip_address(text)
    except ValueError:
        return False  # with a scope, or no address at all
    if isinstance(address, IPv4Address):
        return _is_public_v4(address)
    if address.ipv4_mapped is not None:
        return _is_public_v4(address.ipv4_mapped)
    if address in _NAT64:
        return _is_public_v4(IPv4Address(int(address) & 0xFFFFFFFF))
    if address not in _PUBLIC_V6 or any(address in block for block in _PRIVATE_V6):
        return False
    if (int(address) >> 32) & 0xFDFFFFFF == 0x00005EFE:  # ISATAP: the interface is an IPv4 address
        return _is_public_v4(IPv4Address(int(address) & 0xFFFFFFFF))
    return address.is_global


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not any(address in block for block in _PRIVATE_V4)


def _path(parts: SplitResult) -> str:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii():
        raise _invalid("has characters in its path that must be percent-encoded")
    return path


def _host(parts: SplitResult) -> str:
    raw = parts.hostname or ""
    if "[" in parts.netloc:
        return _ipv6(raw)
    if "%" in raw:
        raise _invalid("has an encoded host")
    host = _ascii(raw).removesuffix(".")
    labels = host.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        return _ipv4(host)
    if not host or len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _invalid("has no proper host name")
    return host


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=True, std3_rules=True).decode()
    except idna.IDNAError:
        raise _invalid("has a host name that cannot be written in ASCII") from None


def _ipv4(host: str) -> str:
    """Read an IPv4 address in its usual spelling only: libraries disagree on the other spellings."""
    try:
        return str(IPv4Address(host))
    except ValueError:
        raise _invalid("spells an IP address in an unusual way") from None


def _ipv6(host: str) -> str:
    try:
        return str(IPv6Address(host)) if "%" not in host else _refuse_scope()
    except ValueError:
        raise _invalid("has brackets around something that is no IPv6 address") from None


def _refuse_scope() -> str:
    raise _invalid("names an address of one network interface")


def _invalid(why: str) -> EffectFailed:
    return EffectFailed("EFFECT_TARGET_INVALID", f"The target {why}.", final=True)


def _forbidden(why: str) -> EffectFailed:
    return EffectFailed("EFFECT_TARGET_FORBIDDEN", f"The target is refused: {why}.", final=True)
