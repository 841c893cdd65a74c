"""`holdfast server` as it is delivered, against connections that keep it waiting: each is ended, and counted.

Every phase by itself is tested in `tests/server/test_connections.py`; here is that the command has the same guard.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from cli_flows import told
from cli_process import until
from cli_server import running

PATIENCE = 30.0  # far more than any limit here: only a connection that is never closed takes as long
LIMITS = {
    "HOLDFAST_SERVER_HEADER_TIMEOUT": "0.4",
    "HOLDFAST_SERVER_BODY_TIMEOUT": "0.4",
    "HOLDFAST_SERVER_IDLE_TIMEOUT": "0.4",
    "HOLDFAST_SERVER_WRITE_TIMEOUT": "0.4",
    "HOLDFAST_SERVER_PROXIES": "192.0.2.1",  # loopback counts as any address
    "HOLDFAST_SERVER_METRICS": "open",
}
HALF_BODY = b"POST /ui/workflows/any/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALF_BODY += b'Content-Length: 100\r\n\r\n{"a":'
ATTACKS = {
    "nothing": (b"", "header", b""),
    "half a header": (b"GET /health/live HTTP/1.1\r\nHos", "header", b"HTTP/1.1 408"),
    "half a body": (HALF_BODY, "body", b"HTTP/1.1 408"),
    "nothing after an answer": (b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n", "idle", b"HTTP/1.1 200"),
}


@contextmanager
def listening(dsn: str, log: Path, **more: str) -> Iterator[tuple[str, int]]:
    told(dsn, "db", "migrate")
    words = ("server", "--port", "0", "--development", "--json")
    with running(log, *words, HOLDFAST_DSN=dsn, **{**LIMITS, **more}) as server:
        yield server.url, int(server.url.rpartition(":")[2])


def connect(port: int, said: bytes = b"") -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), PATIENCE)
    peer.sendall(said)
    return peer


def answered(peer: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    try:
        while part := peer.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found


def figure(url: str, name: str) -> float:
    scrape = httpx2.get(f"{url}/metrics", trust_env=False).text
    return float(
        next(line.split()[-1] for line in scrape.splitlines() if line.startswith(f"holdfast_connections_{name}"))
    )


def test_whoever_keeps_the_server_waiting_is_cut_off(holdfast_dsn: str, tmp_path: Path) -> None:
    with listening(holdfast_dsn, tmp_path / "log") as (url, port), ExitStack() as stack:
        for said, phase, answer in ATTACKS.values():
            before = figure(url, f'timed_out_total{{reason="{phase}"}}')
            found = answered(stack.enter_context(connect(port, said)))
            assert found.startswith(answer)
            assert bool(found) == bool(answer)
            assert figure(url, f'timed_out_total{{reason="{phase}"}}') > before
        reader = stack.enter_context(connect(port))
        reader.setblocking(False)
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 150  # more than the buffers of both sides hold
        assert reader.send(asked) == len(asked)
        until(lambda: figure(url, 'timed_out_total{reason="write"}') == 1, "the reader that does not read is cut off")


@pytest.mark.parametrize(("setting", "reason"), [("MOST_CONNECTIONS", "total"), ("MOST_CONNECTIONS_EACH", "peer")])
def test_too_many_connections_are_refused(holdfast_dsn: str, tmp_path: Path, setting: str, reason: str) -> None:
    limit = {f"HOLDFAST_SERVER_{setting}": "3", "HOLDFAST_SERVER_HEADER_TIMEOUT": "5"}
    with listening(holdfast_dsn, tmp_path / "log", **limit) as (url, port), ExitStack() as stack:
        peers = [stack.enter_context(connect(port)) for _ in range(3)]
        refused = answered(stack.enter_context(connect(port)))
        assert refused.startswith(b"HTTP/1.1 503")
        for peer in peers:
            peer.close()
        until(lambda: _has_room(url), "room is given back")
        assert figure(url, f'refused_total{{reason="{reason}"}}') >= 1


def _has_room(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health/live", trust_env=False).status_code == 200
    except httpx2.TransportError:  # refused before it was heard
        return False
