"""A proxy that can turn into a black hole: it takes what it is given and passes nothing on, and says nothing about it.

Connections that fell into it stay there for good, as behind a firewall that forgot them; later ones pass again once it
is healed. To the operating system all of them look healthy.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class BlackHole:
    def __init__(self, server: str) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="black-hole")
        self._is_open = False
        self._peers: dict[socket.socket, socket.socket] = {}
        self._swallowed: set[socket.socket] = set()
        self.swallowed = 0

    def open_up(self) -> None:
        """Everything that passes now, and every connection made until it is healed, is lost."""
        self._is_open = True

    def heal(self) -> None:
        self._is_open = False

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._bell.close()
        self._thread.join()

    def _serve(self) -> None:
        for thing in (self._listener, self._ear):
            self._selector.register(thing, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._ear:
                    for thing in (*self._peers, self._listener, self._ear, self._selector):
                        thing.close()
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                    self._pass_on(key.fileobj)
            if self._is_open:
                self._swallow()

    def _accept(self) -> None:
        client = self._listener.accept()[0]
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        self._peers |= {client: server, server: client}
        for end in (client, server):
            self._selector.register(end, selectors.EVENT_READ)

    def _swallow(self) -> None:
        for end in set(self._peers) - self._swallowed:
            self._swallowed.add(end)
            self._selector.unregister(end)
            self.swallowed += 1

    def _pass_on(self, end: socket.socket) -> None:
        if self._is_open:
            return
        other = self._peers[end]
        with suppress(OSError):
            data = end.recv(1 << 20)
            if data:
                other.sendall(data)
                return
        for one in (end, other):
            self._selector.unregister(one)
            del self._peers[one]
            one.close()


@contextmanager
def black_hole(dsn: str) -> Iterator[tuple[BlackHole, str]]:
    options = conninfo_to_dict(dsn)
    hole = BlackHole(f"{options['host']}/.s.PGSQL.{options.get('port', 5432)}")
    hole.start()
    try:
        yield (
            hole,
            make_conninfo(
                dsn, host="127.0.0.1", port=hole.port, sslmode="disable", gssencmode="disable", connect_timeout=2
            ),
        )
    finally:
        hole.close()
