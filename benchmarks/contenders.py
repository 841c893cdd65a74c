"""The peers' modes, and which of them is best here: nobody is measured in a mode its users would not choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.bench import Bench, median_ms

KEPT = 2


@dataclass(frozen=True)
class Mode:
    """One way to run a peer: the script's mode and its tuning."""

    peer: str
    label: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.peer}, {self.label}"

    def rate(self, bench: Bench, flows: int, steps: int) -> float:
        """Flows per second."""
        answer = bench.peer(self.peer, flows=flows, steps=steps, **self.options)
        return flows / answer["seconds"]

    def latency(self, bench: Bench, flows: int, steps: int) -> float:
        """The median of one flow alone, in milliseconds."""
        return median_ms(bench.peer(self.peer, flows=flows, steps=steps, **self.options))


def dbos(label: str, mode: str, in_flight: int, pool: int, **more: Any) -> Mode:
    options = {"mode": mode, "in_flight": in_flight, "pool": pool, "ping": False, "polling": 0.05, "batch": 1000}
    return Mode("dbos", label, {**options, **more})


def absurd(label: str, mode: str, workers: int, concurrency: int, batch: int) -> Mode:
    return Mode("absurd", label, {"mode": mode, "workers": workers, "concurrency": concurrency, "batch": batch})


DIRECT = (
    dbos("32 threads, default pool and ping", "threads", 32, 20, ping=True),
    dbos("8 threads", "threads", 8, 8),
    dbos("16 threads", "threads", 16, 16),
    dbos("32 threads", "threads", 32, 32),
    dbos("64 threads", "threads", 64, 64),
    dbos("start_workflow, 64", "started", 64, 64),
    dbos("asyncio, 32", "coroutines", 32, 32),
)
DBOS_FLOWS = (
    *DIRECT,
    dbos("queue, 32", "queue", 32, 32),
    dbos("queue, 64", "queue", 64, 64),
    dbos("queue, async, 64", "queue_async", 64, 64),
)
DBOS_FLOWS_WITH_STARTS = (*DIRECT, dbos("queue, 64", "queue_with_starts", 64, 64))
DBOS_ENQUEUE = (
    dbos("enqueue_workflow, 32 threads", "enqueue", 32, 32),
    dbos("enqueue_workflow, 8 threads", "enqueue", 8, 8),
    dbos("client.enqueue, 32 threads", "client_enqueue", 32, 32),
    dbos("client.enqueue, 8 threads", "client_enqueue", 8, 8),
)
DBOS_ENQUEUE_MANY = (
    *DBOS_ENQUEUE,
    dbos("enqueue_in_transaction, 1,000 a transaction", "enqueue_in_transactions", 1, 8),
)
DBOS_ALONE = (
    dbos("direct call, ping", "alone", 1, 20, ping=True),
    dbos("direct call", "alone", 1, 20),
    dbos("start_workflow", "alone_started", 1, 20),
)
ABSURD_FLOWS = (
    absurd("1 worker", "threads", 1, 1, 16),
    absurd("4 worker threads", "threads", 4, 1, 16),
    absurd("8 worker threads", "threads", 8, 1, 16),
    absurd("16 worker threads", "threads", 16, 1, 16),
    absurd("8 worker threads, claims of 64", "threads", 8, 1, 64),
    absurd("asyncio, 32", "coroutines", 1, 32, 32),
    absurd("4 loops, 8 each", "coroutines", 4, 8, 8),
)
ABSURD_ALONE = (Mode("absurd", "spawn and work_batch", {"mode": "alone"}),)


def best(bench: Bench, modes: tuple[Mode, ...], score: Callable[[Mode], float], *, high: bool) -> tuple[Mode, ...]:
    """Try every mode once, keep the best two: which of them wins a round is often a matter of the minute."""
    if len(modes) <= KEPT:
        return modes
    scores = [(score(mode), mode) for mode in modes]
    for figure, mode in scores:
        bench.say(f"trying {mode.title}: {figure:,.4g}")
    ranked = sorted(scores, key=lambda pair: pair[0], reverse=high)
    return tuple(mode for _, mode in ranked[:KEPT])


def best_rate(bench: Bench, modes: tuple[Mode, ...], flows: int, steps: int) -> tuple[Mode, ...]:
    return best(bench, modes, lambda mode: mode.rate(bench, flows, steps), high=True)


def best_latency(bench: Bench, modes: tuple[Mode, ...], flows: int, steps: int) -> tuple[Mode, ...]:
    return best(bench, modes, lambda mode: mode.latency(bench, flows, steps), high=False)


def rates(bench: Bench, modes: tuple[Mode, ...], flows: int, steps: int) -> dict[str, Callable[[], float]]:
    return {mode.title: lambda mode=mode: mode.rate(bench, flows, steps) for mode in modes}


def latencies(bench: Bench, modes: tuple[Mode, ...], flows: int, steps: int) -> dict[str, Callable[[], float]]:
    return {mode.title: lambda mode=mode: mode.latency(bench, flows, steps) for mode in modes}
