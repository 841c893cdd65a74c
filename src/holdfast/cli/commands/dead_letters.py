"""`holdfast dlq`, also called `dead-letters`: list, show, replay and discard. The organisation is HOLDFAST_ORG."""

from __future__ import annotations

import json as text_json
from collections import Counter
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.confirm import Yes, confirm
from holdfast.cli.filters import AllTenants, which_letters
from holdfast.cli.render.output import busy, say, show, show_json, table
from holdfast.cli.target import actor, anywhere, place
from holdfast.runtime.ops.dead_letters import LetterFilter, Resolved
from holdfast.store.admin.dead_letters import LetterOfTenant
from holdfast.store.dead_letters import DeadLetter
from holdfast.views.labels import error_words

dead_letters = typer.Typer(help="Look at dead letters, put them back, let them go.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="LETTER", help="The letters' ids.")]
All = Annotated[bool, typer.Option("--all", help="Every open letter of the organisation.")]
By = Annotated[str | None, typer.Option("--by", help="Who does it.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the audit trail.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would be done.")]


@dead_letters.command("list")
@anywhere
@which_letters
def list_letters(
    filter: LetterFilter,
    after: Annotated[str | None, typer.Option("--after", help="Where the page before ended.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most this many.")] = 50,
    all_tenants: AllTenants = False,
    json: Json = False,
) -> None:
    """Open letters, newest first."""
    if all_tenants:
        _list_all(filter, after, limit, json=json)
        return
    with place() as engine:
        page = engine.find_dead_letters(filter, after=after, limit=limit)
    if json:
        show_json([_plain(letter) for letter in page.items])
        return
    if page.items:
        table(("id", "since", "source", "flow", "step", "instance", "reason"), [_row(each) for each in page.items])
    if page.next is not None:
        say(f"There are more: --after {page.next}" if page.items else f"None so far; look on: --after {page.next}")
    elif not page.items:
        say("There are no dead letters.")


def _list_all(filter: LetterFilter, after: str | None, limit: int, *, json: bool) -> None:
    with place() as engine:
        found = engine.all_dead_letters(filter, after=after, limit=limit)
    if json:
        show_json(msgspec.to_builtins(found))
        return
    if found:
        head = ("tenant", "id", "since", "source", "flow", "step", "instance", "given up by", "reason")
        table(head, [_row_of_all(each) for each in found])
    if len(found) == limit:
        say(f"There may be more: --after {found[-1].letter.id}")
    elif not found:
        say("There are no dead letters.")


@dead_letters.command("show")
@anywhere
def show_letter(
    id: Annotated[str, typer.Argument(metavar="LETTER", help="The letter's id.")], json: Json = False
) -> None:
    """Show one letter: envelope, error, worker and, if it is resolved, the actor and the reason."""
    with place() as engine:
        letter = engine.dead_letter(id)
    facts = _plain(letter)
    if not json:
        facts |= {name: text_json.dumps(facts[name]) for name in ("envelope", "error")}
    show(facts, json=json)


@dead_letters.command("replay")
@anywhere
@which_letters
def replay_letters(
    filter: LetterFilter,
    reason: Reason,
    ids: Ids = None,
    by: By = None,
    all: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Put back what the letters are about: those named, or all that match; exit code 5: some could not be."""
    wanted, who = _wanted(filter, all), actor(by)
    asks = wanted is not None and not ids and not yes
    with place() as engine, busy("Dead letters"):
        done = engine.replay_dead_letters(ids or None, filter=wanted, by=who, reason=reason, dry_run=dry_run or asks)
    if asks and not dry_run:
        confirm(done.count, "replay", "dead letter", yes=False)
        with place() as engine, busy("Dead letters"):
            done = engine.replay_dead_letters(None, filter=wanted, by=who, reason=reason)
    _answer(done, "put back", json=json)


@dead_letters.command("discard")
@anywhere
@which_letters
def discard_letters(
    filter: LetterFilter,
    reason: Reason,
    ids: Ids = None,
    by: By = None,
    all: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Let go of letters: those named, or all that match; exit code 5: some could not be."""
    wanted, who = _wanted(filter, all), actor(by)
    asks = wanted is not None and not ids and not yes
    with place() as engine, busy("Dead letters"):
        done = engine.discard_dead_letters(ids or None, filter=wanted, by=who, reason=reason, dry_run=dry_run or asks)
    if asks and not dry_run:
        confirm(done.count, "discard", "dead letter", yes=False)
        with place() as engine, busy("Dead letters"):
            done = engine.discard_dead_letters(None, filter=wanted, by=who, reason=reason)
    _answer(done, "let go", json=json)


def _wanted(given: LetterFilter, all: bool) -> LetterFilter | None:
    """None when nothing was said: no filter at all must not mean everything."""
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
    return (
        letter.id,
        f"{letter.created_at:%Y-%m-%d %H:%M:%S}",
        letter.source,
        letter.flow,
        letter.step or "",
        letter.instance_id,
        told,
    )


def _row_of_all(found: LetterOfTenant) -> tuple[str, ...]:
    *facts, why = _row(found.letter)
    return (found.tenant, *facts, "" if found.host is None else f"pid {found.pid} on {found.host}", why)


def _plain(letter: DeadLetter) -> dict[str, Any]:
    return msgspec.to_builtins(letter)
