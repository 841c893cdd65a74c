"""Flows as the documentation and the tests write them, and random ones, keep the hashes they were published under.

`golden_flows.json` has a line per flow: the beginnings of two hashes, that of the compiled graph and that of the stored
source, and the expression that builds it. Lines are added and never changed: instances have pinned these hashes.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from random_flows import seeded_flow

import holdfast
from holdfast.doors.registry import source_of
from holdfast.doors.saga import Flow
from holdfast.graph.compile import compile_graph
from holdfast.payloads import hash_json

CORPUS = Path(__file__).parent / "golden_flows.json"
RANDOM = "18663676f8b712bbd977ef83ed4b58d831b3ae430956fa5911535b4e5f5e7980"  # of all random flows together
SEEDS = range(200)


class Names(dict[str, Any]):
    """Public names of Holdfast; every other one is a handler of that name."""

    def __missing__(self, name: str) -> Any:
        if name == "holdfast":
            return holdfast
        for home in (holdfast, builtins):
            if hasattr(home, name):
                return getattr(home, name)
        return handler(name)


def handler(name: str) -> Callable[..., Any]:
    def named(ctx: Any, data: Any = None) -> Any:
        return data

    named.__name__ = named.__qualname__ = name
    return named


def hashes(flow: Flow) -> tuple[str, str]:
    written = source_of(flow.build())
    return compile_graph(written.lower()).hash, hash_json(written.stored)


def test_flows_of_the_documentation_and_the_tests_keep_their_hashes() -> None:
    corpus: list[tuple[str, str, str]] = json.loads(CORPUS.read_text())
    assert len(corpus) > 300
    changed: list[str] = []
    for graph, source, code in corpus:
        found = hashes(eval(code, {}, Names()))
        if [each[:16] for each in found] != [graph, source]:
            changed.append(code)
    assert changed == []


def test_random_flows_keep_their_hashes() -> None:
    found = [hashes(seeded_flow(seed)) for seed in SEEDS]
    assert hash_json(found) == RANDOM
