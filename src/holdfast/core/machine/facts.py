"""Facts: the messages of an entry to consumers, in the form that is stored and never changes."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.kernel.builder import NULL, Turn, encode
from holdfast.core.model.decision import Fact
from holdfast.core.model.ids import step_id, token_id
from holdfast.core.model.program import Place
from holdfast.core.model.timestamps import seconds, to_iso
from holdfast.graph.machine import EFFECT, Completion, Hook, Param, Rule

TRANSITION: Final = "transition"
HOOK: Final = "hook"
COMPLETE: Final = "complete"
_NOTHING: Final = Completion()


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a state: where from, by which event, and who sent it."""

    path: str
    hop: int
    run: int
    step: bytes
    state: str
    came_from: str | None
    event: str
    actor: str
    payload: bytes
    occurred_at: int
    needs_ack: bool = True

    @property
    def token(self) -> str:
        return token_id(self.path, self.hop)


def fact_id(turn: Turn, token: str, run: int, *what: str) -> bytes:
    """The id of a fact follows from the entry and from what it tells, so a gate can name it before it exists."""
    told = "|".join((token, str(run), *what, "fact"))
    return step_id(turn.now, sha256(turn.instance.id + told.encode()).digest(), turn.instance.id[15])


def tell_transition(turn: Turn, entry: Entry, rule: Rule) -> None:
    body = _body(turn, entry, TRANSITION, rule.params, rule.complete)
    id = fact_id(turn, entry.token, entry.run, TRANSITION)
    _add(
        turn,
        entry,
        Fact(id, TRANSITION, entry.step, entry.state, entry.event, body, _number(turn, entry), entry.needs_ack),
    )


def hook_id(turn: Turn, token: str, run: int, hook: Hook) -> bytes:
    return fact_id(turn, token, run, HOOK, hook.code, str(hook.order))


def tell_hook(turn: Turn, entry: Entry, hook: Hook) -> None:
    starts, ends = _moment(turn, hook.not_before), _moment(turn, hook.deadline)
    further = {
        "hook": hook.code,
        "type": hook.type,
        "order": hook.order,
        "label": hook.label,
        "not_before": None if starts is None else to_iso(starts),
        "deadline": None if ends is None else to_iso(ends),
    }
    body = _body(turn, entry, HOOK, hook.params, hook.complete, **further)
    _add(
        turn,
        entry,
        Fact(
            id=hook_id(turn, entry.token, entry.run, hook),
            kind=HOOK,
            step=entry.step,
            state=entry.state,
            event=entry.event,
            body=body,
            number=_number(turn, entry),
            needs_ack=entry.needs_ack or hook.holds,
            code=hook.code,
            type=hook.type,
            mode=hook.ack,
            starts=starts,
            ends=ends if hook.type == EFFECT else None,  # what is no effect is told its deadline, and delivered
        ),
    )


def tell_complete(turn: Turn, entry: Entry, complete: Completion | None, verdict: str) -> None:
    """Tell once, after the last gate, which event is to be sent now."""
    named = complete or _NOTHING
    send = named.success if verdict == "success" else named.failure
    body = _body(turn, entry, COMPLETE, (), complete, verdict=verdict, send=send)
    id = fact_id(turn, entry.token, entry.run, COMPLETE)
    _add(
        turn,
        entry,
        Fact(id, COMPLETE, entry.step, entry.state, entry.event, body, _number(turn, entry), entry.needs_ack),
    )


def _number(turn: Turn, entry: Entry) -> int | None:
    """The code of the event."""
    return None if turn.program.machine is None else turn.program.machine.codes.get(entry.event)


def _moment(turn: Turn, after: float | None) -> int | None:
    return None if after is None else turn.now + seconds(after)


def _add(turn: Turn, entry: Entry, fact: Fact) -> None:
    turn.facts_told = [*turn.facts_told, fact]


def _body(
    turn: Turn, entry: Entry, kind: str, params: tuple[Param, ...], complete: Completion | None, **further: Any
) -> bytes:
    """The body of a fact, but for the external reference: only the row of the instance has it."""
    machine = turn.program.machine
    assert machine is not None
    complete = complete or _NOTHING
    return encode(
        {
            "kind": kind,
            "instance": str(UUID(bytes=turn.instance.id)),
            "environment": machine.environment,
            "definition": machine.definition,
            "version": machine.blueprint,
            "from": entry.came_from,
            "to": entry.state,
            "event": entry.event,
            "code": _number(turn, entry),
            "lifecycle": entry.hop,
            "actor": entry.actor,
            "payload": msgspec.Raw(entry.payload or NULL),
            "params": [{"code": param.code, "data": param.data} for param in params],
            "on_success": complete.success,
            "on_failure": complete.failure,
            "occurred_at": to_iso(entry.occurred_at),
            "needs_ack": entry.needs_ack,
            **further,
        }
    )


def rule_of(place: Place, event: str) -> Rule:
    """The rule of a state for the event that led there; one that says nothing if the policy has none."""
    return place.state.rules.get(event, _NO_RULE) if place.state is not None else _NO_RULE


_NO_RULE: Final = Rule()
