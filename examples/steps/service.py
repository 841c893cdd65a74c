"""The order service that system steps call: a small real HTTP service with an OpenAPI document of its own.

    python examples/steps/service.py --port 8321

It serves its document at /openapi.json. It keeps orders in memory and remembers the Idempotency-Key of every change, so
a step that is called twice confirms an order once. With ORDERS_TOKEN set, it asks for it as a bearer token.
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote
from uuid import uuid4

MOST_BODY: Final = 64 * 1024
_ORDER: Final = {"name": "order_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
_ANSWERS: Final = {
    "200": {"description": "Done.", "content": {"application/json": {"schema": {"type": "object"}}}},
    "404": {"description": "There is no such order."},
    "409": {"description": "The order cannot be confirmed."},
}


def _body(required: list[str], **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "required": required, "properties": properties}
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


DOCUMENT: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {"title": "Orders", "version": "1.0.0"},
    "paths": {
        "/orders/{order_id}": {
            "parameters": [_ORDER],
            "get": {"operationId": "getOrder", "responses": _ANSWERS},
        },
        "/orders/{order_id}/confirm": {
            "parameters": [_ORDER],
            "post": {
                "operationId": "confirmOrder",
                "requestBody": _body([], approved_by={"type": ["string", "null"]}, notes={"type": ["string", "null"]}),
                "responses": _ANSWERS,
            },
        },
        "/notifications": {
            "post": {
                "operationId": "notifyCustomer",
                "requestBody": _body(["email", "text"], email={"type": "string"}, text={"type": "string"}),
                "responses": _ANSWERS,
            },
        },
    },
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "security": [{"token": []}, {}],
}


class Refusal(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Orders:
    """Any order that begins with `ord-` exists; one that ends in `-sold-out` cannot be confirmed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._confirmed: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, dict[str, Any]] = {}  # by idempotency key
        self.notifications: list[dict[str, Any]] = []
        self.changes = 0

    def get(self, order: str) -> dict[str, Any]:
        self._known(order)
        return self._confirmed.get(order, {"order_id": order, "status": "open"})

    def confirm(self, order: str, key: str, data: dict[str, Any]) -> dict[str, Any]:
        self._known(order)
        if order.endswith("-sold-out"):
            raise Refusal(HTTPStatus.CONFLICT, "The order is sold out.")

        def change() -> dict[str, Any]:
            at = datetime.now(UTC).isoformat(timespec="seconds")
            self._confirmed[order] = {"order_id": order, "status": "confirmed", "confirmed_at": at, **data}
            return self._confirmed[order]

        return self._once(key, change)

    def notify(self, key: str, data: dict[str, Any]) -> dict[str, Any]:
        def change() -> dict[str, Any]:
            self.notifications.append(data)
            return {"notification": len(self.notifications)}

        return self._once(key, change)

    def _known(self, order: str) -> None:
        if not order.startswith("ord-"):
            raise Refusal(HTTPStatus.NOT_FOUND, "There is no such order.")

    def _once(self, key: str, change: Any) -> dict[str, Any]:
        with self._lock:
            if key not in self._answers:
                self._answers[key] = change()
                self.changes += 1
            return self._answers[key]


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two small writes, and one would wait for the other's receipt

    def do_GET(self) -> None:
        if self.path == "/openapi.json":
            self._answer(HTTPStatus.OK, DOCUMENT)
        else:
            self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        try:
            data = self._read()
            self._check_token()
            self._answer(HTTPStatus.OK, self._route(method, data))
        except Refusal as refusal:
            self._answer(refusal.status, {"error": str(refusal)})

    def _route(self, method: str, data: dict[str, Any]) -> dict[str, Any]:
        orders, path = self.server.orders, self.path.partition("?")[0]
        key = self.headers.get("idempotency-key") or uuid4().hex
        if method == "POST" and path == "/notifications":
            return orders.notify(key, data)
        if method == "POST" and (found := re.fullmatch(r"/orders/([^/]+)/confirm", path)):
            return orders.confirm(unquote(found[1]), key, data)
        if method == "GET" and (found := re.fullmatch(r"/orders/([^/]+)", path)):
            return orders.get(unquote(found[1]))
        raise Refusal(HTTPStatus.NOT_FOUND, "There is nothing here.")

    def _read(self) -> dict[str, Any]:
        length = int(self.headers.get("content-length") or 0)
        if length > MOST_BODY:
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large.")
        data = self.rfile.read(length)
        try:
            found = json.loads(data) if data else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Refusal(HTTPStatus.BAD_REQUEST, "The body is no JSON object.")
        return found

    def _check_token(self) -> None:
        token = self.server.token
        if token and not hmac.compare_digest(
            self.headers.get("authorization", "").encode(), f"Bearer {token}".encode()
        ):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "The token is missing or wrong.")

    def _answer(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        if status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            self.send_header("connection", "close")  # what was not read would be taken for the next request
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        if self.server.is_loud:
            print(f"  orders: {format % args}", flush=True)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int = 0, token: str = "", is_loud: bool = False) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.orders = Orders()
        self.token = token
        self.is_loud = is_loud

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running_service(port: int = 0, token: str = "") -> Iterator[Server]:
    """The service in a thread, at a port the system chose unless one is given."""
    with Server(port, token) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="The order service of the examples.")
    parser.add_argument("--port", type=int, default=8321)
    with Server(parser.parse_args().port, os.environ.get("ORDERS_TOKEN", ""), is_loud=True) as server:
        print(f"Orders are served at {server.url}, the document at {server.url}/openapi.json", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Closed.")


if __name__ == "__main__":
    main()
