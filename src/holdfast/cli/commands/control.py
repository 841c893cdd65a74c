"""`holdfast cancel`, `abort`, `pause`, `resume`: what an operator does to whole instances, one or many, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.confirm import Yes, confirm, counted
from holdfast.cli.filters import which_instances
from holdfast.cli.render.output import complain, say, table, tracked
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.target import Place, actor, anywhere, place
from holdfast.core.model.status import TERMINAL, InstanceStatus
from holdfast.errors import HoldfastError, Refused
from holdfast.runtime.reads.search import InstanceFilter
from holdfast.store.reads.instances import Instance

AT_ONCE: Final = 32
SOME_LEFT: Final = 5
UNFINISHED: Final = tuple(str(status) for status in InstanceStatus if status not in TERMINAL)

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The instances' ids.")]
By = Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the audit trail.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Without ids: at most this many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show which instances are meant.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Deed = Callable[[Place, str, str], Instance]


class Meant:
    """The instances a command acts on: by id, or by a filter."""

    def __init__(self, ids: list[str] | None, filter: InstanceFilter, limit: int) -> None:
        if bool(ids) == (filter != InstanceFilter()):
            raise Refused(
                "Instances are named by their ids, or by a filter such as --flow and --status.",
                code="INSTANCES_NOT_NAMED",
                hint="Give one or the other; `holdfast list` shows what there is.",
            )
        self.ids = list(dict.fromkeys(ids or ()))
        self._filter = filter
        self._limit = limit

    @property
    def is_filter(self) -> bool:
        return not self.ids

    def found(self, engine: Place, statuses: Iterable[str]) -> list[Instance]:
        """Find the ids the filter matches now, of these statuses unless it names one."""
        if not self.is_filter:
            return [engine.get(id) for id in self.ids]
        found: list[Instance] = []
        for status in statuses if self._filter.status is None else (self._filter.status,):
            found += self._in_status(engine, status, self._limit - len(found))
        return found

    def _in_status(self, engine: Place, status: str, most: int) -> list[Instance]:
        found: list[Instance] = []
        after: str | None = None
        filter = msgspec.structs.replace(self._filter, status=status)
        while len(found) < most:
            page = engine.find(filter, after=after, limit=min(most - len(found), 1000))
            found += page.items
            after = page.next
            if after is None:
                break
        return found


@anywhere
@which_instances
def cancel(
    filter: InstanceFilter,
    ids: Ids = None,
    by: By = None,
    reason: Reason = None,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Stop instances and take back what they have done; exit code 5: some could not be stopped."""
    _change(
        "cancel", by, lambda engine, id, by: engine.cancel(id, by=by, reason=reason), UNFINISHED,
        Meant(ids, filter, limit), dry_run=dry_run, yes=yes, json=json,
    )  # fmt: skip


@anywhere
@which_instances
def abort(
    filter: InstanceFilter,
    ids: Ids = None,
    by: By = None,
    reason: Reason = None,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """End instances at once and take back nothing; exit code 5: some could not be ended."""
    _change(
        "abort", by, lambda engine, id, by: engine.abort(id, by=by, reason=reason), UNFINISHED,
        Meant(ids, filter, limit), dry_run=dry_run, yes=yes, json=json,
    )  # fmt: skip


@anywhere
@which_instances
def pause(
    filter: InstanceFilter,
    ids: Ids = None,
    by: By = None,
    reason: Reason = None,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Let instances begin nothing new until they are resumed; exit code 5: some could not be paused."""
    _change(
        "pause", by, lambda engine, id, by: engine.suspend(id, by=by, reason=reason), ("pending", "running"),
        Meant(ids, filter, limit), dry_run=dry_run, yes=yes, json=json,
    )  # fmt: skip


@anywhere
@which_instances
def resume(
    filter: InstanceFilter,
    ids: Ids = None,
    by: By = None,
    reason: Reason = None,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Resume paused instances; exit code 5: some could not be resumed."""
    _change(
        "resume", by, lambda engine, id, by: engine.resume(id, by=by, reason=reason), ("suspended",),
        Meant(ids, filter, limit), dry_run=dry_run, yes=yes, json=json,
    )  # fmt: skip


def _change(
    verb: str,
    by: str | None,
    deed: Deed,
    statuses: Iterable[str],
    meant: Meant,
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    who = actor(by)
    with place() as engine:
        if meant.is_filter or dry_run:
            chosen = meant.found(engine, statuses)
            if dry_run:
                preview(chosen, verb, json=json)
                return
            confirm(len(chosen), verb, yes=yes)
            ids: Sequence[str] = [instance.id for instance in chosen]
        else:
            ids = meant.ids
        done, refused = each_by_itself(lambda id: deed(engine, id, who), ids, verb)
    if len(ids) == 1 and refused and not meant.is_filter:
        raise refused[0][1]
    tell_done(done, refused, json=json)


def each_by_itself(
    deed: Callable[[str], Instance], ids: Sequence[str], verb: str
) -> tuple[list[Instance], list[tuple[str, HoldfastError]]]:
    """Each by itself: what one refuses does not stop the others."""
    done: list[Instance] = []
    refused: list[tuple[str, HoldfastError]] = []

    def one(id: str) -> Instance | HoldfastError:
        try:
            return deed(id)
        except HoldfastError as refusal:
            return refusal

    with ThreadPoolExecutor(min(AT_ONCE, len(ids)) or 1) as threads:
        for id, outcome in zip(ids, tracked(threads.map(one, ids), len(ids), verb), strict=True):
            if isinstance(outcome, HoldfastError):
                refused.append((id, outcome))
            else:
                done.append(outcome)
    return done, refused


def preview(chosen: Sequence[Instance], verb: str, *, json: bool) -> None:
    if json:
        show_facts({"dry_run": True, "count": len(chosen), "ids": [i.id for i in chosen]}, json=True)
        return
    if chosen:
        table(("id", "flow", "status"), [(i.id, f"{i.flow} v{i.flow_version}", i.status) for i in chosen])
    say(f"{verb} would change {counted(len(chosen))}.")


def tell_done(done: Sequence[Instance], refused: Sequence[tuple[str, HoldfastError]], *, json: bool) -> None:
    if json:
        facts: dict[str, Any] = {
            "done": [{"id": i.id, "status": i.status, "reason": i.reason} for i in done],
            "refused": [{"id": id, "code": error.code, "message": error.message} for id, error in refused],
        }
        show_facts(facts, json=True)
    else:
        for instance in done:
            say(f"{instance.id}  {instance.status}")
        for id, error in refused:
            complain(type(error)(f"{id}: {error.message}", code=error.code, hint=error.hint))
        if not done and not refused:
            say("There are no such instances.")
    if refused:
        raise typer.Exit(SOME_LEFT)
