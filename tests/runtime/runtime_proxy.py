"""The door of the fault harness, with the COMMITs to lose given by number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from faults.proxy import Door, Fate, door


@contextmanager
def lossy_door(dsn: str, lose: Literal["commit", "answer"], which: set[int]) -> Iterator[tuple[Door, str]]:
    """Numbers count over all connections; the set may change while the door is open."""

    def fate() -> Fate:
        return lose if opened.commits in which else "pass"

    with door(dsn, fate) as (opened, address):
        yield opened, address
