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

from holdfast.core.model.program import link
from holdfast.errors import DefinitionError
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Graph

PER_GRAPH = 10
PROFILE = os.environ.get("HOLDFAST_PROFILE", "short")
EXAMPLES = {"short": {True: 200, False: 40}, "long": {True: 10_000, False: 10_000}}[PROFILE]  # by: fast paths on?
counted = {"executions": 0, "decisions": 0}
plain = Counter[str]()  # decisions made the short way, by kind


RANDOM = settings(
    deadline=None,
    database=None,
    derandomize=PROFILE == "short",  # the same executions every time where a red run must be repeatable
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


def _executions(*, fast: bool) -> None:
    @settings(RANDOM, max_examples=EXAMPLES[fast])
    @given(graph=graphs(), seed=st.integers(0, 2**32))
    def run(graph: Graph, seed: int) -> None:
        _execute(graph, seed, fast=fast)

    run()


def _execute(graph: Graph, seed: int, *, fast: bool) -> None:
    try:
        program = link(compile_graph(graph))
    except DefinitionError:
        assume(False)
        return
    for index in range(PER_GRAPH):
        world = World(program, seed + index, fast=fast)
        world.run(steps=30)
        counted["executions"] += 1
        counted["decisions"] += world.instance.version
        plain.update(world.plain)


@pytest.mark.parametrize("fast", [True, False])
def test_the_rules_hold_in_every_execution(capsys: pytest.CaptureFixture[str], fast: bool) -> None:
    counted.update(executions=0, decisions=0)
    plain.clear()
    _executions(fast=fast)
    executions, decisions = counted["executions"], counted["decisions"]
    with capsys.disabled():
        print(f"\n{executions} executions, {decisions} decisions ({plain.total()} made the short way), 0 violations")
    assert executions >= EXAMPLES[fast] * PER_GRAPH
    if fast:
        assert plain.total() >= EXAMPLES[fast], "the comparison of the two ways was hardly made"
    else:
        assert not plain, "a decision went the short way"
