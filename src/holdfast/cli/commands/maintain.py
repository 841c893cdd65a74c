"""`holdfast maintain`: the upkeep of the database, once or for as long as the command runs."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import msgspec
import typer

from holdfast.cli.commands.doctor import address
from holdfast.cli.process import logs
from holdfast.cli.render.output import busy, say, show
from holdfast.errors import StoreError
from holdfast.runtime.ops.retention import Retention
from holdfast.runtime.ops.upkeep import Maintenance, run_once
from holdfast.settings import Settings
from holdfast.store.admin.upkeep import Upkeep


def maintain(
    once: Annotated[bool, typer.Option("--once", help="Run every task to its end and leave.")] = False,
    keep: Annotated[
        list[str] | None, typer.Option(help="What is kept how long, such as steps=90d. May be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look after partitions, expired events and retention. Without --once it runs until it is stopped."""
    retention = Retention.parse(keep) if keep else Retention.from_environment()
    if not once:
        logs.configure(json=json, level=Settings.from_environment().log_level)
        asyncio.run(_serve(retention))
        return
    with busy("Upkeep"):
        done = run_once(address(), retention)
    _show(done, json=json)
    failed = [upkeep.task for upkeep in done if upkeep.error is not None]
    if failed:
        raise StoreError(
            f"The upkeep of {', '.join(failed)} failed.",
            code="UPKEEP_FAILED",
            hint="The reason stands with each task; what was done stays done.",
        )


def _show(done: list[Upkeep], *, json: bool) -> None:
    if json:
        show({upkeep.task: msgspec.to_builtins(upkeep) for upkeep in done}, json=True)
        return
    for upkeep in done:
        facts = ", ".join(f"{name} {_written(value)}" for name, value in upkeep.result.items() if value)
        say(f"{upkeep.task:<12}  {upkeep.error or facts or 'nothing to do'}")


def _written(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(value)


async def _serve(retention: Retention) -> None:
    serving = asyncio.create_task(Maintenance(address(), retention).serve())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    await asyncio.gather(serving, return_exceptions=True)
