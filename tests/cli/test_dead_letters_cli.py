"""`holdfast dead-letters`: what was given up on, on the command line."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from cli_here import command

from holdfast import SyncEngine

WAITING: dict[str, Any] = {
    "name": "waiting",
    "entry": "rest",
    "nodes": [{"id": "rest", "kind": "state"}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "e", "source": "rest", "target": "end", "on": "go"}],
}
AUDIT = ("--by", "ann", "--reason", "cleaning up")


@pytest.fixture
def instance(holdfast_dsn: str) -> str:
    """An instance with three dead letters."""
    with SyncEngine(holdfast_dsn) as engine:
        engine.publish(WAITING)
        id = engine.start("waiting").id
        engine.drain(timeout=30)
        with psycopg.connect(holdfast_dsn) as conn:
            for n in range(3):
                conn.execute("select holdfast.signal(%s, %s)", (id, f"nothing_{n}"))
        engine.drain(timeout=30)
    return id


def answer(dsn: str, *arguments: str) -> Any:
    done = command("dead-letters", *arguments, "--json", HOLDFAST_DSN=dsn)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_from_the_list_to_the_end(holdfast_dsn: str, instance: str) -> None:
    listed = answer(holdfast_dsn, "list", "--instance", instance)
    assert [letter["reason"] for letter in listed] == ["EVENT_NOT_EXPECTED"] * 3
    assert len(answer(holdfast_dsn, "list", "--limit", "1", "--after", listed[1]["id"])) == 1
    assert answer(holdfast_dsn, "list", "--source", "effect") == []
    assert [letter["flow"] for letter in answer(holdfast_dsn, "list", "--flow", "waiting", "--since", "1h")] == [
        "waiting"
    ] * 3
    assert answer(holdfast_dsn, "list", "--step", "rest", "--error", "EVENT_NOT_EXPECTED") == []
    shown = answer(holdfast_dsn, "show", listed[0]["id"])
    assert (shown["envelope"]["kind"], shown["resolution"]) == ("event", None)
    tried = answer(holdfast_dsn, "replay", "--with-reason", "EVENT_NOT_EXPECTED", "--dry-run", *AUDIT)
    assert (tried["count"], tried["dry_run"]) == (3, True)
    assert answer(holdfast_dsn, "replay", listed[0]["id"], *AUDIT)["count"] == 1
    assert answer(holdfast_dsn, "discard", "--all", "--yes", *AUDIT)["count"] == 2
    ended = answer(holdfast_dsn, "show", listed[1]["id"])
    assert (ended["resolution"], ended["resolved_by"], ended["resolved_why"]) == ("discarded", "ann", "cleaning up")


def test_for_people(holdfast_dsn: str, instance: str) -> None:
    _, *lines = command("dead-letters", "list", HOLDFAST_DSN=holdfast_dsn).stdout.splitlines()
    assert len(lines) == 3
    shown = [command("dead-letters", "show", line.split()[0], HOLDFAST_DSN=holdfast_dsn).stdout for line in lines]
    assert all(sum(f"nothing_{n}" in text for text in shown) == 1 for n in range(3))
    done = command("dead-letters", "discard", "--instance", instance, "--yes", *AUDIT, HOLDFAST_DSN=holdfast_dsn)
    assert done.stdout == "3 dead letters were let go.\n"
    assert command("dead-letters", "list", HOLDFAST_DSN=holdfast_dsn).stdout == "There are no dead letters.\n"


def test_nothing_named_is_not_everything(holdfast_dsn: str, instance: str) -> None:
    done = command("dead-letters", "discard", *AUDIT, HOLDFAST_DSN=holdfast_dsn)
    assert (done.returncode, "DEAD_LETTERS_NOT_NAMED" in done.stderr) == (6, True)
    assert command("dead-letters", "replay", "--all", HOLDFAST_DSN=holdfast_dsn).returncode == 2
    for verb in ("replay", "discard"):
        done = command("dead-letters", verb, "--flow", "waiting", *AUDIT, HOLDFAST_DSN=holdfast_dsn)
        assert (done.returncode, f"{verb} would change 3 dead letters" in done.stderr) == (6, True)
    assert len(answer(holdfast_dsn, "list")) == 3
