"""A workflow of a file is published like any other definition, kept as it was written, and runs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from steps_yaml import EXAMPLES, sound
from typer.testing import CliRunner

from holdfast import Context, Engine, SyncEngine
from holdfast.cli.app import app
from holdfast.doors.printed import picture_of
from holdfast.doors.steps.load import is_steps, load_steps, read_workflow, to_graph
from holdfast.errors import Conflict, DefinitionError

pytestmark = pytest.mark.anyio

EXPENSE = sound((EXAMPLES / "expense_approval.yaml").read_text())


async def test_what_is_published_is_kept_as_it_was_written(engine: Engine) -> None:
    published = await engine.publish(EXPENSE, by="ann")
    assert (published.name, published.version, published.new) == ("expenses.approval", 1, True)
    kept = await engine.flow("expenses.approval")
    assert (kept.kind, kept.created_by, kept.source) == ("steps", "ann", EXPENSE.source)
    assert is_steps(kept.source)
    assert to_graph(read_workflow(kept.source)) == to_graph(EXPENSE)
    assert picture_of(kept.source).startswith("expenses.approval version 1\n")


async def test_a_published_version_never_changes(engine: Engine) -> None:
    await engine.publish(EXPENSE)
    assert (await engine.publish(EXPENSE)).new is False
    with pytest.raises(Conflict) as refusal:
        await engine.publish(msgspec.structs.replace(EXPENSE, timeout=5.0))
    assert refusal.value.code == "VERSION_TAKEN"


async def test_a_text_may_be_published_under_the_next_number(engine: Engine) -> None:
    await engine.publish(msgspec.structs.replace(EXPENSE, version=2))
    kept = await engine.flow("expenses.approval", 2)
    assert read_workflow(kept.source).version == 2


async def test_comments_do_not_make_another_version(engine: Engine) -> None:
    await engine.publish(EXPENSE)
    again = sound("# a word\n" + EXPENSE.text)
    assert (await engine.publish(again)).new is False


def test_a_source_that_cannot_be_read() -> None:
    with pytest.raises(DefinitionError) as refusal:
        read_workflow({"kind": "steps", "name": "w", "version": 1, "yaml": "workflows: []"})
    assert refusal.value.code == "SOURCE_UNREADABLE"


def test_the_command_line_prints_it_as_it_was_written(holdfast_dsn: str) -> None:
    with SyncEngine(holdfast_dsn) as engine:
        engine.publish(EXPENSE)

    def printed(form: str) -> str:
        arguments = ["flows", "expenses.approval", "--as", form]
        done = CliRunner().invoke(app, arguments, env={"HOLDFAST_DSN": holdfast_dsn})
        assert done.exit_code == 0, done.output
        return done.output

    assert printed("code") == EXPENSE.text
    assert "manager_review" in printed("picture")
    assert printed("mermaid").startswith("flowchart")


async def test_an_expense_goes_its_way(engine: Engine) -> None:
    booked: list[Any] = []

    @engine.handler("book_expense")
    async def book_expense(ctx: Context, data: Any) -> Any:
        booked.append(data)
        return {"booking": "b-1", "internal": True}

    @engine.handler("tell_employee")
    async def tell_employee(ctx: Context, data: Any) -> Any:
        raise RuntimeError("nobody at home")

    for workflow in load_steps(EXPENSE.text).require_sound():
        await engine.publish(workflow)
    async with engine.worker():
        started = await engine.start("expenses.approval", {"employee": "ann", "manager": "ben"}, by="ann")
        submitted = {"purpose": "a chair", "amount": 120}
        await engine.settle(started.id, timeout=20)
        await engine.advance(started.id, "submitted", submitted, by="ann", capabilities=())
        await engine.settle(started.id, timeout=20)
        await engine.advance(started.id, "approved", {}, by="ben", capabilities=())
        over = await engine.settle(started.id, timeout=20)
    assert over.status == "completed"
    assert [(data["employee"], data["amount"]) for data in booked] == [("ann", 120)]
    state = over.data
    assert (state["booking"], state["approved_by"], "internal" in state) == ("b-1", "ben", False)
    assert state["_last_error"]["step"] == "tell"  # a notification that fails holds nobody up
