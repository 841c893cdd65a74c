"""Random machines under random signals: replay equals the snapshot after each, and no gate is passed early."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from core_machines import MachineRun, machine

from holdfast.core.model.signals import Resume, Suspend
from holdfast.core.model.status import TERMINAL, InstanceStatus
from holdfast.errors import Conflict, Refused
from holdfast.graph.machine import Completion, Hook, Rule, StateConfig, StateTimeout

RUNS = 5_000 if os.environ.get("HOLDFAST_PROFILE") == "long" else 400
EVENTS = ("go", "back", "late", "end")


def random_hooks(random: Random) -> tuple[Hook, ...]:
    orders: list[Any] = [None, 1, 1, 2, 3]
    return tuple(
        Hook(
            code=f"H{n}",
            type=random.choice(["gate", "gate", "effect"]),
            order=random.choice(orders),
            ack=random.choice(["all", "any"]),
        )
        for n in range(random.randrange(4))
    )


def random_machine(random: Random) -> MachineRun:
    names = [f"s{n}" for n in range(random.randrange(2, 6))]
    ends = ("end",) if random.random() < 0.7 else ()
    ways = {(name, event): random.choice(names) for name in names for event in EVENTS[:3] if random.random() < 0.6}
    ways |= {(names[n], "go"): names[n + 1] for n in range(len(names) - 1)}
    ways[names[-1], "back"] = names[0]
    for name in ends:
        ways[names[-1], "end"] = name
    states: dict[str, StateConfig | None] = {}
    for name in (*names, *ends):
        rules = {
            event: Rule(hooks=random_hooks(random), complete=Completion(success="go", failure="back"))
            for event in EVENTS
            if random.random() < 0.7
        }
        timeout = None
        takes = [event for (state, event) in ways if state == name]
        if takes and random.random() < 0.4:
            timeout = StateTimeout(
                after=60, event=random.choice([*takes, None]), mode=random.choice(["once", "repeat"])
            )
        states[name] = StateConfig(rules=rules, timeout=timeout)
    return MachineRun(machine(states, [(s, e, t) for (s, e), t in ways.items()], ends=ends))


@pytest.mark.parametrize("part", range(8))
def test_random_machines(part: int) -> None:
    for seed in range(part, RUNS, 8):
        random = Random(seed)
        run = random_machine(random)
        for _ in range(random.randrange(3, 25)):
            one_step(run, random)
        assert_nothing_is_stranded(run)


def one_step(run: MachineRun, random: Random) -> None:
    events = sorted(run.program.events)
    choice = random.random()
    before, gates = run.state, len(run.gates)
    if choice < 0.55 or run.instance.version == 0:
        answer = run.send(random.choice(events))
        if gates and run.instance.status is InstanceStatus.RUNNING:
            assert not answer.applied, "a trigger passed an open gate"
            assert run.state == before
    elif choice < 0.75 and run.gates:
        run.settle(random.choice(run.gates).event or "", random.choice(["success", "success", "failure"]))
    elif choice < 0.9 and run.timers:
        due, timer = run.timers.pop(random.choice(sorted(run.timers)))
        run.now = max(run.now, due)
        run.decide(timer)
    elif run.instance.version and run.instance.status not in TERMINAL:
        try:
            run.decide(random.choice([Suspend("AUDIT"), Resume()]))
        except (Conflict, Refused):
            return


def assert_nothing_is_stranded(run: MachineRun) -> None:
    """Whatever state it is in, answering its gates frees it, and each gate is told exactly once."""
    if run.instance.status is InstanceStatus.SUSPENDED:
        run.decide(Resume())
    told = [fact.id for fact in run.told]
    assert len(told) == len(set(told))
    assert {gate.ref for gate in run.gates} <= set(told)
    while run.gates:
        run.settle(run.gates[0].event or "")
    assert not any(wait.kind.startswith("gate") for wait in run.waits)
    completed = [(fact.step) for fact in run.told if fact.kind == "complete"]
    assert len(completed) == len(set(completed)), "one completion per entry"
