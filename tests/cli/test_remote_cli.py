"""The same commands through a server: the same answers, the same errors, the same exit codes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from cli_flows import answered, drained, prepared, refused, run, started, told
from cli_process import until
from cli_served import LEAVE, LISTENS, TELLING, serving

from holdfast import Client, SyncEngine


@pytest.fixture
def url(holdfast_dsn: str) -> Iterator[str]:
    with SyncEngine(holdfast_dsn) as engine:
        prepared(engine)
    with serving(holdfast_dsn) as url:
        yield url


NOWHERE = "postgresql://nobody@127.0.0.1:1/none"  # proves that only the server is asked


def test_looks_are_the_same(holdfast_dsn: str, url: str) -> None:
    waiting = started(holdfast_dsn, "order", {"amount": 500}, by="ann", key="k-1", business_key="case 1")
    dead = started(holdfast_dsn, "repair", {}, by="ben")
    [letter] = answered(holdfast_dsn, "dlq", "list")
    [task] = answered(holdfast_dsn, "tasks", "list")
    for words in (
        ("list",), ("list", "--flow", "order"), ("list", "--status", "dlq"), ("list", "--key", "k-1"),
        ("list", "--business-key", "case 1"), ("list", "--since", "1h"), ("flows",), ("flows", "order"),
        ("flows", "order", "--as", "code"), ("flows", "order", "--as", "picture"), ("show", waiting, "--events"),
        ("timeline", dead), ("tasks", "list"), ("tasks", "show", task["id"]), ("tasks", "list", "--instance", waiting),
        ("dlq", "list"), ("dlq", "show", letter["id"]), ("effects", "list", waiting), ("effects", "list"),
    ):  # fmt: skip
        here = told(holdfast_dsn, *words, columns=200)
        there = told(NOWHERE, *words, "--url", url, columns=200)
        assert _timeless(here) == _timeless(there), words
    for words in ("show", dead), ("flows",), ("flows", "order"), ("list", "--flow", "order"), ("tasks", "list"):
        assert answered(NOWHERE, *words, "--url", url) == answered(holdfast_dsn, *words), words
    page = answered(NOWHERE, "list", "--limit", "1", "--url", url)
    rest = answered(NOWHERE, "list", "--after", page["next"], "--url", url)
    assert [item["id"] for item in (*page["items"], *rest["items"])] == [dead, waiting]


def _timeless(text: str) -> list[str]:
    """Without how long something has been open, which goes on between two looks."""
    return [line.split(" · for ")[0].split(" · since ")[0].rstrip(" >▶") for line in text.splitlines()]


def test_a_process_over_http(url: str, tmp_path: Path) -> None:
    file = tmp_path / "leave.yaml"
    file.write_text(LEAVE)
    where = ("--url", url)
    assert answered(NOWHERE, "publish", str(file), "--by", "ann", *where)[0]["new"]
    assert "unchanged" in told(NOWHERE, "publish", str(file), *where)
    file.write_text(LEAVE.replace("minimum: 1", "minimum: 2"))
    assert refused(NOWHERE, "publish", str(file), *where) == (5, "VERSION_TAKEN")
    begin = ("start", "leave.request", "--input", '{"days": 3}', "--by", "ann", "--key", "k", *where)
    assert refused(NOWHERE, "start", "leave.request", "--input", '{"days": 0}', *where) == (6, "INPUT_INVALID")
    id = answered(NOWHERE, *begin, "--wait")["id"]
    assert answered(NOWHERE, *begin)["id"] == id
    found_by = ("--attribute", "team=blue", "--attribute", "n=3")
    told(NOWHERE, "start", "leave.request", "--input", '{"days": 1}', *found_by, *where)
    for filters, count in ((found_by, 1), (("--attribute", "n=x"), 0)):
        assert len(answered(NOWHERE, "list", *filters, *where)["items"]) == count
    assert [one["id"] for one in answered(NOWHERE, "list", "--started-by", "ann", *where)["items"]] == [id]
    ben = ("--by", "ben", *where)
    assert refused(NOWHERE, "advance", id, "approved", "--by", "ann", *where) == (8, "SELF_APPROVAL")
    assert refused(NOWHERE, "advance", id, "approved", "--capability", "x", *ben) == (8, "CAPABILITY_MISSING")
    assert refused(NOWHERE, "advance", id, "approved", "--input", '{"note": 5}', *ben) == (6, "FORM_INVALID")
    assert refused(NOWHERE, "advance", id, "approved", "--if-version", "99", *ben)[0] == 5
    advanced = answered(NOWHERE, "advance", id, "approved", "--input", '{"note": "yes"}', *ben)
    assert advanced["data"]["approved_by"] == "ben"
    assert answered(NOWHERE, "signal", id, "confirmed_by_hr", *where)["status"] == "completed"
    by_key = ("signal", "paid", "--key", "k", "--input", "{}", "--id", str(UUID(int=7)), "--by", "hr", *where)
    assert answered(NOWHERE, *by_key) == answered(NOWHERE, *by_key)
    assert refused(NOWHERE, *by_key, "--input", "[]") == (5, "SIGNAL_ID_REUSED")
    assert refused(NOWHERE, "show", id, "--tenant", "other", *where) == (4, "INSTANCE_UNKNOWN")
    assert refused(NOWHERE, "show", "x", *where) == (4, "ID_INVALID")


def test_the_inbox_of_a_person(holdfast_dsn: str, url: str, tmp_path: Path) -> None:
    file = tmp_path / "leave.yaml"
    file.write_text(LEAVE)
    told(holdfast_dsn, "publish", str(file))
    orders = [started(holdfast_dsn, "order", {"amount": 500}) for _ in range(2)]
    leave = answered(
        NOWHERE, "start", "leave.request", "--input", '{"days": 2}', "--by", "ann", "--wait", "--url", url
    )["id"]
    for place in ((holdfast_dsn,), (NOWHERE, "--url", url)):
        [dsn, *where] = place
        inbox = ("tasks", "list", "--mine", *where)
        everything = [task["instance_id"] for task in answered(dsn, *inbox, "--by", "ben", "--role", "manager")]
        assert sorted(everything) == sorted([*orders, leave])
        assert [task["instance_id"] for task in answered(dsn, *inbox, "--by", "ben")] == [leave]
        assert answered(dsn, *inbox, "--by", "ben", "--capability", "leave:ask") == []
        assert answered(dsn, *inbox, "--by", "ann") == []
        [first, second, last] = answered(dsn, "tasks", "list", *where)
        assert answered(dsn, "tasks", "list", "--after", first["id"], *where) == [second, last]
        assert refused(dsn, *inbox, "--by", "ben", "--assignee", "ben") == (6, "FILTER_INVALID")
        assert refused(dsn, "tasks", "list", "--role", "a", "--role", "b", *where) == (6, "FILTER_INVALID")
        assert run(dsn, *inbox).code == 2  # whose?


def test_workers_over_http(holdfast_dsn: str, url: str) -> None:
    assert answered(NOWHERE, "workers", "--url", url) == answered(holdfast_dsn, "workers")
    assert refused(NOWHERE, "dlq", "list", "--all-tenants", "--url", url) == (6, "ALL_TENANTS_NEED_DATABASE")


def test_operators_over_http(holdfast_dsn: str, url: str) -> None:
    ann = ("--by", "ann", "--url", url)
    orders = [started(holdfast_dsn, "order", {"amount": 500}) for _ in range(3)]
    [first, *_] = answered(NOWHERE, "tasks", "list", "--url", url)
    task = first["id"]
    assert answered(NOWHERE, "tasks", "claim", task, "--role", "manager", *ann)["assignee"] == "ann"
    assert refused(NOWHERE, "tasks", "claim", task, "--role", "manager", "--by", "ben", "--url", url)[0] == 5
    assert answered(NOWHERE, "tasks", "delegate", task, "--to", "ben", *ann)["assignee"] == "ben"
    assert answered(NOWHERE, "tasks", "assign", task, "--to", "eve", *ann)["assignee"] == "eve"
    assert answered(NOWHERE, "tasks", "release", task, "--by", "eve", "--url", url)["status"] == "open"
    decide = ("tasks", "decide", task, "confirmed", "--role", "manager", "--comment", "fine")
    assert answered(NOWHERE, *decide, *ann)["decided_by"] == "ann"
    others = [id for id in orders if id != first["instance_id"]]
    paused = answered(NOWHERE, "pause", *others, "--reason", "audit", *ann)
    assert [one["status"] for one in paused["done"]] == ["suspended", "suspended"]
    assert answered(NOWHERE, "resume", others[0], "--reason", "done", *ann)["done"][0]["status"] == "running"
    assert answered(NOWHERE, "abort", others[0], *ann)["done"][0]["status"] == "aborted"
    assert refused(NOWHERE, "abort", others[0], *ann) == (5, "INSTANCE_OVER")
    assert answered(NOWHERE, "cancel", "--flow", "order", "--status", "suspended", "--dry-run", *ann)["ids"] == [
        others[1]
    ]
    assert run(NOWHERE, "cancel", others[1], "--url", url).code == 2  # nobody said who does it
    dead = started(holdfast_dsn, "repair", {})
    [letter] = answered(NOWHERE, "dlq", "list", "--instance", dead, "--url", url)
    why = ("--reason", "typo", *ann)
    assert answered(NOWHERE, "requeue", letter["id"], "--input", '{"grams": 5}', *why)["done"] == [letter["id"]]
    assert refused(NOWHERE, "requeue", letter["id"], *why)[0] == 5
    halves = [started(holdfast_dsn, "twice", {}) for _ in range(2)]
    letters = [answered(NOWHERE, "dlq", "list", "--instance", id, "--url", url) for id in halves]
    [first, second], others = ([letter["id"] for letter in mine] for mine in letters)
    inputs = json.dumps({first: {"grams": 1}, second: {"grams": 2}})
    assert answered(NOWHERE, "requeue", "--inputs", inputs, *why) == {"done": [first, second], "refused": []}
    assert sorted(answered(NOWHERE, "requeue", "--instance", halves[1], *why)["done"]) == sorted(others)
    drained(holdfast_dsn)
    replay = ("dlq", "replay", "--source", "step", "--reason", "typo", "--yes", *ann)
    assert (answered(NOWHERE, *replay, "--dry-run")["count"], answered(NOWHERE, *replay)["count"]) == (2, 2)


def test_dead_letters_go_on_behind_one_that_is_settled_meanwhile(holdfast_dsn: str, url: str) -> None:
    for _ in range(3):
        started(holdfast_dsn, "repair", {})
    letters = ("dlq", "list", "--url", url)
    found = [one["id"] for one in answered(NOWHERE, *letters)]
    [first] = answered(NOWHERE, *letters, "--limit", "1")
    answered(NOWHERE, "dlq", "replay", first["id"], "--reason", "typo", "--by", "ann", "--url", url)
    assert [one["id"] for one in answered(NOWHERE, *letters, "--after", first["id"])] == found[1:]
    assert [one["id"] for one in answered(NOWHERE, *letters, "--after", found[1], "--limit", "5")] == found[2:]


def test_effects_over_http(holdfast_dsn: str, url: str) -> None:
    LISTENS.clear()
    ann = ("--by", "ann", "--url", url)
    with SyncEngine(holdfast_dsn) as engine:
        engine.publish(TELLING)
    id = answered(NOWHERE, "start", "telling", "--input", "{}", *ann)["id"]

    def effect(status: str) -> dict[str, Any]:
        def there() -> bool:
            return [one["status"] for one in answered(NOWHERE, "effects", "list", id, "--url", url)] == [status]

        until(there, f"an effect that is {status}")
        [found] = answered(NOWHERE, "effects", "list", id, "--url", url)
        return found

    dead = effect("dead_letter")
    assert answered(NOWHERE, "effects", "show", dead["id"], "--url", url) == dead
    everywhere = ("effects", "list", "--status", "dead_letter", "--kind", "tell", "--flow", "telling", "--url", url)
    assert answered(NOWHERE, *everywhere) == [dead]
    assert answered(NOWHERE, *everywhere, "--after", dead["id"]) == []
    assert "Nobody listens." in str(dead["error"])
    assert refused(NOWHERE, "effects", "show", id, "--url", url) == (4, "EFFECT_UNKNOWN")
    LISTENS.set()
    replay = ("effects", "replay", dead["id"], "--reason", "They are back.", *ann)
    assert answered(NOWHERE, *replay) == {"replayed": [dead["id"]]}
    assert effect("completed")["key"] == dead["key"]
    assert refused(NOWHERE, *replay) == (5, "EFFECT_NOT_DEAD")


def test_repairs_over_http(holdfast_dsn: str, url: str) -> None:
    ann = ("--by", "ann", "--url", url)
    first, second = [started(holdfast_dsn, "repair", {}) for _ in range(2)]
    why = ("--reason", "seen to", *ann)
    [letter] = answered(NOWHERE, "dlq", "list", "--instance", first, "--url", url)
    assert answered(NOWHERE, "dlq", "replay", letter["id"], "--dry-run", *why)["dry_run"] is True
    assert answered(NOWHERE, "dlq", "replay", letter["id"], *why)["ids"] == [letter["id"]]
    assert answered(NOWHERE, "dlq", "show", letter["id"], "--url", url)["resolution"] == "replayed"
    order = started(holdfast_dsn, "order", {"amount": 500})
    with psycopg.connect(holdfast_dsn, autocommit=True) as conn:
        conn.execute("select holdfast.signal(%s, %s)", (order, "nonsense"))
    of_order = ("dlq", "list", "--instance", order, "--url", url)
    until(lambda: bool(answered(NOWHERE, *of_order)), "a dead letter of the nonsense")
    [other] = answered(NOWHERE, *of_order)
    [needed] = answered(NOWHERE, "dlq", "list", "--instance", second, "--url", url)
    assert run(NOWHERE, "dlq", "discard", needed["id"], *why).code == 5  # its step still waits
    answered(NOWHERE, "abort", second, *ann)
    assert answered(NOWHERE, "dlq", "discard", other["id"], *why)["ids"] == [other["id"]]
    assert answered(NOWHERE, "dlq", "show", other["id"], "--url", url)["resolution"] == "discarded"
    again = answered(NOWHERE, "rerun", second, "--from", "both", "--input", '{"grams": 5}', "--key", "r-1", *ann)
    assert again["is_new"] is True
    assert (
        answered(NOWHERE, "rerun", second, "--from", "both", "--input", '{"grams": 5}', "--key", "r-1", *ann)["id"]
        == again["id"]
    )
    watched = told(NOWHERE, "show", again["id"], "--watch", "--url", url)  # ends with the instance
    assert "completed" in watched


def test_who_asks_must_be_known(holdfast_dsn: str) -> None:
    with serving(holdfast_dsn, development=False) as url:
        key = answered(holdfast_dsn, "keys", "create", "ci", "--subject", "robot", "--scope", "read")["key"]
        assert refused(NOWHERE, "list", "--url", url) == (9, "CREDENTIALS_MISSING")
        assert refused(NOWHERE, "list", "--url", url, "--api-key", f"{key[:-4]}AAAA") == (9, "API_KEY_INVALID")
        assert answered(NOWHERE, "list", "--url", url, "--api-key", key)["items"] == []
        id = "01a1e467-b607-7918-bb52-4d3ec10b39cc"
        assert refused(NOWHERE, "abort", id, "--url", url, "--api-key", key) == (8, "SCOPE_MISSING")
        assert refused(NOWHERE, "abort", id, "--by", "ann", "--url", url, "--api-key", key) == (6, "ACTOR_KNOWN")
    assert refused(NOWHERE, "list", "--url", url) == (7, "SERVER_UNREACHABLE")


def test_an_event_has_a_uuid_as_its_id_here_and_there(holdfast_dsn: str, url: str) -> None:
    for words in ("paid", "--key", "k-1"), ("01a1e467-b607-7918-bb52-4d3ec10b39cc", "paid"):
        assert refused(holdfast_dsn, "signal", *words, "--id", "first") == (4, "ID_INVALID")
        assert refused(NOWHERE, "signal", *words, "--id", "first", "--url", url) == (4, "ID_INVALID")


def test_people_have_the_names_they_have(url: str, tmp_path: Path) -> None:
    """Also those that a header of HTTP was not made for."""
    file = tmp_path / "leave.yaml"
    file.write_text(LEAVE)
    told(NOWHERE, "publish", str(file), "--by", "Łukasz", "--url", url)
    asked = ("start", "leave.request", "--input", '{"days": 3}', "--by", "Jürgen", "--url", url)
    id = told(NOWHERE, *asked, "--quiet").strip()
    assert answered(NOWHERE, "show", id, "--url", url)["instance"]["created_by"] == "Jürgen"
    assert [item["id"] for item in answered(NOWHERE, "list", "--started-by", "Jürgen", "--url", url)["items"]] == [id]
    assert refused(NOWHERE, *asked, "--key", "größe") == (6, "REQUEST_INVALID")
    assert refused(NOWHERE, *asked[:-4], "--by", "Jürgen\n", "--url", url) == (6, "NAME_INVALID")


def test_a_server_that_says_later_is_asked_again(holdfast_dsn: str) -> None:
    with (
        serving(holdfast_dsn, rate=5) as url,
        Client(url, subject="ann") as client,
        ThreadPoolExecutor(4) as threads,
    ):
        assert list(threads.map(lambda _: client.flows.list(), range(8))) == [[]] * 8


def test_what_is_no_server() -> None:
    assert refused(NOWHERE, "list", "--url", "localhost:8080") == (1, "URL_INVALID")
    assert refused(NOWHERE, "list", "--url", "http://") == (1, "URL_INVALID")
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def stranger() -> None:
            client, _ = silent.accept()
            with client:
                client.recv(65_536)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

        thread = threading.Thread(target=stranger)
        thread.start()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert refused(NOWHERE, "list", "--url", url) == (7, "SERVER_STRANGE")
        thread.join()
