"""What the demo shows while it runs: bars on a terminal, a line now and then everywhere else."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

SECONDS_BETWEEN_LINES = 1.0


class View:
    def __init__(self, orders: int, steps: tuple[str, ...]) -> None:
        self.orders = orders
        self._console = Console(highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description:>8}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._bars: dict[str, TaskID] = {step: self._progress.add_task(step, total=orders) for step in steps}
        self._bars["orders"] = self._progress.add_task("orders", total=orders)
        self._began = time.monotonic()
        self._last_line = 0.0

    def __enter__(self) -> View:
        self._began = time.monotonic()
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, done: int, by_step: Mapping[str, int]) -> None:
        for name, count in {**by_step, "orders": done}.items():
            self._progress.update(self._bars[name], completed=count)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            counts = "  ".join(f"{step} {count}" for step, count in by_step.items())
            self._console.print(f"{now - self._began:5.1f} s  {counts}  orders done {done}/{self.orders}")

    def note(self, sentence: str) -> None:
        self._console.print(f"[bold yellow]•[/bold yellow] {escape(sentence)}")

    def report(self, facts: Mapping[str, str], wrong: list[str]) -> None:
        self._progress.stop()
        self._console.print()
        width = max(map(len, facts))
        for name, fact in facts.items():
            self._console.print(f"  [dim]{name.ljust(width)}[/dim]  {escape(fact)}")
        self._console.print()
        if wrong:
            self._console.print("[bold red]The count is wrong:[/bold red]")
            for problem in wrong[:20]:
                self._console.print(f"  {escape(problem)}")
        else:
            self._console.print(
                "[bold green]Nothing was lost and nothing was done twice:[/bold green] "
                "every order went through exactly its steps, every side effect happened once."
            )

    def next_steps(self, directory: Path, dsn: str, psql: Path, *, is_running: bool) -> None:
        bin = Path(sys.executable).parent
        lines = [
            f"{shlex.quote(str(psql))} {shlex.quote(dsn)}",
            "    select node, status, calls, output from holdfast.steps order by created_at limit 20;",
            "    select type, node, actor, detail from holdfast.events order by created_at limit 20;",
            f"{bin / 'holdfast'} db stop --directory {shlex.quote(str(directory))}",
        ]
        if not is_running:
            lines.insert(0, f"{bin / 'holdfast'} db start --directory {shlex.quote(str(directory))}")
        self._console.print()
        self._console.print("To look at what was written:")
        for line in lines:
            self._console.print(f"  {escape(line)}")
        self._console.print(
            "The process is examples/order_shop.py; ARCHITECTURE.md and docs/index.md tell how it works."
        )
