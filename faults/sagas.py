"""Sagas that go backwards, of every shape. What their handlers do, and how each is brought to its end, is in `crew`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

from faults.flows import CALLS
from holdfast import Branch, Engine, Flow, Retry, Undo

RETRY_DELAY: Final = 0.02
P = TypeVar("P", Flow, Branch)


@dataclass(frozen=True)
class Saga:
    """`out` are the steps whose handlers must be running before the trap is set, `pending` those that wait for their
    time then; all others have ended. `unsure` are those whose end depends on whether their worker lives to tell it:
    such a step is taken back, or was never known to have succeeded."""

    flow: Flow
    story: str = "runs_by_itself"
    out: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    unsure: frozenset[str] = field(default_factory=frozenset)

    @property
    def name(self) -> str:
        return self.flow.build().name


OFTEN = Retry(attempts=CALLS)


def undone(path: P, name: str, handler: str = "do", undo: str = "undo", retry: Retry = OFTEN) -> P:
    """Add a step with its compensation; `retry` is that of the compensation."""
    return path.step(name, handler, undo=Undo(undo, name=f"un_{name}", retry=retry), retry=OFTEN)


def _linear() -> Flow:
    flow = Flow("linear")
    for name in ("one", "two", "three", "four"):
        flow = undone(flow, name)
    return undone(flow, "wrong", "fail")


def _fork() -> Flow:
    flow = undone(Flow("fork"), "first")
    return flow.fork(
        "both",
        undone(undone(Branch(), "left"), "left_out", "linger"),
        undone(undone(Branch(), "right"), "wrong", "fail"),
        undone(Branch(), "right_out", "linger"),
        Branch().step("much_later", "do", undo=Undo("undo", name="un_much_later"), delay=3600),
    ).join("met", "all")


def _nested() -> Flow:
    inner = undone(Branch(), "before").fork("inner", undone(Branch(), "deep"), undone(Branch(), "deep_out", "linger"))
    chosen = Branch().condition("chosen", "input.amount > 100", otherwise=undone(Branch(), "small"))
    return undone(Flow("nested"), "first").fork(
        "outer",
        inner.join("inner_met", "all"),
        undone(chosen, "big"),
        undone(undone(Branch(), "beside"), "wrong", "fail"),
    ).join("outer_met", "all")  # fmt: skip


def _save_point() -> Flow:
    flow = undone(Flow("save_point"), "kept").save_point("here")
    return undone(undone(undone(flow, "one"), "two"), "wrong", "fail")


def _shaky() -> Flow:
    flow = undone(
        undone(Flow("shaky"), "one"), "two", undo="undo_shakily", retry=Retry(attempts=CALLS, delay=RETRY_DELAY)
    )
    return undone(flow, "wrong", "fail", "undo_shakily")


def _dead(name: str) -> Flow:
    """The compensation in the middle runs out of calls."""
    flow = undone(Flow(name), "one")
    return undone(undone(flow, "two", undo="undo_if_repaired", retry=Retry(attempts=2)), "wrong", "fail")


def _cancel() -> Flow:
    return undone(Flow("cancel"), "first").fork(
        "all",
        undone(undone(Branch(), "done"), "obeys", "wait_for_ever"),
        undone(Branch(), "obeys_in_a_thread", "wait_in_a_thread"),
        undone(Branch(), "finishes", "finish_when_told"),
        Branch().wait_event("nobody_comes"),
    ).join("met", "all")  # fmt: skip


def _race(name: str) -> Flow:
    flow = undone(Flow(name), "first").fork(
        "race", undone(Branch(), "fast", "overtake"), undone(Branch(), "slow", "finish_when_told")
    )
    return undone(undone(flow.join("won", "any"), "after"), "wrong", "fail")


def _dlq() -> Flow:
    flow = Flow("dlq", dlq=True).step("first", "do", retry=Retry(attempts=CALLS))
    flow = flow.fork(
        "both",
        Branch().step("wrong", "do_if_repaired", retry=Retry(attempts=CALLS)),
        Branch().step("beside", "do", retry=Retry(attempts=CALLS)),
        Branch().step("beside_out", "linger", retry=Retry(attempts=CALLS)),
    )
    return flow.join("met", "all").step("last", "do", retry=Retry(attempts=CALLS))


def _human() -> Flow:
    flow = undone(Flow("human"), "first").human("ask", undo=Undo("undo", name="un_ask", retry=Retry(attempts=CALLS)))
    return undone(flow, "wrong", "fail")


def _child() -> Flow:
    """A sub-flow that is under way is cancelled, and takes back its own steps before its parent goes on."""
    return undone(Flow("child"), "first").fork(
        "both", Branch().sub_flow("sub", "inside", undo=Undo("undo", name="un_sub", retry=Retry(attempts=CALLS))),
        undone(Branch(), "wrong", "fail"),
    ).join("met", "all")  # fmt: skip


INSIDE: Final = undone(undone(Flow("inside"), "inner"), "inner_out", "wait_for_ever")

SAGAS: Final = {
    saga.name: saga
    for saga in (
        Saga(_linear()),
        Saga(_fork(), out=("left_out", "right_out"), pending=("much_later",)),
        Saga(_nested(), out=("deep_out",)),
        Saga(_save_point()),
        Saga(_shaky()),
        Saga(_dead("dead")),
        Saga(_cancel(), "is_cancelled", ("obeys", "obeys_in_a_thread", "finishes"), unsure=frozenset({"finishes"})),
        Saga(_race("late")),
        Saga(_race("too_late"), out=("slow",), unsure=frozenset({"slow"})),
        Saga(_dlq(), "is_repaired", ("beside_out",)),
        Saga(_dead("repaired"), "is_undone_again"),
        Saga(_human(), "is_decided"),
        Saga(_child(), out=("inner_out",)),
    )
}


async def publish(engine: Engine) -> None:
    await engine.publish(INSIDE.build())
    for saga in SAGAS.values():
        await engine.publish(saga.flow.build())
