"""`holdfast requeue`: what failed for good runs again, with the same input or a corrected one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.output import complain, say
from holdfast.cli.output import show as show_facts
from holdfast.errors import HoldfastError, Refused
from holdfast.runtime.sync import SyncEngine
from holdfast.store.dead_letters import DeadLetter

MOST: Final = 1000
SOME_LEFT: Final = 5


def requeue(
    by: Annotated[str, typer.Option("--by", help="Who does it, for the audit trail.")],
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit trail.")],
    letters: Annotated[list[str] | None, typer.Argument(metavar="[LETTER]...", help="The dead letters' ids.")] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", help="Instead of ids: every open letter of this instance.")
    ] = None,
    input: Annotated[
        str | None, typer.Option("--input", help="Another input, as JSON or @file; for one letter only.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run again what dead letters are about; exit code 5: some could not be put back."""
    if bool(letters) == (instance is not None):
        raise Refused(
            "Dead letters are named by their ids, or by --instance.",
            code="DEAD_LETTERS_NOT_NAMED",
            hint="`holdfast dead-letters list` shows the open ones.",
        )
    given = read_input(input)
    with SyncEngine() as engine:
        ids = list(dict.fromkeys(letters or ())) or _open_letters(engine, instance)
        if input is not None and len(ids) != 1:
            raise Refused(
                f"--input is for one dead letter, and {len(ids)} are meant.",
                code="INPUT_FOR_MANY",
                hint="Name the one letter it is for.",
            )
        done, refused = _put_back(engine, ids, given, by, reason)
    if len(ids) == 1 and refused:
        raise refused[0][1]
    _answer(done, refused, json=json)


def read_input(text: str | None) -> Any:
    """JSON as it stands, or the content of the file after an `@`."""
    if text is None:
        return None
    try:
        raw = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
        return msgspec.json.decode(raw)
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        raise Refused(
            f"--input cannot be read: {error}.",
            code="INPUT_NOT_JSON",
            hint="Quote JSON for the shell, or name a file that holds it: @order.json.",
        ) from None


def _open_letters(engine: SyncEngine, instance: str | None) -> list[str]:
    assert instance is not None
    engine.get(instance)  # an unknown instance is not one without letters
    # Oldest first: in the order they failed.
    return [letter.id for letter in reversed(engine.dead_letters(instance, limit=MOST))]


Refusals = list[tuple[str, HoldfastError]]


def _put_back(
    engine: SyncEngine, ids: Sequence[str], given: Any, by: str, reason: str
) -> tuple[list[DeadLetter], Refusals]:
    done: list[DeadLetter] = []
    refused: Refusals = []
    for id in ids:
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
