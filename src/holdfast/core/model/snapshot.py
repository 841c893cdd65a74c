"""Snapshots over the years: their formats, upgrades of old ones, and checks that one can be decided on.

A snapshot names its format; one that does not is of format 1, so the common case pays nothing. A release that changes
the layout of `State` raises FORMAT, lets `encode_state` write the number, and adds to UPGRADES how a snapshot of the
format before becomes one of the next. Chains are walked one format at a time, on reading; the next commit of the
instance stores the present one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.core.model.program import Program
from holdfast.core.model.state import Instance, State, decode_state
from holdfast.core.rollback.pending import Undos
from holdfast.errors import HoldfastError

FORMAT: Final = 1
UNNAMED: Final = 1  # the format of snapshots that do not name theirs
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
UPGRADES: Final[dict[int, Upgrade]] = {}  # format n → the function that makes a snapshot of format n + 1 of it


class _Header(msgspec.Struct):
    format: int = UNNAMED


_decode_header = msgspec.json.Decoder(_Header).decode


def read_state(raw: bytes) -> State:
    """The state in a stored snapshot of any format this release knows."""
    try:
        found = _decode_header(raw).format if b'"format"' in raw else UNNAMED
        return decode_state(raw) if found == FORMAT else _upgraded(raw, found)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as failure:
        raise HoldfastError(
            f"The snapshot cannot be read: {failure}",
            code="SNAPSHOT_UNREADABLE",
            hint="Rebuild it from the instance's steps.",
        ) from None


def _upgraded(raw: bytes, found: int) -> State:
    if found > FORMAT:
        raise HoldfastError(
            f"The snapshot has format {found}; this release reads up to {FORMAT}.",
            code="SNAPSHOT_TOO_NEW",
            hint="A newer release wrote it: upgrade this process, then replay the dead letter.",
        )
    document: dict[str, Any] = msgspec.json.decode(raw)
    for number in range(found, FORMAT):
        if number not in UPGRADES:
            raise HoldfastError(
                f"The snapshot has format {found}, and nothing leads from {number} to {number + 1}.",
                code="SNAPSHOT_TOO_OLD",
                hint="Run a release in between that can bring it up, or rebuild it from the instance's steps.",
            )
        document = UPGRADES[number](document)
    document.pop("format", None)
    return decode_state(msgspec.json.encode(document))  # values are kept as text, which only a decoder makes


def is_complete(state: State) -> bool:
    """Check if the state has all compensations; if it only counts them, their rows must be read before a decision."""
    return state.rollback is None or state.rollback.plan is None or state.rollback.plan.is_read


def completed(instance: Instance, undos: Undos) -> Instance:
    """Give the instance the compensations that its snapshot only counts."""
    state, rollback = instance.state, instance.state.rollback
    left = 0 if rollback is None or rollback.plan is None else len(rollback.plan)
    if rollback is None or left != len(undos):
        raise HoldfastError(
            f"The snapshot has {left} compensations left to run, and {len(undos)} of their rows are open.",
            code="SNAPSHOT_INCONSISTENT",
            hint="Rebuild it from the instance's steps.",
        )
    rollback = msgspec.structs.replace(rollback, plan=undos)
    return msgspec.structs.replace(instance, state=msgspec.structs.replace(state, rollback=rollback))


def inconsistency(program: Program, state: State) -> HoldfastError | None:
    """The error of a readable snapshot that no decision can be based on; None when the fault lies elsewhere."""
    lost = sorted({token.node for token in state.tokens.values()} - program.places.keys())
    lost += sorted({scope.split for scope in state.scopes.values()} - program.places.keys())
    if not lost:
        return None
    names = ", ".join(map(repr, lost))
    return HoldfastError(
        f"The snapshot stands on nodes the flow {program.name!r} does not have: {names}.",
        code="SNAPSHOT_INCONSISTENT",
        hint="Rebuild it from the instance's steps, or migrate the instance.",
    )
