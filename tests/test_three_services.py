"""The how-to about three services, as it stands: an engine, three services and a shop, each a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast import Engine
from reader import ROOT, blocks, first_terminal, of, second_terminal, surroundings
from running import until

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs" / "howto" / "three_services.md").read_text()
BLOCKS = blocks(PAGE)
PROGRAMS = ("billing.py", "warehouse.py", "dashboard.py", "shop.py")


@contextmanager
def service(command: str, directory: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    log = directory / f"{command.split()[-1]}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(command.split(), cwd=directory, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_what_the_page_says_happens(tmp_path: Path, holdfast_dsn: str) -> None:
    environment = surroundings(HOLDFAST_DSN=holdfast_dsn)
    environment["HOLDFAST_URL"] = f"http://127.0.0.1:{environment['HOLDFAST_PORT']}"
    [order] = of("json", BLOCKS)
    (tmp_path / "order.json").write_text(order)
    for name, program in zip(PROGRAMS, of("python", BLOCKS), strict=True):
        (tmp_path / name).write_text(program)
    up, billing, warehouse, dashboard, first, second = (commands.strip() for commands in of("sh", BLOCKS))
    [answer] = of("console", BLOCKS)
    lives = of("text", BLOCKS)
    shown = tmp_path / "dashboard.py.log"

    async def shows(parts: int) -> None:
        await until(lambda: shown.read_text() == "".join(lives[:parts]))

    with ExitStack() as running:
        terminal = running.enter_context(first_terminal(tmp_path, environment))
        running.enter_context(second_terminal(up, tmp_path, environment))
        services = [
            running.enter_context(service(one, tmp_path, environment)) for one in (billing, warehouse, dashboard)
        ]
        async with Engine(holdfast_dsn) as engine:
            await until(lambda: are_registered(engine))
        assert terminal.types(first) == answer
        await shows(1)
        services[1].kill()
        services[1].wait()
        terminal.types(second)
        await shows(2)
        running.enter_context(service(warehouse, tmp_path, environment))
        await shows(3)


async def are_registered(engine: Engine) -> bool:
    return len(await engine.consumers("prod")) == 3
