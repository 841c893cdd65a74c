"""WF-12: the same contract, patch and tables give the same artifact, in any order, in any process, of any Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from envelope_samples import INVOICE, LIMITS, LONG, ONE, edge, patch, step
from msgspec.structs import replace
from random_envelopes import TABLES, random_contract, random_patch, shuffled_contract, shuffled_patch

from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.lowering import lower_contract
from holdfast.doors.envelope.model import SlotPatch
from holdfast.graph.compile import compile_graph
from holdfast.graph.compiled import dump_compiled, graph_of

HERE = Path(__file__).parent
# A change here strands every effective graph that documents have pinned.
PINNED_ENVELOPE = "31ebf4ac25b176569399a54284ab4540507e0f7cdfa724ae016a577fb5b193d2"
PINNED_EFFECTIVE = "3f641b50d636e16160161dd229eede53418a7c6535f247b990bbfc8977ed7e90"


def test_two_compiles_of_the_same_are_the_same() -> None:
    first, second = (compile_effective(INVOICE, LONG, tables=LIMITS) for _ in range(2))
    assert first.hash == second.hash
    assert json.dumps(dump_compiled(first)) == json.dumps(dump_compiled(second))


def test_the_hashes_are_pinned() -> None:
    assert lower_contract(INVOICE).config["hash"] == PINNED_ENVELOPE
    assert compile_effective(INVOICE, LONG, tables=LIMITS).hash == PINNED_EFFECTIVE


@pytest.mark.parametrize("seed", range(40))
def test_the_order_of_writing_does_not_matter(seed: int) -> None:
    random = Random(seed)
    contract = random_contract(random)
    written = random_patch(random, contract, filled=True, size=12)
    compiled = compile_effective(contract, written, tables=TABLES)
    for _ in range(3):
        again = compile_effective(shuffled_contract(random, contract), shuffled_patch(random, written), tables=TABLES)
        assert json.dumps(dump_compiled(again)) == json.dumps(dump_compiled(compiled))


def test_nor_does_the_order_within_the_graph() -> None:
    compiled = compile_effective(INVOICE, LONG, tables=LIMITS)
    random, graph = Random(1), graph_of(compiled)
    for _ in range(20):
        shuffled = replace(
            graph,
            nodes=tuple(random.sample(graph.nodes, len(graph.nodes))),
            edges=tuple(random.sample(graph.edges, len(graph.edges))),
            regions=tuple(
                replace(region, nodes=tuple(random.sample(region.nodes, len(region.nodes))))
                for region in random.sample(graph.regions, len(graph.regions))
            ),
        )
        assert compile_graph(shuffled).hash == compiled.hash


def test_lists_of_names_have_no_order() -> None:
    policy = replace(INVOICE.policies[0], on=("post", "mark"))
    swapped = replace(policy, on=("mark", "post"))
    hashes = {compile_effective(replace(INVOICE, policies=(each,)), patch(ONE)).hash for each in (policy, swapped)}
    assert len(hashes) == 1


def test_a_condition_keeps_its_edge_whatever_comes_before_it() -> None:
    """Named regression: the order in which a builder adds edges never decides which condition is on which edge."""
    edges = [
        edge("check>out", when="entity.total < 5", priority=1),
        edge("check>ann", when="entity.total > 1000", priority=2),
        edge("check>ben", priority=3),
    ]
    rest = [edge("in>check"), edge("ann>out:approved"), edge("ben>out:approved")]
    nodes = (step("check"), step("ann", "approval"), step("ben", "approval"))
    for number in range(len(edges)):
        turned = [*edges[number:], *edges[:number], *rest]
        compiled = compile_effective(INVOICE, patch(SlotPatch(nodes=nodes, edges=tuple(turned))))
        ways = [compiled.edges[id] for id in compiled.adjacency["usr:review:check"]]
        assert [(way.when, way.target) for way in ways] == [
            ("entity.total < 5", "sys:slot:review:out"),
            ("entity.total > 1000", "usr:review:ann"),
            (None, "usr:review:ben"),
        ]


SCRIPT = """
from envelope_samples import INVOICE, LIMITS, LONG
from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.lowering import lower_contract
print(lower_contract(INVOICE).config["hash"], compile_effective(INVOICE, LONG, tables=LIMITS).hash)
"""
NEEDED = "import sys; assert sys.version_info >= (3, 11); import cronsim, jsonschema_rs, lark, msgspec, rfc8785"


def pythons() -> list[str]:
    """Find the releases of Python that have what the compiler needs; this one always has."""
    named = [shutil.which(f"python3.{minor}") for minor in range(11, 20)]
    found = [*filter(None, named), *map(str, Path.home().glob(".pyenv/versions/*/bin/python3"))]
    return [sys.executable, *(python for python in found if run(python, NEEDED).returncode == 0)]


def run(python: str, script: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONHASHSEED": seed,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[2] / "src")]),
    }
    return subprocess.run([python, "-c", script], check=False, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("seed", ["0", "1", "4294967295"])
def test_another_process_of_any_python_gives_the_same_hash(seed: str) -> None:
    """Sets are in another order under another seed."""
    for python in pythons():
        done = run(python, SCRIPT, seed)
        assert done.stdout.split() == [PINNED_ENVELOPE, PINNED_EFFECTIVE], (python, done.stderr)
