"""Random documents in a random world: whatever people do in whatever order, no gate is entered past an approval.

`HOLDFAST_PROFILE=long pytest tests/core/test_documents_random.py -s` runs 100,000 executions and prints the count.
"""

from __future__ import annotations

from collections import Counter

import pytest
from core_document_world import DocumentWorld
from core_random_documents import RandomDocument, documents
from hypothesis import given, settings
from hypothesis import strategies as st
from test_properties import PROFILE, RANDOM

from holdfast.core.model.program import link
from holdfast.graph.compile import compile_graph

PER_DOCUMENT = 10
EXAMPLES = {"short": 200, "long": 10_000}[PROFILE]
seen = Counter[str]()


@settings(RANDOM, max_examples=EXAMPLES)
@given(document=documents(), seed=st.integers(0, 2**32))
def executions(document: RandomDocument, seed: int) -> None:
    program = link(compile_graph(document.graph))
    for index in range(PER_DOCUMENT):
        world = DocumentWorld(program, seed + index, document)
        world.run(steps=40)
        seen.update(world.seen)
        seen.update({"executions": 1, "decisions": world.instance.version, world.instance.status: 1})
        assert not world.plain, "the fast paths know nothing of regions"


def test_no_gate_is_entered_past_an_approval(capsys: pytest.CaptureFixture[str]) -> None:
    seen.clear()
    executions()
    with capsys.disabled():
        print("\n" + ", ".join(f"{count} {what}" for what, count in sorted(seen.items())))
    assert seen["executions"] >= EXAMPLES * PER_DOCUMENT
    for what in ("gates", "interrupts", "verbs", "edits", "re-runs", "APPROVAL_PASSED", "completed"):
        assert seen[what] >= EXAMPLES // 4, f"{what} hardly happened: the promises were not put to the test"
