"""Defect 21: phases go out together: none waits for the gates before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from faults.defects.patching import replace
from holdfast.core.machine import gates
from holdfast.graph.machine import Hook


def apply() -> None:
    replace(gates, "_up_to_a_gate", _all_of)


def _all_of(left: Iterable[tuple[int, list[Hook]]]) -> Iterator[Hook]:
    for _, hooks in left:
        yield from hooks
