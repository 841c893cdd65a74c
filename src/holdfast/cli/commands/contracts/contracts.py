"""`holdfast contracts`: publish contracts, draft, check and publish patches, move patches to another version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.commands.contracts.diff import diff
from holdfast.cli.commands.contracts.new import new
from holdfast.cli.commands.contracts.simulate import simulate
from holdfast.cli.commands.contracts.tables import tables
from holdfast.cli.render.output import say, show, show_all, show_json, show_text, table, warn
from holdfast.cli.target import actor, anywhere, place
from holdfast.doors.envelope.findings import Finding
from holdfast.doors.envelope.model import PatchDefinition
from holdfast.doors.envelope.printing import contract_yaml
from holdfast.doors.envelope.reading.load import ContractFile, load_contracts
from holdfast.errors import DefinitionError, Refused
from holdfast.graph.compiled import graph_of
from holdfast.graph.drawing.mermaid import to_mermaid
from holdfast.runtime.envelopes.contracts import PublishedContract
from holdfast.runtime.envelopes.tables import PublishedTable
from holdfast.views.spans import shown

contracts = typer.Typer(help="Contracts of documents, and the patches that fill their slots.", no_args_is_help=True)
contracts.command("new")(new)
contracts.command("simulate")(simulate)
contracts.command("diff")(diff)
contracts.command("tables")(tables)

Type = Annotated[str, typer.Argument(metavar="TYPE", help="The type of documents.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of YAML.")]
Number = Annotated[int, typer.Argument(metavar="VERSION", help="The version of the patch.", min=1)]
By = Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")]
Why = Annotated[str | None, typer.Option("--reason", help="Why, for the audit trail.")]
Etag = Annotated[str | None, typer.Option("--etag", help="Only the draft that has this tag.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contracts.command()
@anywhere
def publish(
    target: Annotated[str, typer.Argument(metavar="FILE|TYPE", help="A file of contracts; a type: its draft.")],
    by: By = None,
    reason: Why = None,
    etag: Etag = None,
    json: Json = False,
) -> None:
    """Publish the tables and contracts of a file and check its patches, or put the draft of a patch in force."""
    who, path = actor(by), Path(target)
    if not path.is_file():
        with place() as engine:
            patch = engine.publish_patch(target, by=who, reason=reason, etag=etag)
        show(msgspec.to_builtins(patch), json=json)
        return
    found = _read(path)
    if not found.contracts and not found.tables:
        raise Refused(f"{target} has no contract.", code="CONTRACT_MISSING", hint="Patches are drafted first.")
    with place() as engine:
        decided = [engine.publish_table(one, by=who, reason=reason) for one in found.tables]
        done = [engine.publish_contract(one, by=who, reason=reason) for one in found.contracts]
        _tell_published(decided, done, json=json)
        findings = [finding for one in found.patches for finding in engine.check_patch(one)]
    for finding in findings:
        warn(str(finding))
    if any(one.severity == "error" for one in findings):
        raise typer.Exit(DefinitionError.exit_code)
    for one in found.patches:
        warn(f"The patch for {one.contract} is not published: draft it first.")


@contracts.command("list")
@anywhere
def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many.")] = 50, json: Json = False
) -> None:
    """Contracts by type, each in its newest version."""
    with place() as engine:
        found = engine.contracts(limit=limit)
    if json:
        show_all([msgspec.to_builtins(one) for one in found])
    elif found:
        rows = [(one.type, str(one.version), one.org, shown(one.published_at), one.created_by or "") for one in found]
        table(("type", "version", "of", "published", "by"), rows)
    else:
        say("There are no contracts.")


@contracts.command("show")
@anywhere
def show_(
    type: Type,
    version: Annotated[int | None, typer.Option("--version", min=1, help="This version; else the newest.")] = None,
    json: Json = False,
) -> None:
    """A contract as YAML, with the patches there are and what was done; as JSON all of its data."""
    with place() as engine:
        found = engine.contract(type, version)
        patches, events = engine.patches(type, limit=50), engine.contract_events(type, limit=50)
    if json:
        told = {"contract": found, "patches": patches, "events": events}
        show_json({name: msgspec.to_builtins(value) for name, value in told.items()})
        return
    show_text(contract_yaml(found.contract).rstrip("\n"))
    if patches:
        table(
            ("patch", "status", "contract", "published", "by"),
            [(str(p.version), p.status, str(p.envelope), shown(p.published_at), p.created_by or "") for p in patches],
        )
    table(
        ("when", "what", "version", "by", "why"),
        [(shown(e.at), e.action, str(e.version or ""), e.by, e.reason or "") for e in events],
    )


@contracts.command()
@anywhere
def draw(
    type: Type,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Of the patch; else in force.")] = None,
    bare: Annotated[bool, typer.Option("--bare", help="The newest contract without a patch.")] = False,
) -> None:
    """Draw the graph that documents of a type run by, as Mermaid text."""
    with place() as engine:
        graph = engine.contract(type).envelope if bare else graph_of(engine.effective(type, version).graph)
    show_text(to_mermaid(graph).rstrip("\n"))


@contracts.command()
@anywhere
def check(
    target: Annotated[str, typer.Argument(metavar="FILE|TYPE", help="A file with patches; a type: its draft.")],
    json: Json = False,
) -> None:
    """Tell everything that is wrong with a patch within its contract; exit code 2: it cannot be published."""
    path = Path(target)
    wanted: Sequence[PatchDefinition | str] = _read(path).patches if path.is_file() else [target]
    with place() as engine:
        found = [finding for one in wanted for finding in engine.check_patch(one)]
    if json:
        show_all([msgspec.to_builtins(one) for one in found])
    else:
        tell(found)
    if any(one.severity == "error" for one in found):
        raise typer.Exit(DefinitionError.exit_code)


@contracts.command()
@anywhere
def draft(
    target: Annotated[str, typer.Argument(metavar="FILE|TYPE", help="A file with one patch; a type: its draft.")],
    drop: Annotated[bool, typer.Option("--drop", help="Drop the draft.")] = False,
    by: By = None,
    reason: Why = None,
    etag: Etag = None,
    json: Json = False,
) -> None:
    """Save the patch of a file as the draft of its type; show the draft of a type, or drop it."""
    path = Path(target)
    if path.is_file():
        patches = _read(path).patches
        if len(patches) != 1:
            hint = "Write one patch per file."
            raise Refused(f"{target} has {len(patches)} patches.", code="PATCH_AMBIGUOUS", hint=hint)
        who = actor(by)
        with place() as engine:
            saved = engine.save_patch_draft(patches[0], by=who, reason=reason, etag=etag)
    elif drop:
        who = actor(by)
        with place() as engine:
            engine.drop_patch_draft(target, by=who, etag=etag)
        say(f"The draft for {target} is dropped.")
        return
    else:
        with place() as engine:
            saved = engine.patch_draft(target)
    facts = msgspec.to_builtins(saved)
    show(facts if json else {"type": saved.type, "etag": saved.etag, "by": saved.by, "at": shown(saved.at)}, json=json)


@contracts.command()
@anywhere
def restore(type: Type, version: Number, by: By = None, reason: Why = None, json: Json = False) -> None:
    """Publish an old version of the patch again, as a new one."""
    who = actor(by)
    with place() as engine:
        show(msgspec.to_builtins(engine.restore_patch(type, version, by=who, reason=reason)), json=json)


@contracts.command()
@anywhere
def archive(type: Type, version: Number, by: By = None, reason: Why = None) -> None:
    """Take a version of the patch out of force; the newest one that is left follows it."""
    who = actor(by)
    with place() as engine:
        engine.archive_patch(type, version, by=who, reason=reason)
    say(f"Version {version} of the patch for {type} is archived.")


@contracts.command()
@anywhere
def rebase(
    type: Type,
    to_version: Annotated[int | None, typer.Option("--to", min=1, help="Of the contract; else the newest.")] = None,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Those of every organisation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell which ones fit.")] = False,
    by: By = None,
    reason: Why = None,
    json: Json = False,
) -> None:
    """Bring patches in force to another version of their contract; exit code 2: one does not fit."""
    who = actor(by)
    with place() as engine:
        told = engine.rebase(type, to_version, by=who, reason=reason, dry_run=dry_run, all_orgs=all_tenants)
    if json:
        show_all([msgspec.to_builtins(one) for one in told])
    elif told:
        rows = [(one.org, str(one.version), one.status, str(one.published or ""), one.error or "") for one in told]
        table(("organisation", "patch", "status", "new", ""), rows)
        for one in told:
            tell(one.findings)
    else:
        say("There is no patch in force.")
    if any(one.status in ("misfit", "failed") for one in told):
        raise typer.Exit(DefinitionError.exit_code)


def _tell_published(decided: list[PublishedTable], done: list[PublishedContract], *, json: bool) -> None:
    if json:
        show_all([msgspec.to_builtins(one) for one in (*decided, *done)])
        return
    for one in decided:
        say(f"table {one.name} version {one.version}: {_news(one.new)}")
    for one in done:
        say(f"{one.type} version {one.version}: {_news(one.new)}")
        if one.note is not None:
            warn(one.note)


def _news(is_new: bool) -> str:
    return "new" if is_new else "unchanged"


def tell(found: Sequence[Finding]) -> None:
    for one in found:
        say(str(one))


def _read(path: Path) -> ContractFile:
    return load_contracts(path.read_text(encoding="utf-8"), name=str(path)).require_sound()
