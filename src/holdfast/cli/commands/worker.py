"""`holdfast worker`: run handlers, in this process or in several. `holdfast workers`: list those of all tenants."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.process import logs, process
from holdfast.cli.process.supervisor import Supervisor
from holdfast.cli.render.output import say, show_json, table
from holdfast.cli.target import anywhere, place
from holdfast.runtime.telemetry.metrics import require_prometheus
from holdfast.runtime.worker.options import WorkerOptions
from holdfast.settings import Settings
from holdfast.store.queue.workers import WorkerProcess

_DEFAULT = WorkerOptions()


def worker(
    target: Annotated[
        str, typer.Argument(metavar="APP", help="module:attribute, an Engine or a function that makes one.")
    ],
    processes: Annotated[int, typer.Option(min=1, max=1024, help="Worker processes; a crashed one is replaced.")] = 1,
    concurrency: Annotated[
        int, typer.Option(min=1, max=100_000, help="Handlers at the same time, per process.")
    ] = _DEFAULT.concurrency,
    queue: Annotated[
        list[str] | None, typer.Option(help="A queue to serve beside the handlers' names. May be repeated.")
    ] = None,
    lease: Annotated[
        float, typer.Option(min=0.5, max=3600, help="Seconds after which the work of a lost process is taken over.")
    ] = _DEFAULT.lease,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds running handlers have to finish when the worker leaves.")
    ] = _DEFAULT.grace,
    app: Annotated[
        str | None, typer.Option("--app", help="The application its handlers belong to; else HOLDFAST_APP.")
    ] = None,
    effects: Annotated[
        bool, typer.Option("--effects/--no-effects", help="Deliver side effects beside the handlers.")
    ] = True,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            envvar="HOLDFAST_METRICS_PORT",
            min=0,
            max=65535,
            help="Serve /metrics at this port, further processes at the next ones; 0: any that is free.",
            show_default="no metrics",
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", envvar="HOLDFAST_METRICS_HOST", help="The address to serve /metrics at.")
    ] = "127.0.0.1",
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per log line.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Say in JSON that it is ready.")] = False,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the handlers of APP until it is stopped.

    SIGTERM or Ctrl-C lets it drain: running handlers finish, their results are stored, steps not yet begun go back to
    the queue. A second signal ends it at once.
    """
    if app is not None:
        os.environ["HOLDFAST_APP"] = app  # the module may make the engine itself, and so may further processes
    logs.configure(json=log_json, level=Settings.from_environment().log_level)
    queues = tuple(queue or ())
    if metrics_port is not None:
        require_prometheus()
        _check_ports(metrics_port, processes)
    if processes == 1:
        metrics = None if metrics_port is None else (metrics_host, metrics_port)
        options = _options(concurrency, queues, lease, grace) | {"effects": effects}
        process.run(target, options, lifeline, metrics=metrics, json=json)
        return
    arguments = ["worker", target, f"--concurrency={concurrency}", f"--lease={lease}", f"--grace={grace}"]
    arguments += [f"--queue={name}" for name in queues]
    arguments += [] if effects else ["--no-effects"]
    arguments += ["--log-json"] if log_json else []
    arguments += ["--json"] if json else []

    def of_process(number: int) -> list[str]:
        if metrics_port is None:
            return arguments
        return [
            *arguments,
            f"--metrics-host={metrics_host}",
            f"--metrics-port={metrics_port and metrics_port + number}",
        ]

    raise typer.Exit(asyncio.run(_supervise(of_process, processes)))


async def _supervise(arguments: Callable[[int], list[str]], processes: int) -> int:
    return await Supervisor(arguments, processes).run()


def _check_ports(first: int, processes: int) -> None:
    if first and first + processes > 65536:
        raise typer.BadParameter(
            f"{processes} processes need as many ports from {first} on; there is none above 65535.",
            param_hint="--metrics-port",
        )


def _options(concurrency: int, queues: tuple[str, ...], lease: float, grace: float) -> dict[str, Any]:
    return {
        "concurrency": concurrency,
        # In proportion: a process with few slots must not hoard steps that its siblings could begin.
        "capacity": _DEFAULT.capacity // _DEFAULT.concurrency * concurrency,
        "queues": queues,
        "lease": lease,
        "grace": grace,
    }


# --- the list --------------------------------------------------------------------------------------------------------


@anywhere
def workers(
    all: Annotated[bool, typer.Option("--all", help="Those that left in order, too; they are kept for a day.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = 200,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Worker processes of all tenants, newest first: those alive, and those that ended without a word."""
    with place() as engine:
        found = [each for each in engine.workers(limit=limit) if all or each.stopped_at is None]
    if json:
        show_json(msgspec.to_builtins(found))
    elif found:
        now = datetime.now(UTC)
        table(("host", "pid", "status", "since", "version", "app", "serves"), [_row(each, now) for each in found])
    else:
        say("There is no worker. Start `holdfast worker`.")


def _row(found: WorkerProcess, now: datetime) -> tuple[str, ...]:
    serves = [*found.handlers, *(f"call {name}" for name in found.operations), *(f"queue {q}" for q in found.queues)]
    return (
        found.host, str(found.pid), _status(found, now), f"{found.started_at:%Y-%m-%d %H:%M:%S}", found.version,
        " ".join(found.apps), ", ".join(serves),
    )  # fmt: skip


def _status(found: WorkerProcess, now: datetime) -> str:
    if found.stopped_at is not None:
        return f"left {found.stopped_at:%H:%M:%S}"
    if not found.alive:
        return f"lost {found.lease_until:%Y-%m-%d %H:%M:%S}"
    return f"alive, lease {max(0.0, (found.lease_until - now).total_seconds()):.0f} s"
