"""The saga builder: a flow written as one expression, each call answering a new, longer flow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from holdfast.doors.saga.builder import Path, verb
from holdfast.doors.saga.model import Definition, Function, is_same_function
from holdfast.doors.saga.normalise import settled_path
from holdfast.doors.saga.problems import Problem, problem, require_none
from holdfast.doors.saga.rules import check_flow, check_steps
from holdfast.doors.saga.shape import check_depth, check_shape


class Flow(Path):
    """`Flow("order").step("reserve", reserve).build()`. Mistakes are gathered and raised together by `build`."""

    __slots__ = ("_attempts", "_data", "_dlq", "_name", "_timeout", "_version")

    @verb
    def __init__(
        self,
        name: str,
        version: int = 1,
        *,
        dlq: bool = False,
        attempts: int = 1,
        timeout: float | None = None,
        data: Literal["value", "context"] = "value",
    ) -> None:
        """`attempts` counts calls, for steps and compensations that say nothing; `timeout` is for the whole instance;
        with `data="context"` results add up, and each step is given everything gathered so far."""
        super().__init__()
        self._name = name
        self._version = version
        self._dlq = dlq
        self._attempts = attempts
        self._timeout = timeout
        self._data = data

    def build(self) -> Definition:
        """The finished definition; a DefinitionError lists everything that is wrong in its `diagnostics`."""
        # What is nested too deep is not looked into: the walk itself would fail.
        require_none(self._name, tuple(check_depth(self._depth)))
        require_none(self._name, tuple(self._check()))
        return Definition(
            name=self._name,
            version=self._version,
            items=settled_path(self._items),
            handlers=dict(self._functions),
            dlq=self._dlq,
            retries=max(1, self._attempts),
            timeout=None if self._timeout is None else float(self._timeout),
            data=self._data,
        )

    def _check(self) -> Iterator[Problem]:
        options = {"dlq": self._dlq, "attempts": self._attempts, "timeout": self._timeout, "data": self._data}
        yield from check_flow(self._name, self._version, **options)
        yield from self._problems
        yield from check_shape(self._name, self._version, self._items)
        yield from check_steps(self._items)
        yield from self._ambiguous_handlers()

    def _ambiguous_handlers(self) -> Iterator[Problem]:
        known: dict[str, Function] = {}
        for name, function in self._functions:
            if not is_same_function(known.setdefault(name, function), function):
                message = f"Two different functions are called {name!r}; a handler's name must mean one of them."
                yield problem("HANDLER_AMBIGUOUS", message, f"handlers.{name}")
