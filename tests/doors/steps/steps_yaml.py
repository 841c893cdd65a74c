"""Files of steps for tests: as text where places matter, as data where they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.doors.steps import Document, Workflow
from holdfast.doors.steps.load import load_steps

EXAMPLES = Path(__file__).parents[3] / "examples" / "steps"


def document(*workflows: dict[str, Any]) -> str:
    """JSON is YAML, too."""
    return json.dumps({"workflows": list(workflows)}, indent=1)


def workflow(steps: list[dict[str, Any]], transitions: list[tuple[str, ...]], **fields: Any) -> dict[str, Any]:
    """`transitions` are (from, event, to) and perhaps a condition."""
    lines = [
        {"from": source, "event": event, "to": target, **({"condition": rest[0]} if rest else {})}
        for source, event, target, *rest in transitions
    ]
    return {"id": "w", "steps": steps, "transitions": lines, **fields}


def step(id: str, type: str = "terminal", **fields: Any) -> dict[str, Any]:
    return {"id": id, "type": type, **fields}


def call(id: str, **fields: Any) -> dict[str, Any]:
    return step(id, "system", operation="python:work", **fields)


def sound(text: str) -> Workflow:
    [only] = load_steps(text, name="f.yaml").require_sound()
    return only


def problems(text: str) -> list[tuple[int, int, str]]:
    return [(each.line, each.column, each.code) for each in load_steps(text, name="f.yaml").problems]


def codes(found: str | Document) -> list[str]:
    read = load_steps(found, name="f.yaml") if isinstance(found, str) else found
    return sorted(each.code for each in read.problems)


# Every key of the format at least once.
FULL: dict[str, Any] = {
    "workflows": [
        {
            "id": "full.one",
            "name": "Everything",
            "description": "All keys.",
            "version": 7,
            "timeout": "72h",
            "on_timeout": "over",
            "capabilities": ["a:b", "c"],
            "initial_step": "ask",
            "input_schema": {"type": "object"},
            "metadata": {"owner": "me"},
            "steps": [
                {
                    "id": "ask",
                    "type": "action",
                    "name": "Ask",
                    "description": "Somebody.",
                    "form": {"type": "object"},
                    "capabilities": ["act"],
                    "assignee": {"expression": "workflow.who"},
                    "timeout": "1d12h",
                    "on_timeout": "sleep",
                    "operation": "python:note",
                    "call_on": ["sent"],
                    "metadata": {"x": [1]},
                },
                {"id": "decide", "type": "approval", "self_approval": True, "assignee": {"role": "boss"}},
                {
                    "id": "charge",
                    "type": "system",
                    "operation": "openapi:shop.charge",
                    "input": {"amount": "workflow.amount", "fixed": 5, "flag": True, "nothing": None},
                    "output": {"receipt": "response.id"},
                    "retry": {"calls": 3, "delay": "2s", "backoff": "linear", "max_delay": "PT1M", "jitter": 0.5},
                    "call_timeout": "30s",
                    "timeout": "5m",
                    "on_timeout": "over",
                },
                {"id": "sleep", "type": "wait", "duration": "0s"},
                {"id": "date", "type": "wait", "until": "workflow.when"},
                {
                    "id": "listen",
                    "type": "wait",
                    "event": "paid:now",
                    "key": "workflow.order",
                    "capabilities": ["send"],
                    "timeout": "P3D",
                    "on_timeout": "over",
                },
                {"id": "tell", "type": "notification", "operation": "python:tell"},
                {"id": "over", "type": "terminal"},
            ],
            "transitions": [
                {"from": "ask", "to": "decide", "event": "sent", "condition": "input.ok == true", "guard": "g"},
                {"from": "ask", "to": "over", "event": "sent"},
                {"from": "decide", "to": "charge", "event": "approved"},
                {"from": "charge", "to": "sleep", "event": "completed"},
                {"from": "charge", "to": "decide", "event": "error"},
                {"from": "sleep", "to": "date", "event": "completed"},
                {"from": "date", "to": "listen", "event": "completed"},
                {"from": "listen", "to": "tell", "event": "paid:now"},
                {"from": "tell", "to": "over", "event": "completed"},
            ],
        }
    ]
}
