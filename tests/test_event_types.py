"""Every type of event that the engine writes is in `docs/events.md`, and every type there is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.core.model.status import TERMINAL, InstanceStatus

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "holdfast"
PAGE = (ROOT / "docs" / "events.md").read_text()

TYPE = re.compile(r"[a-z]+(?:_[a-z]+)+")
# What stands behind a prefix in the code: f"instance_{status}".
STATUSES = {
    "instance_": {*TERMINAL, InstanceStatus.SUSPENDED, InstanceStatus.DLQ},
    "step_": {"completed", "failed", "skipped", "cancelled"},
}
# Other literals of the statements that write events.
NO_TYPES = {
    "advance_steps",
    "finish_instances",
    "begin_rollbacks",
    "undo_steps",
    "end_rollbacks",
    "carry_instances",
    "dead_letter",
    "received_at",
    "waiting_seconds",
    "next_attempt_at",
}


def documented() -> set[str]:
    tables = PAGE.partition("## The instance")[2].partition("## Names other engines use")[0]
    return set(re.findall(r"^\| `([a-z_]+)` \|", tables, re.MULTILINE))


def written_by_code() -> set[str]:
    found: set[str] = set()
    for file in [*SOURCE.glob("core/**/*.py"), *SOURCE.glob("runtime/**/*.py")]:
        tree = ast.parse(file.read_text())
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            for call in calls(function, {"note", "note_event"}):
                for argument in call.args[:4]:
                    found |= set(types(argument, function, tree))
    return found


def calls(tree: ast.AST, names: set[str]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in names:
                yield node


def types(argument: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.AST) -> Iterator[str]:
    """The names an argument may be: written out, one of two, made of a status, or handed in by those who call."""
    if isinstance(argument, ast.Constant):
        if isinstance(argument.value, str) and TYPE.fullmatch(argument.value):
            yield argument.value
    elif isinstance(argument, ast.IfExp):
        yield from types(argument.body, function, tree)
        yield from types(argument.orelse, function, tree)
    elif isinstance(argument, ast.JoinedStr):
        prefix = argument.values[0]
        assert isinstance(prefix, ast.Constant)
        yield from (f"{prefix.value}{status}" for status in STATUSES[prefix.value])
    elif isinstance(argument, ast.Name) and argument.id == "event":
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == argument.id for t in node.targets):
                yield from types(node.value, function, tree)
        for call in calls(tree, {function.name}):
            for handed in call.args:
                if isinstance(handed, ast.Constant):
                    yield from types(handed, function, tree)


def written_by_statements() -> set[str]:
    found: set[str] = set()
    for file in SOURCE.glob("store/**/*.sql"):
        for insert in file.read_text().split("insert into holdfast.events ")[1:]:
            found |= set(re.findall(r"'([a-z_]+)'", insert.partition("\n$$")[0]))
    return {name for name in found if TYPE.fullmatch(name)} - NO_TYPES


def test_every_event_that_is_written_is_documented() -> None:
    assert (written_by_code() | written_by_statements()) - documented() == set()


def test_every_event_that_is_documented_is_written() -> None:
    assert documented() - written_by_code() - written_by_statements() == set()


def test_every_event_that_the_sagas_were_promised_has_a_counterpart() -> None:
    promised = {
        "step_started", "step_failed", "compensation_started", "compensation_retry", "compensation_success",
        "compensation_max_retries_exceeded", "step_skipped_missing_handler", "cancellation_started",
        "workflow_cancelled", "abort_started", "workflow_aborted",
    }  # fmt: skip
    renamed = set(re.findall(r"`([a-z_]+)`", PAGE.partition("## Names other engines use")[2]))
    assert promised - documented() - renamed == set()
