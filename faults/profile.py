"""How much of everything: the full profile has the sizes of the bars, the short one fits into the test suite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    is_short: bool

    def size(self, full: int, short: int) -> int:
        return short if self.is_short else full

    def seconds(self, full: float, short: float) -> float:
        return short if self.is_short else full

    @property
    def name(self) -> str:
        return "short" if self.is_short else "full"


SHORT = Profile(is_short=True)
FULL = Profile(is_short=False)
