"""Real servers for effects to talk to: an HTTP receiver that misbehaves on request, and a mail server."""

from __future__ import annotations

import asyncio
import json
import socket
import socketserver
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP as MAIL
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

HUGE = 8 * 1024 * 1024


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """What arrived, in order; a path says how to answer."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    running: Counter[str] = field(default_factory=Counter)  # by key
    most_at_once: int = 0
    same_key_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def seen(self, key: str) -> int:
        return sum(request.key == key for request in self.requests)

    def begin(self, request: Request) -> None:
        with self.lock:
            self.requests.append(request)
            self.running[request.key] += 1
            self.most_at_once = max(self.most_at_once, self.running.total())
            self.same_key_at_once = max(self.same_key_at_once, *self.running.values())

    def end(self, request: Request) -> None:
        with self.lock:
            self.running[request.key] -= 1

    def answer(self, request: Request, client: socket.socket) -> None:
        kind, _, rest = request.path.partition("?")[0].lstrip("/").partition("/")
        getattr(self, f"_{kind}")(request, client, rest)

    # --- how to answer -------------------------------------------------------------------------------------------

    def _ok(self, request: Request, client: socket.socket, _: str) -> None:
        reply(client, 200, {"received": request.key}, {"x-request-id": "r-1", "set-cookie": "session=1"})

    def _status(self, request: Request, client: socket.socket, code: str) -> None:
        reply(client, int(code), {"why": "because"}, {"x-request-id": "r-1"})

    def _flaky(self, request: Request, client: socket.socket, failures: str) -> None:
        reply(client, 500 if self.seen(request.key) <= int(failures) else 200, {"try": self.seen(request.key)})

    def _busy(self, request: Request, client: socket.socket, seconds: str) -> None:
        if self.seen(request.key) == 1:
            reply(client, 429, {}, {"retry-after": seconds})
        else:
            reply(client, 200, {})

    def _brief(self, request: Request, client: socket.socket, _: str) -> None:
        time.sleep(0.05)
        reply(client, 200, {})

    def _held(self, request: Request, client: socket.socket, _: str) -> None:
        self.gate.wait(30)
        reply(client, 200, {})

    def _never(self, request: Request, client: socket.socket, _: str) -> None:
        self.gate.wait(30)

    def _drip(self, request: Request, client: socket.socket, _: str) -> None:
        """One byte now and then: never silent for long, never done."""
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while not self.gate.wait(0.05):
            client.sendall(b".")

    def _garbage(self, request: Request, client: socket.socket, _: str) -> None:
        client.sendall(b"\x00\xff\xfe this is no HTTP at all\r\n\r\n")

    def _headers(self, request: Request, client: socket.socket, _: str) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\n" + b"x-filler: " + b"a" * 300_000 + b"\r\n\r\n")

    def _binary(self, request: Request, client: socket.socket, _: str) -> None:
        raw(client, 200, b"\x00\x01\xff\xfe" * 4000, "application/json")

    def _strange(self, request: Request, client: socket.socket, _: str) -> None:
        """JSON that cannot be stored."""
        raw(client, 200, b'{"nul": "\\u0000", "half": "\\ud800", "big": 1e999}', "application/json")

    def _huge(self, request: Request, client: socket.socket, _: str) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % HUGE)
        for _chunk in range(HUGE // 65536):
            client.sendall(b"x" * 65536)

    def _redirect(self, request: Request, client: socket.socket, _: str) -> None:
        reply(client, 302, {}, {"location": f"http://127.0.0.1:{self.port}/ok"})

    def _cut(self, request: Request, client: socket.socket, _: str) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nonly this much")

    def _echo(self, request: Request, client: socket.socket, _: str) -> None:
        """Everything it was told, in the body and in a header that is kept."""
        told = json.dumps(request.headers)
        reply(client, 500, {"headers": request.headers}, {"x-request-id": told[:2000]})


def reply(client: socket.socket, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    raw(client, status, json.dumps(body).encode(), "application/json", headers)


def raw(client: socket.socket, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
    lines = [f"HTTP/1.1 {status} Whatever", f"content-type: {kind}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    client.sendall("\r\n".join([*lines, "", ""]).encode() + body)


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def setup(self) -> None:
        if self.server.tls is not None:
            self.request = self.server.tls.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)

    def finish(self) -> None:
        self.request.close()

    def handle(self) -> None:
        try:
            request = read_request(self.request)
        except OSError:
            return  # no agreement on encryption
        if request is None:
            return
        receiver = self.server.receiver
        receiver.begin(request)
        try:
            receiver.answer(request, self.request)
        except OSError:
            pass  # the other side has heard enough
        finally:
            receiver.end(request)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tls = tls
        self.receiver = Receiver(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        raise AssertionError("the receiver itself failed")


def read_request(client: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = client.recv(65536)
        if not chunk:
            return None
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += client.recv(65536)
    return Request(first.split()[1], headers, body)


@contextmanager
def running_receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    with _Server(tls) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server.receiver
        finally:
            server.receiver.gate.set()
            server.shutdown()
            thread.join()


class Mailbox:
    """A mail server's behaviour: mail it took, and what it is told to refuse."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.answers: list[str] = []  # to the next messages, instead of taking them
        self.refused: set[str] = set()

    async def handle_RCPT(
        self, server: Any, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Session, envelope: Envelope) -> str:
        if self.answers:
            return self.answers.pop(0)
        content = envelope.content
        assert isinstance(content, bytes)
        self.mails.append(message_from_bytes(content, _class=EmailMessage, policy=MAIL))  # type: ignore[arg-type]
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 taken"


@contextmanager
def running_mailbox(**options: Any) -> Iterator[tuple[Mailbox, int]]:
    """A mail server on a loop of its own, at a port the system chose."""
    mailbox, loop = Mailbox(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def serve() -> asyncio.Server:
        return await loop.create_server(lambda: SMTP(mailbox, loop=loop, **options), "127.0.0.1", 0)

    async def leave() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(serve(), loop).result()
    try:
        yield mailbox, server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(leave(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
