"""Settings of the HTTP server, checked once."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_network
from typing import Any, Final

from holdfast.errors import HoldfastError

PREFIX: Final = "HOLDFAST_SERVER_"
TIMEOUTS: Final = ("header_timeout", "body_timeout", "idle_timeout", "write_timeout")
METRICS: Final = ("off", "authenticated", "open")
_SWITCHES: Final = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
_ELSEWHERE: Final = frozenset({"host", "port"})  # said where the server is started
_ORIGIN: Final = re.compile(r"\*|https?://[^/\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the HTTP server. Every default suits a server on the internet; seconds and bytes throughout."""

    host: str = "127.0.0.1"
    port: int = 8080
    request_patience: float = 10.0  # how long start and advance wait for automatic steps before they answer 202
    most_body_bytes: int = 1024 * 1024
    most_headers: int = 64
    most_header_bytes: int = 32 * 1024
    most_target_bytes: int = 8 * 1024  # path and query together
    rate: float = 50.0  # requests per second and identity; 0: not limited
    burst: int = 200
    header_timeout: float = 10.0  # from the connection, or the first byte of a request, to the end of its header
    body_timeout: float = 30.0  # from there to the end of its body
    idle_timeout: float = 5.0  # from an answer to the first byte of the next request
    write_timeout: float = 30.0  # for which a caller may leave what it was sent unread
    most_connections: int = 4096  # of this process; never more than its open files allow
    most_connections_each: int = 256  # … of one address, unless that is a proxy's
    proxies: tuple[str, ...] = ("127.0.0.0/8", "::1")  # addresses and networks that speak for others
    needs_if_match: bool = False  # True: a change of an instance without If-Match is answered with 428
    cors_origins: tuple[str, ...] = ()  # empty: browsers of other origins are refused
    metrics: str = "off"  # off | authenticated | open
    stream_heartbeat: float = 15.0
    stream_life: float = 600.0  # then the caller has to come back, and to say again who it is
    most_streams: int = 1000  # open event streams of this process
    most_streams_each: int = 10  # … and of one identity

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **chosen: Any) -> ServerSettings:
        """Read HOLDFAST_SERVER_…, with `chosen` before it; refuse a variable that is not known."""
        source = os.environ if environment is None else environment
        known = {field.name: field.default for field in fields(cls) if field.name not in _ELSEWHERE}
        told: dict[str, Any] = {}
        for variable, text in source.items():
            name = variable.removeprefix(PREFIX).lower()
            if not variable.startswith(PREFIX) or not text.strip():
                continue
            if name not in known:
                raise _wrong(variable, "is not known", "`holdfast docs http` lists those there are.")
            told[name] = _read(variable, text.strip(), known[name])
        return cls(**{**told, **chosen})

    def __post_init__(self) -> None:
        for name in ("most_body_bytes", "most_headers", "most_header_bytes", "most_target_bytes"):
            _check(name, getattr(self, name), getattr(self, name) >= 1, "Give at least 1.")
        for name in ("request_patience", "rate", "burst", "most_streams", "most_streams_each"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) < math.inf, "Give 0 or more.")
        for name in ("most_connections", "most_connections_each"):
            _check(name, getattr(self, name), getattr(self, name) >= 1, "Give at least 1.")
        for name in ("stream_heartbeat", "stream_life", *TIMEOUTS):
            _check(name, getattr(self, name), 0 < getattr(self, name) < math.inf, "Give seconds above 0.")
        _check("rate", self.rate, not self.rate or self.burst >= 1, "A rate needs a burst of at least 1.")
        _check("port", self.port, 0 <= self.port <= 65535, "Give 0 to 65535.")
        _check("metrics", self.metrics, self.metrics in METRICS, f"Use one of {', '.join(METRICS)}.")
        for origin in self.cors_origins:
            _check("cors_origins", origin, _ORIGIN.fullmatch(origin) is not None, "Write https://app.example.com.")
        for network in self.proxies:
            _check("proxies", network, _is_network(network), "Write an address or a network, such as 10.0.0.0/8.")


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _check(name: str, value: object, is_valid: bool, hint: str) -> None:
    if not is_valid:
        raise HoldfastError(f"The setting {name} cannot be {value!r}.", code="SETTING_INVALID", hint=hint)


def _read(variable: str, text: str, default: Any) -> Any:
    """Convert a text to the type of the default."""
    if isinstance(default, bool):
        if text.lower() not in _SWITCHES:
            raise _wrong(variable, f"is {text!r}, neither yes nor no", "Use 1 or 0.")
        return _SWITCHES[text.lower()]
    if isinstance(default, tuple):
        return tuple(text.replace(",", " ").split())
    if isinstance(default, str):
        return text
    try:
        return type(default)(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise _wrong(variable, f"is {text!r}, not {kind}", f"Write {kind}, such as {default}.") from None


def _wrong(variable: str, problem: str, hint: str) -> HoldfastError:
    return HoldfastError(f"{variable} {problem}.", code="SETTING_INVALID", hint=hint, variable=variable)
