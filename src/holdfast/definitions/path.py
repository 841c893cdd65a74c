"""The verbs of the builder. `Flow` and `Branch` share them; each call answers a new, longer path of the same type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, Literal, Self, cast

import msgspec

from holdfast.definitions import model
from holdfast.definitions.model import Compensation, Function, Item
from holdfast.definitions.options import NAMELESS
from holdfast.definitions.problems import Problem, problem

Handler = str | Function
Backoff = Literal["fixed", "linear", "exponential"]
Metadata = Mapping[str, Any]


class Path:
    """Steps one after another. Mistakes are kept and raised together by `Flow.build`."""

    __slots__ = ("_depth", "_functions", "_items", "_problems")

    def __init__(self) -> None:
        self._items: model.Items = ()
        self._functions: tuple[tuple[str, Function], ...] = ()
        self._problems: tuple[Problem, ...] = ()
        self._depth = 0  # how many branches stand inside each other

    def step(
        self,
        name: str,
        handler: Handler,
        *,
        retries: int | None = None,
        retry_delay: float = 0.0,
        max_delay: float = 3600.0,
        backoff: Backoff = "fixed",
        jitter: float = 0.0,
        timeout: float | None = None,
        deadline: float | None = None,
        delay: float = 0.0,
        idempotent: bool = True,
        priority: int = 50,
        queue: str | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Call a handler; its result is the next step's input. A function is known by its own name from then on."""
        step = model.Step(
            name=name,
            handler=_name_of(handler),
            retries=retries,
            retry_delay=retry_delay,
            max_delay=max_delay,
            backoff=backoff,
            jitter=jitter,
            timeout=timeout,
            deadline=deadline,
            delay=delay,
            idempotent=idempotent,
            priority=priority,
            queue=queue,
            metadata=_own(metadata),
        )
        return self._with(step)._knowing(handler)

    then = step

    def on_failure(
        self,
        name: str,
        handler: Handler,
        *,
        retries: int | None = None,
        retry_delay: float = 0.0,
        max_delay: float = 3600.0,
        backoff: Backoff = "fixed",
        jitter: float = 0.0,
        timeout: float | None = None,
        idempotent: bool = True,
        priority: int = 50,
        queue: str | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Say how the step before is undone. Only a rollback calls it; it gets the step's input and output."""
        undo = Compensation(
            name=name,
            handler=_name_of(handler),
            retries=retries,
            retry_delay=retry_delay,
            max_delay=max_delay,
            backoff=backoff,
            jitter=jitter,
            timeout=timeout,
            idempotent=idempotent,
            priority=priority,
            queue=queue,
            metadata=_own(metadata),
        )
        undone = self._items[-1] if self._items else None
        if not isinstance(undone, model.UNDOABLE):
            before = "nothing" if undone is None else f"a {type(undone).__struct_config__.tag}"
            return self._refusing("COMPENSATION_MISPLACED", f"The compensation {name!r} stands behind {before}.", name)
        if undone.undo is not None:
            message = f"The step {undone.name!r} has two compensations, {undone.undo.name!r} and {name!r}."
            return self._refusing("COMPENSATION_MISPLACED", message, name)
        longer = copy(self)
        longer._items = (*self._items[:-1], msgspec.structs.replace(undone, undo=undo))
        return longer._knowing(handler)

    def human(
        self,
        name: str,
        *,
        form: Mapping[str, Any] | None = None,
        roles: Iterable[str] = (),
        due: float | None = None,
        priority: int = 50,
        metadata: Metadata | None = None,
    ) -> Self:
        """Open a task and wait until a person decides it. What they confirm goes on; what they reject ends the flow."""
        asked = None if form is None else _own(form)
        return self._with(
            model.Human(
                name=name, form=asked, roles=_tuple(roles), due=due, priority=priority, metadata=_own(metadata)
            )
        )  # fmt: skip

    def wait_event(
        self,
        name: str,
        event: str | None = None,
        *,
        key: str | None = None,
        early: bool = False,
        deadline: float | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Wait for an event, called like the step unless said otherwise; its payload is the next step's input."""
        event = name if event is None else event
        return self._with(
            model.WaitEvent(
                name=name, event=event, key=key, early=early, deadline=deadline, metadata=_own(metadata)
            )
        )  # fmt: skip

    def sleep(
        self,
        name: str,
        seconds: float | None = None,
        *,
        after: str | None = None,
        until: str | None = None,
        cron: str | None = None,
        timezone: str | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Wait: for a number of seconds, or for what an expression gives, or for the next match of a cron line."""
        return self._with(
            model.Sleep(
                name=name, seconds=seconds, after=after, until=until, cron=cron, timezone=timezone,
                metadata=_own(metadata),
            )
        )  # fmt: skip

    def sub_flow(
        self,
        name: str,
        flow: str,
        version: int | None = None,
        *,
        input: Mapping[str, str] | None = None,
        deadline: float | None = None,
        metadata: Metadata | None = None,
    ) -> Self:
        """Start another flow, the newest version unless said otherwise, and go on with its result."""
        mapping = None if input is None else _own(input)
        return self._with(
            model.SubFlow(
                name=name, flow=flow, version=version, input=mapping, deadline=deadline, metadata=_own(metadata)
            )
        )  # fmt: skip

    def save_point(self, name: str, *, metadata: Metadata | None = None) -> Self:
        """A failure behind this point undoes what came after it, and nothing before."""
        return self._with(model.SavePoint(name=name, metadata=_own(metadata)))

    def condition(
        self, name: str, expression: str, otherwise: Branch | None = None, *, metadata: Metadata | None = None
    ) -> Self:
        """True: what follows. False: `otherwise`, and without one this way is over."""
        asked = model.Condition(name=name, expression=expression, metadata=_own(metadata))
        if otherwise is None:
            return self._with(asked)
        if not isinstance(otherwise, Branch):  # pyright: ignore[reportUnnecessaryIsInstance]
            message = f"The `otherwise` of {name!r} is {type(otherwise).__name__}, not Branch."
            return self._with(asked)._refusing("BRANCH_INVALID", message, name)
        return self._with(msgspec.structs.replace(asked, otherwise=otherwise._items), (otherwise,))

    def rejoin(self) -> Self:
        """The ways of the innermost open condition meet here; at the end of an `otherwise`: it comes back."""
        return self._with(model.Rejoin())

    def fork(self, name: str, *branches: Branch, metadata: Metadata | None = None) -> Self:
        """Run branches side by side, each with a copy of the value. `join` follows, unless the flow ends in them."""
        sound, complaints = _sorted_out(name, [(branch, None) for branch in branches])
        paths = tuple(branch._items for branch in sound)
        fork = model.Fork(name=name, branches=paths, metadata=_own(metadata))
        return self._with(fork, sound, complaints)

    def parallel(
        self, name: str, *tasks: Branch | Function | tuple[str, Handler], metadata: Metadata | None = None
    ) -> Self:
        """A fork of single handlers or branches that waits for all of them, unless a `join` says otherwise."""
        sound, complaints = _sorted_out(name, [(task, _task(task)) for task in tasks])
        paths = tuple(branch._items for branch in sound)
        return self._with(model.Parallel(name=name, branches=paths, metadata=_own(metadata)), sound, complaints)

    def join(self, name: str, mode: Literal["all", "any"] = "all", *, metadata: Metadata | None = None) -> Self:
        """Go on when all branches of the fork before are done, or with the first that completes."""
        return self._with(model.Join(name=name, mode=mode, metadata=_own(metadata)))

    def _with(self, item: Item, inner: tuple[Branch, ...] = (), complaints: tuple[Problem, ...] = ()) -> Self:
        longer = copy(self)
        longer._items = (*self._items, item)
        longer._functions = (*self._functions, *(known for branch in inner for known in branch._functions))
        longer._problems = (*self._problems, *complaints, *(found for branch in inner for found in branch._problems))
        longer._depth = max(self._depth, *(branch._depth + 1 for branch in inner)) if inner else self._depth
        return longer

    def _knowing(self, handler: Handler) -> Self:
        if callable(handler) and (name := _name_of(handler)) != NAMELESS:
            self._functions = (*self._functions, (name, handler))
        return self

    def _refusing(self, code: str, message: str, name: str) -> Self:
        refused = copy(self)
        refused._problems = (*self._problems, problem(code, message, f"steps.{name}"))
        return refused


class Branch(Path):
    """A path inside a flow: `Branch().step("ship", ship)`, for `fork`, `parallel` and `condition`."""

    __slots__ = ()


def _sorted_out(name: str, given: list[tuple[Any, Branch | None]]) -> tuple[tuple[Branch, ...], tuple[Problem, ...]]:
    """The branches among what was given, and a complaint for everything that is none."""
    branches = [(what, what if isinstance(what, Branch) else made) for what, made in given]
    complaints = [
        problem("BRANCH_INVALID", f"Branch {number} of {name!r} is {_wrong_branch(what)}.", f"steps.{name}")
        for number, (what, branch) in enumerate(branches, 1)
        if branch is None
    ]
    return tuple(branch for _, branch in branches if branch is not None), tuple(complaints)


def _wrong_branch(what: Any) -> str:
    return (
        "a lambda or an object without a name" if _name_of(what) == NAMELESS else f"{type(what).__name__}, not Branch"
    )


def _task(task: Any) -> Branch | None:
    if isinstance(task, tuple) and len(cast(tuple[Any, ...], task)) == 2:
        name, handler = cast(tuple[Any, Any], task)
        return Branch().step(name, handler)
    is_named = callable(cast(Any, task)) and _name_of(task) != NAMELESS
    return Branch().step(_name_of(task), cast(Function, task)) if is_named else None


def _name_of(handler: Any) -> Any:
    """A lambda or a callable object has no name that another process could find it by: refused by build."""
    return getattr(handler, "__name__", NAMELESS) if callable(handler) else handler


def _own(metadata: Any) -> Any:
    return dict(metadata) if isinstance(metadata, Mapping) else {} if metadata is None else metadata  # pyright: ignore


def _tuple(roles: Any) -> Any:
    """One role may be given as it is; what cannot be read as several is left for build to refuse."""
    return (roles,) if isinstance(roles, str) else tuple(roles) if isinstance(roles, Iterable) else roles  # pyright: ignore
