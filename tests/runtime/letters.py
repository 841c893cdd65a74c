"""A flow that counts, the events it gets, and a letter about one it did not expect."""

from __future__ import annotations

import json
from typing import Any

from holdfast import Engine
from running import Evidence

COUNTER: dict[str, Any] = {
    "name": "counter",
    "entry": "rest",
    "nodes": [{"id": "rest", "kind": "state"}, {"id": "end", "kind": "end"}],
    "edges": [
        {"id": "tick", "source": "rest", "target": "rest", "on": "tick"},
        {"id": "stop", "source": "rest", "target": "end", "on": "stop"},
    ],
}
# Data the database refuses, as a constraint of the user's own would.
POISON = """alter table holdfast.steps add constraint no_poison check (output is null or not output ? 'poison')"""


async def counter(engine: Engine) -> str:
    await engine.publish(COUNTER)
    instance = await engine.start("counter")
    await engine.drain(timeout=30)
    return instance.id


def send(evidence: Evidence, id: str, event: str, payload: dict[str, Any] | None = None) -> str:
    return str(evidence.ask("select holdfast.signal(%s, %s, %s::jsonb)", id, event, json.dumps(payload)))


async def buried(engine: Engine, evidence: Evidence, event: str = "nothing_like_that") -> tuple[str, str]:
    """An instance with one dead letter: its id and the letter's."""
    id = await counter(engine)
    send(evidence, id, event)
    await engine.drain(timeout=30)
    [letter] = await engine.dead_letters(id)
    return id, letter.id
