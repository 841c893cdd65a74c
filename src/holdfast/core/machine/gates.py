"""Gates: hooks in phases, of which each waits for the gates before it.

The gates of the present phase are waits of the token. A wait's key remembers what the facts of later phases tell of the
entry, because no other part of the snapshot does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import msgspec

from holdfast.core.kernel.builder import NULL, Turn, encode
from holdfast.core.machine.facts import Entry, hook_id, rule_of, tell_complete, tell_hook
from holdfast.core.model.control_rows import WaitsChanged
from holdfast.core.model.ids import token_id, wait_id
from holdfast.core.model.program import Place
from holdfast.core.model.signals import GateDone
from holdfast.core.model.state import Token, Wait, value_of
from holdfast.errors import Refused
from holdfast.graph.machine import Completion, Hook, Rule

GATE: Final = "gate"
FAILED: Final = "gate_failed"  # a gate of the present phase that said no, until the others have answered
SUCCESS: Final = "success"
FAILURE: Final = "failure"


class _Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of an entry that a gate's wait keeps."""

    via: str
    by: str
    at: int
    order: int
    from_: str | None = msgspec.field(name="from", default=None)
    needs_ack: bool = True


_recall = msgspec.json.Decoder(_Memory).decode


def is_blocked(token: Token) -> bool:
    return any(wait.kind == GATE for wait in token.waits)


def phases(rule: Rule) -> list[tuple[int, list[Hook]]]:
    """The ordered hooks of a rule, phase by phase."""
    ordered = sorted((hook for hook in rule.hooks if hook.order is not None), key=_order)
    return [(order, list(hooks)) for order, hooks in groupby(ordered, _order)]


def _order(hook: Hook) -> int:
    return hook.order or 0


def released_at_entry(rule: Rule) -> Iterator[Hook]:
    """The hooks that go out with the transition: those without an order, and phases up to the first gate."""
    yield from (hook for hook in rule.hooks if hook.order is None)
    yield from _up_to_a_gate(phases(rule))


def _up_to_a_gate(left: Iterable[tuple[int, list[Hook]]]) -> Iterator[Hook]:
    for _, hooks in left:
        yield from hooks
        if any(hook.holds for hook in hooks):
            return


def gate_waits(turn: Turn, entry: Entry, hooks: Iterable[Hook]) -> tuple[Wait, ...]:
    """The waits for the gates among these hooks."""
    return tuple(
        Wait(
            wait_id(entry.token, entry.run, f"gate:{hook.order}:{hook.code}"),
            GATE,
            hook.code,
            _remember(entry, hook),
            ref=hook_id(turn, entry.token, entry.run, hook),
        )
        for hook in hooks
        if hook.holds
    )


def _remember(entry: Entry, hook: Hook) -> str:
    memory = _Memory(entry.event, entry.actor, entry.occurred_at, hook.order or 0, entry.came_from, entry.needs_ack)
    return encode(memory).decode()


def gate_done(turn: Turn, signal: GateDone) -> None:
    """Settle a gate. With the last one of its phase the next phase goes out, or the one complete fact."""
    path, token, gate = _waiting(turn, signal.gate)
    place, memory = turn.program.places[token.node], _recall(gate.key or "")
    left = [wait for wait in token.waits if wait.id != gate.id]
    if signal.verdict == FAILURE:
        left.append(msgspec.structs.replace(gate, kind=FAILED))
    turn.note("gate_done", place.id, token_id(path, token.hop), {"hook": gate.event, "verdict": signal.verdict})
    if not any(wait.kind == GATE for wait in left):
        left = [*(wait for wait in left if wait.kind != FAILED), *_go_on(turn, path, token, place, memory, left)]
    turn.tokens[path] = msgspec.structs.replace(token, waits=tuple(left))
    turn.control(WaitsChanged(path=path, waits=tuple(left), because="gate"))


def _waiting(turn: Turn, gate: bytes) -> tuple[str, Token, Wait]:
    for path, token in turn.tokens.items():
        for wait in token.waits:
            if wait.kind == GATE and wait.ref == gate:
                return path, token, wait
    raise Refused("The gate belongs to a stay that is over.", code="STALE_GATE")


def _go_on(turn: Turn, path: str, token: Token, place: Place, memory: _Memory, left: list[Wait]) -> tuple[Wait, ...]:
    """Release the phase behind the finished one; the waits of its gates."""
    entry = Entry(
        path=path,
        hop=token.hop,
        run=token.run,
        step=token.step,
        state=place.id,
        came_from=memory.from_,
        event=memory.via,
        actor=memory.by,
        payload=value_of(token) or NULL,
        occurred_at=memory.at,
        needs_ack=memory.needs_ack,
    )
    rule = rule_of(place, memory.via)
    if any(wait.kind == FAILED for wait in left):
        tell_complete(turn, entry, completion(rule, memory.order), FAILURE)
        return ()
    behind = [phase for phase in phases(rule) if phase[0] > memory.order]
    released = list(_up_to_a_gate(behind))
    for hook in released:
        tell_hook(turn, entry, hook)
    waits = gate_waits(turn, entry, released)
    if not waits:
        tell_complete(turn, entry, completion(rule, memory.order), SUCCESS)
    return waits


def completion(rule: Rule, order: int) -> Completion | None:
    """The completion of a phase: that of its gates, which all say the same, else that of the rule."""
    named = (hook.complete for hook in rule.hooks if hook.holds and hook.order == order and hook.complete is not None)
    return next(named, rule.complete)
