"""Text 4.10 as a page: one file that loads nothing, shows hostile text as text, and can be read without eyes."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from tests.hostile_texts import HOSTILE_TEXTS, MARKUP

from holdfast import Activity, Lifecycle, LifecycleEntry, LifecycleInstance
from holdfast.views.lifecycle_page import lifecycle_page

NOW = datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
ID = "0197a2c4-5d1e-7c3a-9b7e-2f40c1a5d6ee"
ATTACKS = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)",
    "</style><script>x</script>",
    "</title><svg onload=alert(1)>", "&lt;b&gt;", "<!--", "]]>", "javascript:alert(1)", "\u202egnp.exe",
    "a\x00b\x1b[31m",
    "{{7*7}}", "<a href=//evil.example>", "line\nbreak", "\u2028", "😀", "مرحبا",
]  # fmt: skip


def activity(**fields: Any) -> Activity:
    made = Activity(ID, ID, 1, "review", "Check", "r1", "Done", None, False, NOW, NOW)
    return msgspec.structs.replace(made, **fields)


def document(**fields: Any) -> Lifecycle:
    about = LifecycleInstance(
        ID, ID, "V-17", "vendor", "prod", "vendor", 1, 3, "running", "review", "submit", NOW, NOW
    )  # fmt: skip
    start = LifecycleEntry(0, ID, None, "draft", None, None, "ann", None, NOW, NOW, [])
    entry = LifecycleEntry(1, ID, "draft", "review", "submit", 1001, "ann", {"n": 7}, NOW, NOW, [activity()])
    return msgspec.structs.replace(Lifecycle(about, [start, entry], [activity(entry=None)]), **fields)


class Reader(HTMLParser):
    """The tags with their attributes, and the text outside of the style sheet."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def with_everywhere(text: str) -> Lifecycle:
    made = document()
    stored = text.encode(errors="replace").decode()  # JSON has no halves of a pair
    about = msgspec.structs.replace(
        made.instance, external_ref=text, definition=text, environment=text, current_state=text, last_event=text
    )
    hostile = activity(name=text, actor=text, status=text, data={stored: [stored]})
    entry = msgspec.structs.replace(
        made.entries[1],
        from_state=text,
        to_state=text,
        event=text,
        actor=text,
        payload={stored: stored},
        activities=[hostile],
    )
    return msgspec.structs.replace(made, instance=about, entries=[entry], other_activities=[hostile])


SHAPE = [tag for tag, _ in Reader(lifecycle_page(with_everywhere("plain"))).tags]


@pytest.mark.parametrize("text", [*ATTACKS, *HOSTILE_TEXTS.values(), *MARKUP.values()])
def test_no_text_becomes_a_tag_or_an_attribute(text: str) -> None:
    page = lifecycle_page(with_everywhere(text))
    read = Reader(page)
    assert [tag for tag, _ in read.tags] == SHAPE
    assert {name for _, attributes in read.tags for name in attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "id", "aria-label", "datetime", "scope", "class"
    }  # fmt: skip
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u2028\u2029]", page)


def test_nothing_is_loaded_and_nothing_runs() -> None:
    page = lifecycle_page(document())
    tags = {tag for tag, _ in Reader(page).tags}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "svg",
        "a",
        "audio",
        "video",
    }
    assert not re.search(r"url\(|@import|https?:|//", page.replace("<!DOCTYPE html>", ""))
    assert "default-src &#x27;none&#x27;" in page


def test_the_page_has_what_the_document_has() -> None:
    text = Reader(lifecycle_page(document(truncated=True))).text
    for part in (
        "vendor V-17",
        "draft",
        "review",
        "submit (1001)",
        "by ann",
        '"n": 7',
        "Check",
        "Earlier entries",
        "2026-05-01",
    ):
        assert part in text, part


def test_the_page_can_be_read_without_eyes_in_the_dark_and_on_paper() -> None:
    page = lifecycle_page(document())
    read = Reader(page)
    tags = [tag for tag, _ in read.tags]
    assert (read.tags[0], tags.count("h1"), tags.count("main"), tags.count("title")) == (
        ("html", {"lang": "en"}),
        1,
        1,
        1,
    )
    assert tags.count("table") == tags.count("caption") == 2
    assert all("scope" in attributes for tag, attributes in read.tags if tag == "th")
    assert [tag for tag in tags if tag in ("h1", "h2", "h3")] == ["h1", "h2", "h3", "h3", "h2"]
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_a_huge_payload_is_cut() -> None:
    made = document()
    entry = msgspec.structs.replace(made.entries[1], payload={"text": "x" * 1_000_000})
    assert len(lifecycle_page(msgspec.structs.replace(made, entries=[entry]))) < 60_000


def test_equal_documents_give_equal_pages() -> None:
    assert lifecycle_page(document()) == lifecycle_page(document())
