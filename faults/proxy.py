"""A door to PostgreSQL on loopback that can lose what passes through it: a COMMIT, or only the answer to one.

It has a thread of its own, so that a busy event loop does not slow it down and its end does not depend on one.
"""

from __future__ import annotations

import re
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from psycopg.conninfo import conninfo_to_dict, make_conninfo

# A pipeline binds the prepared statement `commit` to the unnamed portal; the server says when it is through.
COMMIT_ASKED: Final = re.compile(rb"B....\x00commit\x00", re.DOTALL)
READY: Final = b"Z\x00\x00\x00\x05"

Fate = Literal["pass", "commit", "answer"]


class Passage:
    """One connection through the door."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_doomed = False
        self.asked = b""  # the end of what was asked, where half a COMMIT may stand
        self.heard = b""

    def close(self) -> None:
        self.client.close()
        self.server.close()


class Door:
    """`fate` is asked once per COMMIT: let it pass, lose the COMMIT itself, or lose only its answer."""

    def __init__(self, server: str, fate: Callable[[], Fate]) -> None:
        self._server = server
        self._fate = fate
        self.commits = 0
        self.lost = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="door")

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._bell.close()
        self._thread.join()

    def _serve(self) -> None:
        passages: set[Passage] = set()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._ear, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._ear:
                    for thing in (*passages, self._listener, self._ear, self._selector):
                        thing.close()
                    return
                if key.fileobj is self._listener:
                    passages |= self._enter()
                elif key.data in passages and not self._pass_on(key.data, key.fileobj is key.data.client):
                    self._selector.unregister(key.data.client)
                    self._selector.unregister(key.data.server)
                    key.data.close()
                    passages.remove(key.data)

    def _enter(self) -> set[Passage]:
        client = self._listener.accept()[0]
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._server)
        except OSError:  # the server is away, and so is the client now
            client.close()
            server.close()
            return set()
        passage = Passage(client, server)
        self._selector.register(passage.client, selectors.EVENT_READ, passage)
        self._selector.register(passage.server, selectors.EVENT_READ, passage)
        return {passage}

    def _pass_on(self, passage: Passage, from_client: bool) -> bool:
        """False: the passage is over."""
        try:
            data = (passage.client if from_client else passage.server).recv(1 << 20)
            if not data:
                return False
            return self._ask(passage, data) if from_client else self._answer(passage, data)
        except OSError:
            return False

    def _ask(self, passage: Passage, data: bytes) -> bool:
        window = passage.asked + data
        last = 0
        for match in COMMIT_ASKED.finditer(window):
            last = match.end()
            self.commits += 1
            match self._fate():
                case "commit":
                    self.lost += 1
                    return False
                case "answer":
                    self.lost += 1
                    passage.is_doomed = True
                case _:
                    pass
        passage.asked = window[max(last, len(window) - 12) :]
        passage.server.sendall(data)
        return True

    def _answer(self, passage: Passage, data: bytes) -> bool:
        if not passage.is_doomed:
            passage.client.sendall(data)
            return True
        passage.heard = passage.heard[-4:] + data
        return READY not in passage.heard  # through: the client never learns how far the server got


def socket_of(dsn: str) -> str:
    """Where the server behind a detour listens."""
    options = conninfo_to_dict(dsn)
    return f"{options['host']}/.s.PGSQL.{options.get('port', 5432)}"


def detour(dsn: str, port: int) -> str:
    """The same database by way of a port on loopback."""
    return make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")


@contextmanager
def door(dsn: str, fate: Callable[[], Fate]) -> Iterator[tuple[Door, str]]:
    """The door, and the address that leads through it."""
    opened = Door(socket_of(dsn), fate)
    opened.open()
    try:
        yield opened, detour(dsn, opened.port)
    finally:
        opened.close()
