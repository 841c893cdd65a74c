"""The connections of a listener: how many there may be, and how long one may keep the server waiting.

A connection is always in one of these phases, and four of them have an end:

    header    connected, or the first byte of a request came, and its header is not complete
    body      the header is complete, the body is not
    answer    the request is complete: its end is the application's to say; event streams live here
    idle      answered, and nothing of the next request has come
    write     bytes wait in our buffer because the peer does not read them, whatever the phase

Time counts from the beginning of a phase, never from the last byte, so a byte every second gains nothing. One sweep
over all connections looks at their clocks: a request only notes when its phase began.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import get_remote_addr

from holdfast.logs import logger
from holdfast.server.http.peers import Proxies, counted
from holdfast.server.settings import ServerSettings

log = logger("holdfast.server")
SPARE_FILES: Final = 128  # descriptors left for the database, files and the process itself
_SLOWEST_SWEEP: Final = 1.0
_CLOSE: Final = b"Connection: close\r\nContent-Length: 0\r\n\r\n"
_REFUSED: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n" + _CLOSE
_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\n" + _CLOSE


class Connections:
    """Limits and figures of all connections of a listener."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.open: dict[GuardedProtocol, str] = {}  # with the peer each is counted under
        self.refused: Counter[str] = Counter({"total": 0, "peer": 0})
        self.timed_out: Counter[str] = Counter({"header": 0, "body": 0, "idle": 0, "write": 0})
        self._proxies = Proxies(settings.proxies)
        self._peers: Counter[str] = Counter()
        self._told: set[str] = set()  # reasons
        self._most = min(settings.most_connections, _files())

    @property
    def interval(self) -> float:
        """Seconds between two sweeps: a quarter of the shortest limit, at most a second."""
        most = self.settings
        return min(_SLOWEST_SWEEP, min(most.header_timeout, most.body_timeout, most.write_timeout) / 4)

    def take(self, connection: GuardedProtocol, host: str) -> bool:
        """Count a new connection; False if there are too many."""
        peer = counted(host)
        if len(self.open) >= self._most:
            self._refuse("total", peer)
            return False
        if not self._proxies.has(host) and self._peers[peer] >= self.settings.most_connections_each:
            self._refuse("peer", peer)
            return False
        self.open[connection] = peer
        self._peers[peer] += 1
        return True

    def leave(self, connection: GuardedProtocol) -> None:
        peer = self.open.pop(connection, None)
        if peer is None:
            return
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    async def sweep(self) -> None:
        """Close, until cancelled, what keeps the server waiting too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.interval)
            now = loop.time()
            for connection in list(self.open):
                self._look(connection, now)

    def _look(self, connection: GuardedProtocol, now: float) -> None:
        """One that cannot be looked at is given up, and the others are looked at all the same."""
        try:
            connection.look(now)
        except Exception:
            log.exception("A connection of %s could not be looked at and is ended", self.open.get(connection, ""))
            self.leave(connection)
            connection.transport.abort()

    def _refuse(self, reason: str, peer: str) -> None:
        self.refused[reason] += 1
        if reason not in self._told:  # once: a log must not become the load
            self._told.add(reason)
            log.warning(
                "Connections are refused: %s has too many (%s). A proxy belongs into the setting `proxies`.",
                peer,
                reason,
            )


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with clocks for each phase of a connection."""

    def __init__(self, guard: Connections, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._guard = guard
        self._is_refused = False
        self._header_since: float | None = None
        self._body_since: float | None = None
        self._unsent_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        address = get_remote_addr(transport)
        if not self._guard.take(self, address[0] if address else ""):
            self._is_refused = True
            self.transport = transport
            transport.write(_REFUSED)
            transport.close()
            return
        super().connection_made(transport)
        self._header_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        self._note_phase()

    def on_response_complete(self) -> None:
        self._header_since = None
        super().on_response_complete()
        if self.conn.their_state is not h11.IDLE:  # while it is, the clock of idle connections runs
            self._note_phase()
        else:
            self._body_since = None

    def resume_writing(self) -> None:
        self._unsent_since = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self._guard.timed_out["idle"] += 1
        super().timeout_keep_alive_handler()

    def _note_phase(self) -> None:
        phase = self.conn.their_state
        if phase is h11.IDLE:
            self._body_since = None
            if self._header_since is None:
                self._header_since = self.loop.time()
            return
        self._header_since = None
        if phase is not h11.SEND_BODY:
            self._body_since = None
        elif self._body_since is None:
            self._body_since = self.loop.time()

    def look(self, now: float) -> None:
        """End the connection if its phase has lasted too long."""
        most = self._guard.settings
        if not self.transport.get_write_buffer_size():
            self._unsent_since = None
        elif self._unsent_since is None:
            self._unsent_since = now
        elif now - self._unsent_since >= most.write_timeout:
            self._guard.timed_out["write"] += 1
            self.transport.abort()  # closing would wait for the peer to read
            return
        if self.transport.is_closing():
            return
        if self._header_since is not None and now - self._header_since >= most.header_timeout:
            self._end("header")
        elif self._body_since is not None and now - self._body_since >= most.body_timeout:
            self._end("body")

    def _end(self, reason: str) -> None:
        self._guard.timed_out[reason] += 1
        has_begun = self.conn.trailing_data[0] or self.conn.their_state is h11.SEND_BODY
        if has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_TOO_SLOW)
        self.transport.close()


def _files() -> int:
    """Number of connections for which this process has descriptors."""
    try:
        import resource
    except ImportError:  # where there is no such limit
        return 2**31
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else max(soft - SPARE_FILES, 16)
