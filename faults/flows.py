"""The flows of the harness. `kinds` passes through all six kinds of step: plain work, retried work, a split and its
join, a timer, an event, a sub-flow; then through the outbox, once waiting for the receipt and once not."""

from __future__ import annotations

from typing import Any, Final

from holdfast import Flow, Retry

CALLS: Final = 100  # a killed worker burns a call, and nothing here may end because workers were killed
RETRY: Final = {"calls": CALLS, "delay": 0.05}

CHILD: Final[dict[str, Any]] = {
    "name": "inner",
    "entry": "inside",
    "nodes": [
        {"id": "inside", "kind": "task", "handler": "work", "retry": {"calls": CALLS}},
        {"id": "end", "kind": "end"},
    ],
    "edges": [{"id": "e", "source": "inside", "target": "end"}],
}

KINDS: Final[dict[str, Any]] = {
    "name": "kinds",
    "entry": "plain",
    "nodes": [
        {"id": "plain", "kind": "task", "handler": "work", "retry": {"calls": CALLS}},
        {"id": "retried", "kind": "task", "handler": "flaky", "retry": RETRY},
        {"id": "both", "kind": "split"},
        {"id": "left", "kind": "task", "handler": "work", "retry": {"calls": CALLS}},
        {"id": "right", "kind": "task", "handler": "work", "retry": {"calls": CALLS}},
        {"id": "met", "kind": "join", "mode": "all"},
        {"id": "pause", "kind": "wait_timer", "delay": 0.2},
        {"id": "event", "kind": "wait_event", "wait": {"event": "go", "key": "context.key"}},
        {"id": "child", "kind": "sub_flow", "child": {"flow": "inner"}},
        {"id": "tell", "kind": "effect", "handler": "witness", "awaits": True, "retry": RETRY},
        {"id": "note", "kind": "effect", "handler": "witness", "retry": RETRY},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "1", "source": "plain", "target": "retried"},
        {"id": "2", "source": "retried", "target": "both"},
        {"id": "3", "source": "both", "target": "left"},
        {"id": "4", "source": "both", "target": "right"},
        {"id": "5", "source": "left", "target": "met"},
        {"id": "6", "source": "right", "target": "met"},
        {"id": "7", "source": "met", "target": "pause"},
        {"id": "8", "source": "pause", "target": "event"},
        {"id": "9", "source": "event", "target": "child"},
        {"id": "10", "source": "child", "target": "tell"},
        {"id": "11", "source": "tell", "target": "note"},
        {"id": "12", "source": "note", "target": "end"},
    ],
}


def journey(name: str = "journey", steps: int = 3, handler: str = "work", calls: int = CALLS) -> Any:
    """Steps of one handler in a row."""
    flow = Flow(name)
    for number in range(steps):
        flow = flow.step(f"step_{number}", handler, retry=Retry(attempts=calls))
    return flow.build()
