"""`holdfast rerun`: instances again from a chosen step, with what the step got then or with another input."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.commands.control import Limit, Meant, each_by_itself, preview, tell_done
from holdfast.cli.confirm import Yes, confirm
from holdfast.cli.filters import which_instances_to_rerun
from holdfast.cli.json_args import read_given
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.target import Place, actor, anywhere, place
from holdfast.errors import Refused
from holdfast.runtime.reads.search import InstanceFilter
from holdfast.store.reads.instances import Instance

STOPPED = ("failed",)


@anywhere
@which_instances_to_rerun
def rerun(
    filter: InstanceFilter,
    from_step: Annotated[str, typer.Option("--from", help="The step to begin at.")],
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="The instances' ids.")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for the audit trail.")] = None,
    input: Annotated[str | None, typer.Option("--input", help="Another input, as JSON, @file or -.")] = None,
    token: Annotated[
        str | None, typer.Option("--token", help="Which visit is meant, where several branches have been there.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="An idempotency key: the same re-run again answers the first one.")
    ] = None,
    limit: Limit = 1000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which instances are meant.")] = False,
    yes: Yes = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run instances again from a step: those named, or all failed ones that match. One that is over is run again as a
    new instance; exit code 5: some could not be."""
    meant = Meant(ids, filter, limit)
    given, who = read_given(input), actor(by)

    def again(engine: Place, id: str) -> Instance:
        return engine.rerun(id, from_step=from_step, input=given, token=token, by=who, reason=reason, key=key)

    with place() as engine:
        if len(meant.ids) == 1 and not dry_run:
            show_facts(_facts(meant.ids[0], again(engine, meant.ids[0])), json=json)
            return
        chosen = meant.found(engine, STOPPED) if meant.is_filter or dry_run else []
        if dry_run:
            preview(chosen, "rerun", json=json)
            return
        if key is None:
            raise _key_needed()
        confirm(len(chosen), "rerun", yes=yes)  # of ids that were typed it asks nothing
        wanted = [instance.id for instance in chosen] or meant.ids
        done, refused = each_by_itself(lambda id: again(engine, id), wanted, "rerun")
    tell_done(done, refused, json=json)


def _facts(id: str, found: Instance) -> dict[str, Any]:
    return {"id": found.id, "flow": found.flow, "status": found.status, "is_new": found.id != id}


def _key_needed() -> Refused:
    return Refused(
        "Many instances are run again under a key only: repeated without one, they would all run twice.",
        code="RERUN_KEY_NEEDED",
        hint="Add --key, for example --key ticket-4711; the same command again then finishes what is left.",
    )
