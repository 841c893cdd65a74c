"""Name of a request: from X-Request-Id or generated, in its answer, its problem and every line it logs.

This is the outermost layer that knows a request, so an unexpected failure ends here, too.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from opentelemetry import context as propagated
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.logs import logger
from holdfast.server.http.problems import problem

HEADER: Final = b"x-request-id"
_FIT: Final = re.compile(rb"[A-Za-z0-9._~+/=:-]{1,128}")
_CORRELATION: Final = re.compile(r"[!-~]{1,128}")
_W3C: Final = TraceContextTextMapPropagator()
_current: ContextVar[str | None] = ContextVar("holdfast_request_id", default=None)

log = logger("holdfast.server")
access = logger("holdfast.access")


def current_request_id() -> str | None:
    """The request this code runs for, if any."""
    return _current.get()


def correlation_id(request: Request) -> str | None:
    """The caller's own name for the larger unit of this request; else the request's name."""
    given = request.headers.get("x-correlation-id", "")
    return given if _CORRELATION.fullmatch(given) else current_request_id()


class RequestIdFilter(logging.Filter):
    """Put on a handler, it gives every record the `request_id` it was written for."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "request_id", None) is None:
            record.request_id = _current.get()
        return True


class RequestContext:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _taken(scope) or secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(send, request_id)
        begun = time.perf_counter()
        token = _current.set(request_id)
        try:
            with _traced(scope):
                await self._serve(scope, receive, answer)
        finally:
            _current.reset(token)
            _note(scope, answer.status, begun, request_id)

    async def _serve(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            return  # in the middle of its request: the client is gone
        except Exception as failure:
            log.exception("A request failed in a way nobody expected", extra={"request_id": answer.request_id})
            if answer.status:
                raise  # half an answer is out: only a broken connection tells the caller
            await problem(scope, failure)(scope, receive, answer)


class _Answer:
    """Sender that adds the name of the request to the headers."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (HEADER, self.request_id.encode())]
        await self._send(message)


def _taken(scope: Scope) -> str | None:
    given = next((value for name, value in scope["headers"] if name == HEADER), None)
    return given.decode() if given is not None and _FIT.fullmatch(given) else None


@contextmanager
def _traced(scope: Scope) -> Generator[None]:
    """Under the caller's span, so that instances and steps of this request belong to the caller's trace."""
    named = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name.startswith(b"trace")}
    if "traceparent" not in named:
        yield
        return
    token = propagated.attach(_W3C.extract(named))
    try:
        yield
    finally:
        propagated.detach(token)


def _note(scope: Scope, status: int, begun: float, request_id: str) -> None:
    if access.isEnabledFor(logging.INFO):
        took = (time.perf_counter() - begun) * 1000
        path = ascii(scope["path"])[1:-1][:200]  # a path may hold anything, a log line must not
        access.info("%s %s %d %.1f ms", scope["method"], path, status, took, extra={"request_id": request_id})
