"""`holdfast dlq`, also called `dead-letters`: list, show, replay and discard. `holdfast requeue`: run them again, with
the same input or a corrected one. The organisation is HOLDFAST_ORG."""

from __future__ import annotations

import json as text_json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.confirm import Yes, confirm
from holdfast.cli.filters import AllTenants, which_letters
from holdfast.cli.json_args import read_given, read_object
from holdfast.cli.render.output import busy, complain, say, show, show_json, table
from holdfast.cli.target import Place, actor, anywhere, place
from holdfast.errors import Conflict, Refused
from holdfast.runtime.ops.dead_letters import LetterFilter, Resolved
from holdfast.store.admin.dead_letters import LetterOfTenant
from holdfast.store.dead_letters import DeadLetter
from holdfast.views.labels import error_words

SOME_LEFT: Final = 5  # the exit code

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
    answer_replay(done, "put back", json=json)


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
    answer_replay(done, "let go", json=json)


def _wanted(given: LetterFilter, all: bool) -> LetterFilter | None:
    """None when nothing was said: no filter at all must not mean everything."""
    return given if all or given != LetterFilter() else None


def answer_replay(done: Resolved, verb: str, noun: str = "dead letters", *, json: bool) -> None:
    if json:
        facts = {"count": done.count, "ids": done.ids, "left": done.left, "dry_run": done.dry_run}
        show({**facts, "refusals": msgspec.to_builtins(done.refusals)}, json=True)
    elif done.dry_run:
        say(f"{done.count} {noun} would be {verb}.")
    else:
        say(f"{done.count} {noun} were {verb}.{_left(done)}")
    if done.left:
        raise typer.Exit(SOME_LEFT)


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


# --- requeue ----------------------------------------------------------------------------------------------------------


@anywhere
def requeue(
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit trail.")],
    letters: Annotated[list[str] | None, typer.Argument(metavar="LETTER", help="The dead letters' ids.")] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", help="Instead of ids: every open letter of this instance.")
    ] = None,
    input: Annotated[
        str | None, typer.Option("--input", help="Another input, as JSON, @file or -; for one letter only.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option("--inputs", help="Other inputs for several: a JSON object by letter, @file or -."),
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run again what dead letters are about, those of one instance in one commit; exit code 5: some could not be."""
    given = _new_inputs(input, inputs)
    ids = list(dict.fromkeys(letters or (() if instance or input is not None else given)))
    if bool(ids) == (instance is not None):
        raise Refused(
            "Dead letters are named by their ids, or by --instance.",
            code="DEAD_LETTERS_NOT_NAMED",
            hint="`holdfast dlq list` shows the open ones.",
        )
    who = actor(by)
    with place() as engine:
        if instance is not None:
            engine.get(instance)  # an unknown instance is not one without letters
        if input is not None:
            ids = [_the_one(engine, ids, instance)]
        if len(ids) == 1:
            new = given.get("", given.get(ids[0]))
            letter = engine.requeue(ids[0], new, by=who, reason=reason)
            done = Resolved([letter.id], [], False)
        else:
            wanted = None if instance is None else LetterFilter(instance)
            with busy("Dead letters"):
                done = engine.replay_dead_letters(ids or None, filter=wanted, inputs=given, by=who, reason=reason)
    _answer_requeue(done, json=json)


def _new_inputs(input: str | None, inputs: str | None) -> dict[str, Any]:
    """Map letters to their new inputs. The input for a single letter has the empty name."""
    if input is not None and inputs is not None:
        raise Refused("An input is given twice.", code="INPUT_FOR_MANY", hint="Use --input or --inputs.")
    if inputs is None:
        return {} if input is None else {"": read_given(input)}
    return read_object(inputs, "--inputs", 'Write {"LETTER": {…}, "LETTER": {…}}.') or {}


def _the_one(engine: Place, ids: Sequence[str], instance: str | None) -> str:
    meant = ids or [letter.id for letter in engine.dead_letters(instance, limit=2)]
    if len(meant) != 1:
        raise Refused(
            "--input is for one dead letter, and more or fewer are meant.",
            code="INPUT_FOR_MANY",
            hint="Name the one letter it is for, or give --inputs by letter.",
        )
    return meant[0]


def _answer_requeue(done: Resolved, *, json: bool) -> None:
    if json:
        refused = [{"id": id, "code": each.code, "message": each.message} for id, each in done.refusals.items()]
        show({"done": done.ids, "refused": refused}, json=True)
    else:
        for id in done.ids:
            say(f"{id}  replayed")
        for id, each in done.refusals.items():
            complain(Conflict(f"{id}: {each.message}", code=each.code, hint=each.hint))
        if not done.ids and not done.refusals:
            say("There are no open dead letters.")
    if done.refusals:
        raise typer.Exit(SOME_LEFT)
