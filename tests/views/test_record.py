"""Views of rows that no database has: what is laid out depends on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import Flow
from holdfast.doors.saga.lowering import lower
from holdfast.graph.compile import compile_graph
from holdfast.store.reads.instances import Event, Instance, Step
from holdfast.store.tasks import Task
from holdfast.views.labels import FAILED_UNDONE, QUEUED, UNREACHED, state_of
from holdfast.views.record import Record
from holdfast.views.suggestions import suggestions
from holdfast.views.summary import facts_of
from holdfast.views.timeline import bars, timeline
from holdfast.views.tree import Tone, lines_of

BEGAN = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
NOW = BEGAN + timedelta(minutes=5)
GRAPH = compile_graph(lower(Flow("order").step("reserve", "reserve").step("charge", "charge").build()))


def instance(status: str = "running", **facts: Any) -> Instance:
    return Instance("i-1", "order", 1, status, 3, {}, {"amount": 5}, "", created_at=BEGAN, **facts)


def step(name: str, status: str, **facts: Any) -> Step:
    row: dict[str, Any] = {
        "id": f"s-{name}", "name": name, "behaviour": "work", "token": f"t-{name}", "kind": "forward", "run": 0,
        "status": status, "outcome": None, "cause": "edge", "attempts": 1, "input": {}, "output": None, "error": None,
        "chosen_edge_ids": None, "detail": None, "closing": None, "opened": (1, 0), "closed": None, "opened_by": None,
        "closed_by": None, "created_at": BEGAN, "closed_at": None, **facts,
    }  # fmt: skip
    return Step(**row)


def record(found: Instance, steps: Sequence[Step], tasks: Sequence[Task] = ()) -> Record:
    return Record(found, GRAPH, steps, tasks, (), None, NOW)


def test_a_tree_has_a_line_per_node_with_its_state() -> None:
    done = step("reserve", "completed", closed_at=BEGAN + timedelta(seconds=2), closed=(2, 0))
    lines = lines_of(record(instance(), [done, step("charge", "running", attempts=0, opened=(2, 1))]))
    assert [(line.name, line.state) for line in lines] == [("reserve", "completed"), ("charge", QUEUED)]
    assert lines[0].words == "completed · 2.0 s"
    assert "no worker has taken handler 'charge' yet" in lines[1].words


def test_a_node_that_was_not_reached_is_there_as_well() -> None:
    [_, ahead] = lines_of(record(instance(), [step("reserve", "running")]))
    assert (ahead.name, ahead.state) == ("charge", UNREACHED)


def test_an_error_is_a_remark_below_its_step() -> None:
    error = {"code": "CARD_DECLINED", "message": "no\nmoney"}
    [_, broken, remark] = lines_of(
        record(instance("failed"), [step("reserve", "completed"), step("charge", "failed", error=error)])
    )
    assert (broken.state, remark.state) == ("failed", "")
    assert (remark.name, remark.tone) == ("CARD_DECLINED: no", Tone.PROBLEM)


def test_without_a_definition_the_steps_are_told_as_they_happened() -> None:
    bare = Record(instance(), None, [step("reserve", "completed")], (), (), None, NOW)
    [remark, line] = lines_of(bare)
    assert (remark.tone, line.name) == (Tone.QUIET, "reserve")


def test_a_step_that_failed_and_was_undone_says_both() -> None:
    undone = step("charge", "rolled_back", outcome="error")
    assert undone.failed
    assert state_of(undone, record(instance("failed"), [undone])) == FAILED_UNDONE


def test_a_summary_names_facts_in_order() -> None:
    facts = dict(facts_of(record(instance(key="k-1", created_by="ann"), [])))
    assert facts == {
        "instance": "i-1",
        "flow": "order version 1",
        "status": "running · for 5m 00s",
        "started": "2026-01-31 08:00:00 by ann",
        "key": "k-1",
        "input": '{"amount": 5}',
    }


def test_a_suspended_instance_can_be_resumed() -> None:
    [one] = suggestions(record(instance("suspended"), []))
    assert one == ("The instance is paused", "holdfast resume i-1 --by NAME")


def test_bars_lie_between_opening_and_end() -> None:
    done = step("reserve", "completed", closed_at=BEGAN + timedelta(seconds=2), closed=(2, 0))
    open_ = step("charge", "running", created_at=BEGAN + timedelta(seconds=2), opened=(2, 1))
    moved = Event(3, 0, "instance_suspended", None, None, "ann", {"reason": "audit"}, BEGAN + timedelta(minutes=1))
    steps = [done, open_]
    found = bars(instance(), timeline(steps, [moved], []), steps, [], NOW)
    assert [(bar.name, bar.begin, bar.end, bar.kind, bar.is_open) for bar in found] == [
        ("reserve", 0.0, 2.0, "work", False),
        ("charge", 2.0, 300.0, "work", True),
        ("instance_suspended", 60.0, 60.0, "moment", False),
    ]
    assert found[2].words == "by ann · audit"
