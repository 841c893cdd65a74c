"""A real HTTP service for operations to call: it records what arrives and answers as it was told."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HUGE = 4 * 1024 * 1024


@dataclass
class Arrived:
    method: str
    target: str  # the path with its query, as it stood in the request
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    breaks_off: bool = False


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"content-type": "application/json", **named})


@dataclass
class Listener:
    """Answers in order, the last one for ever."""

    port: int = 0
    scheme: str = "http"
    arrived: list[Arrived] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=lambda: [json_reply({"ok": True})])
    gate: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def last(self) -> Arrived:
        return self.arrived[-1]

    def answer(self, *replies: Reply) -> None:
        self.replies = list(replies)

    def next_reply(self) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        listener = self.server.listener
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        listener.arrived.append(Arrived(self.command, self.path, headers, body))
        reply = listener.next_reply()
        if reply.hangs:
            listener.gate.wait(30)
            self.close_connection = True
            return
        try:
            self._send(reply)
        except OSError:
            self.close_connection = True  # the other side has heard enough

    def _send(self, reply: Reply) -> None:
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if "content-length" not in reply.headers and reply.status != 204:
            self.send_header("content-length", str(len(reply.body) + (100 if reply.breaks_off else 0)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)
        if reply.breaks_off:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.listener = Listener(self.server_port, "http" if tls is None else "https")
        self._tls = tls

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the thread of the request: whoever does not trust us must not hold up the others."""
        try:
            secured = request if self._tls is None else self._tls.wrap_socket(request, server_side=True)
        except OSError:
            return
        super().finish_request(secured, client_address)
        if secured is not request:
            secured.close()


@contextmanager
def running_listener(tls: ssl.SSLContext | None = None) -> Iterator[Listener]:
    with _Server(tls) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server.listener
        finally:
            server.listener.gate.set()
            server.shutdown()
            thread.join()


def document(*operations: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Operations given with their `method` and `path`."""
    paths: dict[str, Any] = {}
    for given in operations:
        operation = dict(given)
        method, path = operation.pop("method", "get"), operation.pop("path", "/things")
        paths.setdefault(path, {})[method] = {"responses": {"200": {"description": "Fine."}}, **operation}
    return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths, **more}


def parameter(name: str, place: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema or {}, **more}


def json_body(schema: Any = None, required: bool = True) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": schema or {}}}}
