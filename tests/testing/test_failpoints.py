"""Failpoints: what they are called, what they do, and that they leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Engine, Flow, Retry
from holdfast.errors import Refused
from holdfast.runtime.effects.delivery import Delivery
from holdfast.store.pg.session import Session
from holdfast.testing import failpoint
from holdfast.testing.failpoints import ACTIONS, install_failpoints, parse
from holdfast.testing.injection import POINTS, Failpoint, InjectedFault
from running import until

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs" / "failpoints.md"
PLAIN = (
    Flow("plain").step("work", "work", retry=Retry(attempts=5)).step("more", "work", retry=Retry(attempts=5)).build()
)

VICTIM = """
import asyncio, sys
from holdfast import Engine
from holdfast.testing import install_failpoints

async def main(dsn):
    async with Engine(dsn) as engine:
        engine.register("work", lambda ctx, data: data)
        instance = await engine.start("plain", key="k")
        async with engine.worker(lease=2):
            await engine.wait(instance.id)

install_failpoints()
asyncio.run(main(sys.argv[1]))
"""


def victim(dsn: str, wish: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOLDFAST_FAILPOINT": wish}
    return subprocess.run(
        [sys.executable, "-c", VICTIM, dsn], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
async def working(engine: Engine) -> Engine:
    engine.register("work", lambda ctx, data: data)
    await engine.publish(PLAIN)
    return engine


# --- the text ------------------------------------------------------------------------------------------------------


def test_a_text_names_points_an_action_and_options() -> None:
    assert parse("commit.before_commit:kill:after=3") == [Failpoint(frozenset({"commit.before_commit"}), "kill", 3)]
    several = " handler.before+handler.after:delay:seconds=0.5:times=0 , statement.after.claim_work:disconnect,"
    assert parse(several) == [
        Failpoint(frozenset({"handler.before", "handler.after"}), "delay", times=0, seconds=0.5),
        Failpoint(frozenset({"statement.after.claim_work"}), "disconnect"),
    ]
    assert parse("") == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("commit.before_comit:kill", "FAILPOINT_UNKNOWN"),
        ("statement.before.no_such_file:kill", "FAILPOINT_UNKNOWN"),
        ("statement.between.commit:kill", "FAILPOINT_UNKNOWN"),
        (":kill", "FAILPOINT_UNKNOWN"),
        ("handler.before", "FAILPOINT_INVALID"),
        ("handler.before:explode", "FAILPOINT_INVALID"),
        ("handler.before:disconnect", "FAILPOINT_INVALID"),
        ("handler.before:kill:after=soon", "FAILPOINT_INVALID"),
        ("handler.before:kill:after=-1", "FAILPOINT_INVALID"),
        ("handler.before:kill:when=3", "FAILPOINT_INVALID"),
        ("handler.before:kill:3", "FAILPOINT_INVALID"),
        ("handler.before:delay:seconds=nan", "FAILPOINT_INVALID"),
    ],
)
def test_a_wrong_text_is_explained(text: str, code: str) -> None:
    with pytest.raises(Refused) as found:
        parse(text)
    assert found.value.code == code
    assert found.value.hint


def test_a_pytest_session_reads_the_variable(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_one.py"],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_FAILPOINT": "no.such.point:kill"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode
    assert "FAILPOINT_UNKNOWN" in answer.stdout + answer.stderr


def test_every_point_and_action_is_documented() -> None:
    text = DOCS.read_text()
    documented = set(re.findall(r"^\| `([a-z._]+)`", text, re.MULTILINE))
    assert documented >= set(POINTS) | set(ACTIONS)


# --- what they do --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wish",
    [
        "commit.before_commit:kill:after=2",
        "commit.after_commit:kill",
        "commit.before_acting:kill",
        "statement.before.insert_receipts:kill",
        "statement.after.open_steps:kill",
        "handler.before:kill",
        "handler.after:kill:after=1",
        "lease.before_register:kill",
        "lease.before_renew+scan.before:kill",
        "scan.after:kill",
        "worker.before_stop:kill",
    ],
)
async def test_a_process_dies_at_the_point_and_another_finishes(working: Engine, wish: str) -> None:
    answer = await asyncio.to_thread(victim, working.dsn, wish)
    assert answer.returncode == -signal.SIGKILL, answer.stderr
    instance = await working.start("plain", key="k")
    async with working.worker(lease=2):
        assert (await working.wait(instance.id, timeout=40)).status == "completed"


async def test_after_counts_the_hits_that_pass(working: Engine) -> None:
    assert (await asyncio.to_thread(victim, working.dsn, "handler.before:kill:after=2")).returncode == 0


async def test_an_error_in_a_handlers_place_is_its_failure(working: Engine) -> None:
    with failpoint("handler.after", "error", times=2) as point:
        instance = await working.start("plain")
        await working.drain(timeout=30)
    assert (point.hits, point.fired) == (4, 2)
    [work, more] = await working.steps(instance.id)
    assert (work.attempts, more.attempts) == (3, 1)
    assert (await working.get(instance.id)).status == "completed"


async def test_an_error_of_a_statement_has_the_sqlstate_asked_for(working: Engine) -> None:
    writes = "statement.before.advance_steps+statement.before.close_steps"  # whichever way the step is closed
    with failpoint(writes, "error", sqlstate="57014") as point:
        instance = await working.start("plain")
        await working.drain(timeout=30)
    assert point.fired == 1
    assert working.stats().batches_retried == 1
    assert (await working.get(instance.id)).status == "completed"


@pytest.mark.parametrize("point", ["commit.before_commit", "commit.after_commit", "statement.after.claim_work"])
async def test_a_lost_connection_loses_nothing(working: Engine, point: str) -> None:
    ids = [i.id for i in await working.start_many("plain", [{"n": n} for n in range(20)])]
    with failpoint(point, "disconnect", times=3) as lost:
        async with working.worker(lease=2):
            ended = [await working.wait(id, timeout=40) for id in ids]
    assert lost.fired
    assert {i.status for i in ended} == {"completed"}


async def test_a_delay_holds_up_the_one_that_came_by(working: Engine) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with failpoint("handler.before", "delay", seconds=0.3) as point:
        instance = await working.start("plain")
        await working.drain(timeout=30)
    assert point.fired == 1
    assert loop.time() - began >= 0.3
    assert (await working.get(instance.id)).status == "completed"


async def test_a_renewal_that_fails_is_repeated(working: Engine) -> None:
    with (
        failpoint("lease.before_renew", "error", times=2) as point,
        failpoint("statement.before.renew_lease", "disconnect") as cut,
    ):
        async with working.worker(lease=1.5) as worker:
            first = worker.lease.id
            await until(lambda: point.fired == 2 and cut.fired == 1 and worker.lease.seconds_left > 1.2)
            assert worker.lease.id == first


async def test_a_call_can_fail_inside_its_transaction(engine: Engine) -> None:
    engine.call("note")(lambda ctx, data: data)
    await engine.publish(
        {
            "name": "calling",
            "entry": "note",
            "nodes": [
                {"id": "note", "kind": "action", "handler": "note", "retry": {"calls": 3}},
                {"id": "end", "kind": "end"},
            ],
            "edges": [{"id": "e", "source": "note", "target": "end"}],
        }
    )
    with failpoint("call.after", "error") as point:
        instance = await engine.start("calling")
        await engine.drain(timeout=30)
    assert point.hits == 2
    assert (await engine.get(instance.id)).status == "completed"


async def test_a_delivery_that_is_told_to_fail_is_made_again_under_its_key(engine: Engine) -> None:
    keys: list[str] = []

    @engine.effect("note")
    async def note(delivery: Delivery, data: Any) -> None:
        keys.append(delivery.key)

    await engine.publish(
        {
            "name": "telling",
            "entry": "tell",
            "nodes": [
                {"id": "tell", "kind": "effect", "handler": "note", "awaits": True, "retry": {"calls": 3}},
                {"id": "end", "kind": "end"},
            ],
            "edges": [{"id": "e", "source": "tell", "target": "end"}],
        }
    )
    with failpoint("delivery.after", "error") as point:
        instance = await engine.start("telling")
        await engine.drain(timeout=30)
    assert point.hits == 2
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert (await engine.get(instance.id)).status == "completed"


async def test_a_frozen_process_goes_on_when_it_is_told_to(working: Engine) -> None:
    environment = {**os.environ, "HOLDFAST_FAILPOINT": "handler.before:freeze"}
    process = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", VICTIM, working.dsn], env=environment)
    try:
        _, status = await asyncio.to_thread(os.waitpid, process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        _, status = await asyncio.to_thread(os.waitpid, process.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        process.returncode = 0
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


# --- what is left of them ------------------------------------------------------------------------------------------


def test_nothing_is_wrapped_once_the_last_is_gone() -> None:
    plain: Any = Session.__dict__["_exchange"]
    with failpoint("handler.before", "error"):
        with failpoint("handler.after", "error"):
            assert Session.__dict__["_exchange"] is not plain
        assert Session.__dict__["_exchange"] is not plain
    assert Session.__dict__["_exchange"] is plain


def test_no_text_wraps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: Any = Session.__dict__["_exchange"]
    monkeypatch.delenv("HOLDFAST_FAILPOINT", raising=False)
    assert install_failpoints() == []
    assert Session.__dict__["_exchange"] is plain


async def test_the_injected_fault_says_where(engine: Engine) -> None:
    seen: list[str] = []

    @engine.handler("work")
    async def work(ctx: Context, data: Any) -> Any:
        return data

    await engine.publish(Flow("once").step("work", "work").build())
    with failpoint("handler.before", "error"):
        instance = await engine.start("once")
        await engine.drain(timeout=30)
    [step] = await engine.steps(instance.id)
    assert step.error is not None
    seen.append(step.error["message"])
    assert "handler.before" in seen[0]
    assert InjectedFault.code == "FAILPOINT"
