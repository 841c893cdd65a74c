"""Docstrings keep the rule of `docstring_rule.py`, in every package."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from tests.docstring_rule import complaints, docstrings, package

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"
SHARE: Final = 0.02  # of a package; words are read without grammar, so a few may be wrong about a good sentence


def counted() -> tuple[Counter[str], dict[str, list[str]]]:
    totals: Counter[str] = Counter()
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = package(path, SOURCE)
        for docstring in docstrings(path):
            totals[name] += 1
            if said := complaints(docstring.text):
                where = f"{path.relative_to(SOURCE)}:{docstring.line} {docstring.name}"
                found.setdefault(name, []).append(f"{where}: {'; '.join(said)}")
    return totals, found


def test_docstrings_name_the_actor_and_put_the_verb_first() -> None:
    totals, found = counted()
    for name, against in found.items():
        allowed = int(SHARE * totals[name])
        assert len(against) <= allowed, "\n".join([f"{name}: at most {allowed}", *against])


@pytest.mark.parametrize(
    "text",
    [
        "Lock, in sorted order, the event keys this batch will wait on.",
        "The number of the newest migration this code knows.",
        "Instance timeout in DLQ mode while handlers or sub-flows are still running.",
        "Allowed: the starter, holders of the flow's start capabilities, operators.",
        "Counts of one day, by flow.",
        "Starts per minute.",
        "Check the version an instance is expected to have.",
        "Write one statement per table, whatever the size of the batch.",
        "`None` until the first commit.",
        "Decide the end of a step.",
        "Run a handler that may block the loop.",
    ],
)
def test_a_docstring_that_keeps_the_rule(text: str) -> None:
    assert complaints(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Waits by key lock their keys, all of a batch in one order: found by deciding once for nothing.",
        "Whoever started it, whoever could have started it, and operators; for whoever may not see it there is none.",
        "A DLQ flow whose time is over while handlers and sub-flows are out.",
        "What is done at best effort and fails does not stop a flow; the context may remember why.",
        "Whether handlers are to stop.",
        "How deep an instance is.",
        "The login may not do this.",
        "Committed at the end, rolled back on any error.",
        "Of any organisation.",
        "Take the row. Nobody else has it then.",
        "Return what is left.",
        "A statement that may not stand in a transaction.",
        "Where the instance stands.",
        "Decided at length.",
    ],
)
def test_a_docstring_that_breaks_the_rule(text: str) -> None:
    assert complaints(text) != []
