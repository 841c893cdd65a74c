"""`holdfast requeue`: run dead letters again, with the same input or a corrected one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

import typer

from holdfast.cli.json_args import read_given
from holdfast.cli.render.output import busy, complain, say
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.target import Place, actor, anywhere, place
from holdfast.errors import Conflict, Refused
from holdfast.runtime.ops.dead_letters import LetterFilter, Resolved

SOME_LEFT: Final = 5


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
    given = _given(input, inputs)
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
    _answer(done, json=json)


def _given(input: str | None, inputs: str | None) -> dict[str, Any]:
    """Map letters to their new inputs. The input for a single letter has the empty name."""
    if input is not None and inputs is not None:
        raise Refused("An input is given twice.", code="INPUT_FOR_MANY", hint="Use --input or --inputs.")
    if inputs is None:
        return {} if input is None else {"": read_given(input)}
    given = read_given(inputs, "--inputs")
    if not isinstance(given, dict):
        raise Refused(
            "--inputs is no JSON object.", code="INPUT_NOT_JSON", hint='Write {"LETTER": {…}, "LETTER": {…}}.'
        )
    return cast(dict[str, Any], given)


def _the_one(engine: Place, ids: Sequence[str], instance: str | None) -> str:
    meant = ids or [letter.id for letter in engine.dead_letters(instance, limit=2)]
    if len(meant) != 1:
        raise Refused(
            "--input is for one dead letter, and more or fewer are meant.",
            code="INPUT_FOR_MANY",
            hint="Name the one letter it is for, or give --inputs by letter.",
        )
    return meant[0]


def _answer(done: Resolved, *, json: bool) -> None:
    if json:
        refused = [{"id": id, "code": each.code, "message": each.message} for id, each in done.refusals.items()]
        show_facts({"done": done.ids, "refused": refused}, json=True)
    else:
        for id in done.ids:
            say(f"{id}  replayed")
        for id, each in done.refusals.items():
            complain(Conflict(f"{id}: {each.message}", code=each.code, hint=each.hint))
        if not done.ids and not done.refusals:
            say("There are no open dead letters.")
    if done.refusals:
        raise typer.Exit(SOME_LEFT)
