"""Figures with bars, and where they go: the terminal, build/faults.json, the table in docs/reliability.md."""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PAGE = ROOT / "docs" / "reliability.md"


@dataclass(frozen=True)
class Bar:
    """What a figure has to reach: at least, at most or exactly a limit."""

    direction: Literal["≥", "≤", "=", ">"]
    limit: float
    unit: str = ""

    def holds(self, value: float) -> bool:
        match self.direction:
            case "≥":
                return value >= self.limit
            case "≤":
                return value <= self.limit
            case ">":
                return value > self.limit
            case _:
                return value == self.limit

    def __str__(self) -> str:
        return f"{self.direction} {shown(self.limit, self.unit)}"


@dataclass(frozen=True)
class Figure:
    """One figure beside its bar. `value` is None when the run broke; `detail` says out of how many."""

    name: str
    value: float | None
    bar: Bar
    seed: int
    detail: str = ""
    valid: bool = True  # False: the faults did not really hit, or too little finished, so the value proves nothing

    @property
    def ok(self) -> bool:
        return self.valid and self.value is not None and self.bar.holds(self.value)

    def as_json(self) -> dict[str, object]:
        value = None if self.value is None else round(self.value, 4)
        return {"name": self.name, "value": value, "bar": str(self.bar), "ok": self.ok, "seed": self.seed}


NONE = Bar("=", 0)
_SCENARIO = re.compile(r"S(\d+)")


def in_order(figures: list[Figure]) -> list[Figure]:
    """By the number of the scenario; those without one come last."""

    def place(figure: Figure) -> float:
        found = _SCENARIO.match(figure.name)
        return float(found[1]) if found else float("inf")

    return sorted(figures, key=place)


def shown(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"
    return f"{number}{'' if unit in ('×', '%') else ' '}{unit}".rstrip()


def line(figure: Figure) -> str:
    value = "failed" if figure.value is None else shown(figure.value, figure.bar.unit)
    verdict = "ok" if figure.ok else "INVALID" if not figure.valid else "MISSED"
    return f"{figure.name}: {value} (bar {figure.bar}) {verdict} · {figure.detail}"


def table(figures: list[Figure]) -> str:
    lines = ["| figure | value | bar | | out of | seed |", "|---|---|---|---|---|---|"]
    for figure in figures:
        value = "failed" if figure.value is None else shown(figure.value, figure.bar.unit)
        verdict = "ok" if figure.ok else "**invalid**" if not figure.valid else "**missed**"
        lines.append(f"| {figure.name} | {value} | {figure.bar} | {verdict} | {figure.detail} | {figure.seed} |")
    return "\n".join(lines)


def machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "holdfast": version("holdfast"),
        "psycopg": version("psycopg"),
    }


def write_json(figures: list[Figure], *, whole: bool) -> Path:
    """A shortened run gets a file of its own, so that it never passes for the figures of a whole one."""
    BUILD.mkdir(exist_ok=True)
    path = BUILD / ("faults.json" if whole else "faults-partial.json")
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps([figure.as_json() for figure in figures], indent=2, ensure_ascii=False) + "\n")
    draft.rename(path)  # partial runs may end at the same time
    return path


def write_page(figures: list[Figure], facts: dict[str, str], part: str = "figures") -> None:
    """Replace what stands between the two markers of a part; everything else on the page is written by hand."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    head, _, rest = PAGE.read_text().partition(begin)
    _, found, tail = rest.partition(end)
    assert found, f"{PAGE.name} has no place for {part}"
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    known = "\n".join(f"- {name}: {value}" for name, value in {**machine(), **facts}.items())
    PAGE.write_text(f"{head}{begin}\n\nRun on {when}.\n\n{table(figures)}\n\n{known}\n\n{end}{tail}")
