"""A handler's name belongs to an application: services with functions of the same name run their own steps only."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Engine, Flow, Undo
from holdfast.errors import Conflict, HoldfastError
from holdfast.runtime.worker.apps import app_of, origin_of, owners
from holdfast.store.admin.doctor import examine

pytestmark = pytest.mark.anyio

SERVICE = """
import asyncio, sys
from holdfast import Engine, Flow

async def charge(ctx, data):
    return {"charged_by": "%s"}

async def main():
    async with Engine(sys.argv[1]) as engine:
        await engine.publish(Flow("%s_order").step("charge", charge).build())
        print("published", flush=True)
        sys.stdin.readline()
        async with engine.worker():
            print("ready", flush=True)
            sys.stdin.readline()
            started = [await engine.start("%s_order", {}) for _ in range(5)]
            done = [await engine.wait(one.id, timeout=30) for one in started]
            print(sorted({one.data["charged_by"] for one in done}), flush=True)
            sys.stdin.readline()

asyncio.run(main())
"""


@pytest.fixture
async def other(engine: Engine) -> AsyncIterator[Engine]:
    async with Engine(engine.dsn, app="billing") as other:
        yield other


def named(name: str, service: str, ran: list[tuple[str, str]]) -> Any:
    async def function(ctx: Context, data: Any) -> Any:
        ran.append((service, ctx.flow))
        return data

    function.__name__ = name
    return function


async def test_two_scripts_with_a_function_of_the_same_name_run_only_their_own_steps(
    engine: Engine, tmp_path: Path
) -> None:
    await asyncio.to_thread(_run_two_scripts, engine.dsn, tmp_path)


def _run_two_scripts(dsn: str, tmp_path: Path) -> None:
    services: list[subprocess.Popen[str]] = []
    try:
        for name in ("shop", "billing"):
            script = tmp_path / f"{name}.py"
            script.write_text(SERVICE % (name, name, name))
            services.append(
                subprocess.Popen(
                    [sys.executable, str(script), dsn],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ),
                )
            )  # fmt: skip
        for expected in (["published"] * 2, ["ready"] * 2, ["['shop']", "['billing']"]):
            assert [_line(service) for service in services] == expected
            for service in services:
                _tell(service)
    finally:
        for service in services:
            service.communicate(timeout=30)
    assert [service.returncode for service in services] == [0, 0]


def _line(service: subprocess.Popen[str]) -> str:
    assert service.stdout is not None
    return service.stdout.readline().strip()


def _tell(service: subprocess.Popen[str]) -> None:
    assert service.stdin is not None
    service.stdin.write("\n")
    service.stdin.flush()


async def test_short_names_of_an_app_are_its_own_and_whole_names_reach_across(engine: Engine, other: Engine) -> None:
    ran: list[tuple[str, str]] = []
    engine.register("charge", named("charge", "shop", ran))
    other.register("charge", named("charge", "billing", ran))
    await other.publish(Flow("mine").step("a", "charge").build())
    await engine.publish(Flow("across").step("a", "billing/charge").build())
    for flow in ("mine", "across"):
        await engine.start(flow, {})
    await engine.drain(timeout=30)
    assert ran == []
    await other.drain(timeout=30)
    assert sorted(ran) == [("billing", "across"), ("billing", "mine")]


async def test_a_flow_without_an_app_runs_on_any_worker_that_has_the_short_name(engine: Engine, other: Engine) -> None:
    ran: list[tuple[str, str]] = []
    other.register("pack", named("pack", "billing", ran))
    await engine.publish(Flow("parcel").step("pack", "pack").build())
    await engine.start("parcel", {})
    await other.drain(timeout=30)
    assert ran == [("billing", "parcel")]


async def test_compensations_and_calls_are_the_apps_as_well(engine: Engine, other: Engine) -> None:
    ran: list[tuple[str, str]] = []
    for one, service in ((engine, "shop"), (other, "billing")):
        one.register("pay", named("pay", service, ran))
        one.register("refund", named("refund", service, ran))

        @one.handler("fail")
        async def fail(ctx: Context, data: Any) -> Any:
            raise ValueError

    flow = Flow("refunded").step("pay", "pay", undo=Undo("refund", name="back")).step("fail", "fail").build()
    await other.publish(flow)
    started = await engine.start("refunded", {})
    async with engine.worker(), other.worker():
        assert (await engine.wait(started.id, timeout=30)).status == "failed"
    assert ran == [("billing", "refunded")] * 2


async def test_publishing_a_flow_that_is_another_apps_is_refused_and_its_hash_is_the_same(engine: Engine) -> None:
    flow = Flow("order").step("charge", "charge").build()
    async with Engine(engine.dsn, app="a") as a, Engine(engine.dsn, app="b") as b:
        first = await a.publish(flow)
        again = await engine.publish(flow)
        assert (again.new, again.hash) == (False, first.hash)
        with pytest.raises(Conflict, match="belongs to the application 'a'") as refused:
            await b.publish_many([Flow("beside").step("x", "x").build(), flow])
        assert refused.value.code == "FLOW_OF_ANOTHER_APP"
        assert "beside" not in {one.name for one in await engine.flows()}


async def test_a_worker_that_offers_what_another_one_does_is_warned_and_doctor_names_both(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, str]] = []
    async with Engine(engine.dsn, app="a") as a, Engine(engine.dsn, app="a") as b, Engine(engine.dsn, app="c") as c:
        a.register("charge", named("charge", "a", ran))
        foreign = named("charge", "b", ran)
        foreign.__module__ = "elsewhere"
        b.register("charge", foreign)
        c.register("charge", foreign)
        with caplog.at_level(logging.WARNING, "holdfast.worker"):
            async with a.worker(), c.worker():
                assert "also offered" not in caplog.text  # short names, and no flow leaves them to everybody
                async with b.worker():
                    assert "The handler 'a/charge' of elsewhere is also offered by test_apps" in caplog.text
                    report = await asyncio.to_thread(examine, engine.dsn)
    [finding] = [one for one in report.findings if one.code == "handler_rivals"]
    assert finding.subject == "a/charge"
    assert "elsewhere" in finding.message
    assert "test_apps" in finding.message


async def test_workers_of_short_names_that_a_flow_leaves_to_everybody_are_warned(
    engine: Engine, other: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = named("pack", "b", [])
    foreign.__module__ = "elsewhere"
    engine.register("pack", named("pack", "a", []))
    other.register("pack", foreign)
    await engine.publish(Flow("parcel").step("pack", "pack").build())
    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        async with engine.worker(), other.worker():
            assert "The handler 'pack' of elsewhere is also offered" in caplog.text


async def test_workers_are_listed_with_their_apps(engine: Engine, other: Engine) -> None:
    other.register("charge", named("charge", "billing", []))
    async with other.worker(queues=("eu",)):
        [listed] = [one for one in await engine.workers() if one.alive]
    assert (listed.handlers, listed.queues, listed.apps) == (["charge"], ["eu"], ["billing"])


def test_the_app_of_a_function_is_its_top_level_package_or_script(tmp_path: Path) -> None:
    function = named("charge", "x", [])
    assert app_of(partial(function)) == "test_apps"
    assert str(Path(__file__)) in origin_of(function)
    function.__module__ = "shop.payments.cards"
    assert app_of(function) == "shop"
    function.__module__ = "holdfast.runtime.invokers.openapi"
    assert app_of(function) is None
    package = tmp_path / "store"
    package.mkdir()
    code = "from holdfast.runtime.worker.apps import app_of\ndef f(ctx, data): ...\nprint(app_of(f))"
    for path in (package / "__init__.py", package / "__main__.py", package / "night.py"):
        path.write_text("" if path.name == "__init__.py" else code)
    for arguments, app in (
        (["-m", "store"], "store"),
        (["-m", "store.night"], "store"),
        ([str(package / "night.py")], "night"),
        (["-c", code], "None"),
    ):
        answer = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert answer.stdout.strip() == app


def test_without_an_app_only_functions_are_claimed() -> None:
    function = named("charge", "x", [])
    assert owners(None, ["charge", "ship"], {"charge": function}) == {"charge": "test_apps"}
    assert owners("shop", ["charge", "b/ship", "openapi:x.y"], {}) == {"charge": "shop"}


@pytest.mark.parametrize("app", ["", "a/b", "a b", "ä", "x" * 64])
def test_names_of_apps_are_checked(app: str) -> None:
    with pytest.raises(HoldfastError) as refused:
        Engine(app=app)
    assert refused.value.code == "APP_NAME_INVALID"


def test_the_environment_names_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_APP", "shop")
    assert Engine().app == "shop"
    monkeypatch.setenv("HOLDFAST_APP", "a/b")
    with pytest.raises(HoldfastError, match="HOLDFAST_APP"):
        Engine()
