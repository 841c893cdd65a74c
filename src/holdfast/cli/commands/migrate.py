"""`holdfast migrate` and `holdfast revert-migration`: move running instances to another version of their flow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer

from holdfast.cli.render.output import say
from holdfast.cli.render.output import show as show_facts
from holdfast.errors import Refused
from holdfast.runtime.engine.sync import SyncEngine
from holdfast.runtime.ops.migration import Blocked, Migration

SOME_LEFT: Final = 5

Flow = Annotated[str, typer.Argument(metavar="FLOW", help="The name of the flow.")]
By = Annotated[str, typer.Option("--by", help="Who does it, for the audit trail.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the audit trail.")]
Instances = Annotated[
    list[str] | None, typer.Option("--instance", help="Only this instance; may be repeated. Else all unfinished ones.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show who would be moved and who could not.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Part = Callable[[str | None], Migration]


def migrate(
    flow: Flow,
    to: Annotated[int, typer.Option("--to", help="The version they go on under.")],
    by: By,
    from_version: Annotated[int | None, typer.Option("--from", help="Only instances on this version.")] = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", help="OLD=NEW: a node under its new name; may be repeated.")
    ] = None,
    instance: Instances = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Move running instances to another version; exit code 5: some could not be moved."""
    nodes = _mapping(node or [])
    with SyncEngine() as engine:
        _show(
            lambda after: engine.migrate(
                flow, to=to, from_version=from_version, instances=instance, nodes=nodes, by=by, reason=reason,
                dry_run=dry_run, after=after,
            ),
            dry_run=dry_run, json=json,
        )  # fmt: skip


def revert_migration(
    flow: Flow,
    from_version: Annotated[int, typer.Option("--from", help="The version they were migrated to.")],
    by: By,
    instance: Instances = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Let migrated instances go back to the version each came from; exit code 5: some could not."""
    with SyncEngine() as engine:
        _show(
            lambda after: engine.revert_migration(
                flow, from_version=from_version, instances=instance, by=by, reason=reason, dry_run=dry_run, after=after
            ),
            dry_run=dry_run, json=json,
        )  # fmt: skip


def _mapping(pairs: Sequence[str]) -> dict[str, str]:
    nodes: dict[str, str] = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise Refused(f"{pair!r} maps no node.", code="NODE_MAPPING_INVALID", hint="Write --node OLD=NEW.")
        nodes[old] = new
    return nodes


def _show(part: Part, *, dry_run: bool, json: bool) -> None:
    moved: list[str] = []
    blocked: list[Blocked] = []
    after: str | None = None
    while True:
        report = part(after)
        moved += report.moved
        blocked += report.blocked
        after = report.next
        if after is None:
            break
    if json:
        _print(moved, blocked, dry_run)
    else:
        for b in blocked:
            say(f"{b.id}  {b.code}  {b.reason}")
        verb = "could be moved" if dry_run else "moved"
        say(f"{len(moved)} {verb}, {len(blocked)} blocked.")
    if blocked:
        sys.exit(SOME_LEFT)


def _print(moved: list[str], blocked: list[Blocked], dry_run: bool) -> None:
    facts: dict[str, Any] = {
        "dry_run": dry_run,
        "moved": moved,
        "blocked": [{"id": b.id, "version": b.version, "code": b.code, "reason": b.reason} for b in blocked],
    }
    show_facts(facts, json=True)
