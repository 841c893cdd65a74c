"""The payment gateway of the demo: a real HTTP server on loopback, as unreliable as the real ones.

It charges once per idempotency key. One key in ten finds it out of order on the first call, and for another one in ten
it takes the money and then hangs up before it has answered, which is the case that retries without a key get wrong.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECONDS_PER_CHARGE = 0.03


class Gateway:
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.charges: dict[str, int] = {}  # amount by idempotency key
        self.port = 0
        self._lock = threading.Lock()

    def charge(self, key: str, amount: int) -> str:
        """How the call goes: `charged`, `unavailable` or `hung up`."""
        mood = int(sha256(key.encode()).hexdigest(), 16) % 10
        with self._lock:
            self.calls[key] += 1
            is_first = self.calls[key] == 1
            if mood == 0 and is_first:
                return "unavailable"
            self.charges.setdefault(key, amount)
            return "hung up" if mood == 1 and is_first else "charged"


@contextmanager
def running_gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _request_handler(gateway))
    gateway.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, name="gateway", daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _request_handler(gateway: Gateway) -> type[BaseHTTPRequestHandler]:
    class Request(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = self.headers["Idempotency-Key"]
            outcome = gateway.charge(key, body["amount"])
            time.sleep(SECONDS_PER_CHARGE)
            if outcome == "hung up":
                self.close_connection = True
                return
            self._answer(503 if outcome == "unavailable" else 200, {"outcome": outcome, "payment": key[:12]})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except ConnectionError:
                self.close_connection = True  # the caller was killed meanwhile

        def log_message(self, format: str, *arguments: Any) -> None:
            """The demo shows progress of its own."""

    return Request
