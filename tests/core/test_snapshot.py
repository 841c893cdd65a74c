"""Snapshots of other releases: old ones are brought up, newer ones are refused, broken ones say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from core_graphs import edge, end, line, program, state, task
from core_run import Run

from holdfast.core.model import snapshot
from holdfast.core.model.snapshot import inconsistency, read_state
from holdfast.core.model.state import encode_state
from holdfast.errors import HoldfastError

STORED = Path(__file__).parent / "snapshot_format_1.json"


def flow() -> Any:
    return program(
        [state("ask", deadline=60), task("a"), end()],
        [edge("ask", "a", "ok"), edge("ask", "end", "timeout"), edge("a", "end")],
    )


def test_a_stored_snapshot_of_format_1_runs_to_its_end() -> None:
    """The file was written by the first release: it must stay readable in all that follow."""
    graph = flow()
    run = Run(graph).start({"v": 1})
    fresh = read_state(STORED.read_bytes())
    run.instance = msgspec.structs.replace(run.instance, state=fresh)
    assert run.event("ok", {"v": 2}).done("a").status == "completed"


def test_snapshots_of_this_release_look_like_the_stored_one() -> None:
    run = Run(flow()).start({"v": 1})
    assert json.loads(encode_state(run.instance.state)) == json.loads(STORED.read_bytes())


def _older(document: dict[str, Any]) -> dict[str, Any]:
    """How an imagined format 0 wrote the same: tokens as a list, waits under another name."""
    tokens = [{"path": path, **_renamed(token, "waits", "wait_list")} for path, token in document["tokens"].items()]
    return {"format": -1, "token_list": tokens}


def _renamed(document: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    return {after if name == before else name: value for name, value in document.items()}


def _name_the_waits(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "token_list": [_renamed(t, "wait_list", "waits") for t in document["token_list"]]}


def _key_the_tokens(document: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": {t.pop("path"): t for t in document["token_list"]}}


def test_an_old_snapshot_is_brought_up_format_by_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(snapshot.UPGRADES, -1, _name_the_waits)
    monkeypatch.setitem(snapshot.UPGRADES, 0, _key_the_tokens)
    run = Run(flow()).start({"v": 1})
    old = json.dumps(_older(json.loads(encode_state(run.instance.state)))).encode()
    assert read_state(old) == run.instance.state
    run.instance = msgspec.structs.replace(run.instance, state=read_state(old))
    assert run.event("ok").done("a").status == "completed"


def test_a_format_without_a_name_is_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "FORMAT", 2)
    monkeypatch.setitem(snapshot.UPGRADES, 1, lambda document: {"tokens": {}, "chain": len(document["tokens"])})
    assert read_state(STORED.read_bytes()).chain == 1
    assert read_state(b'{"format": 2, "chain": 5}').chain == 5


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b'{"format": 2, "tokens": {}}', "SNAPSHOT_TOO_NEW"),
        (b'{"format": 0}', "SNAPSHOT_TOO_OLD"),
        (b'{"format": "one"}', "SNAPSHOT_UNREADABLE"),
        (b'{"tokens": 5}', "SNAPSHOT_UNREADABLE"),
        (b'{"tokens": {"0": {"hop": "far"}}}', "SNAPSHOT_UNREADABLE"),
        (b"[]", "SNAPSHOT_UNREADABLE"),
        (b"{", "SNAPSHOT_UNREADABLE"),
    ],
)
def test_what_cannot_be_read_says_why(raw: bytes, code: str) -> None:
    with pytest.raises(HoldfastError) as refusal:
        read_state(raw)
    assert refusal.value.code == code
    assert refusal.value.hint


def test_the_word_format_in_a_value_is_not_the_format() -> None:
    run = Run(flow()).start({"format": 7})
    assert read_state(encode_state(run.instance.state)) == run.instance.state


def test_a_snapshot_that_does_not_fit_its_graph_is_recognised() -> None:
    run = Run(flow()).start()
    other = line(task("else"))
    assert inconsistency(run.program, run.instance.state) is None
    found = inconsistency(other, run.instance.state)
    assert found is not None
    assert (found.code, "'ask'" in found.message) == ("SNAPSHOT_INCONSISTENT", True)
