"""Rows with bars, and the three places they go: the terminal, build/bench.json, the figures in docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from benchmarks.children import ROOT

BUILD = ROOT / "build"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass(frozen=True)
class Bar:
    """What a figure has to reach: at least, at most or exactly a limit."""

    direction: Literal["≥", "≤", "="]
    limit: float
    unit: str = "×"

    def holds(self, value: float) -> bool:
        if self.direction == "=":
            return value == self.limit
        return value >= self.limit if self.direction == "≥" else value <= self.limit

    def __str__(self) -> str:
        return f"{self.direction} {shown(self.limit, self.unit)}"


@dataclass(frozen=True)
class Row:
    """One measured figure beside its bar. `value` is None when the measurement itself failed."""

    name: str
    value: float | None
    bar: Bar
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.value is not None and self.bar.holds(self.value)

    def as_json(self) -> dict[str, object]:
        value = None if self.value is None else round(self.value, 4)
        return {"name": self.name, "value": value, "bar": str(self.bar), "ok": self.ok}


def shown(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{number}{'' if unit in ('×', '%') else ' '}{unit}".rstrip()


def machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "holdfast": version("holdfast"),
        "psycopg": version("psycopg"),
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table(rows: list[Row]) -> str:
    """Markdown, readable in a terminal too."""
    return "\n".join(["| measure | value | bar | | detail |", "|---|---|---|---|---|", *map(line, rows)])


def line(row: Row) -> str:
    value = "failed" if row.value is None else shown(row.value, row.bar.unit)
    verdict = "ok" if row.ok else "**missed**"
    return f"| {row.name} | {value} | {row.bar} | {verdict} | {row.detail} |"


def facts(settings: dict[str, str], versions: dict[str, str], rounds: int) -> str:
    parts = {**machine(), **versions, **settings, "rounds": str(rounds)}
    return "\n".join(f"- {name}: {value}" for name, value in parts.items())


def write_json(rows: list[Row], *, whole: bool) -> Path:
    """A shortened run gets a file of its own, so that it never passes for the figures of a whole one."""
    BUILD.mkdir(exist_ok=True)
    path = BUILD / ("bench.json" if whole else "bench-partial.json")
    path.write_text(json.dumps([row.as_json() for row in rows], indent=2, ensure_ascii=False) + "\n")
    return path


def write_page(rows: list[Row], environment: str) -> None:
    """Replace the figures between the two markers; everything else on the page is written by hand."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    figures = f"{BEGIN}\n\nMeasured {when}.\n\n{table(rows)}\n\n{environment}\n\n{END}"
    PAGE.write_text(head + figures + tail)


def replace_rows(rows: list[Row]) -> None:
    """Some cases were measured again: their rows take the place of those on the page, new ones come last."""
    lines = PAGE.read_text().split("\n")
    last = max(number for number, text in enumerate(lines[: lines.index(END)]) if text.startswith("|"))
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    for row in rows:
        again = line(replace(row, detail=f"{row.detail} (alone, {when})".strip()))
        place = next((n for n, text in enumerate(lines) if text.startswith(f"| {row.name} |")), None)
        if place is None:
            last += 1
            lines.insert(last, again)
        else:
            lines[place] = again
    PAGE.write_text("\n".join(lines))
