"""Whatever is wrong with what a user brings: a typed error with a code and a way out, and nothing is stored."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast import Caller, Context, Engine, Flow, Retry
from holdfast.errors import Conflict, DefinitionError, HoldfastError, NotFound, PayloadError, Refused, StoreError
from holdfast.store.admin.schema import check_server

pytestmark = pytest.mark.anyio

WAITING: dict[str, Any] = {
    "name": "waiting",
    "entry": "rest",
    "nodes": [{"id": "rest", "kind": "state"}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "rest>end", "source": "rest", "target": "end", "on": "go"}],
}
TABLES = ("definitions", "instances", "signals", "steps", "events", "inbox", "key_events", "work", "timers")
NO_NUMBERS: tuple[Any, ...] = ("1", "", 1.0, math.nan, True, [1], 2**70, -1)
UNFIT: tuple[Any, ...] = ("a\0b", "\ud800", "x" * 2001, 5)
DEEP: list[Any] = []
for _ in range(100):
    DEEP = [DEEP]

PAYLOADS = {
    "PAYLOAD_NOT_FINITE": {"amount": math.nan},
    "PAYLOAD_NUL": {"text": "a\0b"},
    "PAYLOAD_SURROGATE": {"text": "\ud800"},
    "PAYLOAD_KEY": {("no", "text"): 1},
    "PAYLOAD_TYPE": {"thing": object()},
    "PAYLOAD_INTEGER": {"number": 2**70},
    "PAYLOAD_TOO_DEEP": {"deep": DEEP},
    "PAYLOAD_TOO_LARGE": {"text": "x" * (2 * 1024 * 1024)},
}


async def refused(
    dsn: str, error: type[HoldfastError], code: str, attempt: Callable[[], Awaitable[Any]]
) -> HoldfastError:
    before = _rows(dsn)
    with pytest.raises(error) as caught:
        await attempt()
    assert caught.value.code == code
    assert caught.value.message
    assert _rows(dsn) == before
    return caught.value


def _rows(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        counts = ", ".join(f"(select count(*) from holdfast.{table})" for table in TABLES)
        row = connection.execute(f"select {counts}").fetchone()
        assert row is not None
        return list(row)


async def _waiting(engine: Engine) -> str:
    await engine.publish(WAITING)
    instance = await engine.start("waiting")
    await engine.drain(timeout=30)
    return instance.id


async def test_inputs_that_cannot_be_stored(engine: Engine, holdfast_dsn: str) -> None:
    await engine.publish(WAITING)
    for code, bad in PAYLOADS.items():
        error = await refused(holdfast_dsn, PayloadError, code, lambda bad=bad: engine.start("waiting", bad))
        assert "input" in error.message
        assert error.hint
        await refused(holdfast_dsn, PayloadError, code, lambda bad=bad: engine.start_many("waiting", [{}, bad]))


async def test_payloads_that_cannot_be_stored(engine: Engine, holdfast_dsn: str) -> None:
    id = await _waiting(engine)
    for code, bad in PAYLOADS.items():
        await refused(holdfast_dsn, PayloadError, code, lambda bad=bad: engine.signal(id, "go", bad))
        await refused(holdfast_dsn, PayloadError, code, lambda bad=bad: engine.signal_key("go", "key", bad))


async def test_results_that_cannot_be_stored_fail_their_step(engine: Engine) -> None:
    async def bad(ctx: Context, data: Any) -> Any:
        return PAYLOADS[data]

    await engine.publish(Flow("bad").step("bad", bad, retry=Retry(attempts=3)).build())
    started = {code: await engine.start("bad", code) for code in PAYLOADS}
    await engine.drain(timeout=30)
    for code, instance in started.items():
        [step] = await engine.steps(instance.id)
        assert (step.status, step.attempts, step.error["code"]) == ("rolled_back", 1, code)
        assert (await engine.get(instance.id)).status == "failed"


async def test_an_error_message_with_characters_the_database_refuses(engine: Engine) -> None:
    async def fail(ctx: Context, data: Any) -> Any:
        raise RuntimeError("nul \0 and half \ud800 and long " + "x" * 100_000)

    await engine.publish(Flow("bad").step("fail", fail).build())
    instance = await engine.start("bad")
    await engine.drain(timeout=30)
    [step] = await engine.steps(instance.id)
    assert step.status == "rolled_back"
    assert len(step.error["message"]) < 5000


async def test_an_error_that_cannot_even_be_shown(engine: Engine) -> None:
    class Evil(Exception):
        def __str__(self) -> str:
            raise ValueError("not telling")

        @property
        def code(self) -> str:
            raise ValueError("not telling that either")

    async def fail(ctx: Context, data: Any) -> Any:
        raise Evil

    def leave(ctx: Context, data: Any) -> Any:
        raise SystemExit(3)

    await engine.publish(Flow("evil").step("fail", fail).build())
    await engine.publish(Flow("leaving").step("leave", leave).build())
    evil, leaving = await engine.start("evil"), await engine.start("leaving")
    await engine.drain(timeout=30)
    assert [(await engine.get(i.id)).error["code"] for i in (evil, leaving)] == ["Evil", "SystemExit"]


async def test_large_payloads_are_said_out_loud(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    large = {"text": "x" * 300_000}

    async def enlarge(ctx: Context, data: Any) -> Any:
        return large

    id = await _waiting(engine)
    await engine.publish(Flow("growing").step("enlarge", enlarge).build())
    with caplog.at_level(logging.WARNING, "holdfast.payloads"):
        await engine.start("growing", large)
        await engine.start_many("waiting", [large])
        await engine.signal(id, "go", large)
        await engine.signal_key("go", "key", large)
        await engine.drain(timeout=30)
    said = [r.message for r in caplog.records if r.name == "holdfast.payloads"]
    assert [message.partition(" has ")[0] for message in said] == [
        "The input of growing",
        "The input of waiting",
        "The payload of 'go'",
        "The payload of 'go'",
        "The result of 'enlarge'",
    ]
    assert all("300011 bytes of JSON" in message for message in said)


async def test_what_is_not_there(engine: Engine, holdfast_dsn: str) -> None:
    id = await _waiting(engine)
    nobody = "00000000-0000-7000-8000-000000000000"
    await refused(holdfast_dsn, NotFound, "FLOW_UNKNOWN", lambda: engine.start("nothing"))
    await refused(holdfast_dsn, NotFound, "VERSION_UNKNOWN", lambda: engine.start("waiting", version=7))
    await refused(holdfast_dsn, NotFound, "INSTANCE_UNKNOWN", lambda: engine.get(nobody))
    await refused(holdfast_dsn, NotFound, "INSTANCE_UNKNOWN", lambda: engine.signal(nobody, "go"))
    await refused(holdfast_dsn, NotFound, "INSTANCE_UNKNOWN", lambda: engine.cancel(nobody))
    await refused(holdfast_dsn, NotFound, "ID_INVALID", lambda: engine.get("not an id"))
    await refused(holdfast_dsn, Refused, "EVENT_NOT_EXPECTED", lambda: engine.signal(id, "stop"))
    await refused(holdfast_dsn, NotFound, "NODE_UNKNOWN", lambda: engine.signal(id, "go", node="elsewhere"))
    await refused(holdfast_dsn, Refused, "EVENT_RESERVED", lambda: engine.signal(id, "completed"))
    await refused(holdfast_dsn, Conflict, "VERSION_CONFLICT", lambda: engine.signal(id, "go", if_version=99))


async def test_another_organisation_sees_nothing(engine: Engine, holdfast_dsn: str) -> None:
    id = await _waiting(engine)
    async with Engine(holdfast_dsn, org="other") as other:
        await refused(holdfast_dsn, NotFound, "INSTANCE_UNKNOWN", lambda: other.get(id))
        await refused(holdfast_dsn, NotFound, "INSTANCE_UNKNOWN", lambda: other.signal(id, "go"))
        await refused(holdfast_dsn, NotFound, "FLOW_UNKNOWN", lambda: other.start("waiting"))
        assert (await other.list()).items == []


async def test_keys_that_cannot_be_keys(engine: Engine, holdfast_dsn: str) -> None:
    await engine.publish(WAITING)
    for key in ("", "x" * 501, "a\0b", "\ud800"):
        for attempt in (
            lambda key=key: engine.start("waiting", key=key),
            lambda key=key: engine.start("waiting", business_key=key),
            lambda key=key: engine.signal_key("go", key),
        ):
            await refused(holdfast_dsn, Refused, "KEY_INVALID", attempt)


async def test_texts_that_cannot_be_stored(engine: Engine, holdfast_dsn: str) -> None:
    id = await _waiting(engine)
    for bad in (*UNFIT, ""):
        for attempt in (
            lambda text=bad: engine.start(text),
            lambda text=bad: engine.start("waiting", by=text),
            lambda text=bad: engine.start_many("waiting", [{}], by=text),
            lambda text=bad: engine.publish(WAITING, by=text),
            lambda text=bad: engine.signal(id, text),
            lambda text=bad: engine.signal(id, "go", node=text),
            lambda text=bad: engine.signal(id, "go", by=text),
            lambda text=bad: engine.signal(id, "go", capabilities=[text]),
            lambda text=bad: engine.signal(id, "go", capabilities=[text], delay=60.0),
            lambda text=bad: engine.signal_key(text, "key"),
            lambda text=bad: engine.list(flow=text),
        ):
            await refused(holdfast_dsn, Refused, "TEXT_INVALID", attempt)
    for bad in UNFIT:
        for control in (engine.cancel, engine.abort, engine.suspend, engine.force_fail):
            await refused(holdfast_dsn, Refused, "TEXT_INVALID", lambda c=control, text=bad: c(id, reason=text))


async def test_versions_that_cannot_be_versions(engine: Engine, holdfast_dsn: str) -> None:
    id = await _waiting(engine)
    for bad in (*NO_NUMBERS, 2**31, 0):
        for attempt in (
            lambda version=bad: engine.start("waiting", version=version),
            lambda version=bad: engine.start_many("waiting", [{}], version=version),
            lambda version=bad: engine.flow("waiting", version),
            lambda version=bad: engine.statistics("waiting", version=version),
            lambda version=bad: engine.migrate("waiting", to=version),
            lambda version=bad: engine.migrate("waiting", to=1, from_version=version),
            lambda version=bad: engine.revert_migration("waiting", from_version=version),
        ):
            await refused(holdfast_dsn, Refused, "VERSION_INVALID", attempt)
    for bad in NO_NUMBERS:
        for attempt in (
            lambda version=bad: engine.signal(id, "go", if_version=version),
            lambda version=bad: engine.signal(id, "go", if_version=version, delay=60.0),
            lambda version=bad: engine.cancel(id, if_version=version),
            lambda version=bad: engine.suspend(id, if_version=version),
            lambda version=bad: engine.rerun(id, from_step="rest", if_version=version),
            lambda version=bad: engine.advance(id, "go", by="ann", if_version=version),
        ):
            error = await refused(holdfast_dsn, Refused, "VERSION_INVALID", attempt)
            assert error.hint


async def test_pages_that_cannot_be_pages(engine: Engine, holdfast_dsn: str) -> None:
    id = await _waiting(engine)
    for bad in (*NO_NUMBERS, 0):
        for attempt in (
            lambda limit=bad: engine.list(limit=limit),
            lambda limit=bad: engine.steps(id, limit=limit),
            lambda limit=bad: engine.events(id, limit=limit),
            lambda limit=bad: engine.page_flows(limit=limit),
            lambda limit=bad: engine.tasks(limit=limit),
            lambda limit=bad: engine.inbox(by="ann", limit=limit),
            lambda limit=bad: engine.dead_letters(limit=limit),
            lambda limit=bad: engine.stuck(limit=limit),
        ):
            await refused(holdfast_dsn, Refused, "LIMIT_INVALID", attempt)


@pytest.mark.parametrize("org", ["", "a\0b", "\ud800", "x" * 201, 5])
def test_organisations_that_cannot_be(org: Any) -> None:
    with pytest.raises(Refused) as caught:
        Engine("postgresql://nowhere", org=org)
    assert caught.value.code == "TEXT_INVALID"


async def test_questions_that_make_no_sense(engine: Engine, holdfast_dsn: str) -> None:
    await engine.publish(WAITING)
    await refused(holdfast_dsn, Refused, "KEYS_MISMATCH", lambda: engine.start_many("waiting", [{}], keys=[]))
    await refused(holdfast_dsn, Refused, "KEY_INVALID", lambda: engine.start_many("waiting", [{}], keys=["a\0b"]))
    await refused(holdfast_dsn, Refused, "LIMIT_INVALID", lambda: engine.list(limit=0))
    await refused(holdfast_dsn, Refused, "STATUS_UNKNOWN", lambda: engine.list(status="finished"))
    await refused(holdfast_dsn, NotFound, "ID_INVALID", lambda: engine.list(after="page 2"))
    await refused(holdfast_dsn, NotFound, "ID_INVALID", lambda: engine.get("\ud800"))


async def test_moments_and_names_that_are_none(engine: Engine, holdfast_dsn: str) -> None:
    id = await _waiting(engine)
    wrong: Any = ("yesterday", 5, date(2026, 1, 1))
    for bad in wrong:
        for attempt in (
            lambda bad=bad: engine.statistics(since=bad),
            lambda bad=bad: engine.statistics(until=bad),
            lambda bad=bad: engine.list(since=bad),
        ):
            error = await refused(holdfast_dsn, Refused, "MOMENT_INVALID", attempt)
            assert "`since`" in error.message or "`until`" in error.message
    five: Any = 5
    for named, attempt in (
        ("role", lambda: engine.decide(uuid4(), by="ann", decision="confirmed", roles=five)),
        ("capability", lambda: engine.decide(uuid4(), by="ann", decision="confirmed", capabilities=five)),
        ("role", lambda: engine.claim(uuid4(), by="ann", roles=five)),
        ("role", lambda: engine.inbox("ann", roles=five)),
        ("capability", lambda: engine.inbox("ann", capabilities=five)),
        ("capability", lambda: engine.signal(id, "go", capabilities=five)),
        ("capability", lambda: engine.start("waiting", caller=Caller(capabilities=five))),
    ):
        error = await refused(holdfast_dsn, Refused, "TEXT_INVALID", attempt)
        assert named in error.message
        assert error.hint


async def test_an_event_id_used_for_something_else(engine: Engine, holdfast_dsn: str) -> None:
    id = "0199a000-0000-7000-8000-000000000001"
    await engine.signal_key("go", "key", {"n": 1}, id=id)
    await engine.signal_key("go", "key", {"n": 1}, id=id)
    await refused(holdfast_dsn, Conflict, "SIGNAL_ID_REUSED", lambda: engine.signal_key("go", "key", {"n": 2}, id=id))


async def test_handlers_that_cannot_be_handlers(engine: Engine) -> None:
    def lonely(ctx: Context) -> None: ...

    def fine(ctx: Context, data: Any) -> None: ...

    def other(ctx: Context, data: Any) -> None: ...

    for _ in range(2):
        engine.register("fine", fine)
        engine.call("fine")(fine)
        engine.register_effect("fine", fine)
    for name, function, code in (
        ("lonely", lonely, "HANDLER_SIGNATURE"),
        ("fine", other, "HANDLER_DUPLICATE"),
        ("", fine, "HANDLER_NAME_EMPTY"),
        (None, fine, "HANDLER_NAME_EMPTY"),
        (5, fine, "TEXT_INVALID"),
        ("a\0b", fine, "TEXT_INVALID"),
        ("nothing", None, "HANDLER_NOT_CALLABLE"),
        ("number", 5, "HANDLER_NOT_CALLABLE"),
    ):
        for register in (engine.register, lambda n, f: engine.call(n)(f), engine.register_effect):
            with pytest.raises(HoldfastError) as caught:
                register(name, function)
            assert caught.value.code == code
    short_and_whole = ["fine", "test_bad_input/fine"]
    assert engine.handlers.names() == engine.calls.names() == short_and_whole
    engine.register("lonely", fine)  # a name that was refused is still free
    async with engine.worker():
        pass
    with pytest.raises(NotFound) as unknown:
        engine.handlers.require("nobody")
    assert unknown.value.code == "HANDLER_UNKNOWN"
    with pytest.raises(DefinitionError):
        Flow("nameless").step("step", lambda ctx, data: data).build()


async def test_definitions_that_cannot_run(engine: Engine, holdfast_dsn: str) -> None:
    broken = {**WAITING, "edges": [{"id": "rest>?", "source": "rest", "target": "?", "on": "go"}]}
    error = await refused(holdfast_dsn, DefinitionError, "DEFINITION_INVALID", lambda: engine.publish(broken))
    assert isinstance(error, DefinitionError)
    assert {d.code for d in error.diagnostics} >= {"UNKNOWN_TARGET", "UNREACHABLE_NODE"}
    newer = {**WAITING, "format": 99}
    await refused(holdfast_dsn, DefinitionError, "GRAPH_FORMAT_UNSUPPORTED", lambda: engine.publish(newer))
    unbuilt: Any = Flow("unbuilt").step("step", "handler")
    error = await refused(holdfast_dsn, DefinitionError, "FLOW_NOT_BUILT", lambda: engine.publish(unbuilt))
    assert ".build()" in error.hint
    for kind in ("envelope", "org_patch", "effective"):
        graph = {**WAITING, "kind": kind}
        await refused(holdfast_dsn, DefinitionError, "KIND_NOT_PUBLISHABLE", lambda graph=graph: engine.publish(graph))
    await engine.publish(WAITING)
    other = {**WAITING, "policy": {"timeout": 5}}
    await refused(holdfast_dsn, Conflict, "VERSION_TAKEN", lambda: engine.publish(other))


async def test_several_definitions_are_published_together_or_not_at_all(engine: Engine, holdfast_dsn: str) -> None:
    names = ("apart", "besides", "close")
    several = [{**WAITING, "name": name} for name in names]
    await engine.publish(several[1])
    changed = {**several[1], "policy": {"timeout": 5}}
    attempts = ([several[0], changed, several[2]], [several[0], {**several[0], "policy": {"timeout": 5}}])
    for attempt in attempts:
        error = await refused(
            holdfast_dsn, Conflict, "VERSION_TAKEN", lambda attempt=attempt: engine.publish_many(attempt)
        )
        assert repr(attempt[1]["name"]) in str(error)
    assert [one.new for one in await engine.publish_many(several[::-1])] == [True, False, True]
    assert [one.new for one in await engine.publish_many(several)] == [False, False, False]


async def test_a_tampered_or_stale_definition_does_not_start(engine: Engine, holdfast_dsn: str) -> None:
    await engine.publish(WAITING)
    with psycopg.connect(holdfast_dsn) as connection:
        connection.execute("alter table holdfast.definitions disable trigger user")
        connection.execute("update holdfast.definitions set hash = repeat('0', 64)")
    await refused(holdfast_dsn, DefinitionError, "WORKFLOW_HASH_MISMATCH", lambda: engine.start("waiting"))


@pytest.mark.parametrize(
    ("dsn", "code"),
    [
        ("postgresql://nobody:secret@127.0.0.1:1/nothing", "STORE_UNREACHABLE"),
        ("this is no dsn", "DSN_INVALID"),
    ],
)
async def test_a_database_that_cannot_be_reached(dsn: str, code: str) -> None:
    with pytest.raises(StoreError) as caught:
        async with Engine(dsn):
            pass
    assert caught.value.code == code
    assert "secret" not in str(caught.value)
    assert caught.value.hint


async def test_a_server_that_is_too_old() -> None:
    with pytest.raises(StoreError) as caught:
        check_server(140_011)
    assert caught.value.code == "POSTGRES_TOO_OLD"


async def test_a_schema_from_the_future(holdfast_dsn: str) -> None:
    with psycopg.connect(holdfast_dsn) as connection:
        connection.execute("insert into holdfast.schema_version (number, name, checksum) values (999, 'future', 'x')")
    with pytest.raises(StoreError) as caught:
        async with Engine(holdfast_dsn):
            pass
    assert caught.value.code == "SCHEMA_TOO_NEW"


async def test_a_login_without_the_rights(holdfast_dsn: str) -> None:
    login = f"stranger_{uuid4().hex[:12]}"
    with psycopg.connect(holdfast_dsn, autocommit=True) as admin:
        admin.execute(f"create role {login} login")
        try:
            with pytest.raises(StoreError) as caught:
                async with Engine(make_conninfo(holdfast_dsn, user=login)):
                    pass
        finally:
            admin.execute(f"drop role {login}")
    assert caught.value.code == "PRIVILEGES_MISSING"
    assert "holdfast_worker" in caught.value.hint


async def test_an_engine_that_is_not_open(holdfast_dsn: str) -> None:
    with pytest.raises(HoldfastError) as caught:
        await Engine(holdfast_dsn).start("waiting")
    assert caught.value.code == "ENGINE_CLOSED"
