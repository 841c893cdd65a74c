"""The time of a compile grows with the size of the graph, not with its square."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from statistics import median

import pytest
from large_envelopes import ONE_SLOT, deep_patch, large_contract, long_patch, wide_patch

from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition

ROUNDS = 9
MOST = 15  # ten times the nodes may take this many times as long

Pair = tuple[ContractDefinition, PatchDefinition | None]


@pytest.fixture
def own_heap() -> Iterator[None]:
    """Keep what other tests have left in memory out of the collections that happen meanwhile."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def seconds(pair: Pair) -> float:
    began = time.process_time()
    compile_effective(*pair)
    return time.process_time() - began


@pytest.mark.usefixtures("own_heap")
@pytest.mark.parametrize(
    ("small", "large"),
    [
        ((ONE_SLOT, long_patch(100)), (ONE_SLOT, long_patch(1_000))),
        ((ONE_SLOT, wide_patch(100)), (ONE_SLOT, wide_patch(1_000))),
        ((ONE_SLOT, deep_patch(100)), (ONE_SLOT, deep_patch(1_000))),
        ((large_contract(100), None), (large_contract(1_000), None)),
    ],
    ids=["one after the other", "side by side", "inside each other", "a large contract"],
)
def test_ten_times_the_nodes_take_about_ten_times_as_long(small: Pair, large: Pair) -> None:
    """Both in one process, alternating, so that a busy machine slows both."""
    times = [(seconds(small), seconds(large)) for _ in range(ROUNDS)]
    ratio = median(long for _, long in times) / median(short for short, _ in times)
    assert ratio <= MOST, ratio
