"""`holdfast tasks`: the inbox of people, on the command line. The organisation is HOLDFAST_ORG."""

from __future__ import annotations

import json as text_json
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.json_args import read_given
from holdfast.cli.render.output import say, show, show_json, table
from holdfast.cli.target import actor, anywhere, place
from holdfast.errors import Refused
from holdfast.store.tasks import Task, TaskEvent

tasks = typer.Typer(help="Look at human tasks, take them, give them back, decide them.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Id = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]
By = Annotated[str | None, typer.Option("--by", help="Who does it.")]
Roles = Annotated[list[str] | None, typer.Option("--role", help="A role they have; may be repeated.")]

To = Annotated[str, typer.Option("--to", help="Who gets it.")]
Why = Annotated[str | None, typer.Option("--reason", help="Why, for its history.")]


@tasks.command("list")
@anywhere
def list_tasks(
    instance: Annotated[str | None, typer.Option("--instance", help="All tasks of this instance.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only what one person, --by, has to do or may take.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="With --mine: whose inbox it is.")] = None,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help="Only tasks for this role; with --mine one they have, repeatable."),
    ] = None,
    capability: Annotated[
        list[str] | None, typer.Option("--capability", help="With --mine: what they are allowed to; may be repeated.")
    ] = None,
    assignee: Annotated[str | None, typer.Option("--assignee", help="Only what this person has.")] = None,
    status: Annotated[str | None, typer.Option("--status", help="Only tasks in this status.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="The last task of the page before.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many.")] = 50,
    json: Json = False,
) -> None:
    """List open tasks, most urgent first; of an instance, also finished ones."""
    if (instance or assignee) if mine else (by or capability or len(role or ()) > 1):
        raise Refused(
            "Tasks are listed by role, person or instance, or with --mine as somebody's inbox.",
            code="FILTER_INVALID",
            hint="With --mine say --by, --role and --capability; without it at most one --role.",
        )
    with place() as engine:
        if mine:
            found = engine.inbox(
                actor(by), roles=role or (), capabilities=capability or None, status=status, after=after, limit=limit
            ).items
        else:
            found = engine.tasks(
                instance, role=role[0] if role else None, assignee=assignee, status=status, after=after, limit=limit
            )
    if json:
        show_json([_plain(task) for task in found])
        return
    if found:
        table(("task", "status", "rank", "step", "for", "due"), [_row(task) for task in found])
    else:
        say("There are no tasks.")


@tasks.command("show")
@anywhere
def show_task(id: Id, json: Json = False) -> None:
    """A task and its history."""
    with place() as engine:
        task, events = engine.task(id), engine.task_events(id)
    if json:
        show({**_plain(task), "events": msgspec.to_builtins(events)}, json=True)
        return
    show(_facts(task), json=False)
    for event in events:
        say(_event_line(event))


@tasks.command()
@anywhere
def claim(id: Id, by: By = None, role: Roles = None, json: Json = False) -> None:
    """Take a task; exit code 5: another person has it, or it is over."""
    with place() as engine:
        _answer(engine.claim(id, by=actor(by), roles=role or None), json=json)


@tasks.command()
@anywhere
def release(id: Id, by: By = None, json: Json = False) -> None:
    """Give a task back for others to take."""
    with place() as engine:
        _answer(engine.release(id, by=actor(by)), json=json)


@tasks.command()
@anywhere
def assign(id: Id, to: To, by: By = None, reason: Why = None, json: Json = False) -> None:
    """Assign a task to a person, even if another one has it."""
    with place() as engine:
        _answer(engine.assign(id, to=to, by=actor(by), reason=reason), json=json)


@tasks.command()
@anywhere
def delegate(id: Id, to: To, by: By = None, reason: Why = None, json: Json = False) -> None:
    """Pass on a task that is in one's own hands."""
    with place() as engine:
        _answer(engine.delegate(id, to=to, by=actor(by), reason=reason), json=json)


@tasks.command()
@anywhere
def decide(
    id: Id,
    decision: Annotated[str, typer.Argument(help="confirmed, rejected, or another one the step offers.")],
    by: By = None,
    comment: Annotated[str | None, typer.Option("--comment", help="Why.")] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="What was filled in: JSON, @file, or - for standard input.")
    ] = None,
    role: Roles = None,
    json: Json = False,
) -> None:
    """Decide a task; the flow continues, or ends."""
    given, who = read_given(data, "--data", code="DATA_NOT_JSON"), actor(by)
    with place() as engine:
        _answer(
            engine.decide(id, by=who, decision=decision, comment=comment, data=given, roles=role or None), json=json
        )


def _answer(task: Task, *, json: bool) -> None:
    show(_plain(task) if json else _facts(task), json=json)


def _plain(task: Task) -> dict[str, Any]:
    return msgspec.to_builtins(task)


def _facts(task: Task) -> dict[str, Any]:
    """The fields of a task that people read, without the empty ones."""
    facts = {name: value for name, value in _plain(task).items() if value not in (None, [])}
    for name in ("form", "payload", "data"):
        if name in facts:
            facts[name] = text_json.dumps(facts[name], ensure_ascii=False)
    if task.roles:
        facts["roles"] = ", ".join(task.roles)
    return facts


def _row(task: Task) -> tuple[str, ...]:
    due = "" if task.due_at is None else f"{task.due_at:%Y-%m-%d %H:%M}"
    holder = task.assignee or ", ".join(task.roles) or "anybody"
    return task.id, task.status, str(task.priority), f"{task.flow}/{task.node}", holder, due


def _event_line(event: TaskEvent) -> str:
    to = "" if event.assignee in (None, event.actor) else f" → {event.assignee}"
    why = "" if event.reason is None else f" ({event.reason})"
    return f"{event.created_at:%Y-%m-%d %H:%M:%S}  {event.type:<10}  {event.actor}{to}{why}"
