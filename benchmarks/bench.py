"""What every case needs: the server, how long to measure, the peers, and a way to alternate."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.children import OURS, measure
from benchmarks.environment import peer_command
from benchmarks.server import Server


@dataclass
class Bench:
    server: Server
    rounds: int
    quick: bool
    versions: dict[str, str] = field(default_factory=dict)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def say(self, text: str) -> None:
        print(f"    {text}", flush=True)

    def ours(self, mode: str, database: str = "bench_ours", *, fresh: bool = True, **task: Any) -> dict[str, Any]:
        if fresh:
            self.server.fresh(database)
        return measure(OURS, {"mode": mode, "dsn": self.server.dsn(database), **task})

    def peer(self, name: str, **task: Any) -> dict[str, Any]:
        database = f"bench_{name}"
        self.server.fresh(database)
        answer = measure(peer_command(name), {"url": self.server.url(database), **task})
        self.versions[name] = answer["version"]
        return answer

    def alternate(self, contestants: dict[str, Callable[[], float]], *, times: int = 1) -> dict[str, float]:
        """The medians of every contestant's rounds."""
        figures = self.round_by_round(contestants, times=times)
        return {name: statistics.median(values) for name, values in figures.items()}

    def round_by_round(self, contestants: dict[str, Callable[[], float]], *, times: int = 1) -> dict[str, list[float]]:
        """Every contestant once per round, round after round: a slow minute of the machine meets them all. `times` as
        many rounds are made for what is short and shaky."""
        figures: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(1, self.rounds * times + 1):
            for name, run in contestants.items():
                figures[name].append(run())
            self.say(f"round {number}: " + ", ".join(f"{name} {figures[name][-1]:,.4g}" for name in contestants))
        return figures


def median_ms(answer: dict[str, Any]) -> float:
    return statistics.median(answer["latencies"]) * 1000
