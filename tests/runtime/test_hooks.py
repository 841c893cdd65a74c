"""Middleware: its order, what it is told, what it may decide, and what it can never break."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Audit, Context, DoNotRetry, Engine, Flow, FlowContext, Middleware, Retry, Undo
from holdfast.errors import HoldfastError, Refused
from holdfast.runtime.hooks import chain
from holdfast.runtime.hooks.chain import ALL, Hooks
from holdfast.runtime.hooks.middleware import Call, overrides
from running import until

pytestmark = pytest.mark.anyio


async def echo(ctx: Context, data: Any) -> Any:
    return data


ONE = Flow("one").step("only", echo).build()


class Recorder(Middleware):
    """Writes down everything it is told, under its name."""

    def __init__(self, name: str, book: list[str]) -> None:
        self.name = name
        self.book = book

    async def flow_starting(self, flow: str, input: Any) -> None:
        self.book.append(f"{self.name} starting {flow}")

    async def flow_started(self, ctx: FlowContext) -> None:
        self.book.append(f"{self.name} started")

    async def flow_completed(self, ctx: FlowContext) -> None:
        self.book.append(f"{self.name} completed")

    async def flow_failed(self, ctx: FlowContext) -> None:
        self.book.append(f"{self.name} failed")

    async def admit(self, ctx: Context) -> float | None:
        self.book.append(f"{self.name} admits")
        return None

    async def step(self, ctx: Context, data: Any, call: Call) -> None:
        self.book.append(f"{self.name} in")
        try:
            await call()
        finally:
            self.book.append(f"{self.name} out")

    async def step_started(self, ctx: Context, data: Any) -> None:
        self.book.append(f"{self.name} step started")

    async def step_completed(self, ctx: Context, output: Any) -> None:
        self.book.append(f"{self.name} step completed {output}")

    async def step_failed(self, ctx: Context, failure: BaseException) -> None:
        self.book.append(f"{self.name} step failed {failure}")


async def run(engine: Engine, flow: Any, input: Any = None) -> Any:
    await engine.publish(flow)
    started = await engine.start(flow.name, {"n": 1} if input is None else input)
    await engine.drain(timeout=30)
    return await engine.get(started.id)


# The order


async def test_the_first_that_is_used_is_the_outermost(engine: Engine) -> None:
    book: list[str] = []
    engine.use(Recorder("a", book)).use(Recorder("b", book))
    await run(engine, ONE)
    calls = [line for line in book if line.split()[1] in ("admits", "in", "out", "step")]
    assert calls == [
        "a admits", "b admits", "a step started", "a in", "b step started", "b in", "b out",
        "b step completed {'n': 1}", "a out", "a step completed {'n': 1}",
    ]  # fmt: skip
    assert [line for line in book if line not in calls] == [
        "a starting one", "b starting one", "a started", "b started", "b completed", "a completed",
    ]  # fmt: skip


async def test_every_call_is_told_and_the_flow_once(engine: Engine) -> None:
    book: list[str] = []
    engine.use(Recorder("a", book))

    @engine.handler("shaky")
    async def shaky(ctx: Context, data: Any) -> int:
        if ctx.attempt < 3:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.attempt

    await run(engine, Flow("retry").step("shaky", "shaky", retry=Retry(attempts=3)).build())
    assert [line for line in book if " step " in line] == [
        "a step started", "a step failed attempt 1", "a step started", "a step failed attempt 2",
        "a step started", "a step completed 3",
    ]  # fmt: skip
    assert book.count("a started") == book.count("a completed") == 1


async def test_plain_functions_are_wrapped_too(engine: Engine) -> None:
    book: list[str] = []
    engine.use(Recorder("a", book))

    @engine.handler("plain")
    def plain(ctx: Context, data: Any) -> int:
        return 7

    assert (await run(engine, Flow("threads").step("plain", "plain").build())).data == 7
    assert "a step completed 7" in book


async def test_calls_inside_the_transaction_are_wrapped_too(engine: Engine) -> None:
    book: list[str] = []
    engine.use(Recorder("a", book))

    @engine.call("write")
    async def write(ctx: Context, data: Any) -> int:
        return 5

    nodes = [{"id": n, "kind": "action", "handler": "write"} for n in ("one", "two")] + [{"id": "end", "kind": "end"}]
    edges = [{"id": "a", "source": "one", "target": "two"}, {"id": "b", "source": "two", "target": "end"}]
    await engine.publish({"name": "calls", "entry": "one", "nodes": nodes, "edges": edges})
    await engine.start("calls")
    await engine.drain(timeout=30)
    assert [line for line in book if line in ("a admits", "a step completed 5")] == [
        "a admits",
        "a step completed 5",
    ] * 2


# What is told


async def test_what_a_flow_hook_is_told(engine: Engine) -> None:
    told: list[FlowContext] = []

    class Watch(Middleware):
        async def flow_started(self, ctx: FlowContext) -> None:
            told.append(ctx)

        async def flow_failed(self, ctx: FlowContext) -> None:
            told.append(ctx)

    @engine.handler("fail")
    async def fail(ctx: Context, data: Any) -> None:
        raise DoNotRetry("broken")

    engine.use(Watch())
    failed = await run(engine, Flow("sad").step("fail", "fail").build())
    begin, end = told
    assert (begin.instance, begin.flow, begin.flow_version, begin.org) == (failed.id, "sad", 1, engine.org)
    assert (begin.was, begin.status, begin.error) == ("pending", "running", None)
    assert (end.status, end.tenant, str(end.instance_id)) == ("failed", engine.org, failed.id)
    assert end.error is not None
    assert end.error["code"] == "DoNotRetry"
    assert end.error["message"] == "broken"
    assert end.reason == failed.reason
    assert begin.at <= end.at
    assert end.data == failed.data
    assert end.actor == "system"


@pytest.mark.parametrize("last_fails", [False, True])
async def test_a_rollback_ends_with_the_error_it_is_for(engine: Engine, last_fails: bool) -> None:
    """The commit that ends it brought none itself, or only that of a compensation."""
    told: list[tuple[str, Any]] = []

    class Pager(Middleware):
        async def rollback_completed(self, ctx: FlowContext) -> None:
            told.append(("rollback", ctx.error))

        async def flow_failed(self, ctx: FlowContext) -> None:
            told.append(("failed", ctx.error))

    async def undo(ctx: Context, data: Any) -> None:
        if last_fails:
            raise DoNotRetry("not to be undone")

    async def fail(ctx: Context, data: Any) -> None:
        raise DoNotRetry("the card was refused")

    lines: list[dict[str, Any]] = []
    engine.use(Pager(), Audit(lines.append))
    failed = await run(engine, Flow("sad").step("one", echo, undo=undo).step("fail", fail).build())
    assert failed.error["message"] == "the card was refused"
    assert told == [("rollback", failed.error), ("failed", failed.error)]
    ends = [line["error"]["message"] for line in lines if line["what"] in ("rollback_completed", "flow_failed")]
    assert ends == ["the card was refused"] * 2


async def test_an_error_is_read_only_for_hooks_that_are_told_of_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    async def reading(org: str, instance: bytes) -> Any:
        read.append(org)
        raise OSError("the database is away")

    class Starts(Middleware):
        async def flow_started(self, ctx: FlowContext) -> None: ...

    class Ends(Middleware):
        async def flow_failed(self, ctx: FlowContext) -> None:
            errors.append(ctx.error)

    async def fail(ctx: Context, data: Any) -> None:
        raise DoNotRetry("broken")

    errors: list[Any] = []
    monkeypatch.setattr(engine.hooks, "read_error", reading)
    engine.use(Starts())
    flow = Flow("sad").step("one", echo, undo=Undo(echo, name="undo")).step("fail", fail).build()
    await run(engine, flow)
    assert read == []
    engine.use(Ends())
    await run(engine, flow)
    assert (read, errors, engine.stats().hook_failures) == ([engine.org], [None], 1), "told all the same"


async def test_cancel_abort_suspend_and_resume_are_told_with_who_did_it(engine: Engine) -> None:
    book: list[tuple[str, str, str | None]] = []

    class Watch(Middleware):
        async def flow_cancelled(self, ctx: FlowContext) -> None:
            book.append(("cancelled", ctx.actor, ctx.reason))

        async def flow_aborted(self, ctx: FlowContext) -> None:
            book.append(("aborted", ctx.actor, ctx.reason))

        async def flow_suspended(self, ctx: FlowContext) -> None:
            book.append((str(ctx.status), ctx.actor, ctx.reason))

        async def flow_resumed(self, ctx: FlowContext) -> None:
            book.append(("resumed", ctx.actor, ctx.reason))

    engine.use(Watch())
    flow = Flow("wait").human("ask").build()
    await engine.publish(flow)
    first, second = await engine.start("wait"), await engine.start("wait")
    await engine.drain(timeout=30)
    await engine.suspend(first.id, by="ann", reason="lunch")
    await engine.resume(first.id, by="bob")
    await engine.cancel(first.id, by="cat", reason="enough")
    await engine.abort(second.id, by="dan", reason="at once")
    await engine.drain(timeout=30)
    assert [(what, who) for what, who, _ in book] == [
        ("suspended", "ann"), ("resumed", "bob"), ("cancelled", "cat"), ("aborted", "dan"),
    ]  # fmt: skip


async def test_flow_hooks_see_the_commit_already(engine: Engine) -> None:
    """What they read is at least as new as what they are told."""
    seen: list[str] = []

    class Watch(Middleware):
        async def flow_completed(self, ctx: FlowContext) -> None:
            seen.append((await engine.get(ctx.instance)).status)

    engine.use(Watch())
    await run(engine, ONE)
    assert seen == ["completed"]


async def test_an_engine_that_closes_tells_what_it_has_committed(holdfast_dsn: str) -> None:
    told: list[str] = []

    class Slow(Middleware):
        async def flow_completed(self, ctx: FlowContext) -> None:
            await asyncio.sleep(0.01)
            told.append(ctx.instance)

    async with Engine(holdfast_dsn) as engine:
        engine.use(Slow())
        await engine.publish(ONE)
        async with engine.worker():
            started = await engine.start_many("one", [{}] * 20)
            for instance in started:
                await engine.wait(instance.id, timeout=30)
    assert sorted(told) == sorted(i.id for i in started)


# What has a say


async def test_a_start_can_be_refused(engine: Engine, evidence: Any) -> None:
    class Closed(Middleware):
        async def flow_starting(self, flow: str, input: Any) -> None:
            if input["n"] == 13:
                raise Refused("Not today.", code="CLOSED_TODAY")

    engine.use(Closed())
    await engine.publish(ONE)
    with pytest.raises(Refused) as refused:
        await engine.start("one", {"n": 13})
    assert refused.value.code == "CLOSED_TODAY"
    with pytest.raises(Refused):
        await engine.start_many("one", [{"n": 1}, {"n": 13}])
    assert evidence.ask("select count(*) from holdfast.instances") == 0


async def test_what_a_step_hook_raises_is_the_failure_of_the_step(engine: Engine) -> None:
    calls: list[int] = []

    class Refuses(Middleware):
        async def step(self, ctx: Context, data: Any, call: Call) -> None:
            if ctx.attempt == 1:
                raise ValueError("not yet")
            await call()

    engine.use(Refuses())

    @engine.handler("work")
    async def work(ctx: Context, data: Any) -> int:
        calls.append(ctx.attempt)
        return ctx.attempt

    assert (await run(engine, Flow("twice").step("work", "work", retry=Retry(attempts=2)).build())).data == 2
    assert calls == [2]


async def test_a_step_hook_that_says_do_not_retry_is_obeyed(engine: Engine) -> None:
    class Never(Middleware):
        async def step(self, ctx: Context, data: Any, call: Call) -> None:
            raise DoNotRetry("no use")

    engine.use(Never())
    failed = await run(engine, Flow("never").step("only", echo, retry=Retry(attempts=5)).build())
    assert failed.status == "failed"
    [step] = [s for s in await engine.steps(failed.id) if s.name == "only"]
    assert step.attempts == 1


async def test_a_step_hook_changes_neither_input_nor_result_nor_failure(engine: Engine) -> None:
    class Meddler(Middleware):
        async def step(self, ctx: Context, data: Any, call: Call) -> Any:
            data["n"] = 99
            try:
                answer = await call()
                answer["n"] = 98
            except ValueError:
                pass
            return {"n": 97}

    engine.use(Meddler(), Meddler())
    assert (await run(engine, ONE, {"n": 1})).data == {"n": 98}  # the handler's own object, not a copy

    @engine.handler("fail")
    async def fail(ctx: Context, data: Any) -> None:
        assert data == {"n": 1}
        raise ValueError("as it was")

    failed = await run(engine, Flow("sad").step("fail", "fail").build())
    assert failed.status == "failed"
    assert failed.error["message"] == "as it was"


@pytest.mark.parametrize("times", [0, 2])
async def test_a_step_hook_must_call_once(engine: Engine, times: int) -> None:
    class Wrong(Middleware):
        async def step(self, ctx: Context, data: Any, call: Call) -> None:
            for _ in range(times):
                await call()

    engine.use(Wrong())
    failed = await run(engine, ONE)
    assert (failed.status, failed.error["code"]) == ("failed", "HOOK_MISUSED")


async def test_a_result_that_cannot_be_stored_is_told_as_a_failure(engine: Engine) -> None:
    book: list[str] = []
    engine.use(Recorder("a", book))

    @engine.handler("odd")
    async def odd(ctx: Context, data: Any) -> Any:
        return {1: object()}

    await run(engine, Flow("odd").step("odd", "odd").build())
    assert any("step failed" in line for line in book)
    assert not any("step completed" in line for line in book)


async def test_a_time_limit_holds_for_the_hooks_around_a_step(engine: Engine) -> None:
    class Slow(Middleware):
        async def step(self, ctx: Context, data: Any, call: Call) -> None:
            await asyncio.Event().wait()

    engine.use(Slow())
    failed = await run(engine, Flow("late").step("only", echo, timeout=0.05).build())
    assert failed.error["code"] == "STEP_TIMEOUT"


# What cannot be broken


async def test_a_hook_that_raises_breaks_nothing(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Middleware):
        async def flow_started(self, ctx: FlowContext) -> None:
            raise ValueError("started")

        async def flow_completed(self, ctx: FlowContext) -> None:
            raise ValueError("completed")

        async def step_started(self, ctx: Context, data: Any) -> None:
            raise ValueError("step started")

        async def step_completed(self, ctx: Context, output: Any) -> None:
            raise ValueError("step completed")

    book: list[str] = []
    engine.use(Broken(), Recorder("b", book))
    with caplog.at_level(logging.ERROR, "holdfast.hooks"):
        assert (await run(engine, ONE)).status == "completed"
    assert engine.stats().hook_failures == 4
    assert len([r for r in caplog.records if r.name == "holdfast.hooks"]) == 4
    assert "b completed" in book


@pytest.mark.parametrize("panic", [asyncio.CancelledError, SystemExit, BaseException])
async def test_a_hook_that_panics_breaks_nothing(engine: Engine, panic: type[BaseException]) -> None:
    class Panics(Middleware):
        async def flow_completed(self, ctx: FlowContext) -> None:
            raise panic

        async def step_started(self, ctx: Context, data: Any) -> None:
            raise panic

        async def step_completed(self, ctx: Context, output: Any) -> None:
            raise panic

    book: list[str] = []
    engine.use(Recorder("a", book), Panics())
    await engine.publish(ONE)
    started = await engine.start_many("one", [{"n": 1}] * 3)
    await engine.drain(timeout=30)
    assert {(await engine.get(instance.id)).status for instance in started} == {"completed"}
    assert book.count("a completed") == 3, "drain waits until all is told"
    assert engine.stats().hook_failures == 9


async def test_a_hook_in_the_way_of_a_time_limit_gives_way(engine: Engine) -> None:
    """The step is cancelled, not the hook: that goes on its way through the guard."""

    class Waits(Middleware):
        async def step_started(self, ctx: Context, data: Any) -> None:
            await asyncio.Event().wait()

    engine.use(Waits())
    failed = await run(engine, Flow("late").step("only", echo, timeout=0.05).build())
    assert failed.error["code"] == "STEP_TIMEOUT"
    assert engine.stats().hook_failures == 0


async def test_a_hook_that_hangs_holds_up_no_commit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "PATIENCE", 0.05)
    told: list[str] = []

    class Hangs(Middleware):
        async def flow_started(self, ctx: FlowContext) -> None:
            await asyncio.Event().wait()

        async def flow_completed(self, ctx: FlowContext) -> None:
            told.append(ctx.instance)

    engine.use(Hangs())
    assert (await run(engine, ONE)).status == "completed"
    await until(lambda: told)
    assert engine.stats().hook_failures == 1


async def test_hooks_that_are_too_slow_lose_the_oldest_changes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chain, "MOST_UNTOLD", 5)
    gate, told = asyncio.Event(), list[str]()

    class Slow(Middleware):
        async def flow_completed(self, ctx: FlowContext) -> None:
            await gate.wait()
            told.append(ctx.instance)

    engine.use(Slow())
    await engine.publish(ONE)
    started = await engine.start_many("one", [{}] * 20)
    async with engine.worker():
        for instance in started:
            await engine.wait(instance.id, timeout=30)
        gate.set()
        await engine.hooks.told()
    assert engine.stats().hook_notices_dropped > 0
    assert 0 < len(told) <= 6
    assert "too slow" in caplog.text


async def test_what_is_no_middleware_is_refused(engine: Engine) -> None:
    class NotAsync(Middleware):
        def flow_started(self, ctx: FlowContext) -> None:  # type: ignore[override]
            pass

    for wrong in (object(), Middleware, NotAsync()):
        with pytest.raises(HoldfastError) as refused:
            engine.use(wrong)  # type: ignore[arg-type]
        assert refused.value.code == "MIDDLEWARE_INVALID"
    assert engine.hooks.middleware == ()


async def test_without_hooks_nothing_is_looked_at(engine: Engine) -> None:
    class Idle(Middleware):
        pass

    for hooks in (Hooks(), engine.use(Idle()).hooks):
        assert (hooks.calls, hooks.gates, hooks.flows, hooks.starts) == ((), (), (), ())


def test_every_hook_of_the_base_class_is_known_to_the_chain() -> None:
    named = {name for name in vars(Middleware) if not name.startswith("_")}
    assert named == set(ALL)
    assert not any(overrides(Middleware(), hook) for hook in ALL)


def test_the_page_about_hooks_runs_and_prints_what_it_says(holdfast_dsn: str) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "hooks.md").read_text()
    blocks = re.compile(r"^```(?:python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    example, printed = blocks.findall(page)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        check=False, capture_output=True, text=True, timeout=60, env={**os.environ, "HOLDFAST_DSN": holdfast_dsn},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (printed, "")


def test_the_page_about_hooks_names_all_of_them() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "hooks.md").read_text()
    assert [hook for hook in ALL if f"`{hook}" not in page] == []
