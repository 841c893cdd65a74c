"""The glossary: each word once, every name in it real, and headings that use its words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.test_docs import PAGES, ROOT, SOURCE, commands
from typer.main import get_command

from holdfast import Engine
from holdfast.cli.app import app

PAGE = ROOT / "docs" / "glossary.md"
# Words of the third column that no heading uses for their concept. Most of that column means something else somewhere
# ("a user", "a service", "a state of an instance"), so this is the part that can be read without knowing the sentence.
FORBIDDEN: Final = [
    *("activity", "adapter", "callback", "child workflow", "claimant", "connector", "execution", "freeze"),
    *("housekeeping", "inverse", "kill", "nested flow", "outstanding", "pause", "pausing", "piggyback", "plugin"),
    *("poison message", "poller", "redeliver", "redrive", "resubmit", "sub-tenant", "terminate", "unpause"),
    *("unwinding", "work item", "workflow run"),
]
# Headings that name a command or another engine's word.
ELSEWHERE: Final = ("holdfast ", "0018 ")


class Entry(NamedTuple):
    word: str
    meaning: str
    instead: list[str]
    where: str


def entries() -> list[Entry]:
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    return [Entry(word, meaning, instead.split(", "), where) for word, meaning, instead, where in rows]


def headings(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", prose, re.MULTILINE)


def test_every_row_of_the_glossary_is_read() -> None:
    assert len(entries()) == PAGE.read_text().count("\n| **") > 50


def test_a_word_is_defined_once() -> None:
    words = [entry.word for entry in entries()]
    assert sorted({word for word in words if words.count(word) > 1}) == []


def test_a_word_has_one_sentence_and_is_no_synonym_of_itself() -> None:
    for entry in entries():
        assert re.fullmatch(r"[A-Z][^.!?]*(?:\.\w[^.!?]*)*\.", entry.meaning), entry.word
        assert entry.word not in entry.instead, entry.word


def test_the_names_of_the_glossary_exist() -> None:
    text = PAGE.read_text()
    sql = "".join(file.read_text() for file in (SOURCE / "store" / "migrations").glob("*.sql"))
    for table in re.findall(r"tables? `(\w+)`(?:, `(\w+)`)?", text):
        assert all(f"create table holdfast.{name} (" in sql for name in table if name), table
    for column in re.findall(r"column `(\w+)`", text):
        assert re.search(rf"^    {column} \w", sql, re.MULTILINE), column
    events = (ROOT / "docs" / "events.md").read_text()
    for event in re.findall(r"event `(\w+)`", text):
        assert f"| `{event}`" in events, event
    for verb in re.findall(r"`engine\.(\w+)`", text):
        assert hasattr(Engine, verb), verb
    known = {name for name, _ in commands(get_command(app), "holdfast")}
    for command in re.findall(r"`(holdfast [a-z ]+?)(?: [A-Z]+)?`", text):
        assert any(name == command or name.startswith(f"{command} ") for name in known), command
    for package in re.findall(r"`(?:src/holdfast/)?((?:core|runtime|store)/[\w/]+)`", text):
        assert (SOURCE / package).exists(), package


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_headings_use_the_words_of_the_glossary(page: Path) -> None:
    for heading in headings(page):
        if page != PAGE and not heading.startswith(ELSEWHERE):
            found = [word for word in FORBIDDEN if re.search(rf"\b{word}\b", heading, re.IGNORECASE)]
            assert found == [], f"{page.name}: {heading!r}"


def test_forbidden_words_are_those_of_the_glossary() -> None:
    listed = {word for entry in entries() for word in entry.instead}
    assert [word for word in FORBIDDEN if word not in listed and word != "pausing"] == []
