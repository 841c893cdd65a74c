"""Checkpoints: cut at any of them, the rows of a random execution tell the same instance as all rows do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from core_random_graphs import graphs
from core_run import Run, new_instance, projection
from core_world import ACTIONS, World
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_properties import PROFILE, RANDOM

from holdfast.core.model.control_rows import Checkpoint
from holdfast.core.model.program import Program, link
from holdfast.core.model.rows import StepRow
from holdfast.core.model.signals import Resume, Suspend
from holdfast.core.replay.checkpoint import carry, hindrance
from holdfast.core.replay.replay import replay
from holdfast.errors import DefinitionError
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Edge, Graph, Node, Policy, Wait

EXAMPLES = {"short": 150, "long": 5_000}[PROFILE]
MONTH = 31 * 86_400_000_000
counted = {"executions": 0, "checkpoints": 0}


class Carrying(World):
    """A world in which the instance is carried whenever it rests."""

    @property
    def actions(self) -> Sequence[Any]:
        return (*ACTIONS, *[Carrying.carry] * (len(ACTIONS) // 2))

    def carry(self) -> None:
        if hindrance(self.program, self.instance) is None:
            carried = carry(self.instance, self.now)
            self.table.carry(carried, self.now)
            self.instance = self.table.stored(carried.instance)
            counted["checkpoints"] += 1
            self.check()

    def check(self) -> None:
        super().check()  # from the newest checkpoint
        rows = [row for row in self.table.rows.values() if row.node != Checkpoint.node]
        whole = replay(self.program, [*rows, *self.table.passed], instance=new_instance(self.program, self.input))
        assert projection(whole) == projection(self.instance), "all rows tell the same without the checkpoints"


def without_undo(graph: Graph) -> Graph:
    nodes = [msgspec.structs.replace(node, undo=None) for node in graph.nodes if node.kind != "compensation"]
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def test_an_execution_is_the_same_from_any_checkpoint_on(capsys: pytest.CaptureFixture[str]) -> None:
    @settings(RANDOM, max_examples=EXAMPLES)
    @given(graph=graphs(), seed=st.integers(0, 2**32))
    def run(graph: Graph, seed: int) -> None:
        try:
            program = link(compile_graph(without_undo(graph)))
        except DefinitionError:
            assume(False)
            return
        assume(not program.save_points)
        for index in range(10):
            Carrying(program, seed + index).run(steps=30)
            counted["executions"] += 1

    counted.update(executions=0, checkpoints=0)
    run()
    with capsys.disabled():
        print(f"\n{counted['executions']} executions, {counted['checkpoints']} checkpoints")
    assert counted["checkpoints"] > counted["executions"] / 2


def door(**policy: Any) -> Program:
    nodes = (
        Node(id="shut", kind="state"),
        Node(id="open", kind="state", wait=Wait(event="pushed", early=True), deadline=3600.0),
        Node(id="gone", kind="terminal"),
    )
    ways = (("shut", "open", "opens"), ("open", "shut", "shuts"), ("open", "shut", "timeout"), ("shut", "gone", "ends"))
    edges = [Edge(id=f"{n}", source=a, target=b, on=on) for n, (a, b, on) in enumerate(ways)]
    edges.append(Edge(id="p", source="open", target="gone", on="pushed"))
    graph = Graph(name="door", entry="shut", nodes=nodes, edges=tuple(edges), kind="steps", policy=Policy(**policy))
    return link(compile_graph(graph))


class Door(Run):
    def carry(self) -> None:
        assert hindrance(self.program, self.instance) is None
        self.now += MONTH
        carried = carry(self.instance, self.now)
        self.table.carry(carried, self.now)
        self.instance = self.table.stored(carried.instance)
        self.months = [*getattr(self, "months", []), carried.instance.version]

    def cut(self) -> list[StepRow]:
        return [row for row in self.table.rows.values() if row.opened_version >= self.months[-1]]


def test_the_rows_before_a_checkpoint_are_not_needed() -> None:
    run = Door(door(data="context")).start({"n": 1})
    for lap in range(5):
        run.event("opens", {"lap": lap}).event("shuts")
    run.event("opens")
    passed = len(run.table.rows)
    run.carry()
    assert len(run.cut()) == 2 < passed
    run.event("shuts").event("opens").event("pushed", {"by": "ann"})
    assert run.status == "completed"
    rebuilt = replay(run.program, run.cut(), instance=new_instance(run.program, {"n": 1}))
    assert projection(rebuilt) == projection(run.instance)
    assert msgspec.json.decode(rebuilt.data) == {"n": 1, "lap": 4, "by": "ann"}


def test_a_step_keeps_its_id_its_waits_and_its_timer() -> None:
    run = Door(door()).start().event("opens")
    _, before = run.at("open")
    run.carry()
    _, after = run.at("open")
    assert (after.step, after.hop, after.waits) == (before.step, before.hop, before.waits)
    assert after.at == before.at + MONTH
    run.fire("open", "deadline")
    assert run.at("shut")


def test_a_suspended_instance_is_carried_with_what_it_keeps() -> None:
    run = Door(door(data="context")).start()
    run.apply(Suspend("later"))
    run.carry()
    assert run.status == "suspended"
    run.apply(Resume())
    assert run.event("opens").status == "running"


def test_what_is_under_way_stays_where_it_is() -> None:
    nodes = (Node(id="work", kind="task", handler="h"), Node(id="end", kind="end"))
    graph = Graph(name="w", entry="work", nodes=nodes, edges=(Edge(id="e", source="work", target="end"),))
    run = Run(link(compile_graph(graph))).start()
    assert hindrance(run.program, run.instance) == "work of it is under way"
    fresh = new_instance(run.program)
    assert hindrance(run.program, fresh) == "it has not begun"
