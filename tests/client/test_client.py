"""`holdfast.Client` from outside: a real server, no database address, the answers and errors of an engine."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.served import served

from holdfast import Client, Context, DoNotRetry, Engine, Flow, InstanceFilter, LetterFilter, Machine, SyncEngine
from holdfast.errors import (
    Conflict,
    DefinitionError,
    Forbidden,
    HoldfastError,
    NotFound,
    Refused,
    StoreError,
    Unauthenticated,
)

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
ORDER = Flow("order").step("reserve", "reserve").human("release", roles=["manager"]).step("ship", "ship").build()
TELLING: dict[str, Any] = {
    "name": "telling",
    "entry": "tell",
    "nodes": [{"id": "tell", "kind": "effect", "handler": "tell", "retry": {"calls": 1}}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "told", "source": "tell", "target": "end"}],
}
NOBODY = "01a1e235-1b90-71cd-816e-7436dd66e7b7"


def reserve(ctx: Context, data: Any) -> dict[str, int]:
    return {"amount": data["amount"]}


def ship(ctx: Context, data: Any) -> None:
    return None


def break_off(ctx: Context, data: Any) -> None:
    if data["amount"] > 100:
        raise DoNotRetry("too much")


def tell(ctx: Any, data: Any) -> dict[str, bool]:
    return {"heard": True}


def prepare(engine: Engine) -> None:
    for handler in (reserve, ship, break_off):
        engine.register(handler.__name__, handler)
    engine.register_effect("tell", tell)


@pytest.fixture
def url(holdfast_dsn: str) -> Iterator[str]:
    with served(holdfast_dsn, prepare) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, subject="ann") as client:
        yield client


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def waiting(client: Client) -> str:
    client.publish(ORDER, by="ann")
    return client.settle(client.start("order", {"amount": 5}, by="ann").id, 60).id


def test_the_page_prints_what_it_says(url: str) -> None:
    blocks = dict(re.findall(r"^```(python|text)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    printed = StringIO()
    with redirect_stdout(printed):
        exec(blocks["python"].replace("http://127.0.0.1:8080", url), {})
    assert printed.getvalue() == blocks["text"]


def test_the_page_names_every_verb(client: Client) -> None:
    page = PAGE.read_text().partition("## Verbs")[2]
    facets = [
        client.flows, client.tasks, client.dead_letters, client.effects, client.activities, client.notices,
        client.machines, client.consumers,
    ]  # fmt: skip
    for part in (client, *facets):
        verbs = [name for name in dir(type(part)) if not name.startswith("_") and name != "close"]
        assert [verb for verb in verbs if f"`{verb}`" not in page] == []


def test_an_engine_answers_the_same(holdfast_dsn: str, client: Client) -> None:
    id = waiting(client)
    with SyncEngine(holdfast_dsn) as engine:
        assert client.get(id) == engine.get(id)
        assert client.steps(id) == engine.steps(id)
        assert client.events(id) == engine.events(id)
        assert client.find(InstanceFilter(flow="order")) == engine.find(InstanceFilter(flow="order"))
        assert client.flows.get("order").hash == engine.flow("order").hash
    [version] = client.flows.list("order")
    assert (version.name, version.version) == ("order", 1)


def test_a_task_goes_through_hands(client: Client) -> None:
    [task] = client.tasks.list(waiting(client))
    assert [one.id for one in client.tasks.inbox("ben", roles=["manager"]).items] == [task.id]
    assert client.tasks.claim(task.id, by="ben", roles=["manager"]).assignee == "ben"
    assert client.tasks.release(task.id, by="ben").assignee is None
    assert client.tasks.assign(task.id, to="eve", by="ann").assignee == "eve"
    assert client.tasks.delegate(task.id, to="ben", by="eve").assignee == "ben"
    assert client.tasks.decide(task.id, by="ben", decision="confirmed", comment="fine").decided_by == "ben"
    assert client.tasks.get(task.id).comment == "fine"
    assert client.tasks.events(task.id)[0].actor
    assert client.settle(task.instance_id, 60).status == "completed"


def test_dead_letters_are_repaired_alone_and_together(client: Client) -> None:
    client.publish(Flow("fragile", dlq=True).step("break", "break_off").build())
    ids = [client.settle(client.start("fragile", {"amount": 500}).id, 60).id for _ in range(3)]
    first, second, third = (client.dead_letters.list(id)[0] for id in ids)
    assert len(client.dead_letters.find(LetterFilter(flow="fragile")).items) == 3
    assert client.dead_letters.requeue(first.id, {"amount": 5}, by="ann", reason="a typo").id == first.id
    assert client.settle(ids[0], 60).status == "completed"
    again = client.dead_letters.requeue_many([second.id], inputs={second.id: {"amount": 5}}, by="ann")
    assert (again.ids, again.left) == ([second.id], [])
    assert client.settle(ids[1], 60).status == "completed"
    assert client.dead_letters.discard([third.id], by="ann", dry_run=True).ids == [third.id]
    refused = client.dead_letters.discard([third.id], by="ann")
    assert (refused.ids, refused.left) == ([], [third.id])  # its step waits for it
    assert client.dead_letters.get(third.id).resolution is None


def test_effects_are_found_by_instance_and_by_kind(client: Client) -> None:
    client.publish(TELLING)
    id = client.start("telling").id
    until(lambda: [one.status for one in client.effects.of(id)] == ["completed"])
    [effect] = client.effects.of(id)
    assert [one.id for one in client.effects.list(kind="tell", status="completed").items] == [effect.id]
    assert client.effects.get(effect.id) == effect
    with pytest.raises(Conflict) as refusal:
        client.effects.resend(effect.id, by="ann")
    assert refusal.value.code == "EFFECT_NOT_DEAD"


BLUEPRINT: dict[str, Any] = {
    "name": "case",
    "environment": "prod",
    "version": 1,
    "states": [{"name": "New", "is_initial": True}, {"name": "Open"}, {"name": "Closed", "is_final": True}],
    "events": [{"code": 1, "name": "Open"}, {"code": 2, "name": "Close"}],
    "transitions": [
        {"from": "New", "event": 1, "to": "Open"},
        {"from": "Open", "event": 2, "to": "Closed", "guard": "cases:close"},
    ],
}
POLICY = {"for": {"definition": "case"}, "rules": [{"state": "Open", "emit": [{"event": "MAIL"}]}]}


def test_a_machine_is_imported_looked_at_and_tried(holdfast_dsn: str, client: Client, tmp_path: Path) -> None:
    with pytest.raises(Refused) as nothing:
        client.machines.import_machine()
    assert nothing.value.code == "MACHINE_MISSING"
    assert client.machines.import_machine(BLUEPRINT, dry_run=True).new
    assert client.machines.list() == []
    assert client.machines.import_machine(Machine.load(BLUEPRINT), by="ann").version == 1
    file = tmp_path / "case.policy.json"
    file.write_text(json.dumps(POLICY))
    assert client.machines.import_machine(policy=file, environment="prod").version == 2
    assert [(one.name, one.version) for one in client.machines.list("prod")] == [("prod.case", 2)]
    with SyncEngine(holdfast_dsn) as engine:
        for version in (1, None):
            assert client.machines.get("prod", "case", version) == engine.describe_machine("prod", "case", version)
    assert client.machines.chart("prod", "case") == Machine.load(BLUEPRINT, POLICY).chart()
    events = [1, ("Close", {"n": 1}), "Open"]
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    told = client.machines.simulate("prod", "case", events, capabilities=["cases:close"], now=moment, data={"a": 1})
    assert told == Machine.load(BLUEPRINT, POLICY).simulate(
        events, capabilities=["cases:close"], now=moment, data={"a": 1}
    )
    with pytest.raises(DefinitionError) as unsound:
        client.machines.import_machine(policy={"for": {"definition": "case"}, "rules": [{}]})
    assert unsound.value.diagnostics


def test_triggers_and_facts_go_over_the_wire(holdfast_dsn: str, client: Client) -> None:
    client.machines.import_machine(BLUEPRINT)
    assert client.consumers.register("prod", "billing", definitions=["case"], since="now", ttl=9).ttl == 9
    client.consumers.beat("prod", "billing")
    assert client.consumers.receive("prod", "billing") == []
    done = client.trigger("prod", "case", "C-1", "Open", {"n": 1}, request_id="r/1", by="ann")
    assert (done.applied, done.to_state) == (True, "Open")
    assert client.trigger_answer("prod", "case", "C-1", "r/1") == done
    assert client.trigger_answer("prod", "case", "C-1", "r/2") is None
    with pytest.raises(NotFound):
        client.machine("prod", "case", "C-2")
    assert (client.machine("prod", "case", "C-1").state, done.lifecycle) == ("Open", 1)
    with pytest.raises(Forbidden) as guarded:
        client.trigger("prod", "case", "C-1", 2, capabilities=["cases:read"])
    assert guarded.value.code == "GUARD_REFUSED"
    [event] = client.consumers.receive("prod", "billing", wait=60)
    assert (event.external_ref, event.payload, event.actor) == ("C-1", {"n": 1}, "ann")
    assert client.ack("prod", "billing", event.ack, "delivered") is None
    page = client.consumers.deliveries(consumer=("prod", "billing"))
    assert [one.status for one in page.items] == ["delivered"]
    answer = client.ack("prod", "billing", event.ack, "processed", then=("Close", None), capabilities=["cases:close"])
    assert answer is not None
    assert (answer.to_state, answer.event) == ("Closed", "Close")
    assert len(client.consumers.deliveries(instance=done.instance, closed=True).items) == 2
    with pytest.raises(Refused) as unfiltered:
        client.consumers.deliveries()
    assert unfiltered.value.code == "FILTER_MISSING"
    with SyncEngine(holdfast_dsn) as engine:
        [theirs], [ours] = engine.consumers(), client.consumers.list("prod")
        assert (ours.id, ours.owner, ours.definitions) == (theirs.id, "ann", theirs.definitions)
        assert client.machine("prod", "case", "C-1") == engine.machine("prod", "case", "C-1")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert client.consumers.replay("prod", "billing", since=moment, dry_run=True).dry_run
    past = [{"event": 1, "occurred_at": moment, "by": "ben"}]
    assert client.machines.backfill("prod", "case", "C-9", past).to_state == "Open"
    client.consumers.remove("prod", "billing")
    with pytest.raises(NotFound) as removed:
        client.consumers.get("prod", "billing")
    assert removed.value.code == "CONSUMER_UNKNOWN"


def test_operators_steer(client: Client) -> None:
    id = waiting(client)
    assert client.suspend(id, by="ann", reason="audit").status == "suspended"
    assert client.resume(id, by="ann").status == "running"
    assert client.cancel(id, by="ann").status in ("cancelled", "rolling_back")
    other = waiting(client)
    assert client.abort(other, by="ann").status == "aborted"


def test_a_key_of_a_start_counts_once(client: Client) -> None:
    client.publish(ORDER)
    ids = {client.start("order", {"amount": 5}, key="order-17").id for _ in range(2)}
    assert len(ids) == 1
    with pytest.raises(Conflict) as refusal:
        client.start("order", {"amount": 6}, key="order-17")
    assert refusal.value.code == "IDEMPOTENCY_KEY_REUSED"


def test_refusals_are_the_errors_of_an_engine(client: Client) -> None:
    with pytest.raises(NotFound) as unknown:
        client.get(NOBODY)
    assert unknown.value.code == "INSTANCE_UNKNOWN"
    with pytest.raises(NotFound) as misspelt:
        client.get("seventeen")
    assert misspelt.value.code == "ID_INVALID"
    with pytest.raises(DefinitionError) as unbuilt:
        client.publish(Flow("order").step("reserve", "reserve"))  # type: ignore[arg-type]
    assert unbuilt.value.code == "FLOW_NOT_BUILT"
    with pytest.raises(Refused) as torn:
        client.start("order", by="a\nb")
    assert torn.value.code == "NAME_INVALID"


def test_a_server_wants_to_know_who_asks(holdfast_dsn: str) -> None:
    with (
        served(holdfast_dsn, prepare, development=False) as url,
        Client(url, subject="ann") as unknown,
        Client(url, api_key="hf_nothing") as forged,
    ):
        for client in (unknown, forged):
            with pytest.raises(Unauthenticated):
                client.find(InstanceFilter())


def test_a_key_in_the_clear_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.client"):
        Client("http://flows.example", api_key="k").close()
        Client("http://127.0.0.1:8080", api_key="k").close()
        Client("https://flows.example", api_key="k").close()
    assert [record.getMessage() for record in caplog.records] == [
        "The API key travels to flows.example without encryption: use https."
    ]


def test_what_does_not_answer_in_time_is_unreachable() -> None:
    with pytest.raises(HoldfastError) as no_address:
        Client("127.0.0.1:8080")
    assert no_address.value.code == "URL_INVALID"
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2) as client,
        pytest.raises(StoreError) as late,
    ):
        client.get(NOBODY)
    assert late.value.code == "SERVER_UNREACHABLE"
