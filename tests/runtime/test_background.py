"""What a call may ask about its instance: the input, the answers of all steps, keys and attributes."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any
from uuid import UUID

import pytest
from detours import order, published, waits, works

from holdfast import Branch, Context, DoNotRetry, Engine, Flow, Middleware, Retry, Undo
from holdfast.errors import Conflict
from holdfast.runtime.engine.sync import SyncEngine
from holdfast.store.pg.statements import Statement
from holdfast.store.reads import background
from running import until

pytestmark = pytest.mark.anyio

NUMBERS = itertools.count()
READS = {"read_start", "list_results"}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that any session of this process was given, if they read what a call asks for."""
    found: list[str] = []

    def watched(make: Any) -> Any:
        def bound(self: Statement, *values: Any) -> Any:
            if self.name.decode() in READS:
                found.append(self.name.decode())
            return make(self, *values)

        return bound

    for way in ("one", "rows", "arrays"):
        monkeypatch.setattr(Statement, way, watched(getattr(Statement, way)))
    return found


def all_of(ctx: Context) -> dict[str, Any]:
    return {
        "input": ctx.input,
        "results": dict(ctx.results),
        "key": ctx.key,
        "business_key": ctx.business_key,
        "attributes": ctx.attributes,
    }


async def nothing(ctx: Context, data: Any) -> None:
    pass


def plain(ctx: Context, data: Any) -> dict[str, Any]:
    return all_of(ctx)


async def loading(ctx: Context, data: Any) -> dict[str, Any]:
    return all_of(await ctx.load())


def answer(value: Any) -> Any:
    async def handler(ctx: Context, data: Any) -> Any:
        return value

    handler.__name__ = f"answer_{next(NUMBERS)}"
    return handler


async def perform(engine: Engine, flow: Any, input: Any = None, **options: Any) -> Any:
    await engine.publish(flow)
    started = await engine.start(flow.name if hasattr(flow, "name") else flow["name"], input, **options)
    await engine.drain(timeout=30)
    return await engine.get(started.id)


@pytest.mark.parametrize("asking", [plain, loading])
async def test_a_step_sees_more_than_the_answer_before_it(engine: Engine, asking: Any) -> None:
    flow = Flow("order").step("reserve", answer({"seat": 4})).step("pay", answer(17)).step("ship", asking).build()
    options = {"key": "order-17", "business_key": "customer-3", "attributes": {"kind": "book"}}
    instance = await perform(engine, flow, {"sku": "A-1"}, **options)
    assert instance.data == {"input": {"sku": "A-1"}, "results": {"reserve": {"seat": 4}, "pay": 17}, **options}


@pytest.mark.parametrize("asking", [plain, loading])
async def test_what_was_not_given_is_empty(engine: Engine, asking: Any) -> None:
    instance = await perform(engine, Flow("order").step("ship", asking).build())
    assert instance.data == {"input": {}, "results": {}, "key": None, "business_key": None, "attributes": {}}


async def test_a_handler_that_does_not_ask_causes_no_read(engine: Engine, read: list[str]) -> None:
    def silent(ctx: Context, data: Any) -> str:
        return ctx.step + ctx.flow + ctx.idempotency_key

    await perform(engine, Flow("silent").step("a", nothing).step("b", silent).step("c", nothing).build())
    assert read == []


async def test_a_call_reads_once(engine: Engine, read: list[str]) -> None:
    async def eager(ctx: Context, data: Any) -> bool:
        first = await ctx.load()
        return (await ctx.load()) is first is ctx and ctx.input == ctx.input and not ctx.results and ctx.key is None

    instance = await perform(engine, Flow("eager").step("ask", eager).build())
    assert (instance.data, sorted(read)) == (True, sorted(READS))
    read.clear()
    await perform(engine, Flow("lazy").step("ask", plain).build())
    assert sorted(read) == sorted(READS)


async def test_another_attempt_reads_anew(engine: Engine, read: list[str]) -> None:
    async def flaky(ctx: Context, data: Any) -> Any:
        await ctx.load()
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return dict(ctx.results)

    flow = Flow("order").step("pay", answer(1)).step("ship", flaky, retry=Retry(attempts=2)).build()
    assert (await perform(engine, flow)).data == {"pay": 1}
    assert len(read) == 2 * len(READS)


@pytest.mark.parametrize("name", ["input", "results", "key", "business_key", "attributes"])
async def test_an_async_handler_must_load_first(engine: Engine, name: str) -> None:
    async def hasty(ctx: Context, data: Any) -> Any:
        with pytest.raises(Conflict) as refused:
            getattr(ctx, name)
        return [refused.value.code, "await ctx.load()" in refused.value.hint]

    assert (await perform(engine, Flow("order").step("ask", hasty).build())).data == ["CONTEXT_NOT_LOADED", True]


async def test_a_plain_function_that_loads_is_told_to_leave_it_out(engine: Engine) -> None:
    def misled(ctx: Context, data: Any) -> Any:
        with pytest.raises(Conflict) as refused:
            ctx.load()
        return [refused.value.code, "ctx.input" in refused.value.hint]

    assert (await perform(engine, Flow("order").step("ask", misled).build())).data == ["CONTEXT_LOAD_MISPLACED", True]


async def test_a_thread_or_loop_of_an_async_handler_reads_as_a_plain_function_does(engine: Engine) -> None:
    async def elsewhere(ctx: Context) -> Any:
        return ctx.input

    async def hand_on(ctx: Context, data: Any) -> Any:
        return [await asyncio.to_thread(lambda: asyncio.run(elsewhere(ctx))), dict(ctx.results)]

    assert (await perform(engine, Flow("order").step("ask", hand_on).build(), 5)).data == [5, {}]


async def test_every_look_gives_a_copy(engine: Engine) -> None:
    def careless(ctx: Context, data: Any) -> Any:
        for found in (ctx.input, ctx.results["pay"], ctx.attributes):
            found["spoiled"] = True
        with pytest.raises(TypeError):
            ctx.results["pay"] = 1  # type: ignore[index]
        return all_of(ctx)

    flow = Flow("order").step("pay", answer({"paid": 1})).step("ask", careless).build()
    found = (await perform(engine, flow, {"n": 1}, attributes={"kind": "book"})).data
    assert [found["input"], found["results"], found["attributes"]] == [{"n": 1}, {"pay": {"paid": 1}}, {"kind": "book"}]


async def test_a_step_that_has_not_answered_is_named_with_those_that_have(engine: Engine) -> None:
    def ask(ctx: Context, data: Any) -> Any:
        with pytest.raises(KeyError) as unknown:
            ctx.results["shipp"]
        return [str(unknown.value), ctx.results.get("shipp"), "pay" in ctx.results, list(ctx.results)]

    flow = Flow("order").step("reserve", answer(1)).step("pay", answer(None)).step("ask", ask).build()
    assert (await perform(engine, flow)).data == [
        "No step 'shipp' has completed with an answer; those that have: 'reserve', 'pay'.",
        None,
        True,
        ["reserve", "pay"],
    ]


async def test_branches_events_people_and_joins_answer_too(engine: Engine) -> None:
    flow = (
        Flow("order")
        .fork("split", Branch().step("left", answer("l")), Branch().step("right", answer("r")))
        .join("join", "all")
        .save_point("kept")
        .wait_event("paid")
        .sleep("rest", seconds=0)
        .step("ask", plain)
        .build()
    )
    await engine.publish(flow)
    started = await engine.start("order", {})
    await engine.drain(timeout=30)
    await engine.signal(started.id, "paid", {"sum": 5})
    await engine.drain(timeout=30)
    results = (await engine.get(started.id)).data["results"]
    assert set(results) == {"left", "right", "join", "paid"}
    assert [results[name] for name in ("left", "right", "paid")] == ["l", "r", {"sum": 5}]


async def test_a_compensation_sees_what_is_not_taken_back_yet(engine: Engine) -> None:
    told: list[tuple[str, Any, list[str]]] = []

    def undo(ctx: Context, data: Any) -> None:
        told.append((ctx.step, ctx.input, list(ctx.results)))

    async def undo_async(ctx: Context, data: Any) -> None:
        await ctx.load()
        undo(ctx, data)

    async def refuse(ctx: Context, data: Any) -> None:
        raise DoNotRetry("no")

    flow = (
        Flow("order")
        .step("a", answer(1), undo=Undo(undo, name="un-a"))
        .step("b", answer(2), undo=Undo(undo_async, name="un-b"))
        .step("c", answer(3), undo=Undo(undo, name="un-c"))
        .step("last", refuse)
        .build()
    )  # fmt: skip
    assert (await perform(engine, flow, {"n": 1})).status == "failed"
    assert told == [("un-c", {"n": 1}, ["a", "b"]), ("un-b", {"n": 1}, ["a"]), ("un-a", {"n": 1}, [])]


async def test_the_newest_of_many_visits_counts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(ctx: Context, data: Any) -> dict[str, int]:
        assert ctx.results.get("count", {"n": 0})["n"] == data["n"]
        return {"n": data["n"] + 1}

    flow = order(1, works("first", "first"), works("count", "count"), {"id": "more", "kind": "condition"})
    flow["edges"][3]["when"] = "input.n >= 12"
    flow["edges"].append({"id": "again", "source": "more", "target": "count", "priority": 1})
    engine.register("first", answer({"n": 0}))
    engine.register("count", count)
    engine.register("echo", plain)
    found = (await perform(engine, flow, {})).data
    assert found["results"]["count"] == {"n": 12}
    assert set(found["results"]) == {"one", "first", "count"}
    monkeypatch.setattr(background, "MOST_VISITS", 4)
    started = await engine.start("order", {})
    await engine.drain(timeout=30)
    assert (await engine.get(started.id)).data["results"] == {"count": {"n": 12}}


async def test_steps_have_the_names_a_migration_gave_them(engine: Engine) -> None:
    """Two nodes swap names, and one is visited again: two rows of `a` are two steps, and each keeps its answer."""
    engine.register("plain", plain)
    for name in ("of a", "of b", "of a again"):
        engine.register(name, answer(name))
    old = order(1, works("a", "of a"), works("b", "of b"), waits())
    new = order(2, works("b", "of a"), waits(), works("a", "of a again"), works("asks", "plain"))
    await published(engine, old, new)
    started = await engine.start("order", {"n": 1}, version=1)
    await engine.drain(timeout=30)
    assert (await engine.migrate("order", to=2, nodes={"a": "b", "b": "a"})).moved == [started.id]
    await engine.signal(started.id, "signed", 1)
    await engine.drain(timeout=30)
    [results] = [step.output["results"] for step in await engine.steps(started.id) if step.name == "asks"]
    assert set(results) == {"one", "a", "b", "ask"}
    assert (results["a"], results["b"]) == ("of a again", "of a")


async def test_a_sub_flow_sees_its_own_instance(engine: Engine) -> None:
    await engine.publish(Flow("parcel").step("pack", answer("packed")).step("ask", plain).build())
    parent = Flow("order").step("pay", answer({"paid": 1})).sub_flow("parcel", "parcel").step("ask", plain).build()
    found = (await perform(engine, parent, {"n": 1}, key="k")).data
    assert (found["input"], found["key"], list(found["results"])) == ({"n": 1}, "k", ["pay", "parcel"])
    inner = found["results"]["parcel"]
    assert (inner["input"], inner["key"], inner["results"]) == ({"paid": 1}, None, {"pack": "packed"})


async def test_every_tenant_sees_its_own(engine: Engine) -> None:
    for org in ("acme", "bmi"):
        await engine.for_org(org).publish(Flow("order").step("pay", nothing).step("ask", plain).build())
    started = {org: await engine.for_org(org).start("order", {"of": org}, key="same") for org in ("acme", "bmi")}
    await engine.drain(timeout=30)
    for org, instance in started.items():
        assert (await engine.for_org(org).get(instance.id)).data["input"] == {"of": org}


async def test_another_organisation_reads_nothing(engine: Engine) -> None:
    instance = await perform(engine, Flow("order").step("pay", answer(1)).build())
    id = UUID(instance.id).bytes
    session = engine._opened()
    own = await background.read_background(session, engine.org, id)
    assert own is not None
    assert own.results == {"pay": b"1"}
    assert await background.read_background(session, "other", id) is None


async def test_middleware_and_handler_share_one_read(engine: Engine, read: list[str]) -> None:
    seen: list[tuple[str, Any]] = []

    class Looking(Middleware):
        async def step(self, ctx: Context, data: Any, call: Any) -> None:
            seen.append((ctx.step, (await ctx.load()).input))
            await call()

    engine.use(Looking())
    instance = await perform(engine, Flow("order").step("ask", plain).build(), {"n": 1})
    assert (seen, instance.data["input"]) == ([("ask", {"n": 1})], {"n": 1})
    assert len(read) == len(READS)


async def test_a_gate_may_ask(engine: Engine) -> None:
    class Gate(Middleware):
        async def admit(self, ctx: Context) -> float | None:
            assert (await ctx.load()).business_key == "customer-3"
            return None

    engine.use(Gate())
    flow = Flow("order").step("ask", nothing).build()
    assert (await perform(engine, flow, business_key="customer-3")).status == "completed"


async def test_after_a_takeover_by_another_engine(holdfast_dsn: str) -> None:
    """Nothing of it is in the memory of the engine that goes on."""
    flow = Flow("order").step("pay", "pay").step("ask", "ask").build()
    async with Engine(holdfast_dsn, app="shop") as first, Engine(holdfast_dsn, app="shop") as second:
        await first.publish(flow)
        first.register("pay", answer({"paid": 1}))
        second.register("ask", plain)
        async with first.worker():
            started = await first.start("order", {"n": 1})
            await until(lambda: _completed(first, started.id, "pay"))
        async with second.worker():
            ended = await second.wait(started.id, timeout=30)
    assert (ended.data["input"], ended.data["results"]) == ({"n": 1}, {"pay": {"paid": 1}})


async def _completed(engine: Engine, id: str, step: str) -> bool:
    return any(found.name == step and found.status == "completed" for found in await engine.steps(id))


def test_calls_in_one_transaction_see_each_other(holdfast_dsn: str) -> None:
    """The answers of the calls before it are not committed yet, so no read could find them."""

    async def first(ctx: Context, data: Any) -> Any:
        return [list((await ctx.load()).results), ctx.input]

    def second(ctx: Context, data: Any) -> Any:
        with ctx.conn.cursor() as cursor:
            cursor.execute("select count(*) from holdfast.steps where node = 'first' and closed_at is not null")
            assert cursor.fetchone() == (0,)
        return [list(ctx.results), ctx.input, ctx.results["first"]]

    graph = {
        "name": "order",
        "version": 1,
        "entry": "before",
        "nodes": [
            works("before", "before"),
            {"id": "first", "kind": "action", "handler": "first"},
            {"id": "second", "kind": "action", "handler": "second"},
            {"id": "end", "kind": "end"},
        ],
        "edges": [
            {"id": "e1", "source": "before", "target": "first"},
            {"id": "e2", "source": "first", "target": "second"},
            {"id": "e3", "source": "second", "target": "end"},
        ],
    }
    with SyncEngine(holdfast_dsn) as engine:
        engine.register("before", answer("b"))
        engine.call("first")(first)
        engine.call("second")(second)
        engine.publish(graph)
        started = engine.start("order", {"n": 1})
        engine.drain(timeout=30)
        names, input, of_first = engine.get(started.id).data
    assert (names, input, of_first) == (["before", "first"], {"n": 1}, [["before"], {"n": 1}])


def test_a_thread_that_asks_when_the_engine_is_gone_is_told(holdfast_dsn: str) -> None:
    kept: list[Context] = []

    def keep(ctx: Context, data: Any) -> None:
        kept.append(ctx)

    with SyncEngine(holdfast_dsn) as engine:
        engine.register("keep", keep)
        engine.publish(Flow("order").step("keep", "keep").build())
        engine.start("order")
        engine.drain(timeout=30)
    with pytest.raises(Exception, match="ENGINE_CLOSED"):
        kept[0].input  # noqa: B018
