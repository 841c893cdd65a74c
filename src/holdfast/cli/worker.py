"""`holdfast worker`: run handlers, in this process or in several."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from holdfast.cli import logs, process
from holdfast.cli.supervisor import Supervisor
from holdfast.runtime.worker_options import WorkerOptions
from holdfast.settings import Settings

_DEFAULT = WorkerOptions()


def worker(
    app: Annotated[
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
    effects: Annotated[
        bool, typer.Option("--effects/--no-effects", help="Deliver side effects beside the handlers.")
    ] = True,
    log_json: Annotated[bool, typer.Option("--log-json", help="One JSON object per log line.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Say in JSON that it is ready.")] = False,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the handlers of APP until told to leave.

    SIGTERM or Ctrl-C lets it drain: running handlers finish, their results are stored, steps not yet begun go back to
    the queue. A second signal ends it at once.
    """
    logs.configure(json=log_json, level=Settings.from_environment().log_level)
    queues = tuple(queue or ())
    if processes == 1:
        process.run(app, _options(concurrency, queues, lease, grace) | {"effects": effects}, lifeline, json=json)
        return
    arguments = ["worker", app, f"--concurrency={concurrency}", f"--lease={lease}", f"--grace={grace}"]
    arguments += [f"--queue={name}" for name in queues]
    arguments += [] if effects else ["--no-effects"]
    arguments += ["--log-json"] if log_json else []
    arguments += ["--json"] if json else []
    raise typer.Exit(asyncio.run(_supervise(arguments, processes)))


async def _supervise(arguments: list[str], processes: int) -> int:
    return await Supervisor(arguments, processes).run()


def _options(concurrency: int, queues: tuple[str, ...], lease: float, grace: float) -> dict[str, Any]:
    return {
        "concurrency": concurrency,
        # In proportion: a process with few slots must not hoard steps that its siblings could begin.
        "capacity": _DEFAULT.capacity // _DEFAULT.concurrency * concurrency,
        "queues": queues,
        "lease": lease,
        "grace": grace,
    }
