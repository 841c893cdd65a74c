"""Differences as text and as a page: golden texts of changes people make, and names that try to break out."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from envelope_samples import BOTH, INVOICE, LIMITS, LONG, ONE, edge, patch, step
from msgspec.structs import replace
from tests.hostile_texts import HOSTILE_TEXTS, MARKUP, steers

from holdfast.doors.envelope.effective import compile_effective, compile_envelope
from holdfast.doors.envelope.model import Approvers, PatchDefinition, SlotPatch
from holdfast.graph.compiled import Compiled, dump_compiled
from holdfast.graph.difference.compare import difference
from holdfast.views.difference_page import difference_page
from holdfast.views.difference_text import difference_text

ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='alert(1)",
    "</text></svg><script>alert(1)</script>",
    "</title><style>*{display:none}</style>",
    "--></style><a href=javascript:alert(1)>",
    "<![CDATA[<script>]]>",
    "&lt;b&gt;",
)


def effective(written: PatchDefinition) -> Compiled:
    return compile_effective(INVOICE, written, tables=LIMITS)


def text(before: Compiled, after: Compiled) -> str:
    return difference_text(difference(before, after))


# --- golden texts -----------------------------------------------------------------------------------------------------


def test_the_first_patch() -> None:
    assert text(compile_envelope(INVOICE), effective(patch(ONE))) == (
        "invoice: envelope 1 → patch 1 of envelope 1\n"
        "\n"
        "slot review: empty → filled\n"
        "  + approval ann\n"
        "      window     amend_only\n"
        "      approvers  role finance\n"
        "  + ann → out on approved\n"
        "  + ann → rejected on rejected\n"
        "  + in → ann\n"
    )


def test_another_person_another_time_another_limit() -> None:
    def asked(limit: int, **fields: Any) -> PatchDefinition:
        nodes = (step("check"), step("ann", "approval", **fields), step("rest", "wait_timer", delay=fields["due"] / 2))
        ways = [edge(each) for each in ("in>check", "check>rest", "rest>out", "ann>out:approved")]
        return patch(SlotPatch(nodes=nodes, edges=(*ways, edge("check>ann", when=f"entity.total > {limit}"))))

    before = asked(100, due=3600.0)
    after = asked(200, due=183_600.5, approvers=Approvers(user="ben"))
    assert text(effective(before), effective(replace(after, version=2))) == (
        "invoice: patch 1 of envelope 1 → patch 2 of envelope 1\n"
        "\n"
        "slot review: filled\n"
        "  ~ approval ann\n"
        "      approvers  person none → 'ben'\n"
        "      timer      due in 1 hour → 2 days 3 hours 0.5 seconds\n"
        "      approvers  role finance → none\n"
        "  ~ wait timer rest\n"
        "      timer      wait 30 minutes → 1 day 1 hour 30 minutes 0.25 seconds\n"
        "  ~ check → ann\n"
        "      condition  entity.total > 100 → entity.total > 200\n"
    )


def test_actions_and_tables() -> None:
    def acting(action: str, version: int) -> PatchDefinition:
        nodes = (step("ask", "rule", table_version=version), step("do", "action", action=action))
        return patch(SlotPatch(nodes=nodes, edges=tuple(map(edge, ("in>ask", "ask>do", "do>out")))))

    assert text(effective(acting("post", 1)), effective(acting("mark", 2))) == (
        "invoice: patch 1 of envelope 1 → patch 1 of envelope 1\n"
        "\n"
        "slot review: filled\n"
        "  ~ rule ask\n"
        f"      table      hash {'1' * 64} → {'2' * 64}\n"
        "      table      version 1 → 2\n"
        "  ~ action do\n"
        "      action     post → mark\n"
        "      action     as system → actor\n"
        "\n"
        "tables\n"
        "  ~ table limits\n"
        f"      table      hash {'1' * 64} → {'2' * 64}\n"
        "      table      rows 1 → 2\n"
        "      table      version 1 → 2\n"
    )


def test_a_contract_that_changed() -> None:
    newer = replace(INVOICE, version=2, verbs=(*INVOICE.verbs[:2], replace(INVOICE.verbs[2], when="entity.total > 0")))
    assert text(compile_envelope(INVOICE), compile_envelope(newer)) == (
        "invoice: envelope 1 → envelope 2\n"
        "\n"
        "envelope\n"
        "  ~ verb active.cancel\n"
        "      condition  none → entity.total > 0\n"
        "  ~ state active\n"
        "      condition  of cancel none → entity.total > 0\n"
    )


def test_graphs_that_mean_the_same() -> None:
    graph = effective(patch(BOTH))
    assert text(graph, graph).splitlines()[1:] == ["no difference"]
    assert "<p>No difference.</p>" in difference_page(graph, graph)


def test_names_of_the_sides() -> None:
    one = effective(patch(ONE))
    assert difference_text(difference(one, one), ("in force", "draft")).startswith("invoice: in force → draft\n")
    assert "<figcaption>draft</figcaption>" in difference_page(one, one, ("in force", "draft"))


# --- the page ---------------------------------------------------------------------------------------------------------


class Reader(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def hostile(graph: Compiled, text: str) -> Compiled:
    """Put a text wherever people write one: names, ids, events, conditions, roles, and the type of the documents."""
    # Stored JSON has no halves of a pair and no NUL.
    stored = json.dumps(text.encode(errors="replace").decode().replace("\0", ""))[1:-1]
    dumped = json.dumps(dump_compiled(graph))
    for word in ("ann", "finance", "review", "invoice", "submitted", "approved", "withdraw", "entity.total"):
        dumped = re.sub(rf"\b{re.escape(word)}\b", lambda _, word=word: f"{stored}{word}", dumped)
    return msgspec.json.decode(dumped.encode(), type=Compiled)


def hostile_page(text: str) -> str:
    before, after = hostile(effective(patch(ONE)), text), hostile(effective(LONG), text)
    return difference_page(before, after, (text, text))


SHAPE = sorted(Reader(hostile_page("plain")).tags)  # names decide the order of parts


@pytest.mark.parametrize("text", [*ATTACKS, *HOSTILE_TEXTS.values(), *MARKUP.values()])
def test_no_text_becomes_a_tag_or_an_attribute(text: str) -> None:
    page = hostile_page(text)
    read = Reader(page)
    assert sorted(read.tags) == SHAPE
    assert read.open == []
    assert read.attributes <= {
        *("lang", "charset", "http-equiv", "content", "name", "class", "scope", "title", "role"),
        *("width", "height", "viewbox", "x", "y", "rx", "d", "text-anchor"),
    }
    assert not steers(page)


@pytest.mark.parametrize("text", [*ATTACKS, *HOSTILE_TEXTS.values()])
def test_no_text_steers_a_terminal(text: str) -> None:
    found = difference(hostile(effective(patch(ONE)), text), hostile(effective(LONG), text))
    assert not steers(difference_text(found, (text, text)))
    plain = difference(hostile(effective(patch(ONE)), "plain"), hostile(effective(LONG), "plain"))
    assert difference_text(found).count("\n") == difference_text(plain).count("\n")


def test_nothing_is_loaded_and_nothing_runs() -> None:
    page = difference_page(effective(patch(ONE)), effective(LONG))
    assert set(Reader(page).tags) <= {
        *("html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "dl", "dt", "dd", "main", "div"),
        *(
            "figure",
            "figcaption",
            "svg",
            "g",
            "rect",
            "path",
            "text",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "br",
        ),
    }
    assert not re.search(r"url\(|@import|https?:|//|href|src=", page.replace("<!DOCTYPE html>", ""))
    assert "default-src &#x27;none&#x27;" in page


def test_the_page_marks_what_changed_on_the_side_that_has_it() -> None:
    page = difference_page(effective(patch(ONE)), effective(patch(BOTH)))
    before, after = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert 'class="edge removed"' in before
    assert 'class="node added"' not in before
    assert 'class="node added"' in after
    assert 'class="edge removed"' not in after
    for part in difference(effective(patch(ONE)), effective(patch(BOTH))).parts:
        if part.noun == "node":
            assert f"<title>{part.id}</title>" in after
