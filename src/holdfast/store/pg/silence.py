"""A limit to silence: no wait for an answer on a connection lasts for ever.

Keepalives notice a machine that is gone. They do not notice a server that hangs, or a proxy that takes everything and
passes nothing on: only a clock on this side finds those.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg


@contextmanager
def cut_after(connection: psycopg.Connection[Any], seconds: float) -> Generator[None]:
    """End the connection if the block takes longer: libpq itself would keep waiting."""
    wire, lock = socket.socket(fileno=os.dup(connection.fileno())), threading.Lock()

    def cut() -> None:
        with lock, suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(seconds, cut)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
        with lock:
            wire.close()
