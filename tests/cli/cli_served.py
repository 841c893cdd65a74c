"""The server that the tests of the command line speak to: its handlers, and a workflow of steps."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from holdfast import Context, DoNotRetry, Engine

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


def serving(dsn: str, *, development: bool = True, rate: float = 0) -> AbstractContextManager[str]:
    """The address of the server."""
    from tests.served import served  # `configure` is also loaded by servers of their own, which know no `tests`

    return served(dsn, prepare, development=development, rate=rate)


def prepare(engine: Engine) -> None:
    from cli_flows import do, refuse, undo, weigh

    configure(engine)
    for handler in (do, refuse, undo, weigh):
        engine.register(handler.__name__, handler)
    engine.register_effect("tell", tell)
