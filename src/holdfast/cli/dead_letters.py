"""`holdfast dlq`, also called `dead-letters`: what was given up on. The organisation is HOLDFAST_ORG."""

from __future__ import annotations

import json as text_json
from collections import Counter
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.output import busy, say, show, table
from holdfast.cli.place import actor, anywhere, place
from holdfast.cli.wording import error_words
from holdfast.runtime.dead_letters import LetterFilter, Resolved
from holdfast.store.dead_letters import DeadLetter

dead_letters = typer.Typer(help="Look at dead letters, put them back, let them go.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="LETTER", help="The letters' ids.")]
Instance = Annotated[str | None, typer.Option("--instance", help="Only letters of this instance.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Only letters with this reason.")]
Source = Annotated[str | None, typer.Option("--source", help="Only step, compensation, signal, work or effect.")]
All = Annotated[bool, typer.Option("--all", help="Every open letter of the organisation.")]
By = Annotated[str | None, typer.Option("--by", help="Who does it.")]
Why = Annotated[str, typer.Option("--why", help="Why; it stands in the audit trail.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would be done.")]


@dead_letters.command("list")
@anywhere
def list_letters(
    instance: Instance = None,
    reason: Reason = None,
    source: Source = None,
    after: Annotated[str | None, typer.Option("--after", help="The last letter of the page before.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many.")] = 50,
    json: Json = False,
) -> None:
    """Open letters, newest first."""
    with place() as engine:
        found = engine.dead_letters(instance, reason=reason, source=source, after=after, limit=limit)
    if json:
        typer.echo(text_json.dumps([_plain(letter) for letter in found]))
        return
    if found:
        table(("id", "since", "source", "instance", "reason"), [_row(letter) for letter in found])
    else:
        say("There are no dead letters.")


@dead_letters.command("show")
@anywhere
def show_letter(
    id: Annotated[str, typer.Argument(metavar="LETTER", help="The letter's id.")], json: Json = False
) -> None:
    """One letter with its envelope, error, worker and, if it is resolved, by whom and why."""
    with place() as engine:
        letter = engine.dead_letter(id)
    facts = _plain(letter)
    if not json:
        facts |= {name: text_json.dumps(facts[name]) for name in ("envelope", "error")}
    show(facts, json=json)


@dead_letters.command("replay")
@anywhere
def replay_letters(
    why: Why,
    ids: Ids = None,
    by: By = None,
    instance: Instance = None,
    reason: Reason = None,
    source: Source = None,
    all: All = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Put back what the letters are about: those named, or all that match; exit code 5: some could not be."""
    wanted, who = _wanted(instance, reason, source, all), actor(by)
    with place() as engine, busy("Dead letters"):
        done = engine.replay_dead_letters(ids or None, filter=wanted, by=who, reason=why, dry_run=dry_run)
    _answer(done, "put back", json=json)


@dead_letters.command("discard")
@anywhere
def discard_letters(
    why: Why,
    ids: Ids = None,
    by: By = None,
    instance: Instance = None,
    reason: Reason = None,
    source: Source = None,
    all: All = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Let go of letters: those named, or all that match; exit code 5: some could not be."""
    wanted, who = _wanted(instance, reason, source, all), actor(by)
    with place() as engine, busy("Dead letters"):
        done = engine.discard_dead_letters(ids or None, filter=wanted, by=who, reason=why, dry_run=dry_run)
    _answer(done, "let go", json=json)


def _wanted(instance: str | None, reason: str | None, source: str | None, all: bool) -> LetterFilter | None:
    """None when nothing was said: no filter at all must not mean everything."""
    given = LetterFilter(instance, reason, source)
    return given if all or given != LetterFilter() else None


def _answer(done: Resolved, verb: str, *, json: bool) -> None:
    if json:
        facts = {"count": done.count, "ids": done.ids, "left": done.left, "dry_run": done.dry_run}
        show({**facts, "refusals": msgspec.to_builtins(done.refusals)}, json=True)
    elif done.dry_run:
        say(f"{done.count} dead letters would be {verb}.")
    else:
        say(f"{done.count} dead letters were {verb}.{_left(done)}")
    if done.left:
        raise typer.Exit(5)


def _left(done: Resolved) -> str:
    if not done.left:
        return ""
    codes = Counter(done.refusals[id].code for id in done.left if id in done.refusals)
    told = ", ".join(f"{count} {code}" for code, count in codes.most_common())
    return f" {len(done.left)} could not be{f': {told}' if told else ''}."


def _row(letter: DeadLetter) -> tuple[str, ...]:
    why = error_words(letter.error) if letter.error else ""
    told = why if why.startswith(letter.reason) else f"{letter.reason}  {why}".rstrip()
    return letter.id, f"{letter.created_at:%Y-%m-%d %H:%M:%S}", letter.source, letter.instance_id, told


def _plain(letter: DeadLetter) -> dict[str, Any]:
    return msgspec.to_builtins(letter)
