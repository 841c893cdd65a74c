"""A new door is a folder and a row; a new kind of node is a row. Both go all the way through the engine."""

from __future__ import annotations

from typing import Any

import pytest
from toy_door import DOOR, Lines

from holdfast import Context, Engine, code_of, mermaid_of, picture_of
from holdfast.doors.registry import DOORS, load_source, media_types, receive, source_of
from holdfast.errors import DefinitionError
from holdfast.graph.checks.check import check
from holdfast.graph.kinds import KINDS, Behaviour, Shape, kind
from holdfast.graph.model import load_graph

pytestmark = pytest.mark.anyio

LINES = Lines("lines", "double\nnegate\n")
FAN: dict[str, Any] = {
    "name": "fan",
    "entry": "both",
    "nodes": [
        {"id": "both", "kind": "fan_out"},
        {"id": "double", "kind": "toss", "handler": "double"},
        {"id": "negate", "kind": "toss", "handler": "negate"},
        {"id": "met", "kind": "join", "mode": "all"},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "1", "source": "both", "target": "double"},
        {"id": "2", "source": "both", "target": "negate"},
        {"id": "3", "source": "double", "target": "met"},
        {"id": "4", "source": "negate", "target": "met"},
        {"id": "5", "source": "met", "target": "end"},
    ],
}


@pytest.fixture
def toy_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DOORS, "lines", DOOR)


@pytest.fixture
def toy_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "fan_out", kind("fan_out", Behaviour.PASS, splits=True, shape=Shape.TRAPEZOID))
    monkeypatch.setitem(KINDS, "toss", kind("toss", Behaviour.WORK, label="coin toss", shape=Shape.RHOMBUS))


@pytest.fixture
def place(engine: Engine) -> Engine:
    @engine.handler("double")
    async def double(ctx: Context, data: Any) -> int:
        return data * 2

    @engine.handler("negate")
    async def negate(ctx: Context, data: Any) -> int:
        return -data

    return engine


@pytest.mark.usefixtures("toy_door")
async def test_a_door_of_its_own_is_published_run_and_printed_back(place: Engine) -> None:
    await place.publish(LINES)
    started = await place.start("lines", 4)
    await place.drain(timeout=30)
    ended = await place.get(started.id)
    assert (ended.status, ended.data) == ("completed", -8)
    kept = await place.flow("lines")
    assert code_of(kept) == code_of(kept.source) == "double\nnegate\n"
    assert picture_of(kept).startswith("lines version 1\n├─ double")
    assert '"negate<br/>task"' in mermaid_of(kept)


@pytest.mark.usefixtures("toy_door")
async def test_a_door_of_its_own_reads_modules_and_requests() -> None:
    assert load_source(LINES) is source_of(LINES) is LINES
    assert media_types()[-1] == "text/x-lines"
    [received] = receive(b"double\n", "text/x-lines", "posted").sources
    assert (received.name, received.code()) == ("posted", "double\n")


async def test_without_its_row_nobody_can_read_what_it_stored() -> None:
    with pytest.raises(DefinitionError, match="SOURCE_UNREADABLE"):
        code_of(LINES.stored)
    with pytest.raises(DefinitionError, match="text/x-lines"):
        receive(b"double\n", "text/x-lines", "posted")


@pytest.mark.usefixtures("toy_kinds")
async def test_a_kind_of_node_of_its_own_is_published_run_and_drawn(place: Engine) -> None:
    assert check(load_graph(FAN)) == ()
    await place.publish(FAN)
    started = await place.start("fan", 4)
    await place.drain(timeout=30)
    ended = await place.get(started.id)
    assert ended.status == "completed"
    assert sorted(step.name for step in await place.steps(started.id)) == ["both", "double", "met", "negate"]
    kept = await place.flow("fan")
    assert "coin toss" in picture_of(kept)
    assert '{"double<br/>toss"}' in mermaid_of(kept)


async def test_without_its_row_a_kind_is_unknown() -> None:
    assert {found.code for found in check(load_graph(FAN))} >= {"UNKNOWN_KIND"}
