"""Random contracts and patches, compiled and executed at random: what the compiler accepts keeps its promises.

Verbs, edits, rejections, timeouts, failures and re-runs come in any order. The watch of `DocumentWorld` keeps books of
its own. `HOLDFAST_PROFILE=long` executes 100,000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from core_document_world import DOCUMENT_ACTIONS, DocumentWorld
from core_random_documents import RandomDocument
from core_world import World
from test_properties import PROFILE
from tests.doors.envelope.random_envelopes import TABLES, broken, random_contract, random_patch

from holdfast.core.documents.stance import Stance, stance
from holdfast.core.model.program import link
from holdfast.core.model.signals import Actor, Cancel, Decided, Suspend, VerbCalled
from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.slots import ContractIndex, resolve_slots
from holdfast.errors import DefinitionError
from holdfast.graph.approvals import fewest_approvals
from holdfast.graph.compiled import Compiled, dump_compiled, graph_of
from holdfast.graph.envelope import gate_id
from holdfast.graph.loading import load_compiled
from holdfast.graph.scopes import find_scopes
from holdfast.graph.topology import read_topology
from holdfast.graph.windows import WINDOWS

EXECUTIONS = {"short": 300, "long": 100_000}[PROFILE]
SHARES = 2  # tests, so that they run beside each other
ACTORS = (Actor("ann", ("docs:go",)), Actor("ben", ("docs:go", "act")), Actor("eve"))
ENTITIES: tuple[dict[str, Any], ...] = (
    {"total": 50, "vendor": "v1", "urgent": False, "due": "2025-06-01T00:00:00Z", "lines": [], "note": ""},
    {"total": 5000, "vendor": "v2", "urgent": True, "due": "2030-01-01T00:00:00Z", "lines": [1], "note": "x"},
    {"total": 700, "vendor": None, "urgent": None, "due": "2025-06-01T00:00:00Z", "lines": None, "note": None},
)


class EnvelopeWorld(DocumentWorld):
    """A world around one effective graph, which knows the windows of the contract as well."""

    events: int

    def __init__(self, compiled: Compiled, seed: int, document: RandomDocument, floors: dict[str, str]) -> None:
        super().__init__(link(compiled), seed, document)
        self.floors = floors  # node → the window of the envelope, where it is in one
        self.entity = self.random.choice(ENTITIES)
        self.org = {"trusted": ["v1"]}
        self.actors = ACTORS

    @property
    def actions(self) -> Sequence[Callable[[Any], None]]:
        return ENVELOPE_ACTIONS

    def go_on(self) -> None:
        """Call a verb that leads on, or another one."""
        offered = stance(self.program, self.instance)
        if offered is not None and offered.verbs:
            self.events += 1
            self.version += 1
            verb = self.random.choice(offered.verbs)
            self.seen["verbs"] += self.deliver(VerbCalled(b"%016d" % self.events, verb, self.version))

    def reject(self) -> None:
        if self.tasks and self.deliver(Decided(b"decision" * 2, self.random.choice(sorted(self.tasks)), "rejected")):
            self.seen["rejections"] += 1

    def pause(self) -> None:
        self.deliver(self.random.choice([Suspend(), Suspend(), Cancel()]))

    def let_time_pass(self) -> None:
        late = [timer for timer in self.timers.values() if timer.purpose in ("deadline", "due")]
        if late:
            self.seen["timeouts"] += self.deliver(self.random.choice(late))

    def _check_stance(self, found: Stance) -> None:
        super()._check_stance(found)
        for token in self.instance.state.tokens.values():
            least = (self.floors.get(token.node, "editable"), self.program.places[token.node].node.edit_window)
            for window in least:
                if window is not None:
                    assert WINDOWS.index(found.window) >= list(WINDOWS).index(window), "looser than at the token"  # type: ignore[arg-type]


ENVELOPE_ACTIONS: tuple[Callable[[Any], None], ...] = (
    *[action for action in DOCUMENT_ACTIONS if action is not World.control],  # most of those are over too soon
    *[EnvelopeWorld.finish_work] * 12,
    *[EnvelopeWorld.go_on] * 14,
    *[EnvelopeWorld.approve] * 8,
    *[EnvelopeWorld.resume] * 8,
    *[EnvelopeWorld.reject] * 10,
    *[EnvelopeWorld.let_time_pass] * 14,
    EnvelopeWorld.pause,
)


def accepted(seed: int) -> tuple[Compiled, RandomDocument, dict[str, str]] | None:
    """A random envelope with its slots filled, and what its gates demand; None if the compiler refuses the patch."""
    random = Random(seed)
    contract = random_contract(random)
    patch = random_patch(random, contract, filled=random.random() < 0.6)
    if random.random() < 0.3:
        patch = broken(random, patch)
    try:
        compiled = compile_effective(contract, patch, tables=TABLES)
    except DefinitionError:
        return None
    compiled = load_compiled(dump_compiled(compiled), compiled.hash)
    places = resolve_slots(ContractIndex(contract))
    graph = graph_of(compiled)
    topology = read_topology(graph)
    scopes = find_scopes(topology)
    demanded, slots = dict[str, int](), dict[str, str]()
    for name in compiled.config.get("filled", ()):
        place = places[name]
        inside = [node for node, owner in compiled.slot_map.items() if owner == name]
        fewest = fewest_approvals(topology, scopes, f"sys:slot:{name}:in", f"sys:slot:{name}:out", inside)
        assert fewest is not None
        assert fewest.count >= place.approvals
        if place.exit.startswith("sys:gate:"):
            demanded[place.exit], slots[place.exit] = fewest.count, name
    states = {state.name: state.window for state in contract.states}
    floors = {f"sys:state:{name}": window for name, window in states.items()}
    floors |= {gate_id(gate.name): states[gate.source] for gate in contract.gates}
    floors |= {node: places[owner].window for node, owner in compiled.slot_map.items()}
    return compiled, RandomDocument(graph, demanded, slots), {node: str(window) for node, window in floors.items()}


@pytest.mark.parametrize("share", range(SHARES))
def test_what_the_compiler_accepts_keeps_its_promises(share: int) -> None:
    seen = Counter[str]()
    seed = share
    while seen["executions"] < EXECUTIONS // SHARES:
        found = accepted(seed)
        if found is not None:
            world = EnvelopeWorld(found[0], seed, found[1], found[2])
            try:
                world.run(steps=50)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            seen.update(world.seen)
            seen.update({"executions": 1, "demanding": any(found[1].demanded.values())})
        seed += SHARES
    for what in ("gates", "interrupts", "verbs", "edits", "re-runs", "rejections", "timeouts", "demanding"):
        assert seen[what] >= EXECUTIONS // SHARES // 75, (what, seen)
