"""How replay follows what no edge tells: an instance that goes on in another graph, a token sent back to a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.migrate import moved, read_migrated
from holdfast.core.rows import StepRow
from holdfast.core.state import Token
from holdfast.core.status import Phase
from holdfast.core.turn import NULL, Move, encode, merged

if TYPE_CHECKING:
    from holdfast.core.rebuild import Rebuild


def migrate(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    record = read_migrated(row.detail or b"{}")
    target = rebuild.programs[bytes.fromhex(record.went_to.definition)]
    for standing in record.tokens.values():
        token = _as_stored(rebuild, rebuild.tokens[standing.path])
        rebuild.tokens[standing.path] = moved(token, standing, target)
    gone = {(standing.path, wait) for standing in record.tokens.values() for wait in standing.lifted}
    if record.expires is None:
        gone |= {(timer.path, timer.wait) for timer in rebuild.parked if not timer.path}
    rebuild.parked = tuple(timer for timer in rebuild.parked if (timer.path, timer.wait) not in gone)
    rebuild.scopes = {
        id: msgspec.structs.replace(scope, split=record.scopes[id]) for id, scope in rebuild.scopes.items()
    }
    rebuild.expires = record.expires
    rebuild.follow(target)


def _as_stored(rebuild: Rebuild, token: Token) -> Token:
    """A snapshot that did not carry the value before the migration does not carry it after."""
    if token.phase in (Phase.HELD, Phase.DEAD) or rebuild.program.places[token.node].keeps_value:
        return token
    return msgspec.structs.replace(token, value=msgspec.UNSET)


def rerun(rebuild: Rebuild, row: StepRow, detail: dict[str, Any]) -> None:
    path: str = detail["path"]
    inside = path + "/"
    rebuild.tokens = {p: t for p, t in rebuild.tokens.items() if p != path and not p.startswith(inside)}
    rebuild.scopes = {id: scope for id, scope in rebuild.scopes.items() if not id.startswith(inside)}
    rebuild.parked = tuple(t for t in rebuild.parked if t.path != path and not t.path.startswith(inside))
    scope_id, _, index = path.rpartition(".")
    scope = rebuild.scopes.get(scope_id)
    if scope is not None:
        done = {i: arrival for i, arrival in scope.done.items() if i != index}
        rebuild.scopes[scope_id] = msgspec.structs.replace(scope, done=done)
    if detail.get("merged") is not None:
        rebuild.context = merged(rebuild.context, encode(detail["merged"]))
    rebuild.chain = 0
    raw = row.input or NULL
    rebuild.moves[path] = Move(path, detail["hop"], detail["node"], raw, last=detail["last"], run=detail["run"])
