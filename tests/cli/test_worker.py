"""`holdfast worker` as users run it: real processes, real signals, a real database."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cli_apps
import httpx2
import pytest
from cli_process import command, running

from holdfast import Engine, Flow

MACHINES = Path(__file__).parent.parent.parent / "examples" / "machines"
PLUGIN = """
class Sms:
    name = "sms"

    def handlers(self, engine):
        return {"send": lambda ctx, data: {"sent": data["to"]}}
"""

pytestmark = pytest.mark.anyio


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    place = tmp_path / "marks"
    place.mkdir()
    return place


@pytest.fixture
def environment(holdfast_dsn: str, marks: Path) -> dict[str, str]:
    return {"HOLDFAST_DSN": holdfast_dsn, "CLI_TEST_MARKS": str(marks)}


async def start(engine: Engine, count: int, **data: Any) -> list[str]:
    await engine.publish(cli_apps.FLOW)
    return [i.id for i in await engine.start_many("cli", [{"number": n, **data} for n in range(count)])]


async def all_complete(engine: Engine, ids: list[str]) -> None:
    ended = await asyncio.gather(*(engine.wait(id, timeout=60) for id in ids))
    assert [i.status for i in ended] == ["completed"] * len(ids)


async def attempts(engine: Engine, ids: list[str], step: str) -> list[int]:
    return [s.attempts for id in ids for s in await engine.steps(id) if s.name == step]


async def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)


def count(marks: Path, kind: str) -> int:
    return len(list(marks.glob(f"{kind}-*")))


def runs(marks: Path, kind: str, id: str) -> int:
    file = marks / f"{kind}-{id}"
    return len(file.read_text()) if file.exists() else 0


async def test_two_processes_share_the_work(
    engine: Engine, environment: dict[str, str], marks: Path, tmp_path: Path
) -> None:
    ids = await start(engine, 12, processes=2)
    with running(
        tmp_path / "log", "cli_apps:make", "--processes=2", "--concurrency=1", "--lease=10", **environment
    ) as worker:
        await all_complete(engine, ids)
        assert len(set(worker.ready)) == 2
        worker.tell(signal.SIGTERM)
        assert worker.ends() == 0
    assert count(marks, "process") == 2
    assert await attempts(engine, ids, "hold") == [1] * 12
    assert [runs(marks, "finished", id) for id in ids] == [1] * 12


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_signal_lets_it_drain(
    engine: Engine, environment: dict[str, str], marks: Path, tmp_path: Path, processes: int
) -> None:
    ids = await start(engine, 12)
    options = ["cli_apps:configure", f"--processes={processes}", "--concurrency=1", "--lease=10"]
    with running(tmp_path / "first", *options, **environment) as worker:
        await eventually(lambda: count(marks, "began") == processes)
        worker.tell(signal.SIGINT)
        worker.says("is leaving", processes)
        (marks / "go").touch()
        assert worker.ends() == 0
    assert count(marks, "held") == processes  # what ran was finished, nothing else was begun …
    outcomes = [s.status for id in ids for s in await engine.steps(id) if s.name == "hold"]
    assert outcomes.count("completed") == processes  # … and its result is stored
    with running(tmp_path / "second", *options, **environment) as worker:
        await all_complete(engine, ids)
    assert await attempts(engine, ids, "hold") == [1] * 12
    assert [runs(marks, "began", id) for id in ids] == [1] * 12
    assert "Traceback" not in (tmp_path / "first").read_text()


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_second_signal_ends_it_at_once(
    engine: Engine, environment: dict[str, str], marks: Path, tmp_path: Path, processes: int
) -> None:
    await start(engine, 12)
    with running(
        tmp_path / "log", "cli_apps:make", f"--processes={processes}", "--concurrency=1", "--lease=1", **environment
    ) as worker:
        await eventually(lambda: count(marks, "began") == processes)
        worker.tell(signal.SIGTERM)
        worker.says("is leaving", processes)
        worker.tell(signal.SIGTERM)
        assert worker.ends() == 128 + signal.SIGTERM
    assert count(marks, "held") == 0


@pytest.mark.parametrize("processes", [1, 2])
async def test_its_handlers_belong_to_the_app_it_is_given(
    engine: Engine, environment: dict[str, str], tmp_path: Path, processes: int
) -> None:
    """In every process, and before what the environment says."""
    options = ("cli_apps:make", "--app=billing", f"--processes={processes}", "--json")
    with running(tmp_path / "log", *options, HOLDFAST_APP="shop", **environment) as worker:
        await eventually(lambda: len(set(worker.ready)) == processes)
        listed = [one for one in await engine.workers() if one.alive]
    assert [one.apps for one in listed] == [["billing"]] * processes


async def test_a_killed_process_is_replaced_and_its_work_taken_over(
    engine: Engine, environment: dict[str, str], marks: Path, tmp_path: Path
) -> None:
    ids = await start(engine, 40)
    options = ["cli_apps:make", "--processes=2", "--concurrency=2", "--lease=1"]
    with running(tmp_path / "log", *options, **environment) as worker:
        await eventually(lambda: count(marks, "process") == 2 and len(worker.ready) == 2)
        victim = worker.ready[1]
        os.kill(victim, signal.SIGKILL)
        worker.says("ended by SIGKILL")
        (marks / "go").touch()
        await all_complete(engine, ids)
        worker.says("is ready", 3)
        assert victim not in worker.ready[2:]
        worker.tell(signal.SIGTERM)
        assert worker.ends() == 0
    calls = await attempts(engine, ids, "hold")
    assert max(calls) == 2  # what the victim had begun was begun again
    assert [runs(marks, "finished", id) for id in ids] == [1] * 40


async def test_processes_leave_when_their_supervisor_was_killed(
    engine: Engine, environment: dict[str, str], marks: Path, tmp_path: Path
) -> None:
    await start(engine, 1)
    (marks / "go").touch()
    with running(tmp_path / "log", "cli_apps:make", "--processes=2", **environment) as worker:
        worker.says("is ready", 2)
        worker.tell(signal.SIGKILL)
        worker.ends()
        await eventually(lambda: worker.log.count("has left") == 2)


async def test_a_kind_that_an_installed_package_brings_is_served(
    engine: Engine, environment: dict[str, str], tmp_path: Path
) -> None:
    """The application registers nothing: all there is to do comes from the package."""
    packages = tmp_path / "packages"
    about = packages / "hf_sms-1.0.dist-info"
    about.mkdir(parents=True)
    (packages / "hf_sms.py").write_text(PLUGIN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hf-sms\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[holdfast.invokers]\nsms = hf_sms:Sms\n")
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    await engine.publish(Flow("tell").step("tell", "sms:send").build())
    instance = await engine.start("tell", {"to": "+49"})
    with running(tmp_path / "log", "cli_apps:empty", "--json", **environment, PYTHONPATH=path) as worker:
        assert (await engine.wait(instance.id, timeout=60)).status == "completed"
        [step] = await engine.steps(instance.id)
        assert step.output == {"sent": "+49"}
        [ready] = [json.loads(line) for line in worker.log.splitlines() if line.startswith("{")]
        assert (ready["pid"], ready["queues"]) == (worker.process.pid, ["sms:send"])
        worker.tell(signal.SIGTERM)
        assert worker.ends() == 0


async def test_an_application_may_have_nothing_but_consumers(
    engine: Engine, environment: dict[str, str], marks: Path, tmp_path: Path
) -> None:
    await engine.import_machine(MACHINES / "loan_approval.blueprint.json")
    with running(tmp_path / "log", "cli_apps:only_a_consumer", **environment) as worker:
        async with asyncio.timeout(60):
            while not await engine.consumers("prod"):  # a trigger needs one
                await asyncio.sleep(0.005)
        assert (await engine.trigger("prod", "loan", "L-1", "Apply", {"amount": 1})).applied
        await eventually(lambda: runs(marks, "took", "L-1-1") == 1)
        worker.tell(signal.SIGTERM)
        assert worker.ends() == 0


@pytest.mark.parametrize(
    ("app", "code", "exit_code"),
    [
        ("cli_apps", "APP_INVALID", 1),
        ("cli_apps:", "APP_INVALID", 1),
        ("nowhere:engine", "APP_NOT_FOUND", 4),
        ("cli_apps:nothing", "APP_NOT_FOUND", 4),
        ("cli_apps:NOT_AN_ENGINE", "APP_INVALID", 1),
        ("cli_apps:marks", "APP_INVALID", 1),
        ("cli_broken:engine", "APP_FAILED", 1),
        ("cli_apps:empty", "APP_WITHOUT_HANDLERS", 1),
    ],
)
async def test_what_is_no_application_is_refused(
    environment: dict[str, str], app: str, code: str, exit_code: int
) -> None:
    refused = await asyncio.to_thread(command, "worker", app, **environment)
    assert refused.returncode == exit_code
    assert refused.stderr.startswith(f"[{code}] ")
    assert "Traceback" not in refused.stderr


async def test_several_processes_fail_as_one_when_none_can_start(environment: dict[str, str]) -> None:
    refused = await asyncio.to_thread(command, "worker", "cli_apps:nothing", "--processes=4", **environment)
    assert refused.returncode == 4
    assert refused.stderr.count("APP_NOT_FOUND") == 1


async def test_a_missing_database_is_one_line(marks: Path, tmp_path: Path) -> None:
    nowhere = f"postgresql://holdfast@/holdfast?host={tmp_path}&password=hush"
    for processes in ("1", "2"):
        refused = await asyncio.to_thread(
            command, "worker", "cli_apps:make", f"--processes={processes}", HOLDFAST_DSN=nowhere
        )
        assert refused.returncode == 7
        assert refused.stderr.startswith("[STORE_UNREACHABLE] ")
        assert "Traceback" not in refused.stderr
        assert "hush" not in refused.stderr


async def test_each_process_serves_its_metrics(tmp_path: Path, environment: dict[str, str]) -> None:
    options = ["--metrics-port", "0", "--processes", "2"]
    with running(tmp_path / "log", "cli_apps:make", *options, **environment) as worker:
        worker.says("has its metrics at", times=2)
        pages = re.findall(r"has its metrics at (http://127\.0\.0\.1:\d+/metrics)", worker.log)
        assert len(set(pages)) == 2
        async with httpx2.AsyncClient() as client:
            for page in pages:
                assert re.search(r"^holdfast_lease_seconds_left [\d.]+$", (await client.get(page)).text, re.MULTILINE)
        worker.tell(signal.SIGTERM)
        assert worker.ends() == 0


async def test_processes_need_as_many_ports(environment: dict[str, str]) -> None:
    options = ["--metrics-port", "65535", "--processes", "2"]
    refused = await asyncio.to_thread(command, "worker", "cli_apps:make", *options, **environment)
    assert refused.returncode == 2
    assert "--metrics-port" in refused.stderr
