"""The machine that is measured, and the same graph as a plain workflow."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import Engine, Graph, Machine
from holdfast.runtime.machines.triggers import TriggerResult

ENV: Final = "bench"
NAME: Final = "order"
PLAIN: Final = "plain"
MOVE: Final = "Move"

BLUEPRINT: Final[dict[str, Any]] = {
    "name": NAME,
    "environment": ENV,
    "version": 1,
    "states": [{"name": "Odd", "is_initial": True}, {"name": "Even"}, {"name": "Done", "is_final": True}],
    "events": [{"code": 1001, "name": MOVE}, {"code": 1002, "name": "Close"}],
    "transitions": [
        {"from": "Odd", "event": 1001, "to": "Even"},
        {"from": "Even", "event": 1001, "to": "Odd"},
        {"from": "Even", "event": 1002, "to": "Done"},
    ],
}


def machine() -> Machine:
    """Two states that lead to each other: it can be moved without end, and each move is a fact."""
    return Machine.load(BLUEPRINT)


def plain() -> Graph:
    """The same states and transitions, of which nobody is told."""
    graph = machine().graph(1)
    nodes = tuple(msgspec.structs.replace(node, config={}) for node in graph.nodes)
    return msgspec.structs.replace(graph, name=PLAIN, kind="saga", config={}, nodes=nodes)


async def move(engine: Engine, ref: str, payload: Any = None) -> TriggerResult:
    done = await engine.trigger(ENV, NAME, ref, MOVE, payload)
    assert done.applied, done
    return done
