"""Counts by flow for a scraper: each tenant's flows by name for itself, those of all others together.

A process serves every tenant, and its metrics are read by one. So names are kept by tenant, and a reader gets the names
of one tenant only. Scrapers keep labels for ever: the number of names is limited, per tenant and in all.
"""

from __future__ import annotations

import threading
from typing import Final

MOST_NAMED: Final = 1000  # of one tenant
MOST_IN_ALL: Final = 20_000
OTHERS: Final = "(others)"

Labels = tuple[str, ...]


class FlowCounts:
    """Counts by labels of which the first are names out of definitions, and the rest words of ours.

    `home` is the tenant whose metrics these are first of all: its names are not in the number of all.
    """

    def __init__(self, home: str, *, names: int = 1) -> None:
        self._home = home
        self._hidden = (OTHERS,) * names
        self._named: dict[str, dict[Labels, int]] = {}
        self._totals: dict[Labels, int] = {}
        self._size = 0
        self._turn = threading.Lock()  # read by the scraper's thread: sum and parts must fit, a counter never falls

    def add(self, org: str, *labels: str) -> None:
        hidden = self._without_names(labels)
        with self._turn:
            self._totals[hidden] = self._totals.get(hidden, 0) + 1
            named = self._named.get(org, {})
            if labels in named or self._has_room(org, named):
                self._size += labels not in named
                named[labels] = named.get(labels, 0) + 1
                self._named[org] = named

    def of(self, org: str) -> dict[Labels, int]:
        """Counts for this tenant: its own by name, the rest under `(others)`."""
        with self._turn:
            own, left = dict(self._named.get(org, {})), dict(self._totals)
        for labels, count in own.items():
            left[self._without_names(labels)] -= count
        return own | {hidden: count for hidden, count in left.items() if count}

    def _has_room(self, org: str, named: dict[Labels, int]) -> bool:
        return len(named) < MOST_NAMED and (org == self._home or self._size < MOST_IN_ALL)

    def _without_names(self, labels: Labels) -> Labels:
        return (*self._hidden, *labels[len(self._hidden) :])
