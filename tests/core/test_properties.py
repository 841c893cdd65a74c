"""Random sound graphs in a random world: whatever happens in whatever order, the rules of the model hold.

`HOLDFAST_PROFILE=long pytest tests/core/test_properties.py -s` runs at least 100,000 executions and prints the count.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from core_random_graphs import graphs
from core_world import World
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from holdfast.compiler.compile import compile_graph
from holdfast.compiler.graph import Graph
from holdfast.core.program import link
from holdfast.errors import DefinitionError

PER_GRAPH = 10
PROFILE = os.environ.get("HOLDFAST_PROFILE", "short")
EXAMPLES = {"short": 200, "long": 10_000}[PROFILE]
counted = {"executions": 0, "decisions": 0}
plain = Counter[str]()  # decisions made the short way, by kind


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=PROFILE == "short",  # the same executions every time where a red run must be repeatable
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
@given(graph=graphs(), seed=st.integers(0, 2**32))
def _executions(graph: Graph, seed: int) -> None:
    try:
        program = link(compile_graph(graph))
    except DefinitionError:
        assume(False)
        return
    for index in range(PER_GRAPH):
        world = World(program, seed + index)
        world.run(steps=30)
        counted["executions"] += 1
        counted["decisions"] += world.instance.version
        plain.update(world.plain)


def test_the_rules_hold_in_every_execution(capsys: pytest.CaptureFixture[str]) -> None:
    counted.update(executions=0, decisions=0)
    plain.clear()
    _executions()
    executions, decisions = counted["executions"], counted["decisions"]
    with capsys.disabled():
        print(f"\n{executions} executions, {decisions} decisions ({plain.total()} made the short way), 0 violations")
    assert executions >= EXAMPLES * PER_GRAPH
    assert plain.total() >= EXAMPLES, "the comparison of the two ways was hardly made"
