"""One commit over many instances, each at another point of its life: how many statements is it?"""

from __future__ import annotations

import os
from itertools import pairwise

import msgspec

from holdfast.core.decide import decide
from holdfast.core.model.decision import Decision, Facts
from holdfast.core.model.program import Program, link
from holdfast.core.model.signals import Failure, Started, WorkDone, WorkFailed
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import InstanceStatus
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import load_graph
from holdfast.runtime.commit.starter import new_id
from holdfast.store.commit.batch import Batch, writes
from holdfast.store.commit.locks import CLOCK
from holdfast.store.commit.rows import Entry, NewInstance
from holdfast.store.pg.session import BEGIN, COMMIT, Session
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

RAW = b'{"n":1}'
LIVES = 5  # new, going on, ending, failing and tried again, going on the long way


async def mixed_commit(dsn: str, size: int) -> int:
    """The statements between BEGIN and COMMIT for a batch of that size, which is really committed."""
    program = _program()
    session = await Session.open(dsn)
    try:
        [clock] = await session.once(CLOCK)
        now = read_int(clock.get_value(0, 0) or b"")
        worker = os.urandom(16)
        alive = [_start(program) for _ in range(size)]
        for life in range(LIVES):
            for _ in range(_age(life)):
                await _commit(session, now, worker, [_go_on(program, i, now) for i in _every(alive, life)])
                alive = _aged(alive, life, program, now)
        return await _commit(session, now, worker, [_next(program, i, n % LIVES, now) for n, i in enumerate(alive)])
    finally:
        await session.close()


def _program() -> Program:
    names = ["a", "b", "end"]
    nodes = [{"id": n, "kind": "task", "handler": "work", "retry": {"calls": 3}} for n in names[:-1]]
    edges = [{"id": f"{a}>{b}", "source": a, "target": b} for a, b in pairwise(names)]
    graph = {"name": "mixed", "entry": "a", "nodes": [*nodes, {"id": "end", "kind": "end"}], "edges": edges}
    return link(compile_graph(load_graph(graph)), b"\x33" * 16)


def _start(program: Program) -> Instance:
    id = new_id("default", None, None)
    return Instance(id, "default", program.definition, "mixed", 1, 0, InstanceStatus.PENDING, EMPTY, RAW)


def _age(life: int) -> int:
    """How many decisions an instance has behind it before the commit that is counted."""
    return (0, 1, 2, 1, 1)[life]


def _every(alive: list[Instance], life: int) -> list[Instance]:
    return [i for n, i in enumerate(alive) if n % LIVES == life]


def _aged(alive: list[Instance], life: int, program: Program, now: int) -> list[Instance]:
    return [_go_on(program, i, now)[1].instance if n % LIVES == life else i for n, i in enumerate(alive)]


def _go_on(program: Program, before: Instance, now: int) -> tuple[Instance, Decision]:
    if not before.version:
        return before, decide(program, before, Started(RAW), Facts(now))
    token = before.state.tokens["0"]
    return before, decide(program, before, WorkDone("0", token.step, token.fence, RAW), Facts(now))


def _next(program: Program, before: Instance, life: int, now: int) -> tuple[Instance, Decision]:
    if life < 3:
        return _go_on(program, before, now)
    token = before.state.tokens["0"]
    if life == 4:
        _, decision = _go_on(program, before, now)
        return before, msgspec.structs.replace(decision, plain="")
    failed = WorkFailed("0", token.step, token.fence, Failure("OUT_OF_ORDER", "Try again."), 1, True, RAW)
    return before, decide(program, before, failed, Facts(now))


async def _commit(session: Session, now: int, worker: bytes, decided: list[tuple[Instance, Decision]]) -> int:
    new = NewInstance(RAW)
    entries = [Entry(before, [decision], None if before.version else new) for before, decision in decided]
    queries = writes(Batch(now, worker, lambda _: True, entries, [], [], [], []))
    await session.run([BEGIN, PIN, *queries, COMMIT])
    return len(queries)
