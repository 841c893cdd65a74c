"""Random sound graphs whose instances are migrated and sent back to earlier steps in the midst of everything else.

After every decision the rules of the model hold and replay equals the live instance, across any number of graphs.
`HOLDFAST_PROFILE=long` runs many more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from core_random_graphs import graphs
from core_run import new_instance
from core_world import ACTIONS, World
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from holdfast.core.model.control_rows import Migrated, read_control
from holdfast.core.model.decision import Decision
from holdfast.core.model.program import Program, link
from holdfast.core.model.renames import MIGRATE, names_today
from holdfast.core.model.rows import StepRow
from holdfast.core.model.signals import Migrate
from holdfast.core.signals.migrate import way_back
from holdfast.core.signals.rerun import Past, rerun_of
from holdfast.errors import Conflict, DefinitionError, NotFound
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Edge, Graph, Node

PROFILE = os.environ.get("HOLDFAST_PROFILE", "short")
EXAMPLES = {"short": 40, "long": 2_000}[PROFILE]
LEAST = EXAMPLES // 2  # of each; how many there are depends on the order of sets, too
counted = {"migrations": 0, "reverts": 0, "reruns": 0}


class Detours(World):
    """A world with operators: they move the instance to other graphs, back again, and back to earlier steps."""

    def __init__(self, programs: list[Program], seed: int) -> None:
        super().__init__(programs[0], seed)
        self.instance = msgspec.structs.replace(self.instance, definition=programs[0].definition)
        self.earlier = {program.definition: program for program in programs}

    @property
    def actions(self) -> Sequence[Callable[[Any], None]]:
        return (*ACTIONS, *[Detours.migrate] * 6, *[Detours.revert] * 3, *[Detours.rerun] * 4)

    # --- detours ----------------------------------------------------------------------------------------------------

    def migrate(self) -> None:
        self.target = self.random.choice(list(self.earlier.values()))
        nodes = {name: _other(name) for name in self.program.places if _other(name) in self.target.places}
        counted["migrations"] += self.deliver(Migrate(self.target.definition, nodes))

    def revert(self) -> None:
        rows = sorted((r for r in self.table.rows.values() if r.node == MIGRATE), key=lambda row: row.opened_version)
        if rows:
            record = read_control(Migrated, rows[-1].detail)
            nodes, tokens = way_back(record)
            self.target = self.earlier[bytes.fromhex(record.came_from.definition)]
            counted["reverts"] += self.deliver(Migrate(self.target.definition, nodes, tokens))

    def rerun(self) -> None:
        past = Past(self.program, list(self.table.rows.values()), new_instance(self.program, self.input), self.earlier)
        been = {name for row in past.rows for name in (row.node, _other(row.node)) if name in self.program.places}
        node = self.random.choice(sorted(been))
        given = self.random.choice([None, self._output()])
        try:
            signal = rerun_of(past, self.instance.state, self.instance.version, node, None, given, None)
        except (Conflict, NotFound):
            return
        counted["reruns"] += self.deliver(signal)

    def _apply(self, decision: Decision) -> None:
        self.program = self.earlier[decision.instance.definition]
        self.names = self._event_names()
        super()._apply(decision)
        standing = {wait.ref: t.node for t in self.instance.state.tokens.values() for wait in t.waits}
        self.tasks = {task: standing[task] for task in self.tasks}

    def _node(self, row: StepRow) -> Node:
        """By its name of today; one that a migration dropped, by the name it was born with."""
        migrations = [r for r in self.table.rows.values() if r.node == MIGRATE]
        today = names_today(((r.opened_version, r.opened_ordinal), r.detail) for r in migrations)
        name = today(row.node, (row.opened_version, row.opened_ordinal))
        known = {n: place.node for program in self.earlier.values() for n, place in program.places.items()}
        return self.program.places[name].node if name in self.program.places else known[row.node]


def _other(name: str) -> str:
    """Every node of the second version has another name than in the first."""
    return name.removesuffix("'") if name.endswith("'") else name + "'"


def renamed(graph: Graph) -> Graph:
    def node(n: Node) -> Node:
        return msgspec.structs.replace(n, id=_other(n.id), undo=None if n.undo is None else _other(n.undo))

    def edge(e: Edge) -> Edge:
        return msgspec.structs.replace(e, source=_other(e.source), target=_other(e.target))

    late = graph.policy.on_timeout
    policy = msgspec.structs.replace(graph.policy, on_timeout=None if late is None else _other(late))
    return msgspec.structs.replace(
        graph,
        entry=_other(graph.entry),
        nodes=tuple(map(node, graph.nodes)),
        edges=tuple(map(edge, graph.edges)),
        policy=policy,
        version=2,
    )


def linked(number: int, graph: Graph) -> Program:
    return link(compile_graph(graph), b"%016d" % number)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=PROFILE == "short",  # the same executions every time where a red run must be repeatable
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.generate],
)
@given(graph=graphs(), other=graphs(), seed=st.integers(0, 2**32))
def _executions(graph: Graph, other: Graph, seed: int) -> None:
    try:
        programs = [linked(1, graph), linked(2, renamed(graph)), linked(3, other)]
    except DefinitionError:
        assume(False)
        return
    for index in range(4):
        Detours(programs, seed + index).run(steps=30)


def test_the_rules_hold_whatever_operators_do() -> None:
    counted.update(migrations=0, reverts=0, reruns=0)
    _executions()
    assert counted["migrations"] > LEAST, counted
    assert counted["reverts"] > LEAST // 10, counted
    assert counted["reruns"] > LEAST, counted
