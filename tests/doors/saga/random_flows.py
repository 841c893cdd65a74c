"""Random valid sagas: forks nested to any depth, conditions and rejoins, save points, people, compensations.

`flows()` is a Hypothesis strategy; `seeded_flow(7)` gives the same flow for the same seed wherever it runs. All steps
call the handler `work`, all compensations `undo`: what a handler shall do is decided by the name of its step.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Literal, TypeVar

from hypothesis import strategies as st

from holdfast.doors.saga import Branch, Flow, Retry, Undo

WORK = "work"
UNDO = "undo"
CONDITIONS = (
    "input.n > 1",
    "input.n <= 2 && input.ok == true",
    "input.kind in ['a', 'b']",
    "input.completed >= 2 || input.n == 0",
    "!(input.ok == true)",
)
Pick = Callable[[int, int], int]  # a whole number between two others, both included
PathT = TypeVar("PathT", Flow, Branch)


class Shape:
    """How large and of what a flow is made."""

    def __init__(
        self,
        *,
        depth: int = 4,
        size: int = 14,
        widest: int = 3,
        waits: bool = True,
        humans: bool = True,
        compensations: bool = True,
        delays: bool = False,
        loose_forks: bool = True,
    ) -> None:
        self.depth = depth  # forks and conditions inside each other
        self.size = size  # about how many steps; nesting stops when they are used up
        self.widest = widest  # branches of a fork
        self.waits = waits  # events, timers, sub-flows
        self.humans = humans
        self.compensations = compensations
        self.delays = delays  # steps that wait before a call or between two
        self.loose_forks = loose_forks  # forks without a join, where the flow ends in them


class Writer:
    def __init__(self, pick: Pick, shape: Shape) -> None:
        self.pick = pick
        self.shape = shape
        self.left = shape.size
        self.names = 0

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def maybe(self, of: int = 3) -> bool:
        return self.pick(1, of) == of

    def one_of(self, *choices: Any) -> Any:
        return choices[self.pick(0, len(choices) - 1)]

    def flow(self, flow: Flow) -> Flow:
        flow = self.path(flow, 0, is_top=True)
        if self.shape.loose_forks and self.left > 0 and self.maybe(6):
            return flow.fork(self.name("fork"), *self.branches(1))
        return flow

    def path(self, path: PathT, depth: int, *, is_top: bool = False) -> PathT:
        open_conditions = 0
        for _ in range(self.pick(1, 4 if is_top else 3)):
            path, opened = self.item(path, depth, is_top=is_top)
            open_conditions += opened
            if open_conditions and self.maybe():
                path = path.rejoin()
                open_conditions -= 1
        return path

    def otherwise(self, depth: int) -> Branch | None:
        if self.maybe(4):
            return None
        branch = self.path(Branch(), depth)
        if self.maybe(2):
            return branch
        for _ in range(_open_conditions(branch) + 1):
            branch = branch.rejoin()
        return branch

    def branches(self, depth: int) -> list[Branch]:
        return [self.path(Branch(), depth) for _ in range(self.pick(2, self.shape.widest))]

    def item(self, path: PathT, depth: int, *, is_top: bool) -> tuple[PathT, int]:
        self.left -= 1
        kinds = ["step", "step", "step"]
        kinds += ["human"] if self.shape.humans else []
        kinds += ["event", "sleep", "child"] if self.shape.waits else []
        kinds += ["save_point"] if is_top else []
        kinds += (
            ["fork", "fork", "parallel", "condition", "condition"] if depth < self.shape.depth and self.left > 0 else []
        )
        kind: str = self.one_of(*kinds)
        if kind == "condition":
            return path.condition(self.name("cond"), self.one_of(*CONDITIONS), self.otherwise(depth + 1)), 1
        return self.simple(path, kind, depth), 0

    def simple(self, path: PathT, kind: str, depth: int) -> PathT:
        name = self.name(kind)
        if kind == "fork":
            return path.fork(name, *self.branches(depth + 1)).join(f"{name}_join", self.mode())
        if kind == "parallel":
            pairs = [(self.name("task"), WORK) for _ in range(self.pick(2, self.shape.widest))]
            path = path.parallel(name, *pairs)
            return path.join(f"{name}_join", self.mode()) if self.maybe() else path
        if kind == "save_point":
            return path.save_point(name)
        if kind == "sleep":
            return path.sleep(name, self.pick(0, 20))
        if kind == "step":
            path = path.step(name, WORK, **self.options(), idempotent=not self.maybe(8), undo=self.undo(name))
        if kind == "human":
            roles, due = ["boss"] if self.maybe(2) else [], 30 if self.maybe(4) else None
            path = path.human(name, roles=roles, due=due, undo=self.undo(name))
        if kind == "event":
            path = path.wait_event(name, self.one_of(None, "ping"), early=self.maybe(2), undo=self.undo(name))
        if kind == "child":
            path = path.sub_flow(name, "child", undo=self.undo(name))
        return path

    def undo(self, name: str) -> Undo | None:
        if not (self.shape.compensations and self.maybe(2)):
            return None
        return Undo(UNDO, name=f"undo_{name}", retry=Retry(attempts=self.one_of(None, 1, 3)))

    def options(self) -> dict[str, Any]:
        pauses = {"delay": self.pick(0, 3), "backoff": self.one_of("fixed", "linear", "exponential")}
        late = {"delay": self.pick(0, 2)}
        retry = Retry(attempts=self.one_of(None, 1, 2, 3), **(pauses if self.shape.delays else {}))
        return {"retry": retry, "priority": self.pick(0, 100), **(late if self.shape.delays else {})}

    def mode(self) -> Literal["all", "any"]:
        return "any" if self.maybe(4) else "all"


def _open_conditions(path: Branch | Flow) -> int:
    from holdfast.doors.saga.branch_merges import match_rejoins
    from holdfast.doors.saga.model import Condition

    conditions = sum(isinstance(item, Condition) for item in path._items)
    return conditions - len(match_rejoins(path._items).closed)


def write_flow(pick: Pick, shape: Shape, name: str = "random", **options: Any) -> Flow:
    return Writer(pick, shape).flow(Flow(name, **options))


def seeded_flow(seed: int, shape: Shape | None = None, **options: Any) -> Flow:
    return write_flow(Random(seed).randint, shape or Shape(), f"random-{seed}", **options)


@st.composite
def flows(draw: Callable[[st.SearchStrategy[Any]], Any], shape: Shape | None = None) -> Flow:
    def pick(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    timeout = 500 if pick(1, 6) == 6 else None
    options = {"dlq": pick(1, 4) == 4, "attempts": pick(1, 3), "timeout": timeout}
    return write_flow(pick, shape or Shape(), **options)
