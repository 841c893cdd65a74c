"""`holdfast doctor`, `holdfast maintain` and `holdfast stuck` as an operator runs them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import Result
from operations_flows import echo, waiting
from typer.testing import CliRunner

from holdfast import Engine
from holdfast.cli.app import app
from holdfast.store import embedded
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio


def environment(dsn: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**kept, "PYTHONWARNINGS": "error", "NO_COLOR": "1", "HOLDFAST_DSN": dsn, **more}


async def command(dsn: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "holdfast.cli", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(dsn, **more),
    )


def service(dsn: str) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-m", "holdfast.cli", "maintain"]
    return subprocess.Popen(arguments, env=environment(dsn), stderr=subprocess.DEVNULL)


async def inside(dsn: str, *arguments: str) -> Result:
    """The command in this process: a new interpreter for each would take most of the time."""
    runner = CliRunner(env={"HOLDFAST_DSN": dsn, "NO_COLOR": "1"})
    return await asyncio.to_thread(runner.invoke, app, arguments)


async def answer(dsn: str, *arguments: str) -> Any:
    done = await inside(dsn, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
async def office(engine: Engine) -> Engine:
    engine.register("echo", echo)
    await engine.publish(waiting("pause", {"kind": "wait_timer", "delay": 3600.0}))
    return engine


async def test_the_exit_code_of_the_doctor_is_for_monitoring(own_server: tuple[Path, str]) -> None:
    directory, dsn = own_server
    async with Engine(dsn):
        pass
    well = await command(dsn, "doctor", "--json")
    report = json.loads(well.stdout)
    assert (well.returncode, report["exit_code"]) == (0, 0)
    assert {"schema", "dead_rows", "oldest_transaction"} <= {f["code"] for f in report["findings"]}

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select pg_create_physical_replication_slot('orphan', true)")
        attention = await command(dsn, "doctor")
        assert attention.returncode == 1
        first, then = attention.stdout.splitlines()[:2]
        assert first.startswith("warning")
        assert "orphan" in first
        assert "pg_drop_replication_slot" in then
        connection.execute("delete from holdfast.schema_version")
        assert (await command(dsn, "doctor")).returncode == 2
    await asyncio.to_thread(embedded.stop, directory, "immediate")
    gone = await command(dsn, "doctor")
    assert (gone.returncode, gone.stdout.split()[:2]) == (2, ["critical", "database"])


async def test_maintain_once(office: Engine, evidence: Evidence) -> None:
    started = await office.start("pause")
    await office.drain(timeout=30)
    await office.abort(started.id)
    await advance(office, days=40)
    done = await answer(office.dsn, "maintain", "--once", "--keep", "instances=5w", "--keep", "dead_letters=1y")
    assert done["instances"]["result"] == {"removed": 1}
    assert done["dead_letters"]["result"] == {"removed": 0}
    assert "steps" not in done

    plain = await command(office.dsn, "maintain", "--once", HOLDFAST_RETENTION="receipts=30d")
    assert plain.returncode == 0
    assert "receipts" in plain.stdout
    assert "nothing to do" in plain.stdout

    wrong = await command(office.dsn, "maintain", "--once", "--keep", "steps=soon")
    assert (wrong.returncode, "RETENTION_INVALID" in wrong.stderr) == (6, True)
    evidence.connection.execute("alter function holdfast.ensure_partitions(int) rename to away")
    failed = await command(office.dsn, "maintain", "--once")
    assert (failed.returncode, "UPKEEP_FAILED" in failed.stderr) == (7, True)
    assert "ensure_partitions" in failed.stdout


async def test_maintain_as_a_service(office: Engine, evidence: Evidence) -> None:
    await advance(office, days=95)
    process = service(office.dsn)
    try:
        await until(lambda: evidence.ask("select min(months_ahead) from holdfast.partition_alarm()") >= 3)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0
    finally:
        process.kill()
        process.wait()


async def test_stuck_instances(office: Engine, evidence: Evidence) -> None:
    ids = sorted([(await office.start("pause", {"n": n})).id for n in range(3)])
    await office.drain(timeout=30)
    assert "Nothing is stuck." in (await inside(office.dsn, "stuck", "list", "--minutes", "0")).stdout
    evidence.connection.execute("delete from holdfast.timers")

    found = await answer(office.dsn, "stuck", "list", "--minutes", "0", "--limit", "2")
    assert [s["id"] for s in found] == ids[:2]
    rest = await inside(office.dsn, "stuck", "list", "--minutes", "0", "--after", ids[1])
    assert ids[2] in rest.stdout
    assert "lacks timer of middle" in rest.stdout

    moved = await answer(office.dsn, "stuck", "requeue", ids[0], "--by", "ann", "--reason", "lost")
    assert [m["missing"] for m in moved["moved"]] == ["timer"]
    evidence.connection.execute(
        "update holdfast.instances set state = '{}', version = version + 1 where id = %s", [ids[1]]
    )
    dry = await answer(office.dsn, "stuck", "rebuild", ids[1], "--by", "ann", "--dry-run")
    assert (dry["written"], [d["what"] for d in dry["differences"]]) == (False, ["tokens.0"])
    rebuilt = await inside(office.dsn, "stuck", "rebuild", ids[1], "--by", "ann", "--reason", "lost")
    assert (rebuilt.exit_code, "tokens.0" in rebuilt.stdout) == (0, True)
    failed = await answer(office.dsn, "stuck", "fail", ids[2], "--by", "ann", "--reason", "lost")
    assert failed == {"id": ids[2], "status": "failed", "reason": "lost"}
    nobody = await inside(office.dsn, "stuck", "requeue", ids[0])
    assert nobody.exit_code == 2  # who it was is part of the deed
    assert [e.actor for e in await office.events(ids[2]) if e.type == "instance_force_failed"] == ["ann"]


async def test_operators_look_across_tenants(engine: Engine, evidence: Evidence) -> None:
    engine.register("echo", echo)
    for tenant in ("acme", "globex"):
        view = engine.for_org(tenant)
        await view.publish(waiting("pause", {"kind": "wait_timer", "delay": 3600.0}))
        await view.start("pause", {})
    await engine.drain(timeout=30)
    for tenant in ("acme", "globex"):
        await engine.for_org(tenant).start("pause", {"lost": True})
    evidence.connection.execute("update holdfast.signals set payload = '[]'")
    async with engine.worker():
        await until(lambda: evidence.ask("select count(*) = 2 from holdfast.dead_letters"))
        evidence.connection.execute("delete from holdfast.timers")
        letters = await answer(engine.dsn, "dlq", "list", "--all-tenants")
        assert [each["tenant"] for each in letters] == ["globex", "acme"]
        assert {(each["host"], each["pid"]) for each in letters} == {(socket.gethostname(), os.getpid())}
        [older] = await answer(engine.dsn, "dlq", "list", "--all-tenants", "--after", letters[0]["letter"]["id"])
        assert older == letters[1]
        assert await answer(engine.dsn, "dlq", "list", "--all-tenants", "--flow", "other") == []
        shown = (await inside(engine.dsn, "dlq", "list", "--all-tenants")).stdout
        assert f"pid {os.getpid()} on {socket.gethostname()}" in shown
        assert "There are no dead letters." in (await inside(engine.dsn, "dlq", "list")).stdout
        [process] = await answer(engine.dsn, "workers")
        assert (process["host"], process["pid"], process["alive"]) == (socket.gethostname(), os.getpid(), True)
        assert re.search(rf"{os.getpid()} +alive, lease \d+ s .* echo", (await inside(engine.dsn, "workers")).stdout)
    assert "There is no worker." in (await inside(engine.dsn, "workers")).stdout
    assert " left " in (await inside(engine.dsn, "workers", "--all")).stdout
    evidence.connection.execute("update holdfast.workers set stopped_at = null, lease_until = now() - interval '1 h'")
    assert " lost " in (await inside(engine.dsn, "workers")).stdout
    stuck = await answer(engine.dsn, "stuck", "list", "--minutes", "0", "--all-tenants")
    assert {each["tenant"] for each in stuck} == {"acme", "globex"}
    assert "acme  " in (await inside(engine.dsn, "stuck", "list", "--minutes", "0", "--all-tenants")).stdout
    assert await answer(engine.dsn, "stuck", "list", "--minutes", "0") == []
