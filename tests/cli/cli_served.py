"""A real server for the tests of the command line: on a loopback port, in a thread, with a worker beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import Context, DoNotRetry, Engine
from holdfast.server.app import create_app
from holdfast.server.auth.chain import open_chain
from holdfast.server.auth.settings import AuthSettings
from holdfast.server.listener import listening
from holdfast.server.settings import ServerSettings

HERE = Path(__file__).parent
LEAVE = """\
workflows:
  - id: leave.request
    name: Leave request
    version: 1
    initial_step: review
    input_schema:
      type: object
      required: [days]
      properties:
        days: {type: integer, minimum: 1}
        reason: {type: string}
    steps:
      - id: review
        name: A manager decides
        type: approval
        capabilities: ["leave:approve"]
        form:
          type: object
          properties:
            note: {type: string, maxLength: 200}
      - id: book
        type: system
        operation: python:book
        input: {days: workflow.days}
        output: {booking: response.booking}
      - {id: wait, type: wait, event: confirmed_by_hr}
      - {id: approved, type: terminal}
      - {id: rejected, type: terminal}
    transitions:
      - {from: review, to: book, event: approved}
      - {from: review, to: rejected, event: rejected}
      - {from: book, to: wait, event: completed}
      - {from: wait, to: approved, event: confirmed_by_hr}
"""


def book(ctx: Context, data: Any) -> dict[str, str]:
    return {"booking": f"B-{data['days']}"}


# Somebody outside is told, who may not listen.
TELLING: dict[str, Any] = {
    "name": "telling",
    "entry": "tell",
    "nodes": [{"id": "tell", "kind": "effect", "handler": "tell", "retry": {"calls": 1}}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "told", "source": "tell", "target": "end"}],
}
LISTENS = threading.Event()


def tell(ctx: Any, data: Any) -> Any:
    if not LISTENS.is_set():
        raise DoNotRetry("Nobody listens.")
    return {"heard": True}


def configure(engine: Engine) -> None:
    engine.register("book", book)


@contextmanager
def serving(dsn: str, *, development: bool = True, rate: float = 0) -> Iterator[str]:
    """The address of the server."""
    ready: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(dsn, development, rate, ready)), daemon=True)
    thread.start()
    url, loop, leave = ready.result(60)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join(60)


async def _serve(dsn: str, development: bool, rate: float, ready: Future[Any]) -> None:
    from cli_flows import do, refuse, undo, weigh

    leave = asyncio.Event()
    try:
        async with Engine(dsn) as engine:
            configure(engine)
            for handler in (do, refuse, undo, weigh):
                engine.register(handler.__name__, handler)
            engine.register_effect("tell", tell)
            auth, settings = AuthSettings(development=development), ServerSettings(rate=rate, burst=1)
            async with (
                open_chain(auth, dsn, listen_host="127.0.0.1", org=engine.org) as chain,
                engine.worker(),
                listening(create_app(engine, settings, authenticate=chain), "127.0.0.1", 0) as url,
            ):
                ready.set_result((url, asyncio.get_running_loop(), leave))
                await leave.wait()
    except BaseException as failure:
        if not ready.done():
            ready.set_exception(failure)
        raise
