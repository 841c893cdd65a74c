"""The wire format of consumers over an engine, as docs/consumers.md describes it: the least a server has to say."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import Engine, Postpone
from holdfast.errors import HoldfastError

Send = Callable[[dict[str, Any]], Awaitable[None]]


class ConsumerWire:
    """An application that answers a remote consumer; `refuses` makes the next requests fail."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.refuses = 0
        self.requests: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body or b"{}")
        self.requests.append((scope["path"], asked))
        if self.refuses:
            self.refuses -= 1
            await _reply(send, 503, {"code": "STORE_UNREACHABLE", "detail": "away"})
            return
        try:
            await _reply(send, 200, await self._answer(scope["path"], asked, scope["query_string"].decode()))
        except HoldfastError as refusal:
            told = {"code": refusal.code, "detail": refusal.message, "hint": refusal.hint}
            await _reply(send, refusal.http_status, told)

    async def _answer(self, path: str, asked: dict[str, Any], query: str) -> Any:
        engine = self._engine
        if path == "/api/v1/consumers":
            await engine.register_consumer(asked.pop("environment"), asked.pop("name"), **asked)
            return {}
        if path.startswith("/api/v1/machines/"):
            _, env, name, _ = path.removeprefix("/api/v1").strip("/").split("/")
            return {"lifecycle": (await engine.machine(env, name, query.partition("=")[2])).lifecycle}
        _, name, verb = path.removeprefix("/api/v1").strip("/").split("/")
        env = asked["environment"]
        if verb == "receive":
            events = await engine.receive(env, name, most=asked["most"], wait=min(asked["wait"], 0.2))
            return {
                "events": [
                    {"ack": e.ack, "attempt": e.attempt, "max_attempts": e.max_attempts, "body": json.loads(e.raw)}
                    for e in events
                ]
            }
        if verb == "beat":
            await engine.beat_consumer(env, name)
            return {}
        if asked["outcome"] in ("delivered", "retry"):
            wish = Postpone(delay=asked["delay"]) if "delay" in asked else None
            await engine.settle_directly(env, name, asked["ack"], asked["outcome"], wish=wish)
            return {}
        then = asked.get("then")
        await engine.ack(
            env, name, asked["ack"], asked["outcome"], message=asked.get("message"), verdict=asked.get("verdict"),
            then=None if then is None else (then["event"], then["payload"]),
        )  # fmt: skip
        return {}


async def _reply(send: Send, status: int, body: Any) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(body, default=str).encode()})
