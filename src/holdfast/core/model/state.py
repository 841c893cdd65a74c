"""The state of one instance: tokens, scopes, waits. A snapshot of it is stored with every commit.

A token has a path and a hop; every move is hop + 1. A split at hop h of path p opens the scope `p/h` with the children
`p/h.0`, `p/h.1` …; a join or an escape continues the parent at hop h + 1. So laps of a loop differ by hop and join
membership is a matter of paths: nothing needs to be counted or remembered beside them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from holdfast.core.model.status import InstanceStatus, Phase
from holdfast.core.rollback.pending import Undos, counted, uncounted

Value = msgspec.Raw | msgspec.UnsetType  # JSON as it came; nothing at all is not the same as null

ROOT = "0"


class Wait(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing a token waits for. `id` is the waiting token: a signal that brings another one is stale."""

    id: str
    kind: str  # timer | deadline | retry | event | child | receipt | expiry | task | due
    event: str | None = None
    key: str | None = None
    due: int | None = None
    ref: bytes | None = None  # child instance, effect or timer row


class Failed(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The error of a dead token, and the version of the instance in which it died."""

    error: msgspec.Raw
    version: int
    is_postponed: bool = False  # it failed while the instance was suspended: the resume decides its fate


class Token(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One thread of execution. `at` is created_at of its step row and names the row's partition."""

    hop: int
    node: str
    step: bytes = b""
    at: int = 0
    fence: int = 0
    phase: Phase = Phase.WORKING
    calls: int = 0
    run: int = 0
    last: str | None = None  # the last step before this one that was no mere pass, or else the first pass
    waits: tuple[Wait, ...] = ()
    value: Value = UNSET  # only where the step row alone is not enough
    failed: Failed | None = None  # of a dead one
    entity_version: int = 0  # of a document, when its visit of a region's node began


class Arrival(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The end of a branch: at the join with a value, at an end node, or failed."""

    step: str | None = None
    value: Value = UNSET
    outcome: str = "completed"  # completed | ended | failed


class Scope(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An open split: the number of its branches and those that are done, by index."""

    split: str
    parent: str
    hop: int
    width: int
    done: dict[str, Arrival] = {}
    fence: int = 0  # the last fence of the parent token


class Parked(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A timer that fell due while the instance was suspended."""

    path: str
    wait: str
    purpose: str


class Stopping(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A cancel that waits for handlers or sub-flows still running."""

    by: str | None = None
    reason: str | None = None


class Rollback(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A rollback under way. It has no plan while the results of running handlers or sub-flows are awaited."""

    target: InstanceStatus  # its status once all is compensated
    reason: str | None = None
    by: str | None = None
    first: bytes = b""  # the step that failed, until there is a plan: its own compensation comes first
    to_root: bool = False  # past every save point
    plan: Undos | None = None  # the compensations still to run, the present one first
    broken: bool = False  # a compensation ran out of calls


class State(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    tokens: dict[str, Token] = {}
    scopes: dict[str, Scope] = {}
    chain: int = 0
    early: int = 0  # events kept in the inbox
    parked: tuple[Parked, ...] = ()
    stopping: Stopping | None = None
    expires: Wait | None = None  # the instance's own timer
    rollback: Rollback | None = None
    ghosts: dict[str, Token] = {}  # losers of a race whose handlers still run: a late success is evidence


class Instance(msgspec.Struct, frozen=True, gc=False):
    id: bytes
    org: str
    definition: bytes
    flow: str
    flow_version: int
    version: int
    status: InstanceStatus
    state: State
    data: bytes  # the context, as JSON
    reason: str | None = None
    entity_version: int = 0
    parent: bytes | None = None
    parent_token: str | None = None
    trace: str | None = None
    created: int = 0  # 0: not stored yet
    starter: str | None = None  # the actor that started it; None: no actor in particular
    partition: str | None = None  # this and the next from the request that started it
    correlation: str | None = None
    updated: int = 0  # the moment of its last commit; none that follows is dated before it

    @property
    def bucket(self) -> int:
        return self.id[15]


EMPTY = State()

encode_state = msgspec.json.Encoder(enc_hook=counted).encode
decode_state = msgspec.json.Decoder(State, dec_hook=uncounted).decode


def value_of(token: Token) -> bytes | None:
    """The token's value; None where only the step row has it."""
    return None if isinstance(token.value, msgspec.UnsetType) else bytes(token.value)


def token_view(state: State) -> dict[str, Any]:
    """The part of the tokens that replay must reproduce; leases, fences and timestamps left out."""
    return {
        path: (
            t.hop, t.node, t.step, str(t.phase), t.run, t.last, sorted(map(_wait_view, t.waits)), _failed_view(t),
            t.entity_version,
        )
        for path, t in state.tokens.items()
    }  # fmt: skip


def scope_view(state: State) -> dict[str, Any]:
    """The open scopes with their arrivals; values are compared as data, not as text."""
    return {
        path: (s.split, s.parent, s.hop, s.width, {i: (a.step, a.outcome, _data(a.value)) for i, a in s.done.items()})
        for path, s in state.scopes.items()
    }


def rollback_view(state: State) -> Any:
    """The progress of the rollback and the tokens still awaited; fences left out."""
    ghosts = sorted((path, token.hop, token.node, token.step) for path, token in state.ghosts.items())
    rollback = state.rollback
    if rollback is None:
        return None, ghosts
    plan = None if rollback.plan is None else [msgspec.structs.replace(undo, fence=0) for undo in rollback.plan]
    return msgspec.structs.replace(rollback, plan=None), plan, ghosts


def rollback_summary(state: State) -> dict[str, Any] | None:
    """The target of the rollback and the number of compensations left, as far as a snapshot has them."""
    rollback = state.rollback
    if rollback is None:
        return None
    left = None if rollback.plan is None else len(rollback.plan)
    return {**msgspec.to_builtins(msgspec.structs.replace(rollback, plan=None)), "left": left}


def _wait_view(wait: Wait) -> tuple[str, str, str, str, int]:
    return wait.id, wait.kind, wait.event or "", wait.key or "", wait.due or 0


def _failed_view(token: Token) -> tuple[Any, int, bool] | None:
    failed = token.failed
    return None if failed is None else (_data(failed.error), failed.version, failed.is_postponed)


def _data(raw: Value) -> Any:
    return None if isinstance(raw, msgspec.UnsetType) else msgspec.json.decode(raw)
