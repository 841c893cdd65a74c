"""WF-13: the topological order is stable; where two nodes could come first, the smaller id does."""

from __future__ import annotations

import heapq
from random import Random

from envelope_samples import BOTH, INVOICE, LIMITS, LONG, patch, slot
from random_envelopes import TABLES, random_contract, random_patch, shuffled_contract, shuffled_patch
from test_wf_12 import pythons, run

from holdfast.doors.envelope.effective import compile_effective
from holdfast.graph.compiled import Compiled

ORDER = (
    "sys:start",
    "sys:state:cancelled",
    "sys:state:draft",
    "sys:state:submitted",
    "sys:slot:review:in",
    "usr:review:both",
    "usr:review:ann",
    "usr:review:ben",
    "sys:slot:review:rejected",
    "sys:gate:reject",
    "usr:review:met",
    "sys:slot:review:out",
    "sys:gate:approve",
    "sys:state:active",
    "sys:end",
)
SCRIPT = """
from envelope_samples import INVOICE, LIMITS, LONG
from holdfast.doors.envelope.effective import compile_effective
print(*compile_effective(INVOICE, LONG, tables=LIMITS).topological_order)
"""


def test_the_order_is_pinned() -> None:
    assert compile_effective(INVOICE, patch(BOTH)).topological_order == ORDER


def test_two_machines_give_the_same_order() -> None:
    """Two of them differ in the seed of the hash, in the release of Python, and in nothing that may count."""
    ours = list(compile_effective(INVOICE, LONG, tables=LIMITS).topological_order)
    for python in pythons():
        for seed in ("1", "2"):
            done = run(python, SCRIPT, seed)
            assert done.stdout.split() == ours, (python, done.stderr)


def test_ties_are_broken_by_id_however_the_patch_is_written() -> None:
    for seed in range(40):
        random = Random(seed)
        contract = random_contract(random)
        written = random_patch(random, contract, filled=True, size=12)
        compiled = compile_effective(contract, written, tables=TABLES)
        again = compile_effective(shuffled_contract(random, contract), shuffled_patch(random, written), tables=TABLES)
        assert again.topological_order == compiled.topological_order, seed
        assert by_smallest_id(compiled) == list(compiled.topological_order), seed


def by_smallest_id(compiled: Compiled) -> list[str]:
    """Sort anew: of all nodes whose predecessors are placed, the one with the smallest id comes next.

    An edge that leads back does not count, and which ones do is read off the order itself.
    """
    rank = {node: number for number, node in enumerate(compiled.topological_order)}
    forward = {(e.source, e.target) for e in compiled.edges.values() if rank[e.source] < rank[e.target]}
    waiting = {node: sum(target == node for _, target in forward) for node in compiled.nodes}
    ready = sorted(node for node, count in waiting.items() if not count)
    order: list[str] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for source, target in sorted(forward):
            if source == node:
                waiting[target] -= 1
                if not waiting[target]:
                    heapq.heappush(ready, target)
    return order


def test_names_decide_and_not_positions() -> None:
    first = compile_effective(INVOICE, patch(slot("a b", "in>a a>b b>out"))).topological_order
    other = compile_effective(INVOICE, patch(slot("b a", "b>out a>b in>a"))).topological_order
    assert first == other
    turned = compile_effective(INVOICE, patch(slot("a b", "in>b b>a a>out"))).topological_order
    assert turned.index("usr:review:b") < turned.index("usr:review:a")
