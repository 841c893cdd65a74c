"""`holdfast lifecycle`, `activities` and `notices`: here and through a server, with the same answers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_flows import answered, refused, told
from cli_served import serving

from holdfast import Client, Engine, SyncEngine
from holdfast.store.notices import NewNotice, tell_notices
from holdfast.store.pg.session import Session

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"  # proves that only the server is asked
CASE: dict[str, Any] = {
    "name": "case",
    "entry": "open",
    "policy": {"data": "context"},
    "config": {"codes": {"check": 7}},
    "nodes": [{"id": "open", "kind": "state"}, {"id": "checked", "kind": "state"}, {"id": "closed", "kind": "end"}],
    "edges": [
        {"id": "a", "source": "open", "target": "checked", "on": "check"},
        {"id": "b", "source": "checked", "target": "closed", "on": "close"},
    ],
}


@pytest.fixture
def case(holdfast_dsn: str) -> str:
    with SyncEngine(holdfast_dsn) as engine:
        engine.publish(CASE)
        id = engine.start("case", {}, business_key="C-1").id
        engine.drain()
        engine.signal(id, "check", {"n": 1}, by="ann")
        return id


@pytest.fixture
def url(holdfast_dsn: str, case: str) -> Iterator[str]:
    with serving(holdfast_dsn) as url:
        yield url


def tell(dsn: str, *messages: str, code: str = "ACK_RETRY") -> None:
    async def act() -> None:
        session = await Session.open(dsn)
        await tell_notices(session, [NewNotice(org="default", code=code, message=m, consumer="c") for m in messages])
        await session.close()

    asyncio.run(act())


def test_a_lifecycle_as_lines_as_json_and_as_a_page(holdfast_dsn: str, case: str, tmp_path: Path) -> None:
    lines = told(holdfast_dsn, "lifecycle", case, columns=200).splitlines()
    assert any("C-1" in line for line in lines)
    assert [line.split()[:1] for line in lines if "check (7)" in line] == [["1"]]
    document = answered(holdfast_dsn, "lifecycle", case)
    assert [entry["event_code"] for entry in document["entries"]] == [None, 7]
    page = tmp_path / "case.html"
    assert told(holdfast_dsn, "lifecycle", case, "--html", str(page)) == ""
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert refused(holdfast_dsn, "lifecycle", case, "--html", str(tmp_path / "no" / "x")) == (1, "FILE_UNWRITABLE")
    assert refused(holdfast_dsn, "lifecycle", "00000000-0000-0000-0000-000000000001") == (4, "INSTANCE_UNKNOWN")
    assert len(answered(holdfast_dsn, "lifecycle", case, "--last", "1")["entries"]) == 1


def test_activities_are_written_and_frozen(holdfast_dsn: str, case: str) -> None:
    write = ("activities", "write", case, "Review", "--status", "Open", "--by", "r1")
    written = answered(holdfast_dsn, *write, "--data", '{"n": 1}')
    assert (written["entry"], written["actor"], written["data"]) == (1, "r1", {"n": 1})
    assert answered(holdfast_dsn, *write, "--entry", "0")["state"] == "open"
    assert answered(holdfast_dsn, *write, "--entry", "none")["entry"] is None
    assert refused(holdfast_dsn, *write, "--entry", "last") == (6, "ENTRY_INVALID")
    assert answered(holdfast_dsn, "activities", "freeze", case, written["id"], "--by", "ben")["frozen"]
    assert refused(holdfast_dsn, *write) == (5, "ACTIVITY_FROZEN")
    assert "(frozen)" in told(holdfast_dsn, "activities", "list", case, columns=200)
    assert not answered(holdfast_dsn, "activities", "unfreeze", case, written["id"], "--by", "ben")["frozen"]
    assert len(answered(holdfast_dsn, "activities", "list", case)) == 3


def test_the_same_through_a_server(holdfast_dsn: str, case: str, url: str) -> None:
    where = ("--url", url)
    write = ("activities", "write", case, "Review", "--status", "Open", "--by", "r1")
    written = answered(NOWHERE, *write, *where, "--tenant", "default")
    tell(holdfast_dsn, "one", "two")
    for words in (("lifecycle", case), ("activities", "list", case), ("notices",), ("notices", "--code", "ACK_RETRY")):
        assert answered(NOWHERE, *words, *where) == answered(holdfast_dsn, *words), words
        assert told(NOWHERE, *words, *where, columns=200) == told(holdfast_dsn, *words, columns=200), words
    for verb in ("freeze", "freeze", "unfreeze"):
        found = answered(NOWHERE, "activities", verb, case, written["id"], "--by", "ben", *where)
        assert found["frozen"] == (verb == "freeze")
    first = answered(NOWHERE, "notices", "--limit", "1", *where)
    rest = answered(NOWHERE, "notices", "--after", first["next"], *where)
    assert sorted(each["message"] for each in (*first["items"], *rest["items"])) == ["one", "two"]


def test_notices_here(holdfast_dsn: str) -> None:
    assert "no such notices" in told(holdfast_dsn, "notices")
    tell(holdfast_dsn, "one", "forged\nline")
    assert "forged\\nline" in told(holdfast_dsn, "notices", columns=200)
    assert [each["message"] for each in answered(holdfast_dsn, "notices", "--since", "1h")["items"]] != []
    assert refused(holdfast_dsn, "notices", "--follow", "--since", "1h") == (6, "FILTER_INVALID")
    assert refused(holdfast_dsn, "notices", "--kind", "loud") == (6, "KIND_UNKNOWN")


def test_both_follow_notices_as_they_come(holdfast_dsn: str, url: str) -> None:
    tell(holdfast_dsn, "first")
    [first] = answered(holdfast_dsn, "notices")["items"]
    heard: dict[str, list[str]] = {"here": [], "there": []}

    def here() -> None:
        with SyncEngine(holdfast_dsn) as engine:
            for notice in engine.follow_notices(after=first["id"]):
                heard["here"].append(notice.message)
                if len(heard["here"]) == 2:
                    return

    def there() -> None:
        with Client(url) as client:
            for notice in client.notices.follow(after=first["id"], code="ACK_RETRY"):
                heard["there"].append(notice.message)
                if len(heard["there"]) == 2:
                    return

    threads = [threading.Thread(target=listen, daemon=True) for listen in (here, there)]
    for thread in threads:
        thread.start()
    tell(holdfast_dsn, "second", "third")
    for thread in threads:
        thread.join(60)
    assert sorted(heard["here"]) == ["second", "third"]
    assert len(heard["there"]) == 2
    assert json.dumps(heard)


def test_an_engine_follows_for_a_while(holdfast_dsn: str) -> None:
    async def act() -> list[str]:
        async with Engine(holdfast_dsn) as engine:
            return [notice.message async for notice in engine.follow_notices(life=0.01)]

    assert asyncio.run(act()) == []
