"""Migration: an instance continues under another version of its flow.

No handler runs during a migration and none is called because of it. Every token keeps its path and its hop, and is at
the same node of the new graph, or at the one it is mapped to. So the only question is whether the token's waits still
make sense there; where they do not, the migration is refused with the reason and the instance stays as it was. The row
of `@migrate` names both graphs and each token's nodes: replay reads the rows before it with the old graph and those
after it with the new one, and a revert finds the way back in it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.documents.crossing import check_crossing
from holdfast.core.kernel.builder import Turn
from holdfast.core.kernel.failure import postponed
from holdfast.core.kernel.scopes import OUT
from holdfast.core.machine.stays import PROMPT, STALE, timeout_of
from holdfast.core.model.control_rows import Migrated, Side, Standing
from holdfast.core.model.decision import TaskRenamed
from holdfast.core.model.ids import token_id, wait_id
from holdfast.core.model.program import Place, Program
from holdfast.core.model.signals import Migrate
from holdfast.core.model.state import Scope, Token, Wait
from holdfast.core.model.status import InstanceStatus, Phase
from holdfast.core.model.timestamps import seconds
from holdfast.core.signals.events import ENGINE_EVENTS
from holdfast.core.signals.timers import EXPIRY
from holdfast.errors import Conflict, Refused
from holdfast.graph.model import Behaviour

_LIFTED: Final = {"deadline": "deadline", "due": "due"}  # waits that end where the new node has no such limit
_AFTER_THE_WORK: Final = "Try again when it is done, or suspend the instance: it stops before its next step."
_AFTER_THE_RESUME: Final = (
    "What runs is finished during the pause: try again. What had not begun waits for the resume: resume the instance, "
    "and suspend it again once the step has begun."
)


def migrate(turn: Turn, signal: Migrate) -> None:
    target = turn.facts.target
    if target is None or target.definition != signal.definition:
        raise Refused("The version to migrate to is not at hand.", code="MIGRATION_TARGET_MISSING")
    _check_moment(turn, target)
    crossing = _Crossing(turn, target, signal)
    crossing.check_graphs()
    scopes = {id: crossing.scope(id, scope) for id, scope in turn.scopes.items()}
    stood = {path: crossing.stand(path, token) for path, token in sorted(turn.tokens.items())}
    known = {id: (scope, scopes[id].split) for id, scope in turn.scopes.items()}
    check_crossing(turn.program, target, stood.values(), known)
    _move(turn, target, stood, scopes)
    _keep_time(turn, target)
    row = Migrated(
        came_from=_side(turn.program),
        went_to=_side(target),
        nodes=signal.nodes,
        tokens={token_id(path, turn.tokens[path].hop): standing for path, standing in stood.items()},
        scopes={id: scope.split for id, scope in scopes.items()},
        expires=turn.expires,
        by=turn.actor,
        reason=signal.reason,
    )
    turn.control(row)
    about = {"from": turn.program.version, "to": target.version, "by": turn.actor, "reason": signal.reason}
    turn.note("instance_migrated", detail={**about, "nodes": signal.nodes})
    turn.instance = msgspec.structs.replace(turn.instance, definition=target.definition, flow_version=target.version)


def _side(program: Program) -> Side:
    return Side(program.definition.hex(), program.version, program.hash)


def _check_moment(turn: Turn, target: Program) -> None:
    if turn.program.definition == target.definition:
        raise Refused(
            f"The instance is on version {target.version} already.",
            code="MIGRATION_ALREADY_THERE",
            hint="There is nothing to migrate.",
        )
    if turn.rollback is not None or turn.status is InstanceStatus.ROLLING_BACK:
        raise Conflict(
            "The instance is going backwards and ends with the version it began with.",
            code="INSTANCE_ROLLING_BACK",
            hint="Start a new instance on the new version.",
        )
    if turn.stopping is not None:
        raise Conflict("The instance is being cancelled.", code="INSTANCE_STOPPING", hint="It need not be migrated.")
    out = sorted(token.node for token in (*turn.tokens.values(), *turn.ghosts.values()) if token.phase in OUT)
    if out:
        raise Conflict(
            f"Work is queued or running for {', '.join(map(repr, out))}.",
            code="MIGRATION_WORK_RUNNING",
            hint=_AFTER_THE_RESUME if turn.status is InstanceStatus.SUSPENDED else _AFTER_THE_WORK,
            nodes=out,
        )


def lost_undos(old: Program, new: Program, signal: Migrate) -> list[str]:
    """The nodes whose compensation the new graph lacks: an instance that has been there must stay."""
    kept = {place.id for place in new.places.values() if place.node.undo is not None}
    undone = (place.id for place in old.places.values() if place.node.undo is not None)
    return sorted(node for node in undone if signal.nodes.get(node, node) not in kept)


class _Crossing:
    """The way from one graph to another for one instance."""

    def __init__(self, turn: Turn, target: Program, signal: Migrate) -> None:
        self.turn = turn
        self.old = turn.program
        self.new = target
        self.signal = signal
        self._around: dict[str, tuple[str, ...]] | None = None

    def name(self, node: str) -> str:
        return self.signal.nodes.get(node, node)

    def check_graphs(self) -> None:
        """Check the conditions that do not depend on the nodes of the tokens."""
        if self.old.name != self.new.name:
            raise _blocked("MIGRATION_FLOW_CHANGED", f"{self.new.name!r} is another flow than {self.old.name!r}.")
        if self.old.merges != self.new.merges:
            raise _blocked("MIGRATION_DATA_CHANGED", "The two versions do not pass data on in the same way.")
        visited = self.turn.facts.visited
        lost = [node for node in lost_undos(self.old, self.new, self.signal) if visited is None or node in visited]
        if lost:
            raise _blocked(
                "MIGRATION_UNDO_LOST",
                f"The new version could not take back what {', '.join(map(repr, lost))} did.",
                "Map the node to one that has a compensation.",
            )
        is_dead = any(token.phase is Phase.DEAD for token in self.turn.tokens.values())
        if is_dead and (self.old.policy.on_error == "dlq") != (self.new.policy.on_error == "dlq"):
            raise _blocked(
                "MIGRATION_POLICY_CHANGED",
                "A failed step waits for a person, and only one of the two versions is in DLQ mode.",
                "Settle the failed step first.",
            )
        if postponed(self.turn) and self.old.policy.on_error != self.new.policy.on_error:
            raise _blocked(
                "MIGRATION_POLICY_CHANGED",
                "A step has failed while the instance was suspended, and the two versions deal with that differently.",
                "Resume the instance first, or run the step again.",
            )

    # --- scopes ---------------------------------------------------------------------------------------------------

    def scope(self, id: str, scope: Scope) -> Scope:
        """The scope under the new graph; refused unless its split, its branches and its join are the same there."""
        split = self.name(scope.split)
        place, before = self.new.places.get(split), self.old.places[scope.split]
        if place is None or not place.is_split:
            raise _missing(scope.split, split)
        join, mode = self.old.joins.get(scope.split), self.old.join_modes.get(scope.split)
        same_join = self.new.joins.get(split) == (None if join is None else self.name(join))
        same_width = len(place.ways["completed"]) == len(before.ways["completed"])
        if not (same_join and same_width and self.new.join_modes.get(split) == mode):
            raise _blocked(
                "MIGRATION_SCOPE_CHANGED", f"Branches of {scope.split!r} are open, and the new version joins others."
            )
        if self._enclosing(split) != self._chain(scope.parent):
            raise _blocked("MIGRATION_SCOPE_CHANGED", f"{split!r} lies in other branches than {scope.split!r} did.")
        return msgspec.structs.replace(scope, split=split)

    def _chain(self, path: str) -> tuple[str, ...]:
        """The new names of the splits a path lies in, from the outside in."""
        splits: list[str] = []
        while "/" in path:
            scope_id = path.rpartition(".")[0]
            splits.append(self.name(self.turn.scopes[scope_id].split))
            path = self.turn.scopes[scope_id].parent
        return tuple(reversed(splits))

    def _enclosing(self, node: str) -> tuple[str, ...] | None:
        if self._around is None:
            self._around = _splits_around(self.new)
        return self._around.get(node)

    # --- tokens ---------------------------------------------------------------------------------------------------

    def stand(self, path: str, token: Token) -> Standing:
        name = self.signal.tokens.get(token_id(path, token.hop)) or self.name(token.node)
        place, before = self.new.places.get(name), self.old.places[token.node]
        if place is None:
            raise _missing(token.node, name)
        self._check_behaviour(token, before, place)
        self._check_scope(path, token, place)
        lifted = tuple(wait.id for wait in token.waits if self._is_lifted(wait, place))
        for wait in token.waits:
            if wait.id not in lifted and not _fits(wait, before, place):
                what = repr(wait.event) if wait.event is not None else f"a {wait.kind}"
                raise _blocked("MIGRATION_WAIT_CHANGED", f"{token.node!r} waits for {what}, which {name!r} does not.")
        ended, begun = self._timeout(path, token, before, place)
        return Standing(path, token.node, name, (*lifted, *ended), begun or msgspec.UNSET)

    def _timeout(
        self, path: str, token: Token, before: Place, place: Place
    ) -> tuple[tuple[str, ...], tuple[Wait, ...]]:
        """Keep the timeout of a machine's stay as it was set; where only one version has one, end it or begin it now.

        One that was over before does not begin again.
        """
        if token.phase is not Phase.RESTING:
            return (), ()
        wanted, was = timeout_of(place), timeout_of(before)
        ended = tuple(wait.id for wait in token.waits if wait.kind in (PROMPT, STALE) and wait.kind != wanted)
        if wanted is None or wanted == was:
            return ended, ()
        assert place.state is not None
        assert place.state.timeout is not None
        wait = f"{wait_id(token_id(path, token.hop), token.run, wanted)}~{self.turn.version}"
        return ended, (self.turn.timer(path, wait, wanted, self.turn.now + seconds(place.state.timeout.after)),)

    def _check_behaviour(self, token: Token, before: Place, place: Place) -> None:
        if token.phase is Phase.HELD:  # nothing of the node has happened: it may become any other that is no join
            same = (before.behaviour is Behaviour.JOIN) == (place.behaviour is Behaviour.JOIN)
        else:
            same = before.behaviour is place.behaviour
        if not same:
            raise _blocked(
                "MIGRATION_BEHAVIOUR_CHANGED",
                f"{before.id!r} is {before.behaviour}, {place.id!r} is {place.behaviour}.",
                "Suspend the instance, let it come to stand before its next step, and migrate it there.",
            )
        if token.phase is Phase.RETRYING and place.id != before.id:
            raise _blocked(
                "MIGRATION_RETRY_RENAMED",
                f"{before.id!r} is about to be called under the key of its name.",
                "Keep the name, or wait until the step is over.",
            )
        if token.phase is Phase.RESTING:
            gone = sorted(before.ways.keys() - place.ways.keys() - ENGINE_EVENTS)
            if gone:
                raise _blocked(
                    "MIGRATION_WAIT_CHANGED", f"{place.id!r} does not take {', '.join(map(repr, gone))} any more."
                )

    def _check_scope(self, path: str, token: Token, place: Place) -> None:
        chain, around = self._chain(path), self._enclosing(place.id)
        if around is None:
            raise _blocked("MIGRATION_SCOPE_CHANGED", f"No way leads to {place.id!r}.")
        if place.behaviour is Behaviour.JOIN and len(chain) == len(around) + 1:
            chain = chain if self.new.joins.get(chain[-1]) != place.id else chain[:-1]
        reached = chain[: len(around)] if token.phase is Phase.HELD else chain  # one that is held may be about to leave
        if reached != around:
            raise _blocked("MIGRATION_SCOPE_CHANGED", f"{place.id!r} lies in other branches than {token.node!r} did.")

    @staticmethod
    def _is_lifted(wait: Wait, place: Place) -> bool:
        limit = _LIFTED.get(wait.kind)
        return limit is not None and getattr(place.node, limit) is None


def _fits(wait: Wait, before: Place, place: Place) -> bool:
    """Check if the new node could be waiting for the same thing."""
    node, old = place.node, before.node
    if wait.kind == "event":
        return node.wait is not None and node.wait.event == wait.event
    if wait.kind == "child":
        return node.child is not None and old.child is not None and node.child.flow == old.child.flow
    if wait.kind == "receipt":
        return node.awaits
    return wait.kind not in ("task", "due") or place.traits.asks_person


def _splits_around(program: Program) -> dict[str, tuple[str, ...]]:
    """The splits around each node, from the outside in. A node has their number; the way to it has their names."""
    found: dict[str, tuple[str, ...]] = {}
    roots = [program.entry, *([program.policy.on_timeout] if program.policy.on_timeout else [])]
    roots += [target for area in program.areas.values() for target in area.targets]
    ahead: list[tuple[str, tuple[str, ...]]] = [(root, ()) for root in roots]
    while ahead:
        node, around = ahead.pop()
        if node in found:
            continue
        place = program.places[node]
        found[node] = around[: place.depth]
        inside = (*found[node], node) if place.is_split else found[node]
        ahead += [(way.target, inside) for ways in place.ways.values() for way in ways]
    return found


# --- what changes -------------------------------------------------------------------------------------------------


def _move(turn: Turn, target: Program, stood: dict[str, Standing], scopes: dict[str, Scope]) -> None:
    turn.scopes = scopes
    for path, standing in stood.items():
        token = turn.tokens[path]
        ended = [wait for wait in token.waits if wait.id in standing.lifted]
        turn.timers_ended = [*turn.timers_ended, *(wait.ref for wait in ended if wait.ref is not None)]
        turn.tasks = [*turn.tasks, *_renamed(token, standing)]
        turn.tokens[path] = moved(token, standing, target)
    gone = {(standing.path, wait) for standing in stood.values() for wait in standing.lifted}
    turn.parked = tuple(timer for timer in turn.parked if (timer.path, timer.wait) not in gone)


def _renamed(token: Token, standing: Standing) -> list[TaskRenamed]:
    """Rename the token's tasks with its step: permissions to act on a task are looked up by the step's name."""
    if standing.was == standing.now:
        return []
    refs = [wait.ref for wait in token.waits if wait.kind == "task" and wait.ref is not None]
    return [TaskRenamed(ref, standing.was, standing.now) for ref in refs]


def moved(token: Token, standing: Standing, target: Program) -> Token:
    """The token under the new graph. As everywhere, a value that the step row has is not kept twice."""
    begun = () if standing.begun is msgspec.UNSET else standing.begun
    keeps = token.phase in (Phase.HELD, Phase.DEAD) or target.places[standing.now].keeps_value
    return msgspec.structs.replace(
        token,
        node=standing.now,
        waits=(*(wait for wait in token.waits if wait.id not in standing.lifted), *begun),
        value=token.value if keeps else msgspec.UNSET,
    )


def _keep_time(turn: Turn, target: Program) -> None:
    """Keep the instance's own timeout as it was set; where only one version has one, end it or begin it now."""
    timeout, expires = target.policy.timeout, turn.expires
    if timeout is None and expires is not None:
        turn.timers_ended = [*turn.timers_ended, *([] if expires.ref is None else [expires.ref])]
        turn.parked = tuple(timer for timer in turn.parked if timer.path)
        turn.expires = None
    elif timeout is not None and expires is None:
        turn.expires = turn.timer("", f"{EXPIRY}~{turn.version}", EXPIRY, turn.now + seconds(timeout))


def _missing(node: str, name: str) -> Conflict:
    sentence = f"The new version has no node {name!r}" + ("." if node == name else f", which {node!r} is mapped to.")
    return _blocked("MIGRATION_NODE_MISSING", sentence, "Map the node to the one that takes its place.")


def _blocked(code: str, sentence: str, hint: str = "") -> Conflict:
    return Conflict(sentence, code=code, hint=hint or "Let it end on its version, or migrate it later.")


def way_back(record: Migrated) -> tuple[dict[str, str], dict[str, str]]:
    """The mapping of nodes, and of tokens that have not moved since, that undoes a migration."""
    nodes = {now: was for was, now in sorted(record.nodes.items(), reverse=True)}
    return nodes, {token: standing.was for token, standing in record.tokens.items()}
