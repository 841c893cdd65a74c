"""`holdfast requeue`: what failed for good runs again, with the same input or a corrected one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from holdfast.cli.given import read_given
from holdfast.cli.output import complain, say, tracked
from holdfast.cli.output import show as show_facts
from holdfast.cli.place import Place, actor, anywhere, place
from holdfast.errors import HoldfastError, Refused
from holdfast.store.dead_letters import DeadLetter

MOST: Final = 1000
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
    by: Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run again what dead letters are about; exit code 5: some could not be put back."""
    if bool(letters) == (instance is not None):
        raise Refused(
            "Dead letters are named by their ids, or by --instance.",
            code="DEAD_LETTERS_NOT_NAMED",
            hint="`holdfast dlq list` shows the open ones.",
        )
    given = read_given(input)
    who = actor(by)
    with place() as engine:
        ids = list(dict.fromkeys(letters or ())) or _open_letters(engine, instance)
        if input is not None and len(ids) != 1:
            raise Refused(
                f"--input is for one dead letter, and {len(ids)} are meant.",
                code="INPUT_FOR_MANY",
                hint="Name the one letter it is for.",
            )
        done, refused = _put_back(engine, ids, given, who, reason)
    if len(ids) == 1 and refused:
        raise refused[0][1]
    _answer(done, refused, json=json)


def _open_letters(engine: Place, instance: str | None) -> list[str]:
    assert instance is not None
    engine.get(instance)  # an unknown instance is not one without letters
    # Oldest first: in the order they failed.
    return [letter.id for letter in reversed(engine.dead_letters(instance, limit=MOST))]


Refusals = list[tuple[str, HoldfastError]]


def _put_back(engine: Place, ids: Sequence[str], given: Any, by: str, reason: str) -> tuple[list[DeadLetter], Refusals]:
    done: list[DeadLetter] = []
    refused: Refusals = []
    for id in tracked(ids, len(ids), "requeue"):
        try:
            done.append(engine.requeue(id, given, by=by, reason=reason))
        except HoldfastError as refusal:
            refused.append((id, refusal))
    return done, refused


def _answer(done: Sequence[DeadLetter], refused: Refusals, *, json: bool) -> None:
    if json:
        left = [{"id": id, "code": error.code, "message": error.message} for id, error in refused]
        show_facts({"done": [letter.id for letter in done], "refused": left}, json=True)
    else:
        for letter in done:
            say(f"{letter.id}  {letter.resolution}  {letter.instance_id}")
        for id, error in refused:
            complain(type(error)(f"{id}: {error.message}", code=error.code, hint=error.hint))
        if not done and not refused:
            say("There are no open dead letters.")
    if refused:
        raise typer.Exit(SOME_LEFT)
